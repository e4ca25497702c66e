package diff

import (
	"encoding/binary"
	"math"
	"math/bits"
)

const (
	deltaBlock   = 16 // bytes; shorter common stretches are not looked for
	deltaCopyMax = 1 << 16
	deltaAddMax  = 127
	rollFactor   = 0x01000193
)

// delta gives the instructions that make `to` of `from` (gitformat-pack(5),
// "Deltified representation"), or nil if they take more than limit bytes or
// there is nothing to copy from.
//
// Every 16-byte block of from is indexed by its hash; a rolling hash over `to`
// finds them again at any offset, and each find is grown both ways.
func delta(from, to []byte, limit int) []byte {
	if len(from) < deltaBlock || len(to) < deltaBlock || len(from) > math.MaxUint32 {
		return nil
	}
	index := indexBlocks(from)
	shift := uint(32 - bits.TrailingZeros(uint(len(index))))
	out := binary.AppendUvarint(nil, uint64(len(from)))
	out = binary.AppendUvarint(out, uint64(len(to)))

	// drop is the weight of the byte that leaves the window.
	drop := uint32(1)
	for range deltaBlock - 1 {
		drop *= rollFactor
	}
	added := 0 // to[added:at] is not written yet
	at := 0    // start of the window
	hash := rollHash(to)
	for at+deltaBlock <= len(to) {
		if p := int(index[spread(hash)>>shift]) - 1; p >= 0 {
			if n := commonPrefix(from[p:], to[at:]); n >= deltaBlock {
				for p > 0 && at > added && from[p-1] == to[at-1] {
					p, at, n = p-1, at-1, n+1
				}
				out = appendAdd(out, to[added:at])
				out = appendCopy(out, p, n)
				at += n
				added = at
				if len(out) > limit {
					return nil
				}
				if at+deltaBlock <= len(to) {
					hash = rollHash(to[at:])
				}
				continue
			}
		}
		if at+deltaBlock == len(to) {
			break
		}
		hash = (hash-uint32(to[at])*drop)*rollFactor + uint32(to[at+deltaBlock])
		at++
		if len(out)+at-added > limit {
			return nil
		}
	}
	out = appendAdd(out, to[added:])
	if len(out) > limit {
		return nil
	}
	return out
}

// indexBlocks gives, by hash, the offset + 1 of a block of data: the first one
// of equal ones, so that runs are copied from their start.
func indexBlocks(data []byte) []uint32 {
	blocks := len(data) / deltaBlock
	size := 1 << bits.Len(uint(2*blocks))
	index := make([]uint32, size)
	shift := uint(32 - bits.TrailingZeros(uint(size)))
	for i := range blocks {
		slot := &index[spread(rollHash(data[i*deltaBlock:]))>>shift]
		if *slot == 0 {
			*slot = uint32(i*deltaBlock) + 1
		}
	}
	return index
}

// rollHash hashes the first block of data.
func rollHash(data []byte) uint32 {
	h := uint32(0)
	for _, c := range data[:deltaBlock] {
		h = h*rollFactor + uint32(c)
	}
	return h
}

// spread makes the upper bits depend on all.
func spread(h uint32) uint32 { return h * 0x9e3779b1 }

func appendAdd(out, data []byte) []byte {
	for len(data) > 0 {
		n := min(len(data), deltaAddMax)
		out = append(out, byte(n))
		out = append(out, data[:n]...)
		data = data[n:]
	}
	return out
}

// appendCopy writes copies of n bytes from offset: a byte with a bit for each
// of four offset and two size bytes that are not zero, then these. A size of 0
// means 65,536.
func appendCopy(out []byte, offset, n int) []byte {
	for n > 0 {
		size := min(n, deltaCopyMax)
		at := len(out)
		out = append(out, 0x80)
		put := func(bit byte, v int) {
			if v&0xff != 0 {
				out[at] |= bit
				out = append(out, byte(v))
			}
		}
		put(0x01, offset)
		put(0x02, offset>>8)
		put(0x04, offset>>16)
		put(0x08, offset>>24)
		if size != deltaCopyMax {
			put(0x10, size)
			put(0x20, size>>8)
		}
		offset += size
		n -= size
	}
	return out
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
