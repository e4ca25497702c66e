package gitstore

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Lender gives objects of another repository's packs: those of the project that
// a workspace's folder is a checkout of. They are copied, never referred to.
// Loose objects and alternates are not looked at.
type Lender struct {
	packs []*pack.Pack
	fs    vfs.FS
}

// Limits of what is borrowed from: beyond them files are read from the folder.
const (
	maxLenders   = 256     // packs that are held open
	maxLentCount = 8 << 20 // objects of one pack; its layout takes 40 bytes for each
	lenderCache  = 48 << 20
)

// OpenLender opens the packs of a repository's "objects" folder; one that cannot
// be read is passed over. It owns f.
func OpenLender(f vfs.FS) (*Lender, error) {
	l := &Lender{fs: f}
	names, err := f.ReadDir("pack")
	if err != nil {
		return nil, errors.Join(errs.Wrap(err, ""), f.Close())
	}
	cache := pack.NewBaseCache(lenderCache)
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, ".idx")
		if !ok || len(l.packs) == maxLenders {
			continue
		}
		p, err := pack.Open(f, "pack/"+base+".pack", "pack/"+e.Name, pack.Options{MaxObject: lentObject, Cache: cache})
		if err == nil {
			l.packs = append(l.packs, p)
		}
	}
	return l, nil
}

// lentObject is the largest object that is borrowed, in bytes.
const lentObject = 4 << 20

// Close closes the packs.
func (l *Lender) Close() error {
	var all error
	for _, p := range l.packs {
		all = errors.Join(all, p.Close())
	}
	return errors.Join(all, l.fs.Close())
}

// Fill makes a baseline.
type Fill struct{ b *baseline }

// Add gives the function that records a file from its bytes.
func (f Fill) Add() AddFile { return f.b.add }

// Adder gives what records files that are in memory, for one goroutine.
func (f Fill) Adder() *Adder { return &Adder{b: f.b} }

// Known records a file whose content an earlier attempt at this baseline has
// brought. False where the store does not have it: it has to be added.
func (f Fill) Known(p wspath.Path, mode Mode, id ID) (bool, error) { return f.b.known(p, mode, id) }

// OnPart sets what is called each time that what was added up to a moment ago
// has become durable; to be called before anything is added.
func (f Fill) OnPart(fn func()) { f.b.onPart = fn }

// Loan is a file whose content another repository should have.
type Loan struct {
	Path wspath.Path
	Mode Mode
	ID   ID
	Size int64 // of the file; a blob of another size is not taken
}

// Borrow records files by copying their blobs from l: each is inflated and
// hashed first, and most are written as they are compressed there. It gives the
// places in files of those that l does not have, or not whole. For one goroutine.
func (f Fill) Borrow(ctx context.Context, l *Lender, files []Loan) (left []int, err error) {
	first := make(map[ID]int32, len(files)) // the file that brings a blob
	for i := range files {
		if _, ok := first[files[i].ID]; !ok {
			first[files[i].ID] = int32(i)
		}
	}
	for _, p := range l.packs {
		if p.Idx().Count() > maxLentCount {
			continue
		}
		layout, err := p.Layout()
		if err != nil {
			continue // a damaged pack: the files are read
		}
		b := &borrower{b: f.b, p: p, layout: layout, files: files, first: first}
		if err := b.run(ctx); err != nil {
			return nil, err
		}
	}
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	for i := range files {
		if !f.b.current.w.Has(files[i].ID) || files[first[files[i].ID]].Size != files[i].Size {
			left = append(left, i)
			continue
		}
		f.b.files = append(f.b.files, baselineFile{files[i].Path, files[i].Mode, files[i].ID})
	}
	return left, nil
}

// borrower copies from one pack.
type borrower struct {
	b      *baseline
	p      *pack.Pack
	layout []pack.Located
	files  []Loan
	first  map[ID]int32
}

// loan is one blob to copy.
type loan struct {
	pack.Located
	file int32

	entry []byte // whole, as AppendEntry makes it
	base  ID     // of a delta that is copied as it is
	size  int64
	delta []byte
	data  []byte // of a delta, should its base not come along
}

