package pack

import (
	"bytes"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"umbra/gitstore/object"
)

// VerifyChecksum reads the whole file and compares it with its trailer.
func (p *Pack) VerifyChecksum() error {
	got, err := packSum(p.f, p.end, p.count())
	if err == nil && got != p.sum {
		err = corrupt("pack checksum")
	}
	return err
}

// Has reports whether the pack holds an object.
func (p *Pack) Has(id object.ID) (bool, error) {
	x := p.idx.Load()
	if x == nil {
		if ok, err := p.near.has(id); ok || err != nil {
			return ok, err
		}
		var err error
		if x, err = p.Index(); err != nil {
			return false, err
		}
	}
	return x.has(id)
}

// Partial reports whether LocateNear may not find what the pack holds. Once it does not, it
// never does again.
func (p *Pack) Partial() bool { return p.idx.Load() == nil }

// LocateNear is like Locate, but does not open the index.
func (p *Pack) LocateNear(id object.ID) (offset uint64, ok bool, err error) {
	x := p.idx.Load()
	if x == nil {
		x = p.near
	}
	return p.locateIn(x, id)
}

// Locate gives where the entry of an object begins, if the pack holds it.
func (p *Pack) Locate(id object.ID) (offset uint64, ok bool, err error) {
	partial := p.Partial()
	if off, ok, err := p.LocateNear(id); ok || err != nil || !partial {
		return off, ok, err
	}
	x, err := p.Index()
	if err != nil {
		return 0, false, err
	}
	return p.locateIn(x, id)
}

func (p *Pack) locateIn(x *Idx, id object.ID) (offset uint64, ok bool, err error) {
	off, ok, err := x.Offset(id)
	if ok && (off < HeaderSize || off >= uint64(p.end)) {
		return 0, false, corrupt("index leads outside the pack for %v", id)
	}
	return off, ok, err
}

func (p *Pack) find(id object.ID) (int64, error) {
	off, ok, err := p.Locate(id)
	if err == nil && !ok {
		err = fmt.Errorf("%w: %v", ErrNotFound, id)
	}
	return int64(off), err
}

// header reads the header of the entry at off.
func (p *Pack) header(off int64) (EntryHeader, error) {
	var buf [maxHeader]byte
	b := buf[:min(maxHeader, p.end-off)]
	if err := readAt(p.f, b, off); err != nil {
		return EntryHeader{}, err
	}
	return p.parseHeader(b, off)
}

func (p *Pack) parseHeader(b []byte, off int64) (EntryHeader, error) {
	h, err := ParseHeader(b)
	if err == io.ErrUnexpectedEOF {
		return EntryHeader{}, corrupt("pack ends within an entry's header")
	}
	if err == nil && h.Size/maxRatio > p.end-off {
		return EntryHeader{}, corrupt("entry of %d bytes cannot fit", h.Size)
	}
	return h, err
}

// base gives where the base of the delta at off begins.
func (p *Pack) base(off int64, h EntryHeader) (int64, error) {
	if h.Kind == RefDelta {
		base, err := p.find(h.BaseID)
		if errors.Is(err, ErrNotFound) {
			return 0, corrupt("base %v is not in the pack", h.BaseID)
		}
		return base, err
	}
	if h.BaseDistance > uint64(off-HeaderSize) {
		return 0, corrupt("base before the first entry")
	}
	return off - int64(h.BaseDistance), nil
}

// inflate gives what the entry at off holds: an object's bytes or a delta's.
func (p *Pack) inflate(off int64) (EntryHeader, []byte, error) {
	in := getInflater(&fileReader{r: p.f, off: off, end: p.end})
	defer putInflater(in)
	head, err := in.br.Peek(maxHeader)
	if err != nil && err != io.EOF {
		return EntryHeader{}, nil, err
	}
	h, err := p.parseHeader(head, off)
	if err != nil {
		return h, nil, err
	}
	if h.Size > p.max {
		return h, nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, h.Size)
	}
	if _, err := in.br.Discard(h.HeaderLen); err != nil {
		return h, nil, err
	}
	data, err := in.readAll(in.br, h.Size)
	return h, data, err
}

