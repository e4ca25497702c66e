package term

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Diff copies a patch as git writes it, colored. Lines of a hunk are separated from
// headers by counting, so that content which looks like a header is not taken for one.
func (o *Output) Diff(r io.Reader) error {
	if !o.color {
		_, err := io.Copy(o, r)
		return err
	}
	in := bufio.NewReaderSize(r, 64<<10)
	var h hunk
	for {
		line, err := in.ReadSlice('\n')
		st := h.style(line)
		if err := o.line(st, line); err != nil {
			return err
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
			line, err = in.ReadSlice('\n')
			if err := o.line(st, line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// line writes a line, or a piece of one, in a style; the newline stays outside.
func (o *Output) line(st Style, line []byte) error {
	text, ended := bytes.CutSuffix(line, []byte("\n"))
	switch {
	case len(text) == 0:
	case st == Plain:
		_, _ = o.Write(text)
	default:
		o.Printf("%s%s%s", string(st), text, reset)
	}
	if ended {
		o.Printf("\n")
	}
	return o.err
}

// hunk is where a patch is being read: how many lines of each side the hunk
// still holds.
type hunk struct{ old, new int }

func (h *hunk) style(line []byte) Style {
	if h.old > 0 || h.new > 0 {
		switch {
		case bytes.HasPrefix(line, []byte("-")):
			h.old--
			return Removed
		case bytes.HasPrefix(line, []byte("+")):
			h.new--
			return Added
		case bytes.HasPrefix(line, []byte("\\")):
			return Plain
		}
		h.old--
		h.new--
		return Plain
	}
	if rest, ok := bytes.CutPrefix(line, []byte("@@ -")); ok {
		h.old, rest = count(rest)
		if rest, ok = bytes.CutPrefix(rest, []byte(" +")); ok {
			h.new, _ = count(rest)
			return Frag
		}
		h.old = 0
	}
	for _, head := range []string{"diff --git ", "index ", "--- ", "+++ ", "new file mode ", "deleted file mode ", "old mode ", "new mode ",
		"similarity index ", "rename from ", "rename to ", "Binary files ", "GIT binary patch"} {
		if bytes.HasPrefix(line, []byte(head)) {
			return Meta
		}
	}
	return Plain
}

// count reads "12,3" or "12" of a hunk's head: the number of lines, and what
// follows.
func count(s []byte) (lines int, rest []byte) {
	number := func() (n int) {
		for len(s) > 0 && s[0] >= '0' && s[0] <= '9' && n < 1<<40 {
			n = 10*n + int(s[0]-'0')
			s = s[1:]
		}
		return n
	}
	lines = 1
	number()
	if rest, ok := bytes.CutPrefix(s, []byte(",")); ok {
		s = rest
		lines = number()
	}
	return lines, s
}