// span is how much of a pack is read at once, in bytes, and spans how many of
// these are verified before they are written.
const (
	span  = 256 << 10
	spans = 16
)

// run copies in the order of the pack, in which a base stands before its deltas.
func (b *borrower) run(ctx context.Context) error {
	var groups [][]loan
	var group []loan
	flush := func() error {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		b.verify(groups)
		for _, g := range groups {
			for i := range g {
				if err := b.write(&g[i]); err != nil {
					return errs.Wrap(err, "")
				}
			}
		}
		groups = groups[:0]
		return nil
	}
	for _, e := range b.layout {
		file, ok := b.first[e.ID]
		if !ok || b.b.current.w.Has(e.ID) {
			continue
		}
		if len(group) > 0 && e.End-group[0].Offset > span {
			if groups = append(groups, group); len(groups) == spans {
				if err := flush(); err != nil {
					return err
				}
			}
			group = nil
		}
		group = append(group, loan{Located: e, file: file})
	}
	if len(group) > 0 {
		groups = append(groups, group)
	}
	return flush()
}

// verify reads the groups, several at once.
func (b *borrower) verify(groups [][]loan) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(groups)) {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(groups) {
					return
				}
				g := groups[i]
				raw, err := b.p.Span(g[0].Located, g[len(g)-1].Located)
				if err != nil {
					continue
				}
				near := make(map[int64][]byte, len(g))
				for k := range g {
					b.read(&g[k], near, raw[g[k].Offset-g[0].Offset:g[k].End-g[0].Offset])
				}
			}
		})
	}
	wg.Wait()
}

// read verifies one object, whose entry is raw. What is wrong with it leaves it
// out. near holds the objects before it by their offsets: most deltas stand on
// one of them.
func (b *borrower) read(l *loan, near map[int64][]byte, raw []byte) {
	want := &b.files[l.file]
	h, err := pack.ParseHeader(raw)
	if err != nil {
		return
	}
	if h.Kind == object.Blob {
		if h.Size != want.Size {
			return
		}
		_, data, err := pack.InflateWhole(raw)
		if err == nil && object.Hash(object.Blob, data) == want.ID {
			l.entry = raw
			near[l.Offset] = data
		}
		return
	}
	_, delta, err := pack.InflateWhole(raw)
	if err != nil {
		return
	}
	kind, data := object.Blob, []byte(nil)
	if base, ok := near[l.Offset-int64(h.BaseDistance)]; ok && h.Kind == pack.OfsDelta {
		data, err = pack.ApplyDelta(base, delta)
	} else {
		kind, data, err = b.p.GetAt(uint64(l.Offset))
	}
	if err != nil || kind != object.Blob || int64(len(data)) != want.Size || object.Hash(object.Blob, data) != want.ID {
		return
	}
	near[l.Offset] = data
	if h.Kind == pack.OfsDelta {
		base, ok := b.at(l.Offset - int64(h.BaseDistance))
		if _, comes := b.first[base.ID]; ok && comes {
			l.base, l.size, l.delta, l.data = base.ID, h.Size, raw[h.HeaderLen:], data
			return
		}
	}
	l.entry = pack.AppendEntry(nil, object.Blob, data, journalLevel)
}

func (b *borrower) at(offset int64) (pack.Located, bool) {
	i, ok := slices.BinarySearchFunc(b.layout, offset, func(e pack.Located, off int64) int { return cmp.Compare(e.Offset, off) })
	if !ok {
		return pack.Located{}, false
	}
	return b.layout[i], true
}

// write puts a verified object into the baseline's pack.
func (b *borrower) write(l *loan) error {
	b.b.mu.Lock()
	defer b.b.mu.Unlock()
	switch {
	case l.delta != nil && b.b.current.w.Has(l.base):
		return b.b.current.w.AddEncodedDelta(l.ID, l.base, l.size, l.delta)
	case l.delta != nil:
		_, err := b.b.current.w.Add(object.Blob, l.data)
		return err
	case l.entry != nil:
		return b.b.current.w.AddEncoded(l.ID, l.entry)
	}
	return nil
}
