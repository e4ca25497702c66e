package gitstore

import (
	"cmp"
	"context"
	"hash/crc32"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"umbra/gitstore/lender"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Lender gives objects of another repository's packs (package lender).
type Lender = lender.Lender

// OpenLender opens the packs of a repository's "objects" folder; one that cannot
// be read is passed over. It owns f.
func OpenLender(f vfs.FS) (*Lender, error) { return lender.Open(f) }

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

// Borrow records files by copying their blobs from l, most of them as they are
// compressed there. Such an entry is held against the CRC that the pack's index
// has of it, which is there for that (gitformat-pack(5), "data copied directly
// from pack to pack"); one of each hashEvery is inflated and hashed before
// anything of a pack is taken, and so is what cannot be copied as it is. It gives
// the places in files of those that l does not have, or not whole. For one
// goroutine.
func (f Fill) Borrow(ctx context.Context, l *Lender, files []Loan) (left []int, err error) {
	first := make(map[ID]int32, len(files)) // the file that brings a blob
	for i := range files {
		if _, ok := first[files[i].ID]; !ok {
			first[files[i].ID] = int32(i)
		}
	}
	for _, p := range l.Packs {
		if p.Count() > lender.MaxCount {
			continue
		}
		layout, err := p.Layout()
		if err != nil {
			continue // a damaged pack: the files are read
		}
		b := &borrower{b: f.b, p: p, layout: layout, files: files, first: first}
		if !b.sound() {
			continue
		}
		if err := b.run(ctx); err != nil {
			return nil, err
		}
	}
	f.b.mu.Lock()
	defer f.b.mu.Unlock()
	for i := range files {
		if !f.b.current.Pack.Has(files[i].ID) || files[first[files[i].ID]].Size != files[i].Size {
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
}

// span is how much of a pack is read at once, in bytes, and spans how many of
// these are verified before they are written.
const (
	span  = 256 << 10
	spans = 16
)

// hashEvery: one of so many wanted objects of a pack is hashed beforehand. If its
// id differs, the pack's index is wrong.
const hashEvery = 64

// sound reports whether the wanted objects are what the index says: by the
// index's own checksum, and a sample.
func (b *borrower) sound() bool {
	var sample []int
	n := 0
	for i := range b.layout {
		if _, ok := b.first[b.layout[i].ID]; ok {
			if n%hashEvery == 0 {
				sample = append(sample, i)
			}
			n++
		}
	}
	if len(sample) == 0 {
		return false
	}
	if x, err := b.p.Index(); err != nil || x.Verify() != nil {
		return false
	}
	var wrong atomic.Bool
	atOnce(len(sample), func(i int) {
		if wrong.Load() {
			return
		}
		// What is damaged is left out when its turn comes.
		_, data, err := b.p.GetAt(uint64(b.layout[sample[i]].Offset))
		if err == nil && object.Hash(object.Blob, data) != b.layout[sample[i]].ID {
			wrong.Store(true)
		}
	})
	return !wrong.Load()
}

// atOnce calls fn with the numbers below n, by as many goroutines as there are
// processors.
func atOnce(n int, fn func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				fn(i)
			}
		})
	}
	wg.Wait()
}

// run copies in the order of the pack, in which a base is before its deltas.
func (b *borrower) run(ctx context.Context) error {
	var groups [][]loan
	var group []loan
	flush := func() error {
		if err := ctx.Err(); err != nil {
			return errs.Wrap(err, "")
		}
		b.verify(groups)
		if err := b.b.s.opt.Room(loanBytes(groups)); err != nil {
			return errs.Wrap(err, "")
		}
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
		if !ok || b.b.current.Pack.Has(e.ID) {
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

// loanBytes is about what verified groups take, in bytes.
func loanBytes(groups [][]loan) (n int64) {
	for _, g := range groups {
		for i := range g {
			n += int64(len(g[i].entry) + len(g[i].delta))
		}
	}
	return n
}

// verify reads the groups, several at once.
func (b *borrower) verify(groups [][]loan) {
	atOnce(len(groups), func(i int) {
		g := groups[i]
		raw, err := b.p.Span(g[0].Located, g[len(g)-1].Located)
		if err != nil {
			return
		}
		for k := range g {
			b.read(&g[k], raw[g[k].Offset-g[0].Offset:g[k].End-g[0].Offset])
		}
	})
}

// read verifies one object, whose entry is raw. A damaged one is left out.
func (b *borrower) read(l *loan, raw []byte) {
	if crc32.ChecksumIEEE(raw) != l.CRC {
		return
	}
	h, err := pack.ParseHeader(raw)
	if err != nil {
		return
	}
	if size, err := pack.ResultSize(raw); err != nil || size != b.files[l.file].Size {
		return
	}
	switch h.Kind {
	case object.Blob:
		l.entry = raw
		return
	case pack.OfsDelta:
		// The base is a blob if it comes along.
		base, ok := b.at(l.Offset - int64(h.BaseDistance))
		if _, comes := b.first[base.ID]; ok && comes {
			l.base, l.size, l.delta = base.ID, h.Size, raw[h.HeaderLen:]
			return
		}
	}
	if data, ok := b.whole(l); ok {
		l.entry = pack.AppendEntry(nil, object.Blob, data, pack.Fast)
	}
}

// whole gives a blob's bytes, hashed.
func (b *borrower) whole(l *loan) (data []byte, ok bool) {
	kind, data, err := b.p.GetAt(uint64(l.Offset))
	return data, err == nil && kind == object.Blob && object.Hash(object.Blob, data) == l.ID
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
	case l.delta != nil && b.b.current.Pack.Has(l.base):
		return b.b.current.Pack.AddEncodedDelta(l.ID, l.base, l.size, l.delta)
	case l.delta != nil: // its base was left out
		if data, ok := b.whole(l); ok {
			_, err := b.b.current.Pack.Add(object.Blob, data)
			return err
		}
	case l.entry != nil:
		return b.b.current.Pack.AddEncoded(l.ID, l.entry)
	}
	return nil
}
