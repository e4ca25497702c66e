package ignore

import (
	"bytes"
	"strings"
)

// Rule is one line of an ignore file.
type Rule struct {
	Source  string // the file that has it, as a path from the root
	Line    int    // counted from 1
	Pattern string // as git prints it: "!" and a trailing "/" included
	Negated bool   // it takes back what an earlier rule ignores

	text    string // without "!" and the trailing slash
	dirOnly bool
	base    bool // without a slash: matched against the last component
	literal int  // length of the part before the first wildcard
	suffix  bool // "*" and no other wildcard
	wild    glob // what is left to match, if a wildcard is left
}

// parseFile reads the lines of an ignore file, gitignore(5).
func parseFile(source string, data []byte) []Rule {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var rules []Rule
	line := 0
	for len(data) > 0 {
		line++
		raw, rest, ended := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(raw) == 0 || raw[0] == '#' {
			continue
		}
		// git adds the last line's newline, so a carriage return before the
		// end of the file goes too.
		raw = bytes.TrimSuffix(raw, []byte("\r"))
		// git reads the line as a C string.
		raw, _, _ = bytes.Cut(raw, []byte{0})
		if r, ok := parseRule(trimSpaces(string(raw))); ok {
			r.Source, r.Line = source, line
			rules = append(rules, r)
		}
		if !ended {
			break
		}
	}
	return rules
}

// trimSpaces drops spaces at a line's end, but for those after a backslash.
// Where a backslash ends the line nothing is dropped.
func trimSpaces(s string) string {
	end := -1
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			if end < 0 {
				end = i
			}
			continue
		case '\\':
			if i++; i == len(s) {
				return s
			}
		}
		end = -1
	}
	if end >= 0 {
		return s[:end]
	}
	return s
}

// parseRule compiles a pattern; false for one that can match nothing.
func parseRule(s string) (Rule, bool) {
	var r Rule
	s, r.Negated = strings.CutPrefix(s, "!")
	r.text, r.dirOnly = strings.CutSuffix(s, "/")
	if r.text == "" {
		return r, false
	}
	r.Pattern = s
	if r.Negated {
		r.Pattern = "!" + s
	}
	r.base = strings.IndexByte(r.text, '/') < 0
	r.suffix = r.base && s[0] == '*' && !hasWildcard(s[1:])
	if !r.base {
		r.text = strings.TrimPrefix(r.text, "/")
	}
	r.literal = strings.IndexAny(r.text, wildcards)
	if r.literal < 0 {
		r.literal = len(r.text)
		return r, true
	}
	if r.suffix {
		return r, true
	}
	// git compares the literal beginning of an anchored pattern first and
	// judges "**" in the rest as if it were at the beginning.
	rest := r.text
	if !r.base {
		rest = r.text[r.literal:]
	}
	var ok bool
	r.wild, ok = compile(rest, !r.base)
	return r, ok
}

const wildcards = `*?[\`

func hasWildcard(s string) bool { return strings.ContainsAny(s, wildcards) }

// matches judges a path relative to the folder of the rule's file. base is its
// last component.
func (r *Rule) matches(rel, base string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if r.base {
		switch {
		case r.literal == len(r.text):
			return base == r.text
		case r.suffix:
			return strings.HasSuffix(base, r.text[1:])
		}
		return r.wild.match(base)
	}
	if r.literal > len(rel) || rel[:r.literal] != r.text[:r.literal] {
		return false
	}
	rel = rel[r.literal:]
	if r.literal == len(r.text) {
		return rel == ""
	}
	return r.wild.match(rel)
}
