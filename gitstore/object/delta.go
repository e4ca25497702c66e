package object

import (
	"bytes"
	"encoding/binary"
)

// maxCopy is the most that one copy instruction carries: three size bytes.
const maxCopy = 1<<24 - 1

// SpliceDelta gives a delta (gitformat-pack(5), "Deltified representation")
// that makes target from base as common beginning, new middle, common end. It
// costs one comparison of the two, and is small where they differ in one place,
// as two versions of a tree or of an edited file mostly do. Both stay below
// 4 GiB, the reach of a copy instruction.
func SpliceDelta(base, target []byte) []byte {
	pre := commonPrefix(base, target)
	suf := commonSuffix(base[pre:], target[pre:])
	mid := target[pre : len(target)-suf]
	d := make([]byte, 0, len(mid)+len(mid)/127+40)
	d = binary.AppendUvarint(d, uint64(len(base)))
	d = binary.AppendUvarint(d, uint64(len(target)))
	d = appendCopy(d, 0, pre)
	d = appendInsert(d, mid)
	return appendCopy(d, len(base)-suf, suf)
}

// appendInsert adds literal bytes, at most 127 an instruction.
func appendInsert(d, lit []byte) []byte {
	for len(lit) > 0 {
		n := min(len(lit), 127)
		d = append(d, byte(n))
		d = append(d, lit[:n]...)
		lit = lit[n:]
	}
	return d
}

// appendCopy adds n bytes from off of the base. Zero bytes of offset and size
// are left out, as the first byte's bits say.
func appendCopy(d []byte, off, n int) []byte {
	for n > 0 {
		c := min(n, maxCopy)
		op := len(d)
		d = append(d, 0x80)
		for i := range 4 {
			if b := byte(off >> (8 * i)); b != 0 {
				d = append(d, b)
				d[op] |= 1 << i
			}
		}
		// 0x10000 is spelt as no size bytes at all.
		if c != 0x10000 {
			for i := range 3 {
				if b := byte(c >> (8 * i)); b != 0 {
					d = append(d, b)
					d[op] |= 0x10 << i
				}
			}
		}
		off, n = off+c, n-c
	}
	return d
}

// stride is how much is compared at once before single bytes are.
const stride = 512

// commonPrefix gives how many first bytes of a and b are equal.
func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	i := 0
	for i+stride <= n && bytes.Equal(a[i:i+stride], b[i:i+stride]) {
		i += stride
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}

// commonSuffix gives how many last bytes of a and b are equal.
func commonSuffix(a, b []byte) int {
	n := min(len(a), len(b))
	a, b = a[len(a)-n:], b[len(b)-n:]
	i := n
	for i >= stride && bytes.Equal(a[i-stride:i], b[i-stride:i]) {
		i -= stride
	}
	for i > 0 && a[i-1] == b[i-1] {
		i--
	}
	return n - i
}
