// Package glob matches slash-separated paths against patterns: "*" and "?"
// stay within one name, "**" as a whole name represents any number of folders,
// none included, "[a-z]" and "[!a-z]" for one character, "{a,b}" for either.
//
// A pattern becomes one regular expression (RE2), so that no pattern takes more
// than linear time. The package is pure.
package glob

import (
	"errors"
	"regexp"
	"strings"
	"unicode/utf8"
)

// maxPattern bounds a pattern, in bytes.
const maxPattern = 1024

// Glob is a compiled pattern, safe for concurrent use.
type Glob struct {
	re *regexp.Regexp
}

// Match reports whether the pattern represents the whole path, which has no
// leading slash unless the pattern has one.
func (g *Glob) Match(path string) bool { return g.re.MatchString(path) }

// Compile reads a pattern. The errors say what is wrong with it.
func Compile(pattern string) (*Glob, error) {
	switch {
	case pattern == "":
		return nil, errors.New("the pattern is empty")
	case len(pattern) > maxPattern:
		return nil, errors.New("the pattern is longer than 1024 bytes")
	case !utf8.ValidString(pattern):
		return nil, errors.New("the pattern is not UTF-8")
	}
	c := compiler{in: pattern}
	c.out.WriteString(`(?s)\A`)
	if err := c.run(); err != nil {
		return nil, err
	}
	c.out.WriteString(`\z`)
	re, err := regexp.Compile(c.out.String())
	if err != nil {
		return nil, errors.New("the pattern is too large or malformed")
	}
	return &Glob{re}, nil
}

type compiler struct {
	in    string
	pos   int
	out   strings.Builder
	depth int // open braces
}

func (c *compiler) rest() string { return c.in[c.pos:] }

// atName reports whether a name begins here: "**" counts only as a whole one.
func (c *compiler) atName() bool {
	return c.pos == 0 || c.in[c.pos-1] == '/' || c.depth > 0 && (c.in[c.pos-1] == '{' || c.in[c.pos-1] == ',')
}

func (c *compiler) run() error {
	for c.pos < len(c.in) {
		r, size := utf8.DecodeRuneInString(c.rest())
		switch {
		case r == '*':
			c.stars()
			continue
		case r == '?':
			c.out.WriteString(`[^/]`)
		case r == '[':
			if err := c.class(); err != nil {
				return err
			}
			continue
		case r == '{':
			c.depth++
			c.out.WriteString(`(?:`)
		case r == '}' && c.depth > 0:
			c.depth--
			c.out.WriteString(`)`)
		case r == ',' && c.depth > 0:
			c.out.WriteString(`|`)
		default:
			c.out.WriteString(regexp.QuoteMeta(string(r)))
		}
		c.pos += size
	}
	if c.depth > 0 {
		return errors.New("a { of the pattern is not closed")
	}
	return nil
}

// stars reads a run of "*".
func (c *compiler) stars() {
	whole := c.atName()
	n := 0
	for strings.HasPrefix(c.rest(), "*") {
		n++
		c.pos++
	}
	rest := c.rest()
	switch {
	case n < 2 || !whole || rest != "" && rest[0] != '/' && (c.depth == 0 || rest[0] != ',' && rest[0] != '}'):
		c.out.WriteString(`[^/]*`)
	case rest != "" && rest[0] == '/':
		c.pos++
		c.out.WriteString(`(?:[^/]+/)*`)
	default:
		c.out.WriteString(`.*`)
	}
}

// class reads "[…]"; it never matches a slash.
func (c *compiler) class() error {
	c.pos++
	var set strings.Builder
	negated := strings.HasPrefix(c.rest(), "!") || strings.HasPrefix(c.rest(), "^")
	if negated {
		c.pos++
	}
	for first := true; ; first = false {
		if c.pos >= len(c.in) {
			return errors.New("a [ of the pattern is not closed")
		}
		low, size := utf8.DecodeRuneInString(c.rest())
		if low == ']' && !first {
			c.pos++
			break
		}
		c.pos += size
		high := low
		if r := c.rest(); len(r) > 1 && r[0] == '-' && r[1] != ']' {
			c.pos++
			high, size = utf8.DecodeRuneInString(c.rest())
			c.pos += size
		}
		if high < low {
			return errors.New("a range of the pattern is the wrong way round")
		}
		if low == '/' || high == '/' {
			return errors.New("a [ ] of the pattern must not hold a slash")
		}
		if low < '/' && high > '/' { // a range that passes over the slash
			set.WriteString(member(low) + "-" + member('.'))
			low = '0'
		}
		set.WriteString(member(low) + "-" + member(high))
	}
	not := ""
	if negated {
		not = "^/"
	}
	c.out.WriteString(`[` + not + set.String() + `]`)
	return nil
}

// member escapes a character for a class.
func member(r rune) string {
	if r < utf8.RuneSelf {
		return `\x{` + hex(r) + `}`
	}
	return string(r)
}

func hex(r rune) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[r>>4&15], digits[r&15]})
}
