package strictjson

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

func (d *decoder) text(target reflect.Value, at *path) error {
	s, err := d.str()
	if err != nil || !target.IsValid() {
		return err
	}
	if target.CanAddr() {
		if u, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
			if u.UnmarshalText([]byte(s)) != nil {
				d.mistyped(at, "a valid "+strings.ToLower(target.Type().Name()))
			}
			return nil
		}
	}
	switch {
	case target.Kind() == reflect.String && target.Type() != jsonNumber:
		target.SetString(s)
	case isAny(target):
		target.Set(reflect.ValueOf(s))
	default:
		d.mistyped(at, wanted(target))
	}
	return nil
}

// str reads a string in quotes.
func (d *decoder) str() (string, error) {
	d.pos++
	start := d.pos
	for d.pos < len(d.data) {
		switch c := d.data[d.pos]; {
		case c == '"':
			s := d.data[start:d.pos]
			if !utf8.Valid(s) {
				return "", d.notUTF8(start)
			}
			d.pos++
			return string(s), nil
		case c == '\\':
			return d.escaped(start)
		case c < 0x20:
			return "", d.syntax("a string contains a control character")
		}
		d.pos++
	}
	return "", d.syntax("a string does not end")
}

func (d *decoder) notUTF8(start int) error {
	for d.pos = start; d.pos < len(d.data); {
		r, n := utf8.DecodeRune(d.data[d.pos:])
		if r == utf8.RuneError && n <= 1 {
			break
		}
		d.pos += n
	}
	return d.syntax("the text is not UTF-8")
}

// escaped reads on in a string that has an escape, from its start.
func (d *decoder) escaped(start int) (string, error) {
	out := append(make([]byte, 0, d.pos-start+64), d.data[start:d.pos]...)
	for d.pos < len(d.data) {
		c := d.data[d.pos]
		switch {
		case c == '"':
			d.pos++
			if !utf8.Valid(out) {
				return "", d.notUTF8(start)
			}
			return string(out), nil
		case c < 0x20:
			return "", d.syntax("a string contains a control character")
		case c != '\\':
			out = append(out, c)
			d.pos++
			continue
		}
		if d.pos+1 >= len(d.data) {
			return "", d.syntax("a string does not end")
		}
		switch e := d.data[d.pos+1]; e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, err := d.unicode()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
			continue
		default:
			return "", d.syntax("a string contains an unknown escape")
		}
		d.pos += 2
	}
	return "", d.syntax("a string does not end")
}

// unicode reads \uXXXX, two of them where they are a surrogate pair.
func (d *decoder) unicode() (rune, error) {
	unit := func() (rune, bool) {
		if d.pos+6 > len(d.data) || d.data[d.pos] != '\\' || d.data[d.pos+1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(d.data[d.pos+2:d.pos+6]), 16, 32)
		return rune(n), err == nil
	}
	high, ok := unit()
	if !ok {
		return 0, d.syntax("a \\u escape needs four hexadecimal digits")
	}
	if !utf16.IsSurrogate(high) {
		d.pos += 6
		return high, nil
	}
	start := d.pos
	d.pos += 6
	low, ok := unit()
	if r := utf16.DecodeRune(high, low); ok && r != utf8.RuneError {
		d.pos += 6
		return r, nil
	}
	d.pos = start
	return 0, d.syntax("a string contains a lone surrogate")
}

func (d *decoder) number(target reflect.Value, at *path) error {
	start := d.pos
	digits := func() bool {
		from := d.pos
		for c := d.peek(); c >= '0' && c <= '9'; c = d.peek() {
			d.pos++
		}
		return d.pos > from
	}
	if d.peek() == '-' {
		d.pos++
	}
	if d.peek() == '0' {
		d.pos++
	} else if !digits() {
		return d.syntax("a digit is expected")
	}
	if d.peek() == '.' {
		d.pos++
		if !digits() {
			return d.syntax("a digit is expected")
		}
	}
	if c := d.peek(); c == 'e' || c == 'E' {
		d.pos++
		if c := d.peek(); c == '+' || c == '-' {
			d.pos++
		}
		if !digits() {
			return d.syntax("a digit is expected")
		}
	}
	if target.IsValid() && !setNumber(target, string(d.data[start:d.pos])) {
		d.mistyped(at, wanted(target))
	}
	return nil
}

func setNumber(target reflect.Value, s string) bool {
	switch {
	case target.Type() == jsonNumber:
		target.SetString(s)
	case target.CanInt():
		n, ok := integer(s)
		if !ok || target.OverflowInt(n) {
			return false
		}
		target.SetInt(n)
	case target.CanUint():
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || target.OverflowUint(n) {
			return false
		}
		target.SetUint(n)
	case target.CanFloat():
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || target.OverflowFloat(f) {
			return false
		}
		target.SetFloat(f)
	case isAny(target):
		// Kept as it was written: a float64 would bend large integers.
		target.Set(reflect.ValueOf(json.Number(s)))
	default:
		return false
	}
	return true
}

// integer takes 5 and -5, and 5.0 and 5e0 too, which some clients write.
func integer(s string) (int64, bool) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
