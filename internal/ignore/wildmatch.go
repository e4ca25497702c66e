package ignore

import "strings"

// The matcher follows the rules of gitignore(5) as git's wildmatch applies
// them, over bytes. It differs in how it gets there: a pattern is compiled to
// tokens once, and matching keeps two places to come back to, the last "*" and
// the last "**", instead of recursing.
//
// Two are enough. A "*" stays within a segment, so when a later "*" is reached
// the part between them has matched as far left as it can, and moving the
// earlier one could only leave less to the later. Between two "**" the number
// of slashes is fixed, so the leftmost place of that part is also the one that
// ends first. The cost is bounded by segments × path × pattern, where plain
// recursion can take exponential time on "*a*a*a*b".

type tokenKind uint8

const (
	tokByte     tokenKind = iota // one given byte
	tokAny                       // "?": any byte, in a path not "/"
	tokClass                     // "[…]"
	tokStar                      // "*": any run, in a path without "/"
	tokAll                       // "**" up to the end or before an escaped slash: any run
	tokAllSlash                  // "**/": nothing, or any run and a slash
)

type token struct {
	kind tokenKind
	c    byte
	set  *byteSet
}

// byteSet holds a class's bytes.
type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// glob is a compiled pattern.
type glob struct {
	tokens []token
	need   int    // bytes that any match has at least
	tail   string // what any match ends with: a cheap way to say no
	path   bool   // "/" is special
}

// compile turns a pattern into tokens. It fails where git finds that a pattern
// matches nothing: a class that is not closed or names an unknown [:class:], a
// backslash at the end.
func compile(p string, path bool) (glob, bool) {
	g := glob{path: path, tokens: make([]token, 0, len(p))}
	for i := 0; i < len(p); {
		switch c := p[i]; c {
		case '\\':
			if i+1 == len(p) {
				return glob{}, false
			}
			g.one(token{kind: tokByte, c: p[i+1]})
			i += 2
		case '?':
			g.one(token{kind: tokAny})
			i++
		case '*':
			start := i
			for i < len(p) && p[i] == '*' {
				i++
			}
			i = g.stars(p, start, i)
		case '[':
			set, end, ok := parseClass(p, i+1)
			if !ok {
				return glob{}, false
			}
			g.one(token{kind: tokClass, set: set})
			i = end
		default:
			g.one(token{kind: tokByte, c: c})
			i++
		}
	}
	last := len(g.tokens)
	for last > 0 && g.tokens[last-1].kind == tokByte {
		last--
	}
	var tail strings.Builder
	for _, t := range g.tokens[last:] {
		tail.WriteByte(t.c)
	}
	g.tail = tail.String()
	return g, true
}

func (g *glob) one(t token) {
	g.tokens = append(g.tokens, t)
	g.need++
}

// stars adds the token for the run of stars p[start:end] and returns where to
// continue. Two or more mean "**" only where they fill a whole component.
func (g *glob) stars(p string, start, end int) int {
	t := token{kind: tokStar}
	if g.path && end-start > 1 && (start == 0 || p[start-1] == '/') {
		switch {
		case end == len(p), strings.HasPrefix(p[end:], `\/`):
			t.kind = tokAll
		case p[end] == '/':
			t.kind = tokAllSlash
			end++
		}
	}
	g.tokens = append(g.tokens, t)
	return end
}

