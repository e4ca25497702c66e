package taskfiles

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"umbra/internal/errs"
)

// Lines is a run of whole lines in a text.
type Lines struct {
	From, To int64 // bytes
	Count    int64 // lines from From to To
	Total    int64 // lines of the whole text
}

// FindLines finds up to limit lines from a 0-based line on, reading the whole
// text in constant memory. "\n" ends a line; bytes after the last one are a
// line too. Past the end the run is empty.
//
// errs.Unprocessable not_text where the bytes are not UTF-8.
func FindLines(r io.Reader, offset, limit int64) (Lines, error) {
	var l Lines
	var at int64
	var tail []byte // the start of a rune that the next read completes
	open := false
	end := func() {
		l.Total++
		switch {
		case l.Total == offset:
			l.From, l.To = at, at
		case l.Total > offset && l.Count < limit:
			l.Count++
			l.To = at
		}
	}
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		piece, err := in.ReadSlice('\n')
		if err != nil && err != io.EOF && !errors.Is(err, bufio.ErrBufferFull) {
			return Lines{}, errs.Wrap(err, "")
		}
		if text := append(tail, piece...); !utf8.Valid(text) {
			cut := len(text) - partial(text)
			if err != bufio.ErrBufferFull || !utf8.Valid(text[:cut]) {
				return Lines{}, NotText()
			}
			tail = bytes.Clone(text[cut:])
		} else {
			tail = nil
		}
		at += int64(len(piece))
		switch {
		case err == nil:
			end()
			open = false
		case len(piece) > 0:
			open = true
		}
		if err == io.EOF {
			break
		}
	}
	if open {
		end()
	}
	if l.Count == 0 {
		l.From, l.To = at, at
	}
	return l, nil
}

// partial returns how many bytes at the end may be the start of a rune.
func partial(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if utf8.RuneStart(b[len(b)-n]) {
			return n
		}
	}
	return 0
}

// NotText is the error for content that is not UTF-8.
func NotText() error {
	return errs.New(errs.Unprocessable, "not_text", "The file is not UTF-8 text.")
}
