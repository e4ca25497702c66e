package pack

import (
	"encoding/binary"
	"math"
)

// DeltaSizes reads what a delta says of its base's and its result's size, from
// at least the first 20 bytes of it (fewer if it has fewer).
func DeltaSizes(delta []byte) (base, target int64, err error) {
	b, n := binary.Uvarint(delta)
	if n <= 0 || b > math.MaxInt64 {
		return 0, 0, corrupt("delta without its base's size")
	}
	t, m := binary.Uvarint(delta[n:])
	if m <= 0 || t > math.MaxInt64 {
		return 0, 0, corrupt("delta without its result's size")
	}
	return int64(b), int64(t), nil
}

// ApplyDelta makes the object that a delta describes (gitformat-pack(5)). It
// takes memory for the result only once the instructions are known to give it;
// a caller that bounds the result asks DeltaSizes first.
func ApplyDelta(base, delta []byte) ([]byte, error) { return applyDelta(nil, base, delta) }

// applyDelta is ApplyDelta into the memory of a slice, if it has room for the result;
// it must be none of base's.
func applyDelta(into, base, delta []byte) ([]byte, error) {
	baseSize, size, err := DeltaSizes(delta)
	if err != nil {
		return nil, err
	}
	if baseSize != int64(len(base)) {
		return nil, corrupt("delta for a base of %d bytes on one of %d", baseSize, len(base))
	}
	_, n := binary.Uvarint(delta)
	_, m := binary.Uvarint(delta[n:])
	body := delta[n+m:]
	var sum int64
	for rest := body; len(rest) > 0; {
		op, after, err := nextOp(rest, len(base))
		if err != nil {
			return nil, err
		}
		if sum += int64(op.n); sum > size {
			return nil, corrupt("delta gives more than its size")
		}
		rest = after
	}
	if sum != size {
		return nil, corrupt("delta gives %d bytes, not %d", sum, size)
	}
	out := into[:0]
	if int64(cap(out)) < size || into == nil {
		out = make([]byte, 0, size)
	}
	for rest := body; len(rest) > 0; {
		op, after, err := nextOp(rest, len(base))
		if err != nil {
			return nil, err
		}
		if op.literal {
			out = append(out, rest[1:1+op.n]...)
		} else {
			out = append(out, base[op.off:op.off+op.n]...)
		}
		rest = after
	}
	return out, nil
}

// deltaOp copies n bytes, from off of the base or those after the instruction.
type deltaOp struct {
	literal bool
	off, n  int
}

// nextOp reads the instruction at the front of b, which is not empty.
func nextOp(b []byte, baseLen int) (deltaOp, []byte, error) {
	c := b[0]
	b = b[1:]
	if c == 0 {
		return deltaOp{}, nil, corrupt("delta instruction 0")
	}
	if c&0x80 == 0 {
		if len(b) < int(c) {
			return deltaOp{}, nil, corrupt("delta ends in an insertion")
		}
		return deltaOp{literal: true, n: int(c)}, b[c:], nil
	}
	var off, n uint64
	for i := range 7 {
		if c&(1<<i) == 0 {
			continue
		}
		if len(b) == 0 {
			return deltaOp{}, nil, corrupt("delta ends in a copy")
		}
		if i < 4 {
			off |= uint64(b[0]) << (8 * i)
		} else {
			n |= uint64(b[0]) << (8 * (i - 4))
		}
		b = b[1:]
	}
	if n == 0 {
		n = 0x10000
	}
	if off+n > uint64(baseLen) {
		return deltaOp{}, nil, corrupt("delta copies from beyond its base")
	}
	return deltaOp{off: int(off), n: int(n)}, b, nil
}
