// Package secrets finds secrets in text by the rules of gitleaks
// (github.com/gitleaks/gitleaks, MIT): its rule file, as its library reads it.
//
// gitleaks' own detector runs each rule whose keyword is anywhere in the text over
// the whole text: 5 ms for 10 KB of source code, and its package takes 6 MB of the
// program. Here a rule runs only over the lines around its keyword, and only where a
// cheaper expression, which matches whatever the rule does, matches first. A test
// compares what both find.
//
// A comment "gitleaks:allow" is not heeded: the writer of a secret could write it
// too.
package secrets

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"
	"github.com/zricethezav/gitleaks/v8/config"
)

// Finding is a secret in a text.
type Finding struct {
	Rule string // gitleaks' name of the rule
	Line int    // from 1; 0: the file's name alone is what was found

	secret string
	start  int
	match  string
}

// Same reports whether two findings are of one secret.
func (f Finding) Same(o Finding) bool { return f.Rule == o.Rule && f.secret == o.secret }

// Detector finds secrets. It may be used from any goroutine.
type Detector struct {
	rules []*rule
	allow []*config.Allowlist
	words words
}

// Default returns the detector of gitleaks' default rules, which is made at the
// first call.
var Default = sync.OnceValues(func() (*Detector, error) {
	var file config.ViperConfig
	if err := toml.Unmarshal([]byte(config.DefaultConfig), &file); err != nil {
		return nil, err
	}
	c, err := file.Translate()
	if err != nil {
		return nil, err
	}
	return newDetector(&c)
})

func newDetector(c *config.Config) (*Detector, error) {
	d := &Detector{allow: c.Allowlists}
	for _, r := range c.GetOrderedRules() {
		if len(r.RequiredRules) > 0 || r.SkipReport {
			return nil, fmt.Errorf("gitleaks' rule %s is of a kind that is not supported", r.RuleID)
		}
		made, err := newRule(r)
		if err != nil {
			return nil, fmt.Errorf("gitleaks' rule %s: %w", r.RuleID, err)
		}
		d.rules = append(d.rules, made)
		for _, k := range r.Keywords {
			if err := d.words.add(strings.ToLower(k), len(d.rules)-1); err != nil {
				return nil, fmt.Errorf("gitleaks' rule %s: %w", r.RuleID, err)
			}
		}
	}
	if err := d.words.done(); err != nil {
		return nil, fmt.Errorf("gitleaks' rules: %w", err)
	}
	return d, nil
}

// byPath reports whether a list allows a path, whatever is in the file.
func byPath(list []*config.Allowlist, path string) bool {
	for _, a := range list {
		and := a.MatchCondition == config.AllowlistMatchAnd
		if and && (len(a.Regexes) > 0 || len(a.StopWords) > 0 || len(a.Commits) > 0) {
			continue
		}
		if a.PathAllowed(path) {
			return true
		}
	}
	return false
}

// nameParts puts each part of a path in a line of its own.
var nameParts = strings.NewReplacer("/", "\n", ".", "\n")

// ScanName finds the secrets that a path holds, and those that a part of it would be
// without the dots and slashes around it.
func (d *Detector) ScanName(path string) []Finding {
	found := d.scan("", []byte(path+"\n"+nameParts.Replace(path)))
	for i := range found {
		found[i].Line = 0
	}
	return found
}

// Differ reports whether a file with the same content may be judged otherwise at
// another path.
func (d *Detector) Differ(a, b string) bool {
	if byPath(d.allow, a) != byPath(d.allow, b) {
		return true
	}
	for _, r := range d.rules {
		if r.Path != nil && r.Path.MatchString(a) != r.Path.MatchString(b) || byPath(r.Allowlists, a) != byPath(r.Allowlists, b) {
			return true
		}
	}
	return false
}

