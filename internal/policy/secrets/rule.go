package secrets

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/zricethezav/gitleaks/v8/config"
)

// rule is one of gitleaks', and where it has to run.
type rule struct {
	config.Rule
	// first matches at a keyword wherever the rule matches around it; nil where
	// that cannot be said, so that the rule runs at each keyword.
	first *regexp.Regexp
	// begun is first for a text of which only the first maxFirst bytes are checked:
	// it says nothing of what follows a part of any length.
	begun *regexp.Regexp
	// lines is how many line feeds a match can hold; -1: any number.
	lines int
}

// maxFirst bounds what rule.first and rule.begun look at, in bytes.
const maxFirst = 4096

// may reports whether the rule may match around a keyword, of which text begins with
// the keyword and ends where a match does at the latest.
func (r *rule) may(text string) bool {
	switch {
	case r.first == nil:
		return true
	case len(text) <= maxFirst:
		return r.first.MatchString(text)
	}
	return r.begun == nil || r.begun.MatchString(text[:maxFirst])
}

func newRule(r config.Rule) (*rule, error) {
	out := &rule{Rule: r}
	if r.Regex == nil {
		return out, nil
	}
	tree, err := syntax.Parse(r.Regex.String(), syntax.Perl)
	if err != nil {
		return nil, err
	}
	if out.lines = feeds(tree); out.lines > maxFeeds {
		out.lines = -1
	}
	weak := weaken(tree, true)
	keywords := make([]string, len(r.Keywords))
	for i, k := range r.Keywords {
		keywords[i] = strings.ToLower(k)
	}
	if beginsWith(weak, keywords) {
		if out.first, err = anchored(weak); err != nil {
			return nil, err
		}
		if part, _ := bounded(tree); longest(part) <= maxFirst {
			if out.begun, err = anchored(weaken(part, true)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func anchored(re *syntax.Regexp) (*regexp.Regexp, error) {
	return regexp.Compile(`\A(?:` + re.String() + `)`)
}

// bounded gives an expression that matches the beginning of what another does: what
// follows its first repetition of any length is left out. False: nothing was.
func bounded(re *syntax.Regexp) (out *syntax.Regexp, cut bool) {
	one := *re
	one.Sub = nil
	switch re.Op {
	case syntax.OpStar:
		return &syntax.Regexp{Op: syntax.OpEmptyMatch}, true
	case syntax.OpPlus:
		sub, _ := bounded(re.Sub[0])
		return sub, true
	case syntax.OpRepeat:
		sub, cut := bounded(re.Sub[0])
		switch {
		case re.Max >= 0 && !cut:
			return re, false
		case re.Min == 0:
			return &syntax.Regexp{Op: syntax.OpEmptyMatch}, true
		case cut:
			return sub, true
		}
		one.Sub, one.Max = []*syntax.Regexp{sub}, re.Min
		return &one, true
	}
	for _, sub := range re.Sub {
		sub, here := bounded(sub)
		one.Sub = append(one.Sub, sub)
		if cut = cut || here; here && re.Op == syntax.OpConcat {
			break
		}
	}
	return &one, cut
}

// longest is how many bytes an expression matches at most, without repetitions of any
// length.
func longest(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune) * utf8.UTFMax
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return utf8.UTFMax
	case syntax.OpRepeat:
		return re.Max * longest(re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, longest(sub))
		}
		return n
	}
	for _, sub := range re.Sub {
		n += longest(sub)
	}
	return n
}

// window is where a rule runs for a keyword: the lines on which a match that holds
// the keyword can be.
func (r *rule) window(text string, at int) (from, to int) {
	if r.lines < 0 && r.first == nil {
		return 0, len(text)
	}
	before := r.lines
	if r.first != nil {
		before = 0 // what may be before the keyword is on its line
	}
	from = at
	for n := 0; ; n++ {
		from = strings.LastIndexByte(text[:from], '\n')
		if from < 0 || n == before {
			break
		}
	}
	from++
	if r.lines < 0 {
		return from, len(text)
	}
	to = at
	for range r.lines + 1 {
		n := strings.IndexByte(text[to:], '\n')
		if n < 0 {
			return from, len(text)
		}
		to += n + 1
	}
	return from, to
}

// maxFeeds is up to how many line feeds in a match a rule runs on lines alone.
const maxFeeds = 16

// feeds is how many line feeds a match can hold at most; more than maxFeeds is any
// number.
func feeds(re *syntax.Regexp) int {
	const many = 1 << 20
	switch re.Op {
	case syntax.OpLiteral:
		return strings.Count(string(re.Rune), "\n")
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i] <= '\n' && '\n' <= re.Rune[i+1] {
				return 1
			}
		}
		return 0
	case syntax.OpAnyChar:
		return 1
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		n := feeds(re.Sub[0])
		if n > 0 && (re.Op != syntax.OpRepeat || re.Max < 0) {
			return many
		}
		if re.Op == syntax.OpRepeat {
			n *= re.Max
		}
		return min(n, many)
	case syntax.OpConcat:
		n := 0
		for _, sub := range re.Sub {
			n += feeds(sub)
		}
		return min(n, many)
	case syntax.OpQuest, syntax.OpCapture, syntax.OpAlternate:
		n := 0
		for _, sub := range re.Sub {
			n = max(n, feeds(sub))
		}
		return n
	}
	return 0
}

