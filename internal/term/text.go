package term

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"umbra/gitstore/message"
)

// Name gives a path as git prints one: quoted where it holds what a terminal
// would act on.
func Name(path string) string { return message.QuotePath(path) }

// Line makes a stranger's text fit for one line of a terminal: what is no
// printable character is escaped, and all white space is one space.
func Line(s string) string {
	var b strings.Builder
	space := false
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		text := s[i : i+n]
		i += n
		switch {
		case unicode.IsSpace(r):
			space = b.Len() > 0
			continue
		case r == utf8.RuneError && n == 1:
			text = fmt.Sprintf("\\x%02x", text[0])
		case !unicode.IsPrint(r):
			text = fmt.Sprintf("\\u%04x", r)
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		b.WriteString(text)
	}
	return b.String()
}

// Cut shortens a line to so many characters, telling so.
func Cut(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	r := []rune(s)
	return string(r[:limit-1]) + "…"
}

// Table writes rows in columns, each as wide as its widest cell; the last one
// is not padded. The first row is the head.
func (o *Output) Table(rows [][]string) {
	if len(rows) == 0 {
		return
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell)))
			}
		}
		line := strings.TrimRight(b.String(), " ")
		if n == 0 {
			line = o.Paint(Meta, line)
		}
		o.Printf("%s\n", line)
	}
}
