// Package policy judges what a request may change (contracts/review.md, Policy): by
// the owner's settings, and by what a task was made for. A rule is a pattern of
// gitignore(5), relative to the workspace.
package policy

import (
	"fmt"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"umbra/gitstore/message"
	"umbra/internal/errs"
)

// The trailers of a task's record that hold its own rules, one each.
const (
	KeyOnly  = "Only-Path"
	KeyAllow = "Allow-Path"
)

// MaxRules bounds the rules of a task, of each kind.
const MaxRules = 1000

// maxRule bounds one rule, in bytes.
const maxRule = 1024

// Settings are the owner's.
type Settings struct {
	Protected    []string // refused unless the task has an allow rule for the path
	MaxFileBytes int64    // of what a file may become; 0: no bound
}

// Rules are settings that were read. They may be used from any goroutine; nil has
// none.
type Rules struct {
	protected []rule
	maxBytes  int64
}

type rule struct {
	text    string
	pattern gitignore.Pattern
}

// New reads settings. The error names the rule that is malformed.
func New(s Settings) (*Rules, error) {
	list, err := parse(s.Protected)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 && s.MaxFileBytes <= 0 {
		return nil, nil
	}
	return &Rules{protected: list, maxBytes: s.MaxFileBytes}, nil
}

func parse(texts []string) ([]rule, error) {
	var out []rule
	for _, text := range texts {
		if err := Valid(text); err != nil {
			return nil, err
		}
		out = append(out, rule{text, gitignore.ParsePattern(text, nil)})
	}
	return out, nil
}

// Valid reports what is wrong with a rule.
func Valid(text string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("a rule is empty")
	case len(text) > maxRule:
		return fmt.Errorf("the rule %.40q… is longer than %d bytes", text, maxRule)
	case strings.ContainsAny(text, "\n\r\x00"):
		return fmt.Errorf("the rule %q holds a control character", text)
	case strings.HasPrefix(text, "!"), strings.HasPrefix(text, "#"):
		return fmt.Errorf("the rule %q begins with %q; rules cannot be negated", text, text[:1])
	}
	for part := range strings.SplitSeq(strings.ReplaceAll(text, "**", "*"), "/") {
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("the rule %q is malformed", text)
		}
	}
	return nil
}

// match gives the first rule that names a path.
func match(list []rule, name string) (string, bool) {
	if len(list) == 0 {
		return "", false
	}
	parts := strings.Split(name, "/")
	for _, r := range list {
		if r.pattern.Match(parts, false) == gitignore.Exclude {
			return r.text, true
		}
	}
	return "", false
}

// Task is a task's own rules.
type Task struct{ only, allow []rule }

// TaskOf reads them from the trailers of its record. What is malformed was refused
// when the task was made.
func TaskOf(extra []message.Trailer) Task {
	var t Task
	for _, x := range extra {
		switch x.Key {
		case KeyOnly:
			t.only = append(t.only, rule{x.Value, gitignore.ParsePattern(x.Value, nil)})
		case KeyAllow:
			t.allow = append(t.allow, rule{x.Value, gitignore.ParsePattern(x.Value, nil)})
		}
	}
	return t
}

// Texts gives the rules as they were written.
func (t Task) Texts() (only, allow []string) {
	for _, r := range t.only {
		only = append(only, r.text)
	}
	for _, r := range t.allow {
		allow = append(allow, r.text)
	}
	return only, allow
}

// None reports whether nothing is ever refused.
func (r *Rules) None(t Task) bool { return r == nil && len(t.only) == 0 }

// Refusal is why a change is not allowed.
type Refusal struct{ Rule, Path, Detail string }

// Err gives the refusal as errs.Forbidden "policy_refused", with the field "rule".
func (x *Refusal) Err() error {
	e := errs.New(errs.Forbidden, "policy_refused", "%s", x.Detail).With("rule", x.Rule)
	e.Path = x.Path
	return e
}

// Judge says whether a path may be changed, to a file of a size (0 for one that is
// deleted); nil if it may.
func (r *Rules) Judge(t Task, name string, size int64) *Refusal {
	if len(t.only) > 0 {
		if _, ok := match(t.only, name); !ok {
			texts, _ := t.Texts()
			return &Refusal{"only", name, fmt.Sprintf("The task may only change paths that match %s; do the change in another task, or leave it out.", quoted(texts))}
		}
	}
	if r == nil {
		return nil
	}
	if text, ok := match(r.protected, name); ok {
		if _, allowed := match(t.allow, name); !allowed {
			return &Refusal{"protected", name, fmt.Sprintf("The path is protected by the rule %q of this server; only a task that was made with allow for it may change it.", text)}
		}
	}
	if r.maxBytes > 0 && size > r.maxBytes {
		return &Refusal{"max_file_bytes", name, fmt.Sprintf("The file would have %d bytes; the policy of this server allows %d. Split it, or keep it out of the workspace.", size, r.maxBytes)}
	}
	return nil
}

// maxQuoted bounds the rules that a text names.
const maxQuoted = 10

func quoted(list []string) string {
	var b strings.Builder
	for i, s := range list {
		if i == maxQuoted {
			fmt.Fprintf(&b, " and %d more", len(list)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", s)
	}
	return b.String()
}
