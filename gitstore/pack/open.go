package pack

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"iter"
	"sync/atomic"

	"golang.org/x/sync/singleflight"

	"umbra/gitstore/cache"
	"umbra/internal/vfs"
)

// Options says how a pack is read.
type Options struct {
	MaxObject int64         // largest object that Get takes into memory, bytes; 0: DefaultMaxObject
	Verify    bool          // hash every object that Get and Stream give by id
	Cache     *cache.Budget // for bases of deltas, shared among packs; nil: one of its own, 4 MiB
	Idx       IdxOptions
	// Near is the name of an index of some of the objects. It is looked into first, and the
	// pack's index is opened when something is not in it. Empty, no such file or a damaged one:
	// the pack's index is opened at once.
	Near string
}

const ownCache = 4 << 20

// maxChain bounds the deltas behind one object; git writes 50, and reads 4095.
const maxChain = 4096

// Pack reads a finished pack by its index. Safe for concurrent use; bytes that
// it gives are the caller's to read, not to change.
type Pack struct {
	f     vfs.File
	end   int64 // of the last entry
	head  [HeaderSize]byte
	sum   [TrailerSize]byte
	max   int64
	check bool
	bases bases

	near    *Idx // nil: none
	idxFile vfs.File
	idxSize int64
	idxOpt  IdxOptions
	opening singleflight.Group
	idx     atomic.Pointer[Idx] // nil until it is needed, with near
}

// Open opens a pack and its index and compares the number of objects and the
// checksum that both hold. The entries themselves are not read.
func Open(fsys vfs.FS, packName, idxName string, opt Options) (*Pack, error) {
	p := &Pack{max: opt.MaxObject, check: opt.Verify, idxOpt: opt.Idx}
	if p.max <= 0 {
		p.max = DefaultMaxObject
	}
	if opt.Cache == nil {
		opt.Cache = cache.NewBudget(ownCache)
	}
	p.bases = newBases(opt.Cache)
	err := p.open(fsys, packName, idxName)
	if err == nil && opt.Near != "" {
		err = p.openNear(fsys, opt.Near)
	}
	if err == nil && p.near == nil {
		_, err = p.Index()
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// open opens the files, and reads what both ends of the pack say.
func (p *Pack) open(fsys vfs.FS, packName, idxName string) (err error) {
	size := int64(0)
	if p.f, size, err = vfs.OpenSized(fsys, packName); err != nil {
		return err
	}
	if p.idxFile, p.idxSize, err = vfs.OpenSized(fsys, idxName); err != nil {
		return err
	}
	if p.end = size - TrailerSize; p.end < HeaderSize {
		return corrupt("pack of %d bytes", size)
	}
	if err := readAt(p.f, p.head[:], 0); err != nil {
		return err
	}
	if p.head != Header(p.count()) {
		return corrupt("pack header")
	}
	return readAt(p.f, p.sum[:], p.end)
}

// openNear opens the index of some of the objects, if there is one and it is sound.
func (p *Pack) openNear(fsys vfs.FS, name string) error {
	f, size, err := vfs.OpenSized(fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	x, err := OpenIdx(f, size, IdxOptions{Verify: true, InMemoryMax: p.idxOpt.InMemoryMax})
	if err == nil {
		err = p.compare(x)
	}
	if err == nil {
		p.near = x
		return nil
	}
	if errors.Is(err, ErrCorrupt) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// compare returns an error if an index is of another pack.
func (p *Pack) compare(x *Idx) error {
	sum, err := x.PackChecksum()
	if err == nil && sum != p.sum {
		err = corrupt("the index is of another pack")
	}
	return err
}

// Close closes the files. Readers that Stream gave fail from then on.
func (p *Pack) Close() error {
	p.bases.Close()
	var err error
	if p.near != nil {
		err = p.near.Close()
	}
	for _, f := range []vfs.File{p.f, p.idxFile} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Count gives the number of objects.
func (p *Pack) Count() int { return int(p.count()) }

func (p *Pack) count() uint32 { return binary.BigEndian.Uint32(p.head[HeaderSize-4:]) }

// FileBytes gives the length of the pack and of its index, in bytes.
func (p *Pack) FileBytes() int64 { return p.end + TrailerSize + p.idxSize }

// PackBytes gives the length of the pack alone.
func (p *Pack) PackBytes() int64 { return p.end + TrailerSize }

// Index gives the pack's index. It may have to be fetched, and is not closed by the caller.
// Those that need it at the same time wait for one attempt, and get its error.
func (p *Pack) Index() (*Idx, error) {
	_, err, _ := p.opening.Do("", func() (any, error) {
		if p.idx.Load() != nil {
			return nil, nil
		}
		x, err := p.openIndex()
		if err == nil {
			p.idx.Store(x)
		}
		return nil, err
	})
	return p.idx.Load(), err
}

func (p *Pack) openIndex() (*Idx, error) {
	x, err := OpenIdx(p.idxFile, p.idxSize, p.idxOpt)
	if err != nil {
		return nil, err
	}
	if x.Count() != p.Count() {
		return nil, corrupt("pack of %d objects, for an index of %d", p.Count(), x.Count())
	}
	return x, p.compare(x)
}

// Entries gives every entry in the order of ids. It ends with the first error.
func (p *Pack) Entries() iter.Seq2[IdxEntry, error] {
	x, err := p.Index()
	if err != nil {
		return func(yield func(IdxEntry, error) bool) { yield(IdxEntry{}, err) }
	}
	return x.All()
}

// Checksum gives the pack's trailer.
func (p *Pack) Checksum() [20]byte { return p.sum }
