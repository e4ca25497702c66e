package luau

import (
	"bytes"
	"math"
	"strconv"

	"github.com/tetratelabs/wazero/api"
)

// string.format, done here. The interpreter's own goes through C's printf,
// whose long double is a 128-bit number that WebAssembly has not and whose
// steps are many: a microsecond or two for one number. Special cases (an
// error, NaN, quoting, a long result) are left to it, so that
// it needs no second description here.

// format answers the interpreter's shortcut (see embed): state, room and its
// size give how many bytes were put there, or -1 if the interpreter must do it.
func format(s *script, _ api.Module, stack []uint64) {
	m := s.memory()
	state := uint32(stack[0])
	base, top := m.u32(state+stateBase), m.u32(state+stateTop)
	room := m.span(uint32(stack[1]), uint32(stack[2]))
	stack[0] = math.MaxUint32
	if base > top || room == nil {
		return
	}
	f := formatter{m: m, next: base, top: top}
	if out, ok := f.run(room[:0]); ok && len(out) <= len(room) {
		// What outgrew the room on its way and is short in the end lies elsewhere.
		copy(room, out)
		stack[0] = uint64(len(out))
	}
}

// formatter walks over the arguments of one call, as they lie on the stack.
type formatter struct {
	m         memory
	next, top uint32
}

// arg gives the next argument, if there is one more.
func (f *formatter) arg() (value, bool) {
	if f.next >= f.top {
		return value{}, false
	}
	v := f.m.value(f.next)
	f.next += valueSize
	return v, true
}

// run appends the result, or gives false for what is not done here.
func (f *formatter) run(out []byte) ([]byte, bool) {
	v, ok := f.arg()
	if !ok || v.kind != kindString {
		return nil, false
	}
	text := f.m.bytes(v)
	for {
		i := literal(text)
		if i > cap(out)-len(out) {
			return nil, false
		}
		out = append(out, text[:i]...)
		if text = text[i:]; len(text) == 0 {
			return out, true
		}
		if len(text) == 1 {
			return nil, false
		}
		if text[1] == '%' {
			out, text = append(out, '%'), text[2:]
			continue
		}
		var d directive
		n, ok := d.read(text[1:])
		if !ok {
			return nil, false
		}
		text = text[1+n:]
		if v, ok = f.arg(); !ok {
			return nil, false
		}
		if out, ok = f.item(out, d, v); !ok {
			return nil, false
		}
	}
}

// literal gives how many bytes come before the next %. Mostly there are a few, or
// none: to call bytes.IndexByte for them takes longer.
func literal(text []byte) int {
	const few = 16
	for i, c := range text[:min(few, len(text))] {
		if c == '%' {
			return i
		}
	}
	if len(text) > few {
		if i := bytes.IndexByte(text[few:], '%'); i >= 0 {
			return few + i
		}
	}
	return len(text)
}

// directive is one % with what follows it.
type directive struct {
	minus, plus, space, zero bool
	width, precision         int // precision -1: none
	verb                     byte
}

// mostFlags is how many the interpreter takes at least.
const mostFlags = 4

// flag takes a flag; # is not one that is done here.
func (d *directive) flag(c byte) bool {
	switch c {
	case '-':
		d.minus = true
	case '+':
		d.plus = true
	case ' ':
		d.space = true
	case '0':
		d.zero = true
	default:
		return false
	}
	return true
}

// read reads a directive behind its %, and gives its length.
func (d *directive) read(text []byte) (int, bool) {
	d.precision = -1
	at := 0
	for ; at < len(text) && d.flag(text[at]); at++ {
		if at >= mostFlags {
			return 0, false
		}
	}
	var ok bool
	if d.width, at, ok = twoDigits(text, at); !ok {
		return 0, false
	}
	if at < len(text) && text[at] == '.' {
		if d.precision, at, ok = twoDigits(text, at+1); !ok {
			return 0, false
		}
	}
	if at >= len(text) {
		return 0, false
	}
	d.verb = text[at]
	return at + 1, true
}

// twoDigits reads a number of at most two digits; none is 0.
func twoDigits(text []byte, at int) (n, next int, ok bool) {
	from := at
	for ; at < len(text) && text[at] >= '0' && text[at] <= '9'; at++ {
		if at-from == 2 {
			return 0, at, false
		}
		n = n*10 + int(text[at]-'0')
	}
	return n, at, true
}

// maxInteger bounds the numbers whose integers are the same in C and in Go.
const maxInteger = 1 << 63

