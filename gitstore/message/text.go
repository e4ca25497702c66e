package message

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxText is the most bytes of free text that a message keeps; what is longer
// is cut at a character and ends in "…". Callers that rather refuse check
// before.
const MaxText = 64 << 10

// CleanText gives a caller's message in the form in which it is recorded: a
// subject line, and if there is more an empty line and the body. Every sort
// of line end becomes a newline, what is no UTF-8 and control characters
// become U+FFFD, white space at line ends and surplus empty lines go. Cleaning
// twice changes nothing more.
func CleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case r == '\r', r == '\v', r == '\f', r == 0x85, r == 0x2028, r == 0x2029:
			return '\n'
		case r < ' ', r == 0x7f, treacherous(r):
			return '\uFFFD'
		}
		return r
	}, s)
	s = strings.TrimLeftFunc(s, unicode.IsSpace)
	subject, rest, _ := strings.Cut(s, "\n")
	subject = strings.TrimRightFunc(strings.ReplaceAll(subject, "\t", " "), unicode.IsSpace)
	var b strings.Builder
	b.Grow(len(s) + 1)
	b.WriteString(subject)
	gap := "\n\n" // what separates the next line from the last one written
	for line := range strings.SplitSeq(rest, "\n") {
		line = strings.TrimRightFunc(line, unicode.IsSpace)
		if line == "" {
			gap = "\n\n"
			continue
		}
		b.WriteString(gap)
		b.WriteString(line)
		gap = "\n"
	}
	return cut(b.String())
}

func cut(s string) string {
	const mark = "…"
	if len(s) <= MaxText {
		return s
	}
	n := MaxText - len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.TrimRightFunc(s[:n], unicode.IsSpace) + mark
}

// oneLine makes text of the server's own fit for a line in the message's body.
func oneLine(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || treacherous(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}

// appendGuarded writes cleaned text so that no line of it means anything to
// git: a line that would has one space put before it, and so has a line that
// is already of that form behind spaces, so that unguard can undo it.
func appendGuarded(dst []byte, text string) []byte {
	for line := range strings.SplitAfterSeq(text, "\n") {
		if meaningful(strings.TrimLeft(line, " ")) {
			dst = append(dst, ' ')
		}
		dst = append(dst, line...)
	}
	return dst
}

func unguard(text string) string {
	if !strings.HasPrefix(text, " ") && !strings.Contains(text, "\n ") {
		return text
	}
	var b strings.Builder
	b.Grow(len(text))
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line != "" && line[0] == ' ' && meaningful(strings.TrimLeft(line, " ")) {
			line = line[1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

// meaningful reports whether some git command takes a line that begins like
// this for more than text:
//
//   - "---" ends the message for git-interpret-trailers(1) and git-am(1), and
//     "diff -" and "Index: " do for the latter;
//   - a scissors line of git-commit(1) does, behind any core.commentChar;
//   - "From ", "From:", "Date:", "Subject:", "[PATCH" are read by
//     git-mailsplit(1) and git-mailinfo(1) as header;
//   - git ignores one of umbra's trailer keys outside the last paragraph, but
//     users find commits with git log --grep='^Task-Id: …'.
func meaningful(line string) bool {
	if line == "" {
		return false
	}
	switch line[0] {
	case '-':
		if strings.HasPrefix(line, "---") {
			return true
		}
	case '>', '[':
		return strings.HasPrefix(line, ">From ") || strings.HasPrefix(line, "[PATCH")
	}
	if strings.HasPrefix(line, "From ") || strings.HasPrefix(line, "diff -") || strings.HasPrefix(line, "Index: ") {
		return true
	}
	if i := strings.Index(line, " ------------------------ >8 -"); i >= 0 && i <= utf8.UTFMax {
		return true
	}
	key, _, ok := strings.Cut(line, ":")
	if !ok {
		return false
	}
	key = strings.TrimRight(key, " \t")
	return isKnownKey(key) || isMailKey(key)
}

func isMailKey(key string) bool {
	return strings.EqualFold(key, "From") || strings.EqualFold(key, "Date") || strings.EqualFold(key, "Subject")
}