// Scan finds the secrets of a file of UTF-8, or of another encoding that has ASCII. The
// path is relative, with slashes.
func (d *Detector) Scan(path string, text []byte) []Finding {
	if byPath(d.allow, path) {
		return nil
	}
	return d.scan(path, text)
}

// scans are used again: each has room for the state of every rule.
var scans = sync.Pool{New: func() any { return new(scan) }}

// scan is Scan for a path that no list allows.
func (d *Detector) scan(path string, text []byte) []Finding {
	s := scans.Get().(*scan)
	defer scans.Put(s)
	clear(s.seen)
	*s = scan{d: d, path: path, text: string(text), seen: slices.Grow(s.seen[:0], len(d.rules))[:len(d.rules)]}
	defer func() { s.text, s.found = "", nil }()
	if strings.Contains(s.text, kelvin) || strings.Contains(s.text, longS) {
		s.text = folds.Replace(s.text)
	}
	for i, r := range d.rules {
		if r.Regex == nil && r.Path.MatchString(path) && !byPath(r.Allowlists, path) {
			s.found = append(s.found, Finding{Rule: d.rules[i].RuleID})
		}
	}
	d.words.each(s.text, s.hit)
	return s.precise()
}

// The letters besides ASCII's that (?i) matches for k and s.
const kelvin, longS = "\u212a", "\u017f"

var folds = strings.NewReplacer(kelvin, "k", longS, "s")

// Chunks of a text that is read piece by piece, and what of each is scanned again
// with the next, in bytes.
const (
	chunk   = 1 << 20
	overlap = 64 << 10
)

// small bounds a text that is scanned in a buffer that is used again, in bytes.
const small = 64 << 10

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// ScanReader is Scan for content of any size, in constant memory, and of UTF-16 and
// UTF-32 as well.
func (d *Detector) ScanReader(path string, r io.Reader) ([]Finding, error) {
	buffer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buffer)
	buffer.Reset()
	if _, err := buffer.ReadFrom(io.LimitReader(r, small)); err != nil {
		return nil, err
	}
	first := buffer.Bytes()
	if len(first) < small && wideOf(first) == nil { // whether a list allows it matters seldom
		found := d.scan(path, first)
		if len(found) > 0 && byPath(d.allow, path) {
			found = nil
		}
		return found, nil
	}
	if byPath(d.allow, path) {
		return nil, nil
	}
	r = io.MultiReader(bytes.NewReader(first), r)
	first, err := io.ReadAll(io.LimitReader(r, chunk))
	if err != nil {
		return nil, err
	}
	if wide := wideOf(first); wide != nil {
		r = wide.NewDecoder().Reader(io.MultiReader(bytes.NewReader(first), r))
		if first, err = io.ReadAll(io.LimitReader(r, chunk)); err != nil {
			return nil, err
		}
	}
	if len(first) < chunk {
		return d.scan(path, first), nil
	}
	buf := make([]byte, 0, chunk+overlap)
	r = io.MultiReader(bytes.NewReader(first), r)
	var out []Finding
	line := 0
	for {
		n, err := io.ReadFull(r, buf[len(buf):min(cap(buf), len(buf)+chunk)])
		buf = buf[:len(buf)+n]
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		// What begins in the part that is scanned again counts then, with all that
		// follows it. That part begins at a line, as far as there is one.
		from := max(0, len(buf)-overlap)
		if i := bytes.IndexByte(buf[from:], '\n'); i >= 0 && i < overlap/2 {
			from += i + 1
		}
		for _, f := range d.scan(path, buf) {
			if !last && f.Line > 0 && f.start >= from {
				continue
			}
			if f.Line > 0 {
				f.Line += line
			}
			if !has(out, f) {
				out = append(out, f)
			}
		}
		if last {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		keep := buf[from:]
		line += strings.Count(string(buf[:len(buf)-len(keep)]), "\n")
		buf = append(buf[:0], keep...)
	}
}