// GetAt gives the object whose entry begins at offset.
func (p *Pack) GetAt(offset uint64) (object.Kind, []byte, error) {
	kind, data, _, err := p.getAt(offset, p.max, Known{})
	return kind, data, err
}

// Known is an object that was read from a pack: where its entry begins, and its bytes,
// which must not change. Into is memory that the next object may be made in, none of
// Data's.
type Known struct {
	Offset uint64
	Kind   object.Kind
	Data   []byte
	Into   []byte
}

// GetLocated gives the object that Locate found at offset. One of more than max
// bytes is not read: ErrTooLarge, and its size.
func (p *Pack) GetLocated(id object.ID, offset uint64, max int64) (object.Kind, []byte, int64, error) {
	return p.GetAfter(id, offset, max, Known{})
}

// GetAfter is like GetLocated; an object of the pack that the caller has is not read
// again where the one at offset is a delta of it. The zero Known is none.
func (p *Pack) GetAfter(id object.ID, offset uint64, max int64, known Known) (object.Kind, []byte, int64, error) {
	kind, data, size, err := p.getAt(offset, max, known)
	if err == nil && p.check && object.Hash(kind, data) != id {
		err = corrupt("object %v has other bytes", id)
	}
	if err != nil {
		return 0, nil, size, err
	}
	return kind, data, size, nil
}

// link is a delta on the way down to a whole object.
type link struct {
	off   int64
	delta []byte // nil: it is read on the way back
}

// maxHeld bounds the deltas that are kept on the way down, in bytes.
const maxHeld = 256 << 10

func (p *Pack) getAt(offset uint64, max int64, known Known) (kind object.Kind, data []byte, size int64, err error) {
	if offset < HeaderSize || offset >= uint64(p.end) {
		return 0, nil, 0, corrupt("no entry at %d", offset)
	}
	max = min(max, p.max)
	// Down to an entry that is whole or cached; then back up. Small deltas are
	// read on the way down, with their headers; of larger ones there is one in
	// memory at a time.
	var room [8]link
	chain, held := room[:0], int64(0)
	in := nearby{r: p.f}
	defer in.free()
	for off := int64(offset); ; {
		if off == int64(known.Offset) {
			kind, data = known.Kind, known.Data
			break
		}
		var ok bool
		if kind, data, ok = p.bases.get(off); ok {
			break
		}
		limit := p.max
		if len(chain) == 0 {
			limit = max
		}
		if n := len(chain); n > 0 {
			if err := in.cover(off, chain[n-1].off); err != nil {
				return 0, nil, 0, err
			}
		}
		h, part, ok := p.smallDelta(in.at(off), off, maxHeld-held)
		if !ok {
			if h, part, err = p.read(&in, off, limit, maxHeld-held); err != nil {
				return 0, nil, h.Size, err
			}
		}
		if h.Kind != OfsDelta && h.Kind != RefDelta {
			if kind, data = h.Kind, part; len(chain) > 0 {
				p.bases.put(off, kind, data)
			}
			break
		}
		if len(chain) == maxChain {
			return 0, nil, 0, corrupt("more than %d deltas on each other", maxChain)
		}
		if len(chain) == 0 {
			if size, err = p.target(off, h, part); err != nil || size > max {
				if err == nil {
					err = fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
				}
				return 0, nil, size, err
			}
		}
		held += int64(len(part))
		chain = append(chain, link{off, part})
		if off, err = p.base(off, h); err != nil {
			return 0, nil, 0, err
		}
	}
	if len(chain) == 0 {
		if size = int64(len(data)); size > max {
			return 0, nil, size, fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
		}
		return kind, data, size, nil
	}
	var spare scratch
	defer spare.free()
	for i := len(chain) - 1; i >= 0; i-- {
		delta := chain[i].delta
		if delta == nil {
			if _, delta, err = p.inflate(chain[i].off); err != nil {
				return 0, nil, 0, err
			}
		}
		_, size, err := DeltaSizes(delta)
		if err != nil {
			return 0, nil, 0, err
		} else if size > p.max {
			return 0, nil, size, fmt.Errorf("%w: %d bytes", ErrTooLarge, size)
		}
		// What is not kept shares two buffers.
		keep := keepBase(i, len(chain))
		var into []byte
		switch {
		case keep:
		case i > 0:
			into = spare.take(size)
		default:
			into = known.Into
		}
		if data, err = applyDelta(into, data, delta); err != nil {
			return 0, nil, 0, err
		}
		if keep {
			p.bases.put(chain[i].off, kind, data)
		}
	}
	return kind, data, int64(len(data)), nil
}

