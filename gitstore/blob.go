package gitstore

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"

	"umbra/gitstore/packset"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// Blob is content prepared for a commit.
type Blob struct {
	id    ID
	size  int64
	bad   bool // part of a SHA-1 collision; never committed
	sum   [sha256.Size]byte
	entry []byte     // its pack entry; nil where history has it, or large or later does
	later []byte     // the bytes of one that is compressed when it is committed
	large *largeBlob // a pack of its own
}

// ID gives the blob's object id.
func (b Blob) ID() ID { return b.id }

// Size gives its length in bytes.
func (b Blob) Size() int64 { return b.size }

// Err returns an error with the code "sha1_collision" for content that must not
// be committed, nil for any other.
func (b Blob) Err() error {
	if !b.bad {
		return nil
	}
	return collision(object.ErrCollision)
}

// collision gives object.ErrCollision its code. Other errors are returned as
// they are.
func collision(err error) error {
	if !errors.Is(err, object.ErrCollision) {
		return err
	}
	return &errs.Error{Kind: errs.Unprocessable, Code: "sha1_collision",
		Detail: "The content is part of a SHA-1 collision: git could not distinguish it from other content.", Err: err}
}

// Open reads the bytes of a blob that was prepared and is not committed yet.
func (b Blob) Open() (io.ReadCloser, error) {
	if b.large != nil {
		_, _, r, err := b.large.f.Pack.Stream(b.id)
		return r, err
	}
	data, err := b.later, error(nil)
	if b.entry != nil {
		_, data, err = pack.InflateWhole(b.entry)
	}
	return io.NopCloser(bytes.NewReader(data)), err
}

// SHA256 returns the hash for After-Hash.
func (b Blob) SHA256() [sha256.Size]byte { return b.sum }

// AfterHash gives the value of an After-Hash trailer.
func (b Blob) AfterHash() string { return "sha256:" + hex.EncodeToString(b.sum[:]) }

// NewBlob hashes and compresses bytes, without I/O, so that callers can do it
// concurrently. The whole entry is kept in memory until the commit: larger
// content goes through StreamBlob. Callers check Err.
func (s *Store) NewBlob(data []byte) Blob {
	id, err := object.HashChecked(object.Blob, data)
	return Blob{id: id, bad: err != nil, size: int64(len(data)), sum: sha256.Sum256(data),
		entry: pack.AppendEntry(nil, object.Blob, data, pack.Fast)}
}

// LaterBlob is NewBlob for content that often proves to be what the file holds
// already: it is hashed now, and compressed by the Commit that needs it. The bytes
// must stay as they are until then.
func (s *Store) LaterBlob(data []byte) Blob {
	if len(data) == 0 {
		return s.NewBlob(data)
	}
	id, err := object.HashChecked(object.Blob, data)
	return Blob{id: id, bad: err != nil, size: int64(len(data)), sum: sha256.Sum256(data), later: data}
}

// pack compresses what is left to the commit, in the goroutine of who commits.
func (d *Draft) pack() {
	for i := range d.Edits {
		if b := &d.Edits[i].Blob; b.later != nil {
			b.entry, b.later = pack.AppendEntry(nil, object.Blob, b.later, pack.Fast), nil
		}
	}
}

// HeldBlob takes a blob that history has and whose bytes are at hand: it is not
// written once more. ErrCorrupt if they are not its bytes.
func (s *Store) HeldBlob(id ID, data []byte) (Blob, error) {
	if object.Hash(object.Blob, data) != id {
		return Blob{}, errs.Wrap(fmt.Errorf("%w: object %v has other bytes", pack.ErrCorrupt, id), "")
	}
	return Blob{id: id, size: int64(len(data)), sum: sha256.Sum256(data)}, nil
}

// ExistingBlob takes a blob that history has; it is read once for its SHA-256.
func (s *Store) ExistingBlob(ctx context.Context, id ID) (Blob, error) {
	r, size, err := s.OpenBlob(ctx, id)
	if err != nil {
		return Blob{}, err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return Blob{}, errs.Wrap(err, "")
	}
	b := Blob{id: id, size: size}
	h.Sum(b.sum[:0])
	return b, nil
}

