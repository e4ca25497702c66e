// Package textlines finds runs of lines in texts of any size.
//
// "\n" ends a line; bytes after the last one are a line too. Lines are counted from 0.
package textlines

import (
	"bytes"
	"io"
	"unicode/utf8"

	"umbra/internal/errs"
)

// Lines is a run of whole lines in a text. Past the end of the text it is empty.
type Lines struct {
	From, To int64 // bytes
	Count    int64 // lines from From to To
	Total    int64 // lines of the whole text
}

// Truncated reports whether lines follow the run, which begins at line offset.
func (l Lines) Truncated(offset int64) bool { return l.Total-l.Count > offset }

// lineScan counts the lines of a text that comes in pieces.
type lineScan struct {
	Lines
	offset, limit int64
	at            int64 // bytes so far
	open          bool  // the last line has not ended
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
	s.Total++
	if s.Total > s.offset && s.Count < s.limit {
		s.Count++
		s.To = end
	}
	if s.Total == s.offset {
		s.From = end
	}
}

func (s *lineScan) end() Lines {
	if s.open {
		s.line(s.at)
	}
	if s.Count == 0 {
		s.From, s.To = s.at, s.at
	}
	return s.Lines
}

// In finds up to limit lines from a line on in a text, which is UTF-8.
func In(text []byte, offset, limit int64) Lines {
	scan := lineScan{offset: offset, limit: limit}
	scan.feed(text)
	return scan.end()
}

// Find finds up to limit lines from a line on. It reads the whole text, in constant
// memory.
//
// errs.Unprocessable not_text where the bytes are not UTF-8.
func Find(r io.Reader, offset, limit int64) (Lines, error) {
	scan := lineScan{offset: offset, limit: limit}
	buf := make([]byte, 64<<10)
	kept := 0 // bytes in front that may be the beginning of a rune
	for {
		n, rerr := r.Read(buf[kept:])
		if rerr != nil && rerr != io.EOF {
			return Lines{}, errs.Wrap(rerr, "")
		}
		scan.feed(buf[kept : kept+n])
		all := buf[:kept+n]
		whole := len(all)
		if rerr == nil {
			whole -= partial(all)
		}
		if !utf8.Valid(all[:whole]) {
			return Lines{}, NotText()
		}
		kept = copy(buf, all[whole:])
		if rerr == io.EOF {
			return scan.end(), nil
		}
	}
}

// NotText is the error for content that is not UTF-8.
func NotText() error {
	return errs.New(errs.Unprocessable, "not_text", "The file is not UTF-8 text.")
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