func has(list []Finding, f Finding) bool {
	for _, x := range list {
		if x.Same(f) {
			return true
		}
	}
	return false
}

// New returns those findings that are not among others.
func New(now, before []Finding) []Finding {
	var out []Finding
	for _, f := range now {
		if !has(before, f) {
			out = append(out, f)
		}
	}
	return out
}

// scan is one text.
type scan struct {
	d     *Detector
	path  string
	text  string
	seen  []state
	found []Finding
}

// state is how far a rule has come.
type state struct {
	asked bool
	off   bool // not for this path
	upTo  int  // where the last window ended
}

// hit is called for each keyword, with its rule, in the order of the text.
func (s *scan) hit(n, at int) {
	r, st := s.d.rules[n], &s.seen[n]
	if !st.asked {
		st.asked = true
		st.off = r.Regex == nil || r.Path != nil && !r.Path.MatchString(s.path) || byPath(r.Allowlists, s.path)
	}
	if st.off || at < st.upTo {
		return
	}
	from, to := r.window(s.text, at)
	if !r.may(s.text[at:to]) {
		return
	}
	from = max(from, st.upTo)
	st.upTo = to
	for _, m := range r.Regex.FindAllStringIndex(s.text[from:to], -1) {
		s.judge(r, from+m[0], from+m[1])
	}
}

// judge decides whether what a rule matches is a secret.
func (s *scan) judge(r *rule, from, to int) {
	match := strings.Trim(s.text[from:to], "\n")
	f := Finding{Rule: r.RuleID, secret: match, match: match, start: from}
	if groups := r.Regex.FindStringSubmatch(match); len(groups) >= 2 {
		if r.SecretGroup > 0 {
			f.secret = groups[r.SecretGroup]
		} else {
			for _, g := range groups[1:] {
				if g != "" {
					f.secret = g
					break
				}
			}
		}
	}
	if r.Entropy != 0 && entropy(f.secret) <= r.Entropy {
		return
	}
	end := len(s.text)
	if n := strings.IndexByte(s.text[to:], '\n'); n >= 0 {
		end = to + n
	}
	line := s.text[strings.LastIndexByte(s.text[:from], '\n')+1 : end]
	if s.allowed(s.d.allow, &f, line) || s.allowed(r.Allowlists, &f, line) {
		return
	}
	f.Line = 1 + strings.Count(s.text[:from], "\n")
	s.found = append(s.found, f)
}

// allowed reports whether a list allows a finding.
func (s *scan) allowed(list []*config.Allowlist, f *Finding, line string) bool {
	for _, a := range list {
		target := f.secret
		switch a.RegexTarget {
		case "match":
			target = f.match
		case "line":
			target = line
		}
		regex := a.RegexAllowed(target)
		word, _ := a.ContainsStopWord(f.secret)
		if a.MatchCondition != config.AllowlistMatchAnd {
			if regex || word {
				return true
			}
			continue
		}
		if len(a.Commits) == 0 && (len(a.Paths) == 0 || a.PathAllowed(s.path)) && (len(a.Regexes) == 0 || regex) && (len(a.StopWords) == 0 || word) {
			return true
		}
	}
	return false
}

// precise leaves out what the generic rule found where another rule found more.
func (s *scan) precise() []Finding {
	var out []Finding
	generic := func(f Finding) bool { return strings.Contains(f.Rule, "generic") }
	for _, f := range s.found {
		known := false
		for _, o := range s.found {
			known = known || generic(f) && !generic(o) && f.Line == o.Line && strings.Contains(o.secret, f.secret)
		}
		if !known && !has(out, f) {
			out = append(out, f)
		}
	}
	return out
}

// entropy is Shannon's, in bits a character.
func entropy(s string) (bits float64) {
	count := make(map[rune]int)
	for _, c := range s {
		count[c]++
	}
	for _, n := range count {
		p := float64(n) / float64(len(s))
		bits -= p * math.Log2(p)
	}
	return bits
}
