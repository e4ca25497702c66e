package sessions

import (
	"bytes"
	"io"
	"unicode/utf8"
)

// span is a run of whole lines in a text.
type span struct {
	from, to int64 // bytes
	lines    int64
	total    int64 // lines of the whole text
}

// truncated reports whether lines remain behind the run.
func (s span) truncated(offset int64) bool { return s.total-s.lines > offset }

// scanLines finds limit lines from a 0-based line on, in constant memory. "\n"
// ends a line; what follows the last one is a line too. ok is false where the
// text is not UTF-8.
func scanLines(r io.Reader, offset, limit int64) (s span, ok bool, err error) {
	buf := make([]byte, 64<<10)
	var at int64 // of buf[0] in the text
	kept := 0    // bytes in front that may be the beginning of a rune
	open := false
	s.from = -1
	if offset == 0 {
		s.from = 0
	}
	for {
		n, rerr := r.Read(buf[kept:])
		if rerr != nil && rerr != io.EOF {
			return s, false, rerr
		}
		chunk := buf[kept : kept+n]
		start := at + int64(kept)
		for rest := chunk; len(rest) > 0; {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				open = true
				break
			}
			open = false
			rest = rest[i+1:]
			s.end(start+int64(len(chunk)-len(rest)), offset, limit)
		}
		all := buf[:kept+n]
		whole := len(all)
		if rerr == nil {
			whole -= partial(all)
		}
		if !utf8.Valid(all[:whole]) {
			return s, false, nil
		}
		at += int64(whole)
		kept = copy(buf, all[whole:])
		if rerr == io.EOF {
			break
		}
	}
	if open {
		s.end(at, offset, limit)
	}
	if s.from < 0 || s.lines == 0 {
		s.from, s.to = at, at
	}
	return s, true, nil
}

// end counts a line that ends before a byte.
func (s *span) end(at, offset, limit int64) {
	s.total++
	if s.total > offset && s.lines < limit {
		s.lines++
		s.to = at
	}
	if s.total == offset {
		s.from = at
	}
}

// partial counts the bytes at the end that may be the beginning of a rune.
func partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if utf8.FullRune(b[len(b)-n:]) {
				return 0
			}
			return n
		}
	}
	return 0
}

// jsonText writes UTF-8 as the inside of a JSON string.
type jsonText struct{ w io.Writer }

func (j jsonText) Write(p []byte) (int, error) {
	const hex = "0123456789abcdef"
	from := 0
	for i, c := range p {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		esc := []byte{'\\', c}
		switch {
		case c == '\n':
			esc[1] = 'n'
		case c == '\t':
			esc[1] = 't'
		case c == '\r':
			esc[1] = 'r'
		case c < 0x20:
			esc = []byte{'\\', 'u', '0', '0', hex[c>>4], hex[c&15]}
		}
		if _, err := j.w.Write(p[from:i]); err != nil {
			return from, err
		}
		if _, err := j.w.Write(esc); err != nil {
			return i, err
		}
		from = i + 1
	}
	_, err := j.w.Write(p[from:])
	return len(p), err
}