// keepBase reports whether the object that is i deltas from the one that was asked for,
// in a chain of n, is kept for other reads. Those at powers of two are: the next older
// objects are then a few deltas from one that is kept, and a chain costs room for a few
// objects, not for all.
func keepBase(i, n int) bool { return i&(i-1) == 0 && (i > 0 || n > 1) }

// maxSpare bounds a buffer of a scratch that stays for later reads, in bytes.
const maxSpare = 1 << 20

// scratch is two buffers, in turns: an object is made in one from what is in the other.
type scratch struct{ bufs *[2][]byte }

var scratches = sync.Pool{New: func() any { return new([2][]byte) }}

// take returns an empty buffer for size bytes, not that of the call before.
func (s *scratch) take(size int64) []byte {
	if s.bufs == nil {
		s.bufs = scratches.Get().(*[2][]byte)
	}
	s.bufs[0], s.bufs[1] = s.bufs[1], s.bufs[0]
	if int64(cap(s.bufs[0])) < size {
		s.bufs[0] = make([]byte, 0, size)
	}
	return s.bufs[0]
}

func (s *scratch) free() {
	if s.bufs == nil {
		return
	}
	for i, b := range s.bufs {
		if cap(b) > maxSpare {
			s.bufs[i] = nil
		}
	}
	scratches.Put(s.bufs)
}

// smallDelta reads a delta of at most held bytes whose entry is in memory, in b. It
// returns false for all others, and for what is not sound.
func (p *Pack) smallDelta(b []byte, off, held int64) (h EntryHeader, data []byte, ok bool) {
	if len(b) == 0 {
		return h, nil, false
	}
	b = b[:min(int64(len(b)), p.end-off)]
	h, err := ParseHeader(b)
	if err != nil || h.Kind != OfsDelta && h.Kind != RefDelta || h.Size > min(maxSmallDelta, held) {
		return h, nil, false
	}
	if data, ok := storedContent(b[h.HeaderLen:], h.Size); ok {
		return h, bytes.Clone(data), true // the bytes in memory are only borrowed
	}
	in := getMemInflater(b[h.HeaderLen:])
	defer putInflater(in)
	data, err = in.readAll(&in.mem, h.Size)
	return h, data, err == nil
}

// maxSmallDelta bounds what smallDelta reads, in bytes.
const maxSmallDelta = 4 << 10

// read reads an entry in one piece: a whole object of at most max bytes, or a
// delta, whose bytes are nil where they are more than held.
func (p *Pack) read(r io.ReaderAt, off, max, held int64) (EntryHeader, []byte, error) {
	in := getInflater(&fileReader{r: r, off: off, end: p.end})
	defer putInflater(in)
	head, err := in.br.Peek(maxHeader)
	if err != nil && err != io.EOF {
		return EntryHeader{}, nil, err
	}
	h, err := p.parseHeader(head, off)
	if err != nil {
		return h, nil, err
	}
	if h.Kind == OfsDelta || h.Kind == RefDelta {
		if h.Size > held {
			return h, nil, nil
		}
	} else if h.Size > max {
		return h, nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, h.Size)
	}
	if h.Size < storedBelow {
		b, err := in.br.Peek(h.HeaderLen + int(h.Size) + storedOverhead)
		if err == nil {
			if data, ok := storedContent(b[h.HeaderLen:], h.Size); ok {
				return h, bytes.Clone(data), nil
			}
		}
	}
	if _, err := in.br.Discard(h.HeaderLen); err != nil {
		return h, nil, err
	}
	data, err := in.readAll(in.br, h.Size)
	return h, data, err
}

// target gives the size of what a delta makes.
func (p *Pack) target(off int64, h EntryHeader, delta []byte) (int64, error) {
	if delta == nil {
		return p.deltaTarget(off, h)
	}
	_, size, err := DeltaSizes(delta)
	return size, err
}

