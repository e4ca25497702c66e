// Package large keeps the large blobs that no finished pack holds yet: each has a pack
// of its own in journal/ until its commit is published.
package gitstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/pace"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/gitstore/storedir"
)

// largeBlob is one blob in a pack of its own, in journal/ until the next
// Publish after its commit. Several drafts may prepare the same content.
type largeBlob struct {
	set       *largeSet
	id        object.ID
	name      string // below the root, without suffix
	sum       [20]byte
	object    string // in a sink's store
	f         *packset.File
	refs      int // drafts that hold it
	committed bool
}

// largeSet is the large blobs that no pack of objects/pack holds yet.
type largeSet struct {
	packs *packset.Set
	mu    sync.Mutex
	m     map[object.ID]*largeBlob
}

// write prepares a blob of any size, durable when it returns, and its SHA-256.
func (ls *largeSet) write(ctx context.Context, r io.ReaderAt, size int64) (l *largeBlob, id object.ID, sha [sha256.Size]byte, err error) {
	name := packset.NewName()
	h := sha256.New()
	src := io.TeeReader(pace.Reader(ctx, io.NewSectionReader(r, 0, size)), h)
	id, sum, err := ls.packs.Write(name, func(w *pack.Writer) (object.ID, error) { return w.AddStream(object.Blob, size, src) })
	if err != nil {
		ls.packs.RemovePrepared(name)
		return nil, id, sha, err
	}
	stored, err := ls.put(ctx, name)
	if err != nil {
		ls.packs.RemovePrepared(name)
		return nil, id, sha, err
	}
	h.Sum(sha[:0])
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if old := ls.m[id]; old != nil {
		ls.packs.RemovePrepared(name)
		old.refs++
		return old, id, sha, nil
	}
	if l, err = ls.open(name, sum); err != nil {
		ls.packs.RemovePrepared(name)
		return nil, id, sha, err
	}
	l.refs, l.object = 1, stored
	return l, id, sha, nil
}

// put puts a blob's pack into the sink's store; the group that commits it names it.
func (ls *largeSet) put(ctx context.Context, name string) (string, error) {
	if ls.packs.Held == nil {
		return "", nil
	}
	return ls.packs.Held.PutPack(ctx, ls.packs.FS, name+storedir.Prepared, name+storedir.Idx)
}

// putAgain puts a blob's pack again whose name in the sink's store was too old.
func (l *largeBlob) putAgain(ctx context.Context) (string, error) {
	name, err := l.set.put(ctx, l.name)
	if err != nil {
		return "", err
	}
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.object = name
	return name, nil
}

// open adds a finished pack of one blob; mu is held.
func (ls *largeSet) open(name string, sum [20]byte) (*largeBlob, error) {
	p, err := pack.Open(ls.packs.FS, name+storedir.Prepared, name+storedir.Idx, pack.Options{Verify: true})
	if err != nil {
		return nil, err
	}
	l := &largeBlob{set: ls, name: name, sum: sum, f: packset.NewFile(name, p, 1)}
	for e, err := range p.Idx().All() {
		if err != nil {
			p.Close()
			return nil, err
		}
		l.id = e.ID
	}
	if ls.m == nil {
		ls.m = make(map[object.ID]*largeBlob)
	}
	ls.m[l.id] = l
	return l, nil
}

// load opens what a start finds, checked by trailer and index; what is not
// whole was never committed.
func (ls *largeSet) load() error {
	names, err := ls.packs.FS.ReadDir(journal.Dir)
	if err != nil {
		return err
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, storedir.Prepared)
		if !ok {
			continue
		}
		name := path.Join(journal.Dir, base)
		l, err := ls.open(name, [20]byte{})
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, pack.ErrCorrupt) {
			ls.packs.RemovePrepared(name)
			continue
		}
		if err != nil {
			return err
		}
		if l.sum, err = l.f.Pack.Checksum(); err != nil {
			return err
		}
		if err := l.f.Pack.VerifyChecksum(); errors.Is(err, pack.ErrCorrupt) {
			delete(ls.m, l.id)
			l.f.Release()
			ls.packs.RemovePrepared(name)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (ls *largeSet) holding(id object.ID) *packset.File {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[id]
	if l == nil {
		return nil
	}
	l.f.Hold()
	return l.f
}

// commit marks the blob as needed by history.
func (l *largeBlob) commit() {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.committed = true
	l.refs--
}

func (l *largeBlob) drop() {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.refs--
	l.set.dropUnused(l)
}

func (ls *largeSet) dropUnused(l *largeBlob) {
	if l.refs > 0 || l.committed || ls.m[l.id] != l {
		return
	}
	delete(ls.m, l.id)
	l.f.Release()
	ls.packs.RemovePrepared(l.name)
}

// sweep drops what a start found and no replayed commit needs.
func (ls *largeSet) sweep() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		ls.dropUnused(l)
	}
}

// publish links the committed ones into objects/pack. through is the number of the
// newest commit; placed is called with the names in journal/ that are not needed any
// more.
func (ls *largeSet) publish(through uint64, placed func(names ...string)) error {
	ls.mu.Lock()
	var todo []*largeBlob
	stored := make(map[*largeBlob]string)
	for _, l := range ls.m {
		if l.committed {
			todo = append(todo, l)
			stored[l] = l.object
		}
	}
	ls.mu.Unlock()
	for _, l := range todo {
		if _, err := ls.packs.Link(l.name+storedir.Prepared, l.name+storedir.Idx, l.sum, packset.Keep{Through: through, Object: stored[l]}); err != nil {
			return err
		}
		// A draft that prepared the same content meanwhile finds it in the pack.
		ls.mu.Lock()
		delete(ls.m, l.id)
		ls.mu.Unlock()
		l.f.Release()
		placed(l.name+storedir.Prepared, l.name+storedir.Idx)
	}
	return nil
}

func (ls *largeSet) close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		l.f.Release()
	}
	ls.m = nil
}

// keep marks a large blob that a replayed commit needs; false if there is none.
func (ls *largeSet) keep(id object.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[id]
	if l != nil {
		l.committed = true
	}
	return l != nil
}

// unnamed reports whether no group has named the blob's pack yet.
func (l *largeBlob) unnamed() bool {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	return !l.committed
}

// waits reports whether a blob that a commit needs is in no pack of objects/pack
// yet.
func (ls *largeSet) waits() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		if l.committed {
			return true
		}
	}
	return false
}

// bytes gives the size of the large blobs' packs that objects/pack does not have
// yet.
func (ls *largeSet) bytes() (n int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		n += l.f.Pack.FileBytes()
	}
	return n
}

// stored returns the blob's name in a sink's store.
func (l *largeBlob) stored() string { return l.object }

// file gives the blob's pack, for as long as the blob is held.
func (l *largeBlob) file() *packset.File { return l.f }
