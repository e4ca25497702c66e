package wspath

import (
	"strings"
	"unicode/utf8"

	"umbra/internal/errs"
)

// EncodingPercent is the value of "path_encoding" for a path whose bytes
// are not UTF-8.
const EncodingPercent = "percent"

// JSON returns the path as a JSON body has it, and the value of "path_encoding"
// for it: "" where the path is UTF-8 and is unchanged,
// EncodingPercent where its bad bytes, and each "%", are percent-encoded.
func (p Path) JSON() (path, encoding string) { return EncodeJSON(string(p)) }

// EncodeJSON is Path.JSON for other names, such as a link's target.
func EncodeJSON(s string) (text, encoding string) {
	if utf8.ValidString(s) {
		return s, ""
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(s) + 8)
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if c := s[0]; c == '%' || r == utf8.RuneError && size == 1 {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
	return b.String(), EncodingPercent
}

// FromJSON reads a path and its "path_encoding" from a JSON body. It fails as
// Parse does, and with errs.Invalid, code "invalid_path_encoding", for an
// encoding that is neither "" nor EncodingPercent.
func FromJSON(path, encoding string, opts ...Option) (Path, error) {
	switch encoding {
	case "":
		return Parse(path, opts...)
	case EncodingPercent:
		raw, err := DecodePercent(path)
		if err != nil {
			return "", err
		}
		return Parse(raw, opts...)
	}
	return "", errs.New(errs.Invalid, "invalid_path_encoding", "The path_encoding must be absent or \"percent\".")
}

// DecodePercent undoes the percent encoding: "%" and two hex digits, in either
// case, are a byte. Anything else after a "%" is an errs.BadPath, so that a
// path sent in one form and marked as the other is not taken for a third.
func DecodePercent(s string) (string, error) {
	if strings.IndexByte(s, '%') < 0 {
		return s, nil
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", bad(s, "The path ends in the middle of a percent-encoded byte.")
		}
		hi, ok1 := unhex(s[i+1])
		lo, ok2 := unhex(s[i+2])
		if !ok1 || !ok2 {
			return "", bad(s, "The path has a percent sign that no two hex digits follow.")
		}
		b = append(b, hi<<4|lo)
		i += 2
	}
	return string(b), nil
}

func unhex(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
