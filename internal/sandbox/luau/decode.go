package luau

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Tags of a value on its way into the interpreter; the prelude's decode reads
// them. Numbers are little-endian; sizes and counts are 32 bits.
const (
	tagNil    = 0
	tagFalse  = 1
	tagTrue   = 2
	tagNumber = 3 // 8 bytes
	tagString = 4 // size, bytes
	tagArray  = 5 // count, values
	tagObject = 6 // count, then size and bytes of a key, and a value, each
)

// transcode reads strict JSON (RFC 8259) and writes what the prelude reads.
func transcode(text []byte) ([]byte, error) {
	d := &transcoder{text: text, out: make([]byte, 0, len(text)+len(text)/2+16)}
	d.space()
	if err := d.value(0); err != nil {
		return nil, err
	}
	d.space()
	if d.at < len(d.text) {
		return nil, d.fail("something follows the value")
	}
	return d.out, nil
}

type transcoder struct {
	text []byte
	at   int
	out  []byte
}

func (d *transcoder) fail(what string) error {
	return &LuaError{fmt.Sprintf("invalid JSON at byte %d: %s", d.at+1, what)}
}

func (d *transcoder) space() {
	for d.at < len(d.text) {
		switch d.text[d.at] {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return
		}
	}
}

func (d *transcoder) peek() byte {
	if d.at < len(d.text) {
		return d.text[d.at]
	}
	return 0
}

func (d *transcoder) word(w string, tag byte) error {
	if len(d.text)-d.at < len(w) || string(d.text[d.at:d.at+len(w)]) != w {
		return d.fail("no value")
	}
	d.at += len(w)
	d.out = append(d.out, tag)
	return nil
}

func (d *transcoder) value(depth int) error {
	if depth > maxDepth {
		return d.fail("it is nested more than 1000 levels deep")
	}
	if d.at >= len(d.text) {
		return d.fail("it ends too early")
	}
	switch c := d.text[d.at]; {
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth)
	case c == '"':
		d.out = append(d.out, tagString)
		return d.str()
	case c == 't':
		return d.word("true", tagTrue)
	case c == 'f':
		return d.word("false", tagFalse)
	case c == 'n':
		return d.word("null", tagNil)
	case c == '-', c >= '0' && c <= '9':
		return d.number()
	}
	return d.fail("no value")
}

// count leaves room for a number that is known later.
func (d *transcoder) count(tag byte) (at int) {
	d.out = append(d.out, tag, 0, 0, 0, 0)
	return len(d.out) - 4
}

func (d *transcoder) setCount(at, n int) { binary.LittleEndian.PutUint32(d.out[at:], uint32(n)) }

func (d *transcoder) array(depth int) error {
	count, n := d.count(tagArray), 0
	d.at++
	if d.space(); d.peek() == ']' {
		d.at++
		return nil
	}
	for {
		d.space()
		if err := d.value(depth + 1); err != nil {
			return err
		}
		n++
		d.space()
		switch d.peek() {
		case ',':
			d.at++
		case ']':
			d.at++
			d.setCount(count, n)
			return nil
		default:
			return d.fail("a comma or ] is missing")
		}
	}
}

func (d *transcoder) object(depth int) error {
	count, n := d.count(tagObject), 0
	d.at++
	if d.space(); d.peek() == '}' {
		d.at++
		return nil
	}
	for {
		if d.space(); d.peek() != '"' {
			return d.fail("a name is missing")
		}
		if err := d.str(); err != nil {
			return err
		}
		if d.space(); d.peek() != ':' {
			return d.fail("a colon is missing")
		}
		d.at++
		d.space()
		if err := d.value(depth + 1); err != nil {
			return err
		}
		n++
		d.space()
		switch d.peek() {
		case ',':
			d.at++
		case '}':
			d.at++
			d.setCount(count, n)
			return nil
		default:
			return d.fail("a comma or } is missing")
		}
	}
}

func (d *transcoder) digits() int {
	from := d.at
	for c := d.peek(); c >= '0' && c <= '9'; c = d.peek() {
		d.at++
	}
	return d.at - from
}

func (d *transcoder) number() error {
	from := d.at
	if d.peek() == '-' {
		d.at++
	}
	if d.peek() == '0' {
		d.at++
	} else if d.digits() == 0 {
		return d.fail("a digit is missing")
	}
	if d.peek() == '.' {
		d.at++
		if d.digits() == 0 {
			return d.fail("a digit is missing")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.at++
		if c := d.peek(); c == '+' || c == '-' {
			d.at++
		}
		if d.digits() == 0 {
			return d.fail("a digit is missing")
		}
	}
	// A number beyond all bounds is infinite, as in the language.
	f, _ := strconv.ParseFloat(string(d.text[from:d.at]), 64)
	d.out = append(d.out, tagNumber)
	d.out = binary.LittleEndian.AppendUint64(d.out, math.Float64bits(f))
	return nil
}

// str writes a string's size and bytes.
func (d *transcoder) str() error {
	size := len(d.out)
	d.out = append(d.out, 0, 0, 0, 0)
	d.at++
	for {
		from := d.at
		for d.at < len(d.text) && d.text[d.at] >= 0x20 && d.text[d.at] < utf8.RuneSelf && d.text[d.at] != '"' && d.text[d.at] != '\\' {
			d.at++
		}
		d.out = append(d.out, d.text[from:d.at]...)
		if d.at >= len(d.text) {
			return d.fail("a string has no end")
		}
		switch c := d.text[d.at]; {
		case c == '"':
			d.at++
			d.setCount(size, len(d.out)-size-4)
			return nil
		case c == '\\':
			if err := d.escape(); err != nil {
				return err
			}
		case c < 0x20:
			return d.fail("a control character in a string")
		default:
			r, n := utf8.DecodeRune(d.text[d.at:])
			if r == utf8.RuneError && n == 1 {
				return d.fail("a string is not UTF-8")
			}
			d.out = append(d.out, d.text[d.at:d.at+n]...)
			d.at += n
		}
	}
}

var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (d *transcoder) escape() error {
	d.at++
	c := d.peek()
	if c != 'u' {
		if escapes[c] == 0 {
			return d.fail("an unknown escape")
		}
		d.at++
		d.out = append(d.out, escapes[c])
		return nil
	}
	r, err := d.unit()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		// A half without its other half becomes U+FFFD.
		back := d.at
		other := rune(utf8.RuneError)
		if d.at+1 < len(d.text) && d.text[d.at] == '\\' && d.text[d.at+1] == 'u' {
			d.at++
			if other, err = d.unit(); err != nil {
				return err
			}
		}
		if r = utf16.DecodeRune(r, other); r == utf8.RuneError {
			d.at = back
		}
	}
	d.out = utf8.AppendRune(d.out, r)
	return nil
}

// unit reads the u and four digits of an escape.
func (d *transcoder) unit() (rune, error) {
	d.at++
	if len(d.text)-d.at < 4 {
		return 0, d.fail("an escape is cut off")
	}
	n, err := strconv.ParseUint(string(d.text[d.at:d.at+4]), 16, 16)
	if err != nil {
		return 0, d.fail("an escape is malformed")
	}
	d.at += 4
	return rune(n), nil
}
