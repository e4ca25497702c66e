// Package ignore decides which paths of a workspace are left out, exactly as
// git would: gitignore(5) with nested files, negation and the rule that nothing
// under an ignored directory can be re-included.
//
// Three sets of rules with the same syntax apply independently and never override
// each other: git's own (.gitignore at every level and info/exclude),
// the workspace's (.umbraignore at every level and an exclude list), and
// .codeyignore at the root. Rules above the root and the user's global excludes
// are not read.
//
// Git does not ignore what its index tracks: gitindex.go reads the project's own
// index, without running anything, and leaves it to the caller to ask it.
//
// A Dir never changes once made, so all of it may be used concurrently.
package ignore

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"umbra/internal/wspath"
)

// The names of the files that hold rules.
const (
	GitFile   = ".gitignore"
	UmbraFile = ".umbraignore"
	CodeyFile = ".codeyignore"
)

// IsRuleFile reports whether a change of a file of this name can change what is
// ignored.
func IsRuleFile(name string) bool {
	return name == GitFile || name == UmbraFile || name == CodeyFile
}

// MaxFile is the largest file of rules that is read, in bytes, as in git; a
// larger one has no rules.
const MaxFile = 100 << 20

// Options say where rules come from.
type Options struct {
	// ReadFile reads a file of rules by its path from the root. It must not
	// follow a link in the last component, must not block on a FIFO, and need
	// not read more than MaxFile+1 bytes. A file that is missing, no file, or
	// not readable by right has no rules; any other error is passed on, since
	// to go on without rules would record what a user meant to keep out.
	ReadFile func(path wspath.Path) ([]byte, error)
	// InfoExclude is the content of git's info/exclude: git's rules that any
	// .gitignore overrides.
	InfoExclude []byte
	// UmbraExclude is the same for the workspace's rules.
	UmbraExclude []byte
	// Codey asks for the root's .codeyignore too.
	Codey bool
}

// The sets of rules, as indexes of Dir.stacks.
const (
	setGit = iota
	setUmbra
	setCodey
	numSets
)

// Verdict is what the rules say of one path. For each set it holds the rule
// that decided, nil where none matched; a rule may be a negated one, or one that
// matched a folder above.
type Verdict struct {
	Git, Umbra, Codey *Rule
}

// ByGit reports whether git's rules leave the path out. They do not hold for
// what the project's own index tracks, which the caller must ask.
func (v Verdict) ByGit() bool { return hides(v.Git) }

// ByUmbra reports whether the workspace's rules leave the path out.
func (v Verdict) ByUmbra() bool { return hides(v.Umbra) }

// ByCodey reports whether .codeyignore leaves the path out.
func (v Verdict) ByCodey() bool { return hides(v.Codey) }

// Ignored reports whether any set leaves the path out.
func (v Verdict) Ignored() bool { return v.ByGit() || v.ByUmbra() || v.ByCodey() }

func hides(r *Rule) bool { return r != nil && !r.Negated }

// stack is one set as it applies in a directory.
type stack struct {
	lists   []*list // the nearest file last
	ignored *Rule   // what left the folder itself out: decides for all below
}

// Dir is a folder with all rules that hold in it.
type Dir struct {
	path   wspath.Path
	read   func(wspath.Path) ([]byte, error)
	stacks [numSets]stack
}

// NewRoot reads the rules of the root. It fails only as Options.ReadFile does.
func NewRoot(opts Options) (*Dir, error) {
	d := &Dir{path: wspath.Root, read: opts.ReadFile}
	if rules := parseFile(".git/info/exclude", opts.InfoExclude); len(rules) > 0 {
		d.stacks[setGit].lists = []*list{newList(0, rules)}
	}
	if rules := parseFile("umbra exclude", opts.UmbraExclude); len(rules) > 0 {
		d.stacks[setUmbra].lists = []*list{newList(0, rules)}
	}
	if err := d.load(nil); err != nil {
		return nil, err
	}
	if opts.Codey {
		if err := d.loadFile(&d.stacks[setCodey], CodeyFile); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Path gives the folder's path.
func (d *Dir) Path() wspath.Path { return d.path }

// Verdict returns what holds for the directory itself.
func (d *Dir) Verdict() Verdict {
	return Verdict{Git: d.stacks[setGit].ignored, Umbra: d.stacks[setUmbra].ignored, Codey: d.stacks[setCodey].ignored}
}

// Child gives a folder in this one, with the rules of its own files. It fails
// only as Options.ReadFile does.
func (d *Dir) Child(name string) (*Dir, error) { return d.ChildHaving(name, nil) }

// ChildHaving is Child for a walker that has listed the directory: has reports
// whether a file of a name exists, which saves opening files that do not. A nil
// has means not known.
func (d *Dir) ChildHaving(name string, has func(file string) bool) (*Dir, error) {
	c := &Dir{path: d.path.Join(name), read: d.read, stacks: d.stacks}
	v := d.Match(name, true)
	for i, r := range [numSets]*Rule{v.Git, v.Umbra, v.Codey} {
		if hides(r) {
			c.stacks[i].ignored = r
		}
	}
	if err := c.load(has); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the folder's own files. As in git, a file under an ignored folder
// has no say.
func (d *Dir) load(has func(string) bool) error {
	for i, file := range [...]string{setGit: GitFile, setUmbra: UmbraFile} {
		if d.stacks[i].ignored != nil || has != nil && !has(file) {
			continue
		}
		if err := d.loadFile(&d.stacks[i], file); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dir) loadFile(s *stack, file string) error {
	path := d.path.Join(file)
	data, err := d.read(path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR),
		errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENXIO):
		return nil
	default:
		return err
	}
	if len(data) > MaxFile {
		return nil
	}
	rules := parseFile(string(path), data)
	if len(rules) == 0 {
		return nil
	}
	prefix := 0
	if !d.path.IsRoot() {
		prefix = len(d.path) + 1
	}
	// The parent's slice is shared with other children: never append in place.
	s.lists = append(slices.Clip(s.lists), newList(prefix, rules))
	return nil
}

// Match judges a name in the folder. isDir says that it is a real folder, not
// a link to one. For a folder's own rules see Child.
func (d *Dir) Match(name string, isDir bool) Verdict {
	path := string(d.path.Join(name))
	return Verdict{
		Git:   d.stacks[setGit].match(path, name, isDir),
		Umbra: d.stacks[setUmbra].match(path, name, isDir),
		Codey: d.stacks[setCodey].match(path, name, isDir),
	}
}

// match gives the last rule of the nearest file that matches.
func (s *stack) match(path, name string, isDir bool) *Rule {
	if s.ignored != nil {
		return s.ignored
	}
	for i := len(s.lists) - 1; i >= 0; i-- {
		if r := s.lists[i].match(path, name, isDir); r != nil {
			return r
		}
	}
	return nil
}

// Lookup judges any path below the folder, reading the files of the folders
// between. isDir is as for Match; the folder itself (wspath.Root) gives its own
// verdict. It fails only as Options.ReadFile does.
func (d *Dir) Lookup(rel wspath.Path, isDir bool) (Verdict, error) {
	names := rel.Components()
	if len(names) == 0 {
		return d.Verdict(), nil
	}
	for _, name := range names[:len(names)-1] {
		child, err := d.Child(name)
		if err != nil {
			return Verdict{}, err
		}
		d = child
	}
	return d.Match(names[len(names)-1], isDir), nil
}