// Get gives an object: ErrNotFound, ErrTooLarge above MaxObject, ErrCorrupt.
func (p *Pack) Get(id object.ID) (object.Kind, []byte, error) {
	off, err := p.find(id)
	if err != nil {
		return 0, nil, err
	}
	kind, data, _, err := p.GetLocated(id, uint64(off), p.max)
	return kind, data, err
}

// Info gives an object's kind and size; of a delta no more is inflated than its
// first bytes.
func (p *Pack) Info(id object.ID) (object.Kind, int64, error) {
	off, err := p.find(id)
	if err != nil {
		return 0, 0, err
	}
	h, err := p.header(off)
	if err != nil {
		return 0, 0, err
	}
	size := h.Size
	if h.Kind == OfsDelta || h.Kind == RefDelta {
		if size, err = p.deltaTarget(off, h); err != nil {
			return 0, 0, err
		}
	}
	for range maxChain {
		if h.Kind != OfsDelta && h.Kind != RefDelta {
			return h.Kind, size, nil
		}
		if kind, _, ok := p.bases.get(off); ok {
			return kind, size, nil
		}
		if off, err = p.base(off, h); err != nil {
			return 0, 0, err
		}
		if h, err = p.header(off); err != nil {
			return 0, 0, err
		}
	}
	return 0, 0, corrupt("more than %d deltas on each other", maxChain)
}

// deltaTarget reads the size of a delta's result from its first bytes.
func (p *Pack) deltaTarget(off int64, h EntryHeader) (int64, error) {
	in := getInflater(&fileReader{r: p.f, off: off + int64(h.HeaderLen), end: p.end})
	defer putInflater(in)
	return in.deltaTarget(in.br, h.Size)
}

// Stream gives an object as a stream, of any size where it is no delta; a delta
// is made in memory, up to MaxObject. A wrong byte shows at the latest in place
// of io.EOF: with Verify the id is checked too. The reader is for one goroutine
// and must be closed.
func (p *Pack) Stream(id object.ID) (object.Kind, int64, io.ReadCloser, error) {
	off, err := p.find(id)
	if err != nil {
		return 0, 0, nil, err
	}
	h, err := p.header(off)
	if err != nil {
		return 0, 0, nil, err
	}
	if h.Kind == OfsDelta || h.Kind == RefDelta {
		kind, data, err := p.Get(id)
		if err != nil {
			return 0, 0, nil, err
		}
		return kind, int64(len(data)), io.NopCloser(bytes.NewReader(data)), nil
	}
	in := getInflater(&fileReader{r: p.f, off: off + int64(h.HeaderLen), end: p.end})
	if err := in.begin(in.br); err != nil {
		putInflater(in)
		return 0, 0, nil, err
	}
	s := &stream{in: in, left: h.Size, id: id}
	if p.check {
		s.sum = sha1.New()
		s.sum.Write(object.Header(h.Kind, h.Size))
	}
	return h.Kind, h.Size, s, nil
}

// stream inflates one entry as it is read.
type stream struct {
	in   *inflater
	left int64
	id   object.ID
	sum  hash.Hash // nil without Verify
	err  error
}

func (s *stream) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.left == 0 {
		s.err = s.finish()
		return 0, s.err
	}
	if int64(len(b)) > s.left {
		b = b[:s.left]
	}
	n, err := s.in.z.Read(b)
	s.left -= int64(n)
	if s.sum != nil {
		s.sum.Write(b[:n])
	}
	if err == io.EOF {
		err = nil
		if s.left > 0 {
			err = corrupt("entry is shorter than its header says")
		}
	}
	s.err = inflateError(err)
	return n, s.err
}

// finish checks what can be checked only at the end, and gives io.EOF.
func (s *stream) finish() error {
	if err := s.in.end(); err != nil {
		return err
	}
	if s.sum != nil && !bytes.Equal(s.sum.Sum(nil), s.id[:]) {
		return corrupt("object %v has other bytes", s.id)
	}
	return io.EOF
}

// errClosed is what a stream gives after Close.
var errClosed = errors.New("pack: stream is closed")

// Close gives the decompressor back.
func (s *stream) Close() error {
	if s.in != nil {
		putInflater(s.in)
		s.in, s.err = nil, errClosed
	}
	return nil
}
