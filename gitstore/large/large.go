// Package large keeps the large blobs that no finished pack holds yet: each has a pack
// of its own in journal/ until its commit is published.
package large

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

// Blob is one blob in a pack of its own, in journal/ until the next
// Publish after its commit. Several drafts may prepare the same content.
type Blob struct {
	set       *Set
	id        object.ID
	name      string // below the root, without suffix
	sum       [20]byte
	object    string // in a sink's store
	f         *packset.File
	refs      int // drafts that hold it
	committed bool
}

// Set is the large blobs that no pack of objects/pack holds yet.
type Set struct {
	Packs *packset.Set
	mu    sync.Mutex
	m     map[object.ID]*Blob
}

// Write prepares a blob of any size, durable when it returns, and its SHA-256.
func (ls *Set) Write(ctx context.Context, r io.ReaderAt, size int64) (l *Blob, id object.ID, sha [sha256.Size]byte, err error) {
	name := packset.NewName()
	h := sha256.New()
	src := io.TeeReader(pace.Reader(ctx, io.NewSectionReader(r, 0, size)), h)
	id, sum, err := ls.Packs.Write(name, func(w *pack.Writer) (object.ID, error) { return w.AddStream(object.Blob, size, src) })
	if err != nil {
		ls.Packs.RemovePrepared(name)
		return nil, id, sha, err
	}
	stored, err := ls.put(ctx, name)
	if err != nil {
		ls.Packs.RemovePrepared(name)
		return nil, id, sha, err
	}
	h.Sum(sha[:0])
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if old := ls.m[id]; old != nil {
		ls.Packs.RemovePrepared(name)
		old.refs++
		return old, id, sha, nil
	}
	if l, err = ls.open(name, sum); err != nil {
		ls.Packs.RemovePrepared(name)
		return nil, id, sha, err
	}
	l.refs, l.object = 1, stored
	return l, id, sha, nil
}

// put puts a blob's pack into the sink's store; the group that commits it names it.
func (ls *Set) put(ctx context.Context, name string) (string, error) {
	if ls.Packs.Held == nil {
		return "", nil
	}
	return ls.Packs.Held.PutPack(ctx, ls.Packs.FS, name+storedir.Prepared, name+storedir.Idx)
}

// PutAgain puts a blob's pack again whose name in the sink's store was too old.
func (l *Blob) PutAgain(ctx context.Context) (string, error) {
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
func (ls *Set) open(name string, sum [20]byte) (*Blob, error) {
	p, err := pack.Open(ls.Packs.FS, name+storedir.Prepared, name+storedir.Idx, pack.Options{Verify: true})
	if err != nil {
		return nil, err
	}
	l := &Blob{set: ls, name: name, sum: sum, f: packset.NewFile(name, p, 1)}
	for e, err := range p.Entries() {
		if err != nil {
			p.Close()
			return nil, err
		}
		l.id = e.ID
	}
	if ls.m == nil {
		ls.m = make(map[object.ID]*Blob)
	}
	ls.m[l.id] = l
	return l, nil
}

// Load opens what a start finds, checked by trailer and index; what is not
// whole was never committed.
func (ls *Set) Load() error {
	names, err := ls.Packs.FS.ReadDir(journal.Dir)
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
			ls.Packs.RemovePrepared(name)
			continue
		}
		if err != nil {
			return err
		}
		l.sum = l.f.Pack.Checksum()
		if err := l.f.Pack.VerifyChecksum(); errors.Is(err, pack.ErrCorrupt) {
			delete(ls.m, l.id)
			l.f.Release()
			ls.Packs.RemovePrepared(name)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Holding gives the pack of a blob, to be released by the caller; nil if there is none.
func (ls *Set) Holding(id object.ID) *packset.File {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[id]
	if l == nil {
		return nil
	}
	l.f.Hold()
	return l.f
}

// Commit marks the blob as needed by history.
func (l *Blob) Commit() {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.committed = true
	l.refs--
}

// Drop gives up a draft's hold on the blob; one that no draft holds and no commit needs goes.
func (l *Blob) Drop() {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	l.refs--
	l.set.dropUnused(l)
}

func (ls *Set) dropUnused(l *Blob) {
	if l.refs > 0 || l.committed || ls.m[l.id] != l {
		return
	}
	delete(ls.m, l.id)
	l.f.Release()
	ls.Packs.RemovePrepared(l.name)
}

// Sweep drops what a start found and no replayed commit needs.
func (ls *Set) Sweep() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		ls.dropUnused(l)
	}
}

// Publish links the committed ones into objects/pack. through is the number of the
// newest commit; placed is called with the names in journal/ that are not needed any
// more.
func (ls *Set) Publish(through uint64, placed func(names ...string)) error {
	ls.mu.Lock()
	var todo []*Blob
	stored := make(map[*Blob]string)
	for _, l := range ls.m {
		if l.committed {
			todo = append(todo, l)
			stored[l] = l.object
		}
	}
	ls.mu.Unlock()
	for _, l := range todo {
		if _, err := ls.Packs.Link(l.name+storedir.Prepared, l.name+storedir.Idx, l.sum, packset.Keep{Through: through, Object: stored[l]}); err != nil {
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

// Close releases the blobs' packs.
func (ls *Set) Close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		l.f.Release()
	}
	ls.m = nil
}

// Keep marks a large blob that a replayed commit needs; false if there is none.
func (ls *Set) Keep(id object.ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[id]
	if l != nil {
		l.committed = true
	}
	return l != nil
}

// Unnamed reports whether no group has named the blob's pack yet.
func (l *Blob) Unnamed() bool {
	l.set.mu.Lock()
	defer l.set.mu.Unlock()
	return !l.committed
}

// Waits reports whether a blob that a commit needs is in no pack of objects/pack
// yet.
func (ls *Set) Waits() bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		if l.committed {
			return true
		}
	}
	return false
}

// Bytes gives the size of the large blobs' packs that objects/pack does not have
// yet.
func (ls *Set) Bytes() (n int64) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		n += l.f.Pack.FileBytes()
	}
	return n
}

// Stored returns the blob's name in a sink's store.
func (l *Blob) Stored() string { return l.object }

// File gives the blob's pack, for as long as the blob is held.
func (l *Blob) File() *packset.File { return l.f }
