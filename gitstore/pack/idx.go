package pack

import (
	"bytes"
	"cmp"
	"crypto/sha1"
	"encoding/binary"
	"io"
	"iter"
	"math"
	"slices"
	"sort"
	"sync"

	"umbra/gitstore/object"
)

// IdxEntry is where a pack holds one object.
type IdxEntry struct {
	ID     object.ID
	Offset uint64 // of the entry's first byte
	CRC    uint32 // CRC-32 of the entry's bytes, header and stream
}

// The parts of a version 2 index: 8 bytes of magic and version, 256 counts,
// then by turns ids, checksums, 31-bit offsets, 63-bit offsets, two trailers.
const (
	idxMagic   = "\xfftOc\x00\x00\x00\x02"
	fanoutSize = 256 * 4
	idsAt      = int64(len(idxMagic) + fanoutSize)
)

// EncodeIdx gives the bytes of a pack's .idx file, version 2, as `git
// index-pack` would. The entries may come in any order and are left as they are.
func EncodeIdx(entries []IdxEntry, packChecksum [20]byte) []byte {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b IdxEntry) int {
		// Ids are random: eight bytes nearly always decide.
		if c := cmp.Compare(binary.BigEndian.Uint64(a.ID[:]), binary.BigEndian.Uint64(b.ID[:])); c != 0 {
			return c
		}
		if c := bytes.Compare(a.ID[:], b.ID[:]); c != 0 {
			return c
		}
		return cmp.Compare(a.Offset, b.Offset)
	})
	b := make([]byte, 0, int(idsAt)+len(sorted)*28+40)
	b = append(b, idxMagic...)
	n := 0
	for first := range 256 {
		for n < len(sorted) && int(sorted[n].ID[0]) == first {
			n++
		}
		b = binary.BigEndian.AppendUint32(b, uint32(n))
	}
	for i := range sorted {
		b = append(b, sorted[i].ID[:]...)
	}
	for i := range sorted {
		b = binary.BigEndian.AppendUint32(b, sorted[i].CRC)
	}
	var large []uint64
	for i := range sorted {
		off := sorted[i].Offset
		if off > math.MaxInt32 {
			large = append(large, off)
			off = 1<<31 | uint64(len(large)-1)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(off))
	}
	for _, off := range large {
		b = binary.BigEndian.AppendUint64(b, off)
	}
	b = append(b, packChecksum[:]...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

// IdxOptions says how an index is read.
type IdxOptions struct {
	Verify      bool  // check the whole file's checksum and order at once
	InMemoryMax int64 // a file up to this many bytes is held whole; 0: 64 KiB, negative: never
}

const defaultInMemoryMax = 64 << 10

// Idx reads a version 2 index where it lies: memory is the 1 KiB of counts,
// and a small file whole. Safe for concurrent use.
type Idx struct {
	r      io.ReaderAt
	mem    []byte // the whole file, if it is small
	closer io.Closer
	size   int64
	fanout [256]uint32
	large  int64     // number of 63-bit offsets
	pages  sync.Pool // of *idxPage
}

// idxPage is what a lookup reads into.
type idxPage [idPage * 20]byte

func (x *Idx) getPage() *idxPage {
	if p, ok := x.pages.Get().(*idxPage); ok {
		return p
	}
	return new(idxPage)
}

// view gives n bytes at off, in buf unless they are in memory.
func (x *Idx) view(buf *idxPage, off int64, n int) ([]byte, error) {
	if x.mem != nil {
		return x.mem[off : off+int64(n)], nil
	}
	b := buf[:n]
	return b, readAt(x.r, b, off)
}

// OpenIdx reads from a file of this size (a vfs.File, say). The Idx closes it,
// if it is an io.Closer; where OpenIdx fails the caller does.
func OpenIdx(r io.ReaderAt, size int64, opt IdxOptions) (*Idx, error) {
	x := &Idx{r: r, size: size}
	if size < idsAt+40 {
		return nil, corrupt("index of %d bytes", size)
	}
	head := make([]byte, idsAt)
	if err := readAt(r, head, 0); err != nil {
		return nil, err
	}
	if string(head[:8]) != idxMagic {
		return nil, corrupt("no version 2 index")
	}
	last := uint32(0)
	for i := range x.fanout {
		n := binary.BigEndian.Uint32(head[8+4*i:])
		if n < last {
			return nil, corrupt("index counts fall")
		}
		x.fanout[i], last = n, n
	}
	over := size - idsAt - 28*int64(last) - 40
	if over < 0 || over%8 != 0 || over/8 > int64(last) {
		return nil, corrupt("index of %d bytes for %d objects", size, last)
	}
	x.large = over / 8
	limit := opt.InMemoryMax
	if limit == 0 {
		limit = defaultInMemoryMax
	}
	if size <= limit {
		x.mem = make([]byte, size)
		if err := readAt(r, x.mem, 0); err != nil {
			return nil, err
		}
		x.r = bytes.NewReader(x.mem)
	}
	if opt.Verify {
		if err := x.Verify(); err != nil {
			return nil, err
		}
	}
	x.closer, _ = r.(io.Closer)
	return x, nil
}

// Close closes the file.
func (x *Idx) Close() error {
	if x.closer == nil {
		return nil
	}
	return x.closer.Close()
}

// Count gives the number of objects.
func (x *Idx) Count() int { return int(x.fanout[255]) }

// PackChecksum gives the trailer of the pack that the index is of.
func (x *Idx) PackChecksum() (sum [20]byte, err error) {
	return sum, readAt(x.r, sum[:], x.size-40)
}

// Verify reads the whole index, and checks its own checksum and that the ids rise.
func (x *Idx) Verify() error {
	h := sha1.New()
	if _, err := io.CopyBuffer(h, &fileReader{r: x.r, end: x.size - 20}, make([]byte, scanWindow)); err != nil {
		return err
	}
	var want [20]byte
	if err := readAt(x.r, want[:], x.size-20); err != nil {
		return err
	}
	if !bytes.Equal(h.Sum(nil), want[:]) {
		return corrupt("index checksum")
	}
	var last object.ID
	pos := 0
	for e, err := range x.All() {
		if err != nil {
			return err
		}
		lo, hi := x.bucket(e.ID[0])
		if pos < lo || pos >= hi || bytes.Compare(last[:], e.ID[:]) > 0 {
			return corrupt("index order at %v", e.ID)
		}
		last = e.ID
		pos++
	}
	return nil
}

// bucket gives the range of the ids with this first byte.
func (x *Idx) bucket(first byte) (lo, hi int) {
	if first > 0 {
		lo = int(x.fanout[first-1])
	}
	return lo, int(x.fanout[first])
}

// idPage is how many ids a lookup reads in one piece, 5 KiB of them.
const idPage = 256

// lowerBound gives the first position in [lo,hi) whose id is not before id,
// and whether it is that id.
func (x *Idx) lowerBound(buf *idxPage, id object.ID, lo, hi int) (int, bool, error) {
	if x.mem == nil && hi-lo > idPage {
		// Ids are random: one is near the place that its value makes likely.
		from, to := x.bucket(id[0])
		at := from + int(uint64(binary.BigEndian.Uint32(id[1:]))*uint64(to-from)>>32) - idPage/2
		at = min(max(at, lo), hi-idPage)
		b, err := x.view(buf, idsAt+20*int64(at), 20*idPage)
		if err != nil {
			return 0, false, err
		}
		switch n, ok := findID(b, id); {
		case ok || n > 0 && n < idPage:
			return at + n, ok, nil
		case n == 0:
			hi = at
		default:
			lo = at + idPage
		}
	}
	for x.mem == nil && hi-lo > idPage {
		mid := int(uint(lo+hi) >> 1)
		one, err := x.view(buf, idsAt+20*int64(mid), 20)
		if err != nil {
			return 0, false, err
		}
		switch c := bytes.Compare(one, id[:]); {
		case c < 0:
			lo = mid + 1
		case c > 0:
			hi = mid
		default:
			return mid, true, nil
		}
	}
	if lo == hi {
		return lo, false, nil
	}
	b, err := x.view(buf, idsAt+20*int64(lo), 20*(hi-lo))
	if err != nil {
		return 0, false, err
	}
	n, ok := findID(b, id)
	return lo + n, ok, nil
}

// findID returns where an id is among sorted ones, or where it would be.
func findID(ids []byte, id object.ID) (int, bool) {
	return sort.Find(len(ids)/20, func(i int) int { return bytes.Compare(id[:], ids[20*i:20*i+20]) })
}

// Find looks an object up.
func (x *Idx) Find(id object.ID) (offset uint64, crc uint32, ok bool, err error) {
	buf := x.getPage()
	defer x.pages.Put(buf)
	pos, ok, err := x.position(buf, id)
	if !ok || err != nil {
		return 0, 0, false, err
	}
	b, err := x.view(buf, idsAt+20*int64(x.Count())+4*int64(pos), 4)
	if err != nil {
		return 0, 0, false, err
	}
	crc = binary.BigEndian.Uint32(b)
	offset, err = x.offsetAt(buf, pos)
	return offset, crc, err == nil, err
}

// Offset is Find without the checksum: one read less.
func (x *Idx) Offset(id object.ID) (offset uint64, ok bool, err error) {
	buf := x.getPage()
	defer x.pages.Put(buf)
	pos, ok, err := x.position(buf, id)
	if !ok || err != nil {
		return 0, false, err
	}
	offset, err = x.offsetAt(buf, pos)
	return offset, err == nil, err
}

func (x *Idx) has(id object.ID) (bool, error) {
	buf := x.getPage()
	defer x.pages.Put(buf)
	_, ok, err := x.position(buf, id)
	return ok, err
}

// position gives where an object is among the ids.
func (x *Idx) position(buf *idxPage, id object.ID) (int, bool, error) {
	lo, hi := x.bucket(id[0])
	return x.lowerBound(buf, id, lo, hi)
}

// offsetAt gives the offset of the object at a position.
func (x *Idx) offsetAt(buf *idxPage, pos int) (uint64, error) {
	b, err := x.view(buf, idsAt+24*int64(x.Count())+4*int64(pos), 4)
	if err != nil {
		return 0, err
	}
	return x.offset(binary.BigEndian.Uint32(b))
}

// offset resolves a 31-bit entry, which may point into the 63-bit table.
func (x *Idx) offset(v uint32) (uint64, error) {
	if v < 1<<31 {
		return uint64(v), nil
	}
	i := int64(v &^ (1 << 31))
	if i >= x.large {
		return 0, corrupt("index has no large offset %d", i)
	}
	var b [8]byte
	if err := readAt(x.r, b[:], idsAt+28*int64(x.Count())+8*i); err != nil {
		return 0, err
	}
	off := binary.BigEndian.Uint64(b[:])
	if off > math.MaxInt64 {
		return 0, corrupt("index offset overflows")
	}
	return off, nil
}

// All gives every entry in the order of ids. It ends with the first error.
func (x *Idx) All() iter.Seq2[IdxEntry, error] { return x.slice(0, x.Count()) }

// slice gives the entries of the positions [lo,hi).
func (x *Idx) slice(lo, hi int) iter.Seq2[IdxEntry, error] {
	return func(yield func(IdxEntry, error) bool) {
		n := int64(x.Count())
		var ids [idPage * 20]byte
		var crcs, offs [idPage * 4]byte
		for ; lo < hi; lo += idPage {
			m := min(idPage, hi-lo)
			at := int64(lo)
			err := readAt(x.r, ids[:20*m], idsAt+20*at)
			if err == nil {
				err = readAt(x.r, crcs[:4*m], idsAt+20*n+4*at)
			}
			if err == nil {
				err = readAt(x.r, offs[:4*m], idsAt+24*n+4*at)
			}
			for i := range m {
				var e IdxEntry
				if err == nil {
					copy(e.ID[:], ids[20*i:])
					e.CRC = binary.BigEndian.Uint32(crcs[4*i:])
					e.Offset, err = x.offset(binary.BigEndian.Uint32(offs[4*i:]))
				}
				if !yield(e, err) || err != nil {
					return
				}
			}
		}
	}
}

// Prefix gives the ids that begin with these hexadecimal digits, at most limit
// of them: one is an abbreviation resolved, two say that it is ambiguous.
func (x *Idx) Prefix(digits string, limit int) ([]object.ID, error) {
	var low, high object.ID
	for i := range high {
		high[i] = 0xff
	}
	if len(digits) > 40 {
		return nil, object.ErrBadID
	}
	for i := range len(digits) {
		v, ok := hexDigit(digits[i])
		if !ok {
			return nil, object.ErrBadID
		}
		shift := 4 * (1 - i%2)
		low[i/2] |= v << shift
		high[i/2] = high[i/2]&^(0xf<<shift) | v<<shift
	}
	lo, _ := x.bucket(low[0])
	_, hi := x.bucket(high[0])
	buf := x.getPage()
	defer x.pages.Put(buf)
	pos, _, err := x.lowerBound(buf, low, lo, hi)
	if err != nil {
		return nil, err
	}
	var ids []object.ID
	for e, err := range x.slice(pos, hi) {
		if err != nil {
			return nil, err
		}
		if len(ids) == limit || bytes.Compare(e.ID[:], high[:]) > 0 {
			break
		}
		ids = append(ids, e.ID)
	}
	return ids, nil
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
