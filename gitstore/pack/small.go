package pack

import (
	"encoding/binary"
	"hash/adler32"
	"math/bits"
	"sync"
)

// Most of what is written is small: a source file, a commit, a tree. A general
// compressor spends more on its large tables and on its code for many blocks
// than on such bytes themselves. This one makes one block (RFC 1951) of up to
// smallMax bytes, with a table of matches that stays in the processor's nearest
// cache, and takes whichever form of block is shortest: stored, or with the
// fixed or a fitted Huffman code. What comes out is about as long as zlib's
// level 1 makes it.

// smallMax is the most that is compressed so, in bytes: with it no match is
// further back than deflate allows.
const smallMax = 32 << 10

// Deflate's alphabets (RFC 1951 3.2.5, 3.2.7).
const (
	endOfBlock  = 256
	litSymbols  = 286
	distSymbols = 30
	lenSymbols  = 19
	minMatch    = 4 // shorter ones rarely pay
	maxMatch    = 258
	longestCode = 15
)

// The sizes of the table of matches, in bits.
const (
	fewBits  = 11 // up to fewBytes of input: it is cleared for each
	fewBytes = 4 << 10
	hashBits = 13
)

// step is a stretch of bytes that are written as they are, and the match after
// it; of the last one there is none.
type step struct {
	literals      uint16
	length        uint16 // 0: no match
	distanceLess1 uint16
}

// symbol is a Huffman code: its bits in the order of writing, and how many.
type symbol struct {
	code uint16
	len  uint8
}

// small is a compressor. Its tables are worked over by one call at a time.
type small struct {
	table  [1 << hashBits]uint16 // by the hash of 4 bytes: where they stood last
	steps  []step
	used   [litSymbols]uint32 // how often a literal or length occurs
	dists  [distSymbols]uint32
	lit    [litSymbols]symbol
	dist   [distSymbols]symbol
	pre    [lenSymbols]symbol // the code that the lengths of the codes are in
	build  huffman
	header header
}

// The pool holds idle ones only.
var smalls = sync.Pool{New: func() any { return new(small) }}

// appendSmall appends the zlib stream (RFC 1950) of at most smallMax bytes.
func appendSmall(dst, data []byte) []byte {
	s := smalls.Get().(*small)
	defer smalls.Put(s)
	dst = append(dst, 0x78, 0x01)
	dst = s.block(dst, data)
	return binary.BigEndian.AppendUint32(dst, adler32.Checksum(data))
}

// block appends data as one last block.
func (s *small) block(dst, data []byte) []byte {
	s.parse(data)
	extra := s.extraBits()
	fixed := 3 + extra + s.fixedBits()
	fitted := 3 + extra + s.fit()
	stored := 8 * (5 + len(data))
	switch least := min(fixed, fitted, stored); least {
	case stored:
		n := uint16(len(data))
		dst = append(dst, 1, byte(n), byte(n>>8), byte(^n), byte(^n>>8))
		return append(dst, data...)
	case fixed:
		w := newBitWriter(dst, least)
		w.put(1|1<<1, 3)
		s.write(&w, data, &fixedLit, &fixedDist)
		return w.close()
	default:
		w := newBitWriter(dst, least)
		w.put(1|2<<1, 3)
		s.header.write(&w, &s.pre)
		s.write(&w, data, &s.lit, &s.dist)
		return w.close()
	}
}

// parse finds matches, greedily, and counts the symbols. Where nothing matches
// for long, less is looked at.
func (s *small) parse(data []byte) {
	s.steps = s.steps[:0]
	clear(s.used[:])
	clear(s.dists[:])
	table, shift := s.table[:], 32-hashBits
	if len(data) <= fewBytes {
		table, shift = s.table[:1<<fewBits], 32-fewBits
	}
	// What was never seen leads to the first byte, which is looked at as any
	// other: that costs less than to ask.
	clear(table)
	mask := uint32(len(table) - 1)
	from := 0 // the first byte that no step has
	// Every second place is compared, and both are noted: whether a place matches
	// is what the processor cannot guess, so each question costs.
	for i, last := 1, len(data)-minMatch-1; i <= last; {
		v := binary.LittleEndian.Uint32(data[i:])
		slot := &table[v*0x9e3779b1>>shift&mask]
		was := int(*slot)
		*slot = uint16(i)
		if binary.LittleEndian.Uint32(data[was:]) != v {
			v = binary.LittleEndian.Uint32(data[i+1:])
			table[v*0x9e3779b1>>shift&mask] = uint16(i + 1)
			i += 2 + (i-from)>>7
			continue
		}
		n := minMatch + common(data[was+minMatch:], data[i+minMatch:min(len(data), i+maxMatch-1)])
		if i > from && was > 0 && data[i-1] == data[was-1] {
			i, was, n = i-1, was-1, n+1
		}
		s.add(data[from:i], n, i-was)
		i += n
		from = i
		if i <= last {
			// The next match often begins with what this one ends with.
			v := binary.LittleEndian.Uint32(data[i-1:])
			table[v*0x9e3779b1>>shift&mask] = uint16(i - 1)
		}
	}
	s.count(data[from:])
	s.steps = append(s.steps, step{literals: uint16(len(data) - from)})
	s.used[endOfBlock] = 1
}

func (s *small) count(literals []byte) {
	for _, b := range literals {
		s.used[b]++
	}
}

func (s *small) add(literals []byte, n, distance int) {
	s.count(literals)
	s.steps = append(s.steps, step{uint16(len(literals)), uint16(n), uint16(distance - 1)})
	s.used[lengths[n-3].symbol]++
	s.dists[distSymbol(uint32(distance-1))]++
}

