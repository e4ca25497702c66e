package secrets

import (
	"bytes"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

// wideOf returns the encoding of a text whose characters have two or four bytes each: by
// its byte order mark, or by the zeros that ASCII has in UTF-16. nil: it is none.
func wideOf(text []byte) encoding.Encoding {
	const looked = 512
	switch {
	case len(text) < 4:
		return nil
	case bytes.HasPrefix(text, []byte("\xff\xfe\x00\x00")):
		return utf32.UTF32(utf32.LittleEndian, utf32.UseBOM)
	case bytes.HasPrefix(text, []byte("\x00\x00\xfe\xff")):
		return utf32.UTF32(utf32.BigEndian, utf32.UseBOM)
	case bytes.HasPrefix(text, []byte("\xff\xfe")):
		return unicode.UTF16(unicode.LittleEndian, unicode.UseBOM)
	case bytes.HasPrefix(text, []byte("\xfe\xff")):
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	case bytes.IndexByte(text[:min(looked, len(text))], 0) < 0:
		return nil
	}
	var zeros [2]int
	part := text[:min(looked, len(text))&^1]
	for i, c := range part {
		if c == 0 {
			zeros[i%2]++
		}
	}
	most := len(part) / 2 * 3 / 4 // of the characters are ASCII
	switch {
	case zeros[0] == 0 && zeros[1] >= most:
		return unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM)
	case zeros[1] == 0 && zeros[0] >= most:
		return unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM)
	}
	return nil
}
