package wasmpatch

import (
	"errors"
	"fmt"
)

// The codes that the package writes or must distinguish.
const (
	opNop         = 0x01
	opBlock       = 0x02
	opLoop        = 0x03
	opIf          = 0x04
	opElse        = 0x05
	opEnd         = 0x0b
	opBr          = 0x0c
	opBrIf        = 0x0d
	opBrTable     = 0x0e
	opReturn      = 0x0f
	opCall        = 0x10
	opCallIndir   = 0x11
	opDrop        = 0x1a
	opSelect      = 0x1b
	opSelectTyped = 0x1c
	opLocalGet    = 0x20
	opLocalTee    = 0x22
	opGlobalGet   = 0x23
	opGlobalSet   = 0x24
	opTableSet    = 0x26
	opLoadFirst   = 0x28
	opStoreLast   = 0x3e
	opMemorySize  = 0x3f
	opMemoryGrow  = 0x40
	opI32Const    = 0x41
	opI64Const    = 0x42
	opF32Const    = 0x43
	opF64Const    = 0x44
	opI32Eqz      = 0x45
	opI32LtS      = 0x48
	opI32Add      = 0x6a
	opI32Sub      = 0x6b
	opSignExtLast = 0xc4
	opRefNull     = 0xd0
	opRefIsNull   = 0xd1
	opRefFunc     = 0xd2
	opPrefixFC    = 0xfc

	typeI32    = 0x7f
	blockEmpty = 0x40
)

// instrument puts a countdown at the head of each loop of a function's body
// (its locals and its code).
func instrument(f, countdown []byte) ([]byte, error) {
	r := &reader{data: f}
	for range r.u32() {
		r.u32()
		r.byte()
		if r.err != nil {
			return nil, r.err
		}
	}
	out := make([]byte, 0, len(f)+len(f)/8)
	copied := 0
	for r.at < len(r.data) && r.err == nil {
		op := r.byte()
		if err := r.immediates(op); err != nil {
			return nil, err
		}
		if op == opLoop && r.err == nil {
			out = append(out, f[copied:r.at]...)
			out = append(out, countdown...)
			copied = r.at
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return append(out, f[copied:]...), nil
}

// immediates reads over what follows an instruction's code.
func (r *reader) immediates(op byte) error {
	switch {
	case op == opBlock, op == opLoop, op == opIf:
		r.s33()
	case op == opBr, op == opBrIf, op == opCall, op >= opLocalGet && op <= opTableSet, op == opRefFunc, op == opMemorySize, op == opMemoryGrow:
		r.u32()
	case op == opBrTable:
		for range r.u32() {
			if r.err != nil {
				return r.err
			}
			r.u32()
		}
		r.u32()
	case op == opCallIndir, op >= opLoadFirst && op <= opStoreLast:
		r.u32()
		r.u32()
	case op == opSelectTyped:
		r.take(int(r.u32()))
	case op == opI32Const:
		r.s33()
	case op == opI64Const:
		r.s64()
	case op == opF32Const:
		r.take(4)
	case op == opF64Const:
		r.take(8)
	case op == opRefNull:
		r.byte()
	case op == opPrefixFC:
		return r.prefixed(r.u32())
	case op <= opNop, op == opElse, op == opEnd, op == opReturn, op == opDrop, op == opSelect, op >= opI32Eqz && op <= opSignExtLast, op == opRefIsNull:
	default:
		return fmt.Errorf("unknown instruction %#x", op)
	}
	return r.err
}

// prefixed reads over the immediates of the instructions that begin with 0xfc.
func (r *reader) prefixed(sub uint32) error {
	switch {
	case sub <= 7: // saturating conversions
	case sub == 9, sub == 11, sub == 13, sub >= 15 && sub <= 17:
		r.u32()
	case sub == 8, sub == 10, sub == 12, sub == 14:
		r.u32()
		r.u32()
	default:
		return fmt.Errorf("unknown instruction 0xfc %d", sub)
	}
	return r.err
}

// reader reads a module's primitives; after a failure it gives zeros.
type reader struct {
	data []byte
	at   int
	err  error
}

var errTruncated = errors.New("the module is cut off or malformed")

func (r *reader) byte() byte {
	if r.err != nil || r.at >= len(r.data) {
		r.err = errTruncated
		return 0
	}
	r.at++
	return r.data[r.at-1]
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.data)-r.at {
		r.err = errTruncated
		return nil
	}
	r.at += n
	return r.data[r.at-n : r.at : r.at]
}

// u32 reads an unsigned LEB128 number of up to 32 bits.
func (r *reader) u32() uint32 {
	var n uint64
	for shift := 0; shift < 35; shift += 7 {
		b := r.byte()
		n |= uint64(b&0x7f) << shift
		if b < 0x80 {
			if n > 1<<32-1 {
				break
			}
			return uint32(n)
		}
	}
	r.err = errTruncated
	return 0
}

// signed reads a signed LEB128 number of so many bytes at most.
func (r *reader) signed(bytes int) int64 {
	var n int64
	for shift := 0; shift < 7*bytes; shift += 7 {
		b := r.byte()
		n |= int64(b&0x7f) << shift
		if b < 0x80 {
			if b&0x40 != 0 && shift+7 < 64 {
				n |= -1 << (shift + 7)
			}
			return n
		}
	}
	r.err = errTruncated
	return 0
}

// s33 reads a block's type: an index, or below 0 none or one value.
func (r *reader) s33() int64 { return r.signed(5) }

func (r *reader) s64() int64 { return r.signed(10) }

func (r *reader) limits() {
	flags := r.byte()
	r.u32()
	if flags&1 != 0 {
		r.u32()
	}
}

func appendU32(b []byte, n uint32) []byte {
	for n >= 0x80 {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

func appendS32(b []byte, n int32) []byte {
	for {
		low := byte(n & 0x7f)
		n >>= 7
		if n == 0 && low&0x40 == 0 || n == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}
