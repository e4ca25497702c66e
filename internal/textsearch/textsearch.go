// Package textsearch finds regular expressions in lines of text at a bounded cost:
// what a caller sends as a pattern, and what a file holds as a line, may be made
// to take long.
package textsearch

import (
	"context"
	"errors"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"
)

// Bounds of a pattern: a line takes time proportional to its length multiplied by
// the steps of the pattern's program (regexp/syntax).
const (
	MaxPattern = 4 << 10 // bytes
	MaxSteps   = 2000    // instructions
)

// MaxLine is how long a line is, in bytes, that Find searches in one go.
const MaxLine = 64 << 10

// ErrTooLarge is returned for a pattern beyond MaxPattern or MaxSteps.
var ErrTooLarge = errors.New("it is too large; search for less at once")

// Compile compiles a regular expression (RE2) of a bounded cost. Its errors say
// what is wrong with the pattern.
func Compile(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > MaxPattern {
		return nil, ErrTooLarge
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err == nil {
		var prog *syntax.Prog
		if prog, err = syntax.Compile(tree.Simplify()); err == nil && len(prog.Inst) > MaxSteps {
			return nil, ErrTooLarge
		}
	}
	if err == nil {
		var re *regexp.Regexp
		if re, err = regexp.Compile(pattern); err == nil {
			return re, nil
		}
	}
	return nil, errors.New(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
}

// Find returns the index of the first match in a line, or -1. A line longer than
// MaxLine is searched piece by piece; if ctx ends meanwhile, Find returns its error.
func Find(ctx context.Context, re *regexp.Regexp, line []byte) (int, error) {
	if len(line) <= MaxLine {
		if m := re.FindIndex(line); m != nil {
			return m[0], nil
		}
		return -1, nil
	}
	m := re.FindReaderIndex(&runes{ctx: ctx, left: line})
	if err := ctx.Err(); err != nil {
		return -1, context.Cause(ctx)
	}
	if m == nil {
		return -1, nil
	}
	return m[0], nil
}

// runes reads a line for a regular expression until ctx ends.
type runes struct {
	ctx  context.Context
	left []byte
	n    int
}

func (r *runes) ReadRune() (c rune, size int, err error) {
	if r.n++; r.n%(1<<12) == 0 && r.ctx.Err() != nil || len(r.left) == 0 {
		return 0, 0, io.EOF
	}
	c, size = utf8.DecodeRune(r.left)
	r.left = r.left[size:]
	return c, size, nil
}

// Slots bounds how many searches run at once; others wait. Make it with NewSlots.
type Slots chan struct{}

// NewSlots returns slots for two searches: one processor is left for writers
// where there are few.
func NewSlots() Slots { return make(Slots, 2) }

// Take waits for a slot; it returns ctx's error if that ends first.
func (s Slots) Take(ctx context.Context) (release func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