// common gives how many bytes two texts begin with in common; a is not shorter.
func common(a, b []byte) int {
	n := 0
	for len(b)-n >= 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)>>3
		}
		n += 8
	}
	for n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// extraBits gives how many bits follow the symbols of lengths and distances.
func (s *small) extraBits() int {
	n := 0
	for sym := endOfBlock + 9; sym < litSymbols-1; sym++ {
		n += int(s.used[sym]) * ((sym - endOfBlock - 5) / 4)
	}
	for sym := 4; sym < distSymbols; sym++ {
		n += int(s.dists[sym]) * int(distBits[sym])
	}
	return n
}

func (s *small) fixedBits() int {
	n := 0
	for sym, times := range s.used {
		n += int(times) * int(fixedLit[sym].len)
	}
	for _, times := range s.dists {
		n += int(times) * 5
	}
	return n
}

// fit makes codes for this block, and gives the bits that the header and the
// symbols take.
func (s *small) fit() int {
	s.build.codes(s.lit[:], s.used[:], longestCode)
	s.build.codes(s.dist[:], s.dists[:], longestCode)
	n := s.header.make(s.lit[:], s.dist[:], &s.build, &s.pre)
	for sym, times := range s.used {
		n += int(times) * int(s.lit[sym].len)
	}
	for sym, times := range s.dists {
		n += int(times) * int(s.dist[sym].len)
	}
	return n
}

// write writes the steps, and the end of the block. It is put, again and again,
// on variables of its own: in the bitWriter they would be memory.
func (s *small) write(w *bitWriter, data []byte, lit *[litSymbols]symbol, dist *[distSymbols]symbol) {
	out, at, bits, n := w.b, w.at, w.bits, w.n
	for _, t := range s.steps {
		for _, b := range data[:t.literals] {
			c := lit[b]
			bits |= uint64(c.code) << n
			n += uint(c.len)
			binary.LittleEndian.PutUint64(out[at:], bits)
			at += int(n >> 3)
			bits >>= n &^ 7
			n &= 7
		}
		data = data[int(t.literals)+int(t.length):]
		if t.length == 0 {
			continue
		}
		l := lengths[t.length-3]
		c := lit[l.symbol]
		bits |= (uint64(c.code) | uint64(l.extra)<<c.len) << n
		n += uint(c.len + l.bits)
		d := uint32(t.distanceLess1)
		sym := distSymbol(d)
		more := distBits[sym]
		c = dist[sym]
		bits |= (uint64(c.code) | uint64(d&(1<<more-1))<<c.len) << n
		n += uint(c.len + more)
		binary.LittleEndian.PutUint64(out[at:], bits)
		at += int(n >> 3)
		bits >>= n &^ 7
		n &= 7
	}
	w.at, w.bits, w.n = at, bits, n
	w.put(uint64(lit[endOfBlock].code), uint(lit[endOfBlock].len))
}

// distSymbol gives the symbol of a distance less 1.
func distSymbol(d uint32) uint32 {
	if d < 4 {
		return d
	}
	n := uint32(bits.Len32(d)) - 2
	return 2*n + d>>n
}

// distBits is how many bits follow a distance's symbol.
var distBits = func() (table [distSymbols]uint8) {
	for sym := 4; sym < distSymbols; sym++ {
		table[sym] = uint8(sym/2 - 1)
	}
	return table
}()

// length is how a match's length is written.
type length struct {
	symbol      uint16
	extra, bits uint8
}

// lengths is by the length less 3.
var lengths = func() (table [256]length) {
	at := 0
	for sym := range 28 {
		more := max(0, sym/4-1)
		for extra := range 1 << more {
			if at < 255 {
				table[at] = length{uint16(endOfBlock + 1 + sym), uint8(extra), uint8(more)}
				at++
			}
		}
	}
	table[255] = length{symbol: litSymbols - 1}
	return table
}()

// The fixed code (RFC 1951 3.2.6).
var fixedLit, fixedDist = func() (lit [litSymbols]symbol, dist [distSymbols]symbol) {
	var all [288]symbol
	for i := range all {
		switch {
		case i < 144, i >= 280:
			all[i].len = 8
		case i < 256:
			all[i].len = 9
		default:
			all[i].len = 7
		}
	}
	canonical(all[:])
	copy(lit[:], all[:])
	for i := range dist {
		dist[i] = symbol{code: bits.Reverse16(uint16(i)) >> 11, len: 5}
	}
	return lit, dist
}()

// bitWriter appends bits to a slice that has room for them.
type bitWriter struct {
	b    []byte
	at   int
	bits uint64
	n    uint
}

// newBitWriter is for at most so many bits.
func newBitWriter(dst []byte, most int) bitWriter {
	at := len(dst)
	room := at + (most+7)/8 + 8 // put writes eight bytes at a time
	if cap(dst) < room {
		dst = append(make([]byte, 0, room+room/8), dst...)
	}
	return bitWriter{b: dst[:room], at: at}
}

// put writes at most 56 bits. Whole bytes go out each time: to ask whether there
// are enough of them takes longer.
func (w *bitWriter) put(v uint64, n uint) {
	w.bits |= v << w.n
	w.n += n
	binary.LittleEndian.PutUint64(w.b[w.at:], w.bits)
	w.at += int(w.n >> 3)
	w.bits >>= w.n &^ 7
	w.n &= 7
}

func (w *bitWriter) close() []byte {
	return w.b[:w.at+int(w.n+7)/8]
}
