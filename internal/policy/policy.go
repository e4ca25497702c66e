// Package policy judges what a request may change (contracts/review.md, Policy): by
// the owner's settings, and by what a task was made for. A rule is a pattern of
// gitignore(5), relative to the workspace.
package policy

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/policy/secrets"
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

// Level is what happens to a change that brings a secret.
type Level string

// The levels; "" is Off.
const (
	Off    Level = "off"
	Warn   Level = "warn"   // the entry names it
	Refuse Level = "refuse" // as any other rule does
)

// After is what happens to what an agent's own tool did against the rules; "" is
// Keep.
type After string

// The ways.
const (
	Keep   After = "keep"   // the entry names the rules
	Revert After = "revert" // it is taken back when the call ends
)

// Names of rules, in refusals and in entries.
const (
	RuleOnly      = "only"
	RuleProtected = "protected"
	RuleMaxBytes  = "max_file_bytes"
	RuleSecrets   = "secrets"
)

// Settings are the owner's.
type Settings struct {
	Protected    []string // refused unless the task has an allow rule for the path
	MaxFileBytes int64    // of what a file may become; 0: no bound
	Secrets      Level
	After        After
	// Places are settings for some workspaces: their Protected are in addition to
	// those above, the others replace them where they are not the zero value.
	Places []Place
}

// Place is settings for the workspaces at or below a directory, or for one
// workspace; and for the forks of these.
type Place struct {
	Root      string // a clean absolute path; or
	Workspace string // an id
	Settings         // without Places
}

// Rules are settings that were read. They may be used from any goroutine; nil has
// none.
type Rules struct {
	protected []rule
	maxBytes  int64
	level     Level
	after     After
	detector  *secrets.Detector // nil: secrets are not looked for
	folds     bool              // of names; see Folding
}

// Folding returns the rules for a file system that takes names for one which differ in
// case, or in how Unicode writes them, alone: a protected path is protected under all
// of its names.
func (r *Rules) Folding() *Rules {
	if r == nil {
		return nil
	}
	out := *r
	out.folds = true
	return &out
}

// Book is the rules of all workspaces. It may be used from any goroutine; nil has
// none.
type Book struct {
	general Settings
	rules   *Rules
}

type rule struct {
	text    string
	pattern *ignore.Rule
	// parts are the pattern's components, where it is anchored; nil is "**".
	parts []*ignore.Rule
	fold  *rule // the same where names that differ in case alone are one
}

// fold gives a name as all have it that a file system which folds case takes for it.
func fold(name string) string { return norm.NFC.String(strings.ToLower(name)) }

// newRule reads a rule; false for one that can match nothing.
func newRule(text string) (r rule, ok bool) {
	if r, ok = readRule(text); !ok {
		return r, false
	}
	if folded, ok := readRule(fold(text)); ok {
		r.fold = &folded
	}
	return r, true
}

func readRule(text string) (rule, bool) {
	p, ok := ignore.ParsePattern(text)
	if !ok {
		return rule{}, false
	}
	r := rule{text: text, pattern: p}
	if anchored := strings.TrimSuffix(text, "/"); strings.Contains(anchored, "/") {
		for part := range strings.SplitSeq(strings.TrimPrefix(anchored, "/"), "/") {
			if part == "**" {
				r.parts = append(r.parts, nil)
				continue
			}
			x, ok := ignore.ParsePattern(part)
			if !ok {
				return rule{}, false
			}
			r.parts = append(r.parts, x)
		}
	}
	return r, true
}

// New reads settings. The error names the setting that is malformed.
func New(s Settings) (*Book, error) {
	b := &Book{general: s}
	var err error
	if b.rules, err = read(s); err != nil {
		return nil, err
	}
	for i := range s.Places {
		p := &s.Places[i]
		if (p.Root == "") == (p.Workspace == "") {
			return nil, fmt.Errorf("places: one of root and workspace is required")
		}
		if p.Root != "" && !path.IsAbs(p.Root) {
			return nil, fmt.Errorf("places: the root %q is not an absolute path", p.Root)
		}
		if _, err := read(p.Settings); err != nil {
			return nil, fmt.Errorf("places: %w", err)
		}
	}
	return b, nil
}

// Of returns the rules of a workspace: by the directories ("" for none) and ids of
// itself and of the workspaces that it is a fork of.
func (b *Book) Of(dirs, ids []string) *Rules {
	if b == nil {
		return nil
	}
	s, found := b.general, false
	for _, p := range b.general.Places {
		in := p.Workspace != "" && slices.Contains(ids, p.Workspace) ||
			p.Root != "" && slices.ContainsFunc(dirs, func(dir string) bool {
				return dir == p.Root || strings.HasPrefix(dir, strings.TrimSuffix(p.Root, "/")+"/")
			})
		if !in {
			continue
		}
		found = true
		s.Protected = slices.Concat(s.Protected, p.Protected)
		if p.MaxFileBytes > 0 {
			s.MaxFileBytes = p.MaxFileBytes
		}
		if p.Secrets != "" {
			s.Secrets = p.Secrets
		}
		if p.After != "" {
			s.After = p.After
		}
	}
	if !found {
		return b.rules
	}
	r, _ := read(s) // each part was read by New
	return r
}