// item appends one argument.
func (f *formatter) item(out []byte, d directive, v value) ([]byte, bool) {
	switch d.verb {
	case '*':
		if d != (directive{verb: '*', precision: -1}) {
			return nil, false
		}
		return f.any(out, v)
	case 's':
		if d.zero || d.plus || d.space {
			return nil, false
		}
		from := len(out)
		if v.kind != kindString && v.kind != kindNumber {
			return nil, false
		}
		out, ok := f.any(out, v)
		if !ok || d == (directive{verb: 's', precision: -1}) {
			return out, ok
		}
		// Padded or truncated text is a C string.
		if bytes.IndexByte(out[from:], 0) >= 0 {
			return nil, false
		}
		if d.precision >= 0 && len(out)-from > d.precision {
			out = out[:from+d.precision]
		}
		return d.pad(out, from, from), true
	}
	n := v.number()
	if v.kind != kindNumber || math.IsNaN(n) || math.IsInf(n, 0) {
		return nil, false
	}
	from := len(out)
	switch d.verb {
	case 'd', 'i':
		if n < -maxInteger || n >= maxInteger {
			return nil, false
		}
		i := int64(n)
		out = d.sign(out, i < 0)
		magnitude := uint64(i)
		if i < 0 {
			magnitude = -magnitude
		}
		return d.integer(out, from, magnitude, 10), true
	case 'u', 'x', 'X', 'o':
		if n < -maxInteger || n >= maxInteger || d.plus || d.space {
			return nil, false
		}
		base := 16
		switch d.verb {
		case 'u':
			base = 10
		case 'o':
			base = 8
		}
		return d.integer(out, from, uint64(int64(n)), base), true
	case 'e', 'E', 'f', 'g', 'G':
		precision := d.precision
		if precision < 0 {
			precision = 6 // C's
		}
		out = d.sign(out, math.Signbit(n))
		digits := len(out)
		out = appendFloat(out, math.Abs(n), d.verb, precision)
		return d.pad(out, from, digits), true
	case 'c':
		if n < 1 || n >= 256 || d.zero || d.plus || d.space || d.precision >= 0 {
			return nil, false
		}
		return d.pad(append(out, byte(n)), from, from), true
	}
	return nil, false
}

// appendFloat appends a number that is not negative.
func appendFloat(out []byte, n float64, verb byte, precision int) []byte {
	if verb == 'f' && precision < len(powers) {
		// Most numbers that are printed with few decimals are whole ones times a small
		// power of two: multiplied by ten for each decimal they are still exact, and
		// rounding that is rounding the number itself, a half to the even.
		pow := powers[precision]
		if scaled := n * float64(pow); scaled < 1<<53 && math.FMA(n, float64(pow), -scaled) == 0 {
			return appendFixed(out, uint64(math.RoundToEven(scaled)), precision)
		}
	}
	return strconv.AppendFloat(out, n, verb, precision, 64)
}

// powers are those of ten.
var powers = [...]uint64{1, 10, 100, 1_000, 10_000, 100_000, 1_000_000}

// appendFixed appends a number that is n divided by ten for each decimal.
func appendFixed(out []byte, n uint64, decimals int) []byte {
	if decimals == 0 {
		return strconv.AppendUint(out, n, 10)
	}
	pow := powers[decimals]
	out = strconv.AppendUint(out, n/pow, 10)
	out = append(out, ".000000"[:1+decimals]...)
	n %= pow
	for at := len(out) - 1; n > 0; at-- {
		out[at] = byte('0' + n%10)
		n /= 10
	}
	return out
}

// any appends a value as tostring gives it.
func (f *formatter) any(out []byte, v value) ([]byte, bool) {
	switch v.kind {
	case kindNil:
		return append(out, "nil"...), true
	case kindBoolean:
		return strconv.AppendBool(out, v.bool()), true
	case kindString:
		text := f.m.bytes(v)
		if len(text) > cap(out)-len(out) {
			return nil, false
		}
		return append(out, text...), true
	case kindNumber:
		n := v.number()
		abs := math.Abs(n)
		switch {
		case math.IsNaN(n) || math.IsInf(n, 0):
			return nil, false
		case n == 0, abs >= 1e-6 && abs < 1e21:
			return strconv.AppendFloat(out, n, 'f', -1, 64), true
		}
		return strconv.AppendFloat(out, n, 'e', -1, 64), true
	}
	return nil, false
}

func (d *directive) sign(out []byte, negative bool) []byte {
	switch {
	case negative:
		return append(out, '-')
	case d.plus:
		return append(out, '+')
	case d.space:
		return append(out, ' ')
	}
	return out
}

// integer appends a number's digits to its sign. A precision is how many there
// are at least, and then zeros fill nothing else.
func (d *directive) integer(out []byte, from int, n uint64, base int) []byte {
	digits := len(out)
	if n != 0 || d.precision != 0 {
		out = strconv.AppendUint(out, n, base)
	}
	if d.verb == 'X' {
		copy(out[digits:], bytes.ToUpper(out[digits:]))
	}
	if d.precision >= 0 {
		out = fill(out, digits, d.precision-(len(out)-digits), '0')
		d.zero = false
	}
	return d.pad(out, from, digits)
}

// pad fills an item up to its width; it begins at from, its digits (behind the
// sign) at digits.
func (d *directive) pad(out []byte, from, digits int) []byte {
	short := d.width - (len(out) - from)
	switch {
	case d.minus:
		return fill(out, len(out), short, ' ')
	case d.zero:
		return fill(out, digits, short, '0')
	}
	return fill(out, from, short, ' ')
}

// fill puts n bytes in.
func fill(out []byte, at, n int, with byte) []byte {
	if n <= 0 {
		return out
	}
	for range n {
		out = append(out, with)
	}
	copy(out[at+n:], out[at:len(out)-n])
	for i := range n {
		out[at+i] = with
	}
	return out
}
