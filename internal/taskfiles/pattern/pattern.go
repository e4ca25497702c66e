// Package pattern matches slash-separated paths against globs as a shell does:
// "*" and "?" stay within one name, "**" as a whole name is any number of
// directories, "[a-z]" and "[!a-z]" are one character, "{a,b}" is either, and a
// backslash takes the next character literally. A wildcard never matches a
// leading dot of a name; a pattern that has the dot does (glob(7)).
//
// Braces are expanded when a pattern is compiled, at most 1000 alternatives.
// Matching one name takes time proportional to pattern and name lengths
// multiplied. The package is pure.
package pattern

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Bounds of a pattern.
const (
	maxPattern      = 4096 // bytes
	maxAlternatives = 1000
)

// Glob is a compiled pattern, safe for concurrent use.
type Glob struct {
	alternatives [][]segment
	// DirsOnly reports that the pattern ends in a slash.
	DirsOnly bool
	// Absolute reports that the pattern began with a slash, which was dropped.
	Absolute bool
}

// segment matches one name; deep is "**".
type segment struct {
	deep  bool
	parts []part
}

// part is one element of a segment.
type part struct {
	kind   byte // 'c' a character, '?' any one, '*' any run, '[' a set
	r      rune
	set    []span
	negate bool
}

type span struct{ low, high rune }

