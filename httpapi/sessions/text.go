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

// lineScan counts the lines of a text that comes in pieces.
type lineScan struct {
	span
	offset, limit int64
	at            int64 // bytes so far
	open          bool  // the last line has not ended
}

func newLineScan(offset, limit int64) *lineScan {
	return &lineScan{offset: offset, limit: limit}
}

func (s *lineScan) feed(piece []byte) {
	for rest := piece; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if s.open = i < 0; s.open {
			break
		}
		rest = rest[i+1:]
		s.line(s.at + int64(len(piece)-len(rest)))
	}
	s.at += int64(len(piece))
}

// line counts one that ends before a byte.
func (s *lineScan) line(end int64) {
	s.total++
	if s.total > s.offset && s.lines < s.limit {
		s.lines++
		s.to = end
	}
	if s.total == s.offset {
		s.from = end
	}
}

func (s *lineScan) end() span {
	if s.open {
		s.line(s.at)
	}
	if s.lines == 0 {
		s.from, s.to = s.at, s.at
	}
	return s.span
}

// scanLines finds limit lines from a 0-based line on, in constant memory. "\n"
// ends a line; what follows the last one is a line too. ok is false where the
// text is not UTF-8.
func scanLines(r io.Reader, offset, limit int64) (s span, ok bool, err error) {
	scan := newLineScan(offset, limit)
	buf := make([]byte, 64<<10)
	kept := 0 // bytes in front that may be the beginning of a rune
	for {
		n, rerr := r.Read(buf[kept:])
		if rerr != nil && rerr != io.EOF {
			return s, false, rerr
		}
		scan.feed(buf[kept : kept+n])
		all := buf[:kept+n]
		whole := len(all)
		if rerr == nil {
			whole -= partial(all)
		}
		if !utf8.Valid(all[:whole]) {
			return s, false, nil
		}
		kept = copy(buf, all[whole:])
		if rerr == io.EOF {
			return scan.end(), true, nil
		}
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