// Repetitions are weakened to at least few times, and any number above.
const few = 8

// weaken gives an expression that matches wherever another does, and is cheap:
// without assertions but those of an end, and without captures, without exact numbers of repetitions, and without
// what may be there or not at the beginning.
func weaken(re *syntax.Regexp, begin bool) *syntax.Regexp {
	empty := &syntax.Regexp{Op: syntax.OpEmptyMatch}
	switch re.Op {
	case syntax.OpBeginLine, syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return empty
	case syntax.OpEndLine, syntax.OpEndText:
		if begin {
			return empty
		}
	case syntax.OpCapture:
		return weaken(re.Sub[0], begin)
	case syntax.OpStar, syntax.OpQuest:
		if begin && feeds(re) == 0 {
			return empty
		}
	case syntax.OpRepeat:
		if begin && re.Min == 0 && feeds(re) == 0 {
			return empty
		}
	}
	out := *re
	out.Sub = nil
	for i, sub := range re.Sub {
		first := begin && (re.Op == syntax.OpAlternate || re.Op == syntax.OpConcat && emptyAll(out.Sub[:i]))
		out.Sub = append(out.Sub, weaken(sub, first))
	}
	if re.Op == syntax.OpRepeat && (re.Min > few || re.Max > few) {
		out.Min, out.Max = min(re.Min, few), -1
	}
	return &out
}

func emptyAll(list []*syntax.Regexp) bool {
	for _, re := range list {
		if re.Op != syntax.OpEmptyMatch {
			return false
		}
	}
	return true
}

// beginsWith reports whether all that an expression matches begins with one of some
// words, in whatever case.
func beginsWith(re *syntax.Regexp, words []string) bool {
	list, ok := begins(re, []string{""}, words)
	return ok && len(list) > 0 && !slices.ContainsFunc(list, func(s string) bool { return !begun(s, words) })
}

func begun(s string, words []string) bool {
	for _, w := range words {
		if strings.HasPrefix(s, w) {
			return true
		}
	}
	return false
}

// maxBegins bounds the beginnings that are checked.
const maxBegins = 2000

// begins lengthens beginnings by what an expression matches, until each begins with
// one of some words; false if that is not to be said.
func begins(re *syntax.Regexp, list, words []string) ([]string, bool) {
	if !slices.ContainsFunc(list, func(s string) bool { return !begun(s, words) }) {
		return list, true
	}
	each := func(add []string) ([]string, bool) {
		var out []string
		for _, s := range list {
			if begun(s, words) {
				out = append(out, s)
				continue
			}
			for _, a := range add {
				out = append(out, s+a)
			}
		}
		return out, len(out) <= maxBegins
	}
	switch re.Op {
	case syntax.OpEmptyMatch:
		return list, true
	case syntax.OpLiteral:
		return each([]string{strings.ToLower(string(re.Rune))})
	case syntax.OpCharClass:
		var add []string
		for i := 0; i < len(re.Rune); i += 2 {
			if re.Rune[i+1]-re.Rune[i] > 64 {
				return nil, false
			}
			for c := re.Rune[i]; c <= re.Rune[i+1]; c++ {
				if c > 127 {
					continue // the long s and the Kelvin sign, of (?i)
				}
				add = append(add, strings.ToLower(string(c)))
			}
		}
		return each(add)
	case syntax.OpCapture:
		return begins(re.Sub[0], list, words)
	case syntax.OpQuest:
		more, ok := begins(re.Sub[0], list, words)
		return append(slices.Clone(list), more...), ok
	case syntax.OpPlus, syntax.OpRepeat:
		least, exact := re.Min, re.Min == re.Max
		if re.Op == syntax.OpPlus {
			least, exact = 1, false
		}
		ok := least > 0
		for n := 0; n < least && ok; n++ {
			list, ok = begins(re.Sub[0], list, words)
		}
		return list, ok && (exact || !slices.ContainsFunc(list, func(s string) bool { return !begun(s, words) }))
	case syntax.OpConcat:
		ok := true
		for _, sub := range re.Sub {
			if list, ok = begins(sub, list, words); !ok {
				return nil, false
			}
		}
		return list, true
	case syntax.OpAlternate:
		var out []string
		for _, sub := range re.Sub {
			more, ok := begins(sub, list, words)
			if !ok {
				return nil, false
			}
			out = append(out, more...)
		}
		return out, len(out) <= maxBegins
	}
	return nil, false
}