// Compile reads a pattern. The errors say what is wrong with it.
func Compile(text string) (*Glob, error) {
	switch {
	case text == "":
		return nil, errors.New("the pattern is empty")
	case len(text) > maxPattern:
		return nil, errors.New("the pattern is longer than 4096 bytes")
	case !utf8.ValidString(text):
		return nil, errors.New("the pattern is not UTF-8")
	}
	g := &Glob{}
	if rest, ok := strings.CutPrefix(text, "/"); ok {
		g.Absolute = true
		text = strings.TrimLeft(rest, "/")
	}
	if rest, ok := strings.CutSuffix(text, "/"); ok && !strings.HasSuffix(rest, `\`) {
		g.DirsOnly = true
		text = rest
	}
	for strings.HasPrefix(text, "./") {
		text = text[2:]
	}
	if text == "" {
		return nil, errors.New("the pattern names no file")
	}
	list, err := expand(text)
	if err != nil {
		return nil, err
	}
	for _, one := range list {
		var segments []segment
		for _, name := range split(one) {
			s, err := compileName(name)
			if err != nil {
				return nil, err
			}
			if s.deep && len(segments) > 0 && segments[len(segments)-1].deep {
				continue
			}
			segments = append(segments, s)
		}
		if len(segments) > 0 {
			g.alternatives = append(g.alternatives, segments)
		}
	}
	if len(g.alternatives) == 0 {
		return nil, errors.New("the pattern names no file")
	}
	return g, nil
}

// expand returns the alternatives of a pattern's braces. Braces without a comma
// are literal, as in a shell.
func expand(text string) ([]string, error) {
	open, close, commas := brace(text)
	if open < 0 {
		if close < 0 {
			return []string{text}, nil
		}
		return nil, errors.New("a { of the pattern is not closed")
	}
	rest, err := expand(text[close+1:])
	if err != nil {
		return nil, err
	}
	var middles []string
	if len(commas) == 0 {
		inner, err := expand(text[open+1 : close])
		if err != nil {
			return nil, err
		}
		for _, m := range inner {
			middles = append(middles, `\{`+m+`\}`)
		}
	} else {
		from := open + 1
		for _, at := range append(commas, close) {
			inner, err := expand(text[from:at])
			if err != nil {
				return nil, err
			}
			middles = append(middles, inner...)
			from = at + 1
			if len(middles) > maxAlternatives {
				return nil, errors.New("the pattern has more than 1000 alternatives")
			}
		}
	}
	if len(middles)*len(rest) > maxAlternatives {
		return nil, errors.New("the pattern has more than 1000 alternatives")
	}
	out := make([]string, 0, len(middles)*len(rest))
	for _, m := range middles {
		for _, r := range rest {
			out = append(out, text[:open]+m+r)
		}
	}
	return out, nil
}

// brace finds the first group of braces and its commas; open is -1 where there
// is none, and close is not -1 then where a group is not closed.
func brace(text string) (open, close int, commas []int) {
	open, depth := -1, 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '[':
			i = skipSet(text, i)
		case '{':
			if depth == 0 {
				open = i
			}
			depth++
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		case '}':
			if depth == 1 {
				return open, i, commas
			}
			if depth > 0 {
				depth--
			}
		}
	}
	if depth > 0 {
		return -1, 0, nil
	}
	return -1, -1, nil
}

// skipSet returns the index of the "]" that ends a set, or i where none does.
func skipSet(text string, i int) int {
	j := i + 1
	if j < len(text) && (text[j] == '!' || text[j] == '^') {
		j++
	}
	for first := true; j < len(text); j++ {
		switch {
		case text[j] == '\\':
			j++
		case text[j] == ']' && !first:
			return j
		case text[j] == '/':
			return i
		}
		first = false
	}
	return i
}

// split cuts a pattern into names; empty names and "." are dropped.
func split(text string) []string {
	var out []string
	from := 0
	add := func(to int) {
		if s := text[from:to]; s != "" && s != "." {
			out = append(out, s)
		}
	}
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '/':
			add(i)
			from = i + 1
		}
	}
	add(len(text))
	return out
}

func compileName(name string) (segment, error) {
	if name == "**" {
		return segment{deep: true}, nil
	}
	var s segment
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:])
		i += size
		switch r {
		case '*':
			if n := len(s.parts); n == 0 || s.parts[n-1].kind != '*' {
				s.parts = append(s.parts, part{kind: '*'})
			}
		case '?':
			s.parts = append(s.parts, part{kind: '?'})
		case '[':
			p, next, err := compileSet(name, i)
			if err != nil {
				return s, err
			}
			s.parts = append(s.parts, p)
			i = next
		case '\\':
			if i == len(name) {
				return s, errors.New("the pattern ends in a backslash")
			}
			r, size = utf8.DecodeRuneInString(name[i:])
			i += size
			s.parts = append(s.parts, part{kind: 'c', r: r})
		default:
			s.parts = append(s.parts, part{kind: 'c', r: r})
		}
	}
	return s, nil
}

func compileSet(name string, i int) (part, int, error) {
	p := part{kind: '['}
	if i < len(name) && (name[i] == '!' || name[i] == '^') {
		p.negate = true
		i++
	}
	unclosed := errors.New("a [ of the pattern is not closed")
	one := func() (rune, bool) {
		if i < len(name) && name[i] == '\\' {
			i++
		}
		if i >= len(name) {
			return 0, false
		}
		r, size := utf8.DecodeRuneInString(name[i:])
		i += size
		return r, true
	}
	for first := true; ; first = false {
		if i >= len(name) {
			return p, i, unclosed
		}
		if name[i] == ']' && !first {
			return p, i + 1, nil
		}
		low, ok := one()
		if !ok {
			return p, i, unclosed
		}
		high := low
		if i+1 < len(name) && name[i] == '-' && name[i+1] != ']' {
			i++
			if high, ok = one(); !ok {
				return p, i, unclosed
			}
		}
		if high < low {
			return p, i, errors.New("a range of the pattern is in the wrong order")
		}
		p.set = append(p.set, span{low, high})
	}
}

// Match reports whether the pattern matches a whole path, which has no leading
// slash.
func (g *Glob) Match(path string) bool {
	names := strings.Split(path, "/")
	for _, a := range g.alternatives {
		if states := walk(a, names); states[len(a)] {
			return true
		}
	}
	return false
}

// Below reports whether the pattern may match a path below a directory.
func (g *Glob) Below(dir string) bool {
	names := strings.Split(dir, "/")
	for _, a := range g.alternatives {
		states := walk(a, names)
		for i := range a {
			if states[i] {
				return true
			}
		}
	}
	return false
}

// walk returns at which segments matching may go on after these names; the
// index past the last segment is a full match.
func walk(segments []segment, names []string) []bool {
	states := make([]bool, len(segments)+1)
	states[0] = true
	next := make([]bool, len(segments)+1)
	for _, name := range names {
		// "**" may be no directory, if a segment follows.
		for i := 0; i+1 < len(segments); i++ {
			if states[i] && segments[i].deep {
				states[i+1] = true
			}
		}
		clear(next)
		for i, s := range segments {
			switch {
			case !states[i]:
			case s.deep:
				if !strings.HasPrefix(name, ".") {
					next[i] = true
					if i == len(segments)-1 {
						next[i+1] = true
					}
				}
			case s.match(name):
				next[i+1] = true
			}
		}
		states, next = next, states
	}
	return states
}

func (s *segment) match(name string) bool {
	if strings.HasPrefix(name, ".") && (len(s.parts) == 0 || s.parts[0].kind != 'c') {
		return false
	}
	text := []rune(name)
	if !utf8.ValidString(name) {
		// Each bad byte is one character of its own.
		text = text[:0]
		for i := 0; i < len(name); {
			r, size := utf8.DecodeRuneInString(name[i:])
			if r == utf8.RuneError && size == 1 {
				r = -1 - rune(name[i])
			}
			text = append(text, r)
			i += size
		}
	}
	i, j := 0, 0
	star, mark := -1, 0
	for j < len(text) {
		switch {
		case i < len(s.parts) && s.parts[i].kind == '*':
			star, mark = i, j
			i++
		case i < len(s.parts) && s.parts[i].one(text[j]):
			i++
			j++
		case star >= 0:
			mark++
			i, j = star+1, mark
		default:
			return false
		}
	}
	for i < len(s.parts) && s.parts[i].kind == '*' {
		i++
	}
	return i == len(s.parts)
}

func (p *part) one(r rune) bool {
	switch p.kind {
	case '?':
		return true
	case 'c':
		return p.r == r
	}
	for _, s := range p.set {
		if s.low <= r && r <= s.high {
			return !p.negate
		}
	}
	return p.negate
}