func read(s Settings) (*Rules, error) {
	list, err := parse(s.Protected)
	if err != nil {
		return nil, fmt.Errorf("protected: %w", err)
	}
	r := &Rules{protected: list, maxBytes: s.MaxFileBytes, level: s.Secrets, after: s.After}
	switch s.Secrets {
	case "", Off:
	case Warn, Refuse:
		if r.detector, err = secrets.Default(); err != nil {
			return nil, fmt.Errorf("secrets: %w", err)
		}
	default:
		return nil, fmt.Errorf("secrets: %q is none of %s, %s, %s", s.Secrets, Off, Warn, Refuse)
	}
	if s.After != "" && s.After != Keep && s.After != Revert {
		return nil, fmt.Errorf("after: %q is none of %s, %s", s.After, Keep, Revert)
	}
	if len(list) == 0 && s.MaxFileBytes <= 0 && r.detector == nil && s.After != Revert {
		return nil, nil
	}
	return r, nil
}

// TakesBack reports whether what a tool did against the rules is taken back when
// its call ends.
func (r *Rules) TakesBack() bool { return r != nil && r.after == Revert }

func parse(texts []string) ([]rule, error) {
	var out []rule
	for _, text := range texts {
		if err := Valid(text); err != nil {
			return nil, err
		}
		r, _ := newRule(text)
		out = append(out, r)
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
	if _, ok := newRule(text); !ok {
		return fmt.Errorf("the rule %q is malformed", text)
	}
	for i, part := range strings.Split(strings.TrimSuffix(text, "/"), "/") {
		if part == "." || part == ".." || part == "" && i > 0 {
			return fmt.Errorf("the rule %q matches no path: paths are relative to the workspace, without . and .. and empty parts", text)
		}
	}
	return nil
}

// match gives the first rule that names a path, or a directory above it.
func match(list []rule, name string, dir, folds bool) (string, bool) {
	if len(list) == 0 {
		return "", false
	}
	folded := ""
	if folds {
		folded = fold(name)
	}
	for i := range list {
		r := &list[i]
		if r.pattern.Covers(name, dir) || folds && r.fold != nil && r.fold.pattern.Covers(folded, dir) {
			return r.text, true
		}
	}
	return "", false
}

// below gives the first rule that may name a path below one, if it names some below
// one directory and not files of a name anywhere.
func below(list []rule, name string, folds bool) (string, bool) {
	for i := range list {
		r := &list[i]
		if r.below(name) || folds && r.fold != nil && r.fold.below(fold(name)) {
			return r.text, true
		}
	}
	return "", false
}

func (r *rule) below(name string) bool {
	dirs := strings.Split(name, "/")
	if len(r.parts) == 0 || len(r.parts) <= len(dirs) && !slices.Contains(r.parts, nil) {
		return false
	}
	for i, dir := range dirs {
		if i == len(r.parts) || r.parts[i] == nil {
			return i > 0 // a rule for any directory says nothing of this one
		}
		if !r.parts[i].Covers(dir, true) {
			return false
		}
	}
	return true
}

// Task is a task's own rules.
type Task struct{ only, allow []rule }

// TaskOf reads them from the trailers of its record. Malformed rules were refused
// when the task was made.
func TaskOf(extra []message.Trailer) Task {
	var t Task
	for _, x := range extra {
		switch x.Key {
		case KeyOnly:
			if r, ok := newRule(x.Value); ok {
				t.only = append(t.only, r)
			}
		case KeyAllow:
			if r, ok := newRule(x.Value); ok {
				t.allow = append(t.allow, r)
			}
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

// None reports whether no change is ever judged.
func (r *Rules) None(t Task) bool {
	return len(t.only) == 0 && (r == nil || len(r.protected) == 0 && r.maxBytes <= 0 && r.detector == nil)
}

// Change is what a request makes of one path.
type Change struct {
	Path string
	From string // of a rename: the path before
	Link bool   // it will be a symbolic link, so that paths below it exist
	Dir  bool   // it is a directory of its own
	Made bool   // of a directory: it gets its name by the change
	Size int64  // of the file afterwards; 0 for one that is deleted
	// Content opens the file as it will be, nil where it is deleted or no file;
	// Before the file as it was, nil where there was none. Same says that they do
	// not differ.
	Content, Before func() (io.ReadCloser, error)
	Same            bool
}

// Refusal is why a change is not allowed.
type Refusal struct {
	Rule, Path, Detail string
	Secret             string // of RuleSecrets: gitleaks' name for what it is
	Line               int    // of RuleSecrets; 0: the whole file, or the name
}

// Err gives the refusal as errs.Forbidden "policy_refused", with the field "rule".
func (x *Refusal) Err() error {
	e := errs.New(errs.Forbidden, "policy_refused", "%s", x.Detail).With("rule", x.Rule)
	if x.Secret != "" {
		e = e.With("secret", x.Secret).With("line", x.Line)
	}
	e.Path = x.Path
	return e
}

// Judge says which rules forbid a change, the first first; none if it is allowed.
// The error is that of reading contents.
func (r *Rules) Judge(t Task, c Change) ([]*Refusal, error) {
	var out []*Refusal
	for _, name := range []string{c.Path, c.From} {
		if name == "" {
			continue
		}
		if x := c.onlyRefuses(t, name); x != nil {
			out = append(out, x)
			break
		}
	}
	if r == nil {
		return out, nil
	}
	for _, name := range []string{c.Path, c.From} {
		if name == "" {
			continue
		}
		text, ok := match(r.protected, name, c.Dir, r.folds)
		if !ok && c.Link && name == c.Path {
			text, ok = below(r.protected, name, r.folds)
		}
		if ok {
			if _, allowed := match(t.allow, name, c.Dir, false); !allowed {
				out = append(out, &Refusal{Rule: RuleProtected, Path: name, Detail: fmt.Sprintf("The path is protected by the rule %q of this server; leave it as it is. Only a task that was made with allow for it may change it.", text)})
				break
			}
		}
	}
	if r.maxBytes > 0 && c.Size > r.maxBytes {
		out = append(out, &Refusal{Rule: RuleMaxBytes, Path: c.Path, Detail: fmt.Sprintf("The file would have %d bytes; the policy of this server allows %d. Split it, or keep it out of the workspace.", c.Size, r.maxBytes)})
	}
	x, err := r.secret(&c)
	if x != nil {
		out = append(out, x)
	}
	return out, err
}

// Message says whether the message of a change is not allowed: it becomes a part of
// history as the files do. nil: it is allowed.
func (r *Rules) Message(text string) *Refusal {
	if r == nil || r.detector == nil || text == "" {
		return nil
	}
	found := r.detector.Scan("", []byte(text))
	if len(found) == 0 {
		return nil
	}
	return &Refusal{Rule: RuleSecrets, Secret: found[0].Rule, Line: found[0].Line,
		Detail: fmt.Sprintf("The message would hold a secret (%s), which the policy of this server keeps out of history. Take it out.", found[0].Rule)}
}

// Only says whether a refusal alone is to be named in the entry, and the change
// allowed.
func (r *Rules) Only(x *Refusal) bool { return x.Rule == RuleSecrets && r.level == Warn }

func (c *Change) onlyRefuses(t Task, name string) *Refusal {
	if len(t.only) == 0 {
		return nil
	}
	if _, ok := match(t.only, name, c.Dir, false); ok {
		return nil
	}
	if _, ok := below(t.only, name, false); ok && c.Dir {
		return nil // the directory in which the task may write
	}
	texts, _ := t.Texts()
	return &Refusal{Rule: RuleOnly, Path: name, Detail: fmt.Sprintf("The task may only change paths that match %s; do the change in another task, or leave it out.", quoted(texts))}
}

// name looks for secrets in a name that a change brings.
func (r *Rules) name(c *Change) *Refusal {
	brings := c.Made || c.Content != nil && (c.Before == nil || c.From != "" && c.From != c.Path)
	if !brings {
		return nil
	}
	found := r.detector.ScanName(c.Path)
	if len(found) > 0 && c.From != "" {
		found = secrets.New(found, r.detector.ScanName(c.From))
	}
	if len(found) == 0 {
		return nil
	}
	return &Refusal{Rule: RuleSecrets, Path: c.Path, Secret: found[0].Rule,
		Detail: fmt.Sprintf("The name would hold a secret (%s), which the policy of this server keeps out of history. Choose another name.", found[0].Rule)}
}

// secret looks for secrets that a change brings: those in a new name, and those in the
// file that were not in it before.
func (r *Rules) secret(c *Change) (*Refusal, error) {
	if r.detector == nil {
		return nil, nil
	}
	if x := r.name(c); x != nil {
		return x, nil
	}
	if c.Content == nil || c.Same && (c.From == "" || !r.detector.Differ(c.From, c.Path)) {
		return nil, nil
	}
	scan := func(name string, open func() (io.ReadCloser, error)) ([]secrets.Finding, error) {
		f, err := open()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return r.detector.ScanReader(name, f)
	}
	found, err := scan(c.Path, c.Content)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if c.Before != nil {
		name := c.Path
		if c.From != "" {
			name = c.From
		}
		before, err := scan(name, c.Before)
		if err != nil {
			return nil, err
		}
		if found = secrets.New(found, before); len(found) == 0 {
			return nil, nil
		}
	}
	f := found[0]
	where := ""
	if f.Line > 0 {
		where = fmt.Sprintf(" in line %d", f.Line)
	}
	return &Refusal{Rule: RuleSecrets, Path: c.Path, Secret: f.Rule, Line: f.Line,
		Detail: fmt.Sprintf("The file would hold a secret%s (%s), which the policy of this server keeps out of history. Take it out, and let the program read it from the environment or a secret store.", where, f.Rule)}, nil
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