// StreamBlob takes content of any size in constant memory. Above
// Options.InlineBlob it is written to a pack of its own, durable when this
// returns; Discard must be called for one that is not committed after all.
func (s *Store) StreamBlob(ctx context.Context, r io.ReaderAt, size int64) (Blob, error) {
	if size <= s.opt.InlineBlob {
		data := make([]byte, size)
		if n, err := r.ReadAt(data, 0); int64(n) < size {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Blob{}, errs.Wrap(err, "")
		}
		b := s.NewBlob(data)
		return b, b.Err()
	}
	return s.large.write(ctx, r, size)
}

// Discard drops a prepared blob that will not be committed. For others it does
// nothing.
func (s *Store) Discard(b Blob) {
	if b.large != nil {
		b.large.drop()
	}
}

// largeBlob is one blob in a pack of its own, in journal/ until the next
// Publish after its commit. Several drafts may prepare the same content.
type largeBlob struct {
	set       *largeSet
	id        ID
	name      string // below the root, without suffix
	sum       [20]byte
	object    string // in a sink's store
	f         *packset.File
	refs      int // drafts that hold it
	committed bool
}

// largeSet is the large blobs that no pack of objects/pack holds yet.
type largeSet struct {
	s  *Store
	mu sync.Mutex
	m  map[ID]*largeBlob
}

// cancellable stops a long read when the caller is gone.
type cancellable struct {
	ctx context.Context
	r   io.Reader
}

func (c cancellable) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func (ls *largeSet) write(ctx context.Context, r io.ReaderAt, size int64) (Blob, error) {
	name := packset.NewName()
	sha := sha256.New()
	src := io.TeeReader(cancellable{ctx, io.NewSectionReader(r, 0, size)}, sha)
	id, sum, err := ls.s.packs.Write(name, func(w *pack.Writer) (ID, error) { return w.AddStream(object.Blob, size, src) })
	if err != nil {
		ls.s.packs.RemovePrepared(name)
		return Blob{}, errs.Wrap(collision(err), "")
	}
	stored, err := ls.s.putLarge(ctx, name)
	if err != nil {
		ls.s.packs.RemovePrepared(name)
		return Blob{}, errs.Wrap(err, "")
	}
	b := Blob{id: id, size: size}
	sha.Sum(b.sum[:0])
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if old := ls.m[id]; old != nil {
		ls.s.packs.RemovePrepared(name)
		old.refs++
		b.large = old
		return b, nil
	}
	l, err := ls.open(name, sum)
	if err != nil {
		ls.s.packs.RemovePrepared(name)
		return Blob{}, errs.Wrap(err, "")
	}
	l.refs, l.object = 1, stored
	b.large = l
	return b, nil
}

// open adds a finished pack of one blob; mu is held.
func (ls *largeSet) open(name string, sum [20]byte) (*largeBlob, error) {
	p, err := pack.Open(ls.s.fs, name+storedir.Prepared, name+storedir.Idx, pack.Options{Verify: true})
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
		ls.m = make(map[ID]*largeBlob)
	}
	ls.m[l.id] = l
	return l, nil
}

// load opens what a start finds, checked by trailer and index; what is not
// whole was never committed.
func (ls *largeSet) load() error {
	names, err := ls.s.fs.ReadDir(journal.Dir)
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
			ls.s.packs.RemovePrepared(name)
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
			ls.s.packs.RemovePrepared(name)
		} else if err != nil {
			return err
		}
	}
	return nil
}

func (ls *largeSet) holding(id ID) *packset.File {
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
	ls.s.packs.RemovePrepared(l.name)
}

// sweep drops what a start found and no replayed commit needs.
func (ls *largeSet) sweep() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.m {
		ls.dropUnused(l)
	}
}

// publish links the committed ones into objects/pack.
func (ls *largeSet) publish() error {
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
		if _, err := ls.s.packs.Link(l.name+storedir.Prepared, l.name+storedir.Idx, l.sum, packset.Keep{Through: ls.s.Tip().Seq, Object: stored[l]}); err != nil {
			return err
		}
		// A draft that prepared the same content meanwhile finds it in the pack.
		ls.mu.Lock()
		delete(ls.m, l.id)
		ls.mu.Unlock()
		l.f.Release()
		ls.s.pub.unlinkLater(l.name+storedir.Prepared, l.name+storedir.Idx)
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
func (ls *largeSet) keep(id ID) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.m[id]
	if l != nil {
		l.committed = true
	}
	return l != nil
}

// newBlobHash begins the hash that is a blob's id.
func newBlobHash(size int64) hash.Hash {
	h := sha1.New()
	h.Write(object.Header(object.Blob, size))
	return h
}
