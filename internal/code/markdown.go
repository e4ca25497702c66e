package code

import "strings"

// Extract gives the content of the one fenced block tagged typescript or ts
// that a text is, or has prose around; any other text as it is.
//
// A fence is CommonMark's (section 4.5): at most three spaces, then three or
// more backticks or tildes; a backtick fence's info string has no backtick; it
// is closed by a line of at least as many of the same and nothing after them
// but blanks, and the content's lines lose as many leading spaces as the
// opening fence has. A second fence, whatever its tag, or one that is never
// closed leaves the text alone, since it is ambiguous.
//
// The line end before the closing fence is the fence's, not the content's.
func Extract(s string) string {
	var (
		open    fence
		inside  bool
		found   bool
		content []string
	)
	for rest, more := s, true; more; {
		var line string
		line, rest, more = cutLine(rest)
		f, isFence := parseFence(line)
		switch {
		case inside && isFence && f.closes(open):
			inside = false
		case inside:
			content = append(content, open.unindent(line))
		case isFence && (found || !f.typescript()):
			return s
		case isFence:
			open, inside, found = f, true, true
		}
	}
	if !found || inside {
		return s
	}
	text := strings.Join(content, "")
	if cut, ok := strings.CutSuffix(text, "\r\n"); ok {
		return cut
	}
	if cut, ok := strings.CutSuffix(text, "\n"); ok {
		return cut
	}
	return strings.TrimSuffix(text, "\r")
}

// cutLine takes the first line, with its end: LF, CR LF, or a CR alone.
func cutLine(s string) (line, rest string, more bool) {
	i := strings.IndexAny(s, "\r\n")
	if i < 0 {
		return s, "", false
	}
	if s[i] == '\r' && i+1 < len(s) && s[i+1] == '\n' {
		i++
	}
	return s[:i+1], s[i+1:], true
}

type fence struct {
	indent int // spaces
	char   byte
	length int
	info   string
}

// parseFence reads a line as a fence, opening or closing.
func parseFence(line string) (fence, bool) {
	line = strings.TrimRight(line, "\r\n")
	var f fence
	for f.indent < len(line) && line[f.indent] == ' ' {
		f.indent++
	}
	rest := line[f.indent:]
	if f.indent > 3 || rest == "" || rest[0] != '`' && rest[0] != '~' {
		return f, false
	}
	f.char = rest[0]
	for f.length < len(rest) && rest[f.length] == f.char {
		f.length++
	}
	f.info = strings.Trim(rest[f.length:], " \t")
	if f.length < 3 || f.char == '`' && strings.Contains(f.info, "`") {
		return f, false
	}
	return f, true
}

func (f fence) closes(open fence) bool {
	return f.char == open.char && f.length >= open.length && f.info == ""
}

// typescript reports whether the info string's first word says so.
func (f fence) typescript() bool {
	word, _, _ := strings.Cut(strings.ReplaceAll(f.info, "\t", " "), " ")
	return strings.EqualFold(word, "typescript") || strings.EqualFold(word, "ts")
}

func (f fence) unindent(line string) string {
	for range f.indent {
		if !strings.HasPrefix(line, " ") {
			break
		}
		line = line[1:]
	}
	return line
}