// match reports whether the whole of s matches.
func (g *glob) match(s string) bool {
	if len(s) < g.need || !strings.HasSuffix(s, g.tail) {
		return false
	}
	toks := g.tokens
	ti, si := 0, 0
	starTok, starAt := -1, 0 // resume after this "*", one byte further
	allTok, allAt := -1, 0   // resume after this "**", one byte or segment further
	for {
		if ti < len(toks) {
			switch t := &toks[ti]; t.kind {
			case tokStar:
				if ti++; ti == len(toks) && (!g.path || strings.IndexByte(s[si:], '/') < 0) {
					return true
				}
				starTok, starAt = ti, si
				continue
			case tokAll:
				if ti++; ti == len(toks) {
					return true
				}
				allTok, allAt, starTok = ti, si, -1
				continue
			case tokAllSlash:
				ti++
				allTok, allAt, starTok = ti, si, -1
				continue
			default:
				if si < len(s) && g.accepts(t, s[si]) {
					ti++
					si++
					continue
				}
			}
		} else if si == len(s) {
			return true
		}

		// Stuck: let the last "*" take one more byte, else the last "**".
		switch {
		case starTok >= 0 && starAt < len(s) && (!g.path || s[starAt] != '/'):
			starAt++
			ti, si = starTok, starAt
		case allTok >= 0 && toks[allTok-1].kind == tokAll && allAt < len(s):
			allAt++
			ti, si, starTok = allTok, allAt, -1
		case allTok >= 0 && toks[allTok-1].kind == tokAllSlash:
			i := strings.IndexByte(s[allAt:], '/')
			if i < 0 {
				return false
			}
			allAt += i + 1
			ti, si, starTok = allTok, allAt, -1
		default:
			return false
		}
	}
}

func (g *glob) accepts(t *token, c byte) bool {
	switch t.kind {
	case tokByte:
		return c == t.c
	case tokAny:
		return !g.path || c != '/'
	}
	return t.set.has(c) && !(g.path && c == '/')
}

// parseClass reads a class whose "[" is before i, and returns the position
// after its "]". A "]" that comes first is a member.
func parseClass(p string, i int) (*byteSet, int, bool) {
	var set byteSet
	negated := i < len(p) && (p[i] == '!' || p[i] == '^')
	if negated {
		i++
	}
	prev := byte(0) // where a range can begin, 0 for nowhere
	for first := true; ; first = false {
		if i >= len(p) {
			return nil, 0, false
		}
		c := p[i]
		switch {
		case c == ']' && !first:
			if negated {
				for w := range set {
					set[w] = ^set[w]
				}
			}
			return &set, i + 1, true
		case c == '\\':
			if i+1 >= len(p) {
				return nil, 0, false
			}
			prev = p[i+1]
			set.add(prev)
			i += 2
		case c == '-' && prev != 0 && i+1 < len(p) && p[i+1] != ']':
			i++
			if p[i] == '\\' {
				if i++; i >= len(p) {
					return nil, 0, false
				}
			}
			for b := int(prev); b <= int(p[i]); b++ {
				set.add(byte(b))
			}
			prev = 0
			i++
		case c == '[' && i+1 < len(p) && p[i+1] == ':':
			end := strings.IndexByte(p[i+2:], ']')
			if end < 0 {
				return nil, 0, false
			}
			name := p[i+2 : i+2+end]
			if !strings.HasSuffix(name, ":") {
				// No ":]": the "[" is a member like any other.
				set.add('[')
				prev = '['
				i++
				continue
			}
			in := namedClass(name[:len(name)-1])
			if in == nil {
				return nil, 0, false
			}
			for b := range 256 {
				if in(byte(b)) {
					set.add(byte(b))
				}
			}
			prev = 0
			i += 2 + end + 1
		default:
			set.add(c)
			prev = c
			i++
		}
	}
}

// namedClass gives the members of [:name:], ASCII only whatever the locale, or
// nil. Space is git's: without vertical tab and form feed.
func namedClass(name string) func(c byte) bool {
	between := func(lo, hi byte) func(byte) bool {
		return func(c byte) bool { return c >= lo && c <= hi }
	}
	digit, upper, lower := between('0', '9'), between('A', 'Z'), between('a', 'z')
	alnum := func(c byte) bool { return digit(c) || upper(c) || lower(c) }
	switch name {
	case "alnum":
		return alnum
	case "alpha":
		return func(c byte) bool { return upper(c) || lower(c) }
	case "blank":
		return func(c byte) bool { return c == ' ' || c == '\t' }
	case "cntrl":
		return func(c byte) bool { return c < 0x20 || c == 0x7f }
	case "digit":
		return digit
	case "graph":
		return between('!', '~')
	case "lower":
		return lower
	case "print":
		return between(' ', '~')
	case "punct":
		return func(c byte) bool { return c > ' ' && c < 0x7f && !alnum(c) }
	case "space":
		return func(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
	case "upper":
		return upper
	case "xdigit":
		return func(c byte) bool { return digit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }
	}
	return nil
}
