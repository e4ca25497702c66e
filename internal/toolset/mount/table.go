package mount

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Kind is what is behind a prefix.
type Kind string

// The kinds.
const (
	Physical Kind = "physical"
	Virtual  Kind = "virtual"
)

// Mount is one line of a table.
type Mount struct {
	Prefix string // as ParsePrefix gives it
	Scope  Scope
	Kind   Kind
}

// MaxMounts bounds a table.
const MaxMounts = 1000

// ParsePrefix gives the canonical form of a prefix: absolute, "/a//b/" is
// "/a/b". The error is a sentence for the developer who wrote it.
func ParsePrefix(s string) (string, error) {
	if !strings.HasPrefix(s, "/") {
		return "", fmt.Errorf("the prefix must be an absolute path that begins with /")
	}
	if strings.IndexByte(s, 0) >= 0 || strings.ContainsFunc(s, unicode.IsControl) || strings.ContainsFunc(s, isSeparator) {
		return "", fmt.Errorf("the prefix must not contain control characters")
	}
	for name := range strings.SplitSeq(s, "/") {
		if name == ".." {
			return "", fmt.Errorf("the prefix must not contain \"..\"")
		}
	}
	if why := foreign(s); why != "" {
		return "", fmt.Errorf("the prefix is not allowed: %s", why)
	}
	return Clean(s)
}

// Table is a set of mounts. It is immutable, and safe for concurrent use. The
// zero value has no mounts.
type Table struct {
	mounts []Mount        // as they were given
	byPath map[string]int // prefix to its place in mounts
	sorted []string       // prefixes, bytewise
	// lengths reports which lengths prefixes have: a path's folders are only
	// looked up where one of that length can be there.
	lengths []bool
}

// NewTable makes a table. The prefixes are canonical; dup is the place of the
// first that occurs twice, -1 if none does.
func NewTable(mounts []Mount) (t *Table, dup int) {
	t = &Table{mounts: slices.Clone(mounts), byPath: make(map[string]int, len(mounts))}
	for i, m := range mounts {
		if _, twice := t.byPath[m.Prefix]; twice {
			return nil, i
		}
		t.byPath[m.Prefix] = i
		for len(t.lengths) <= len(m.Prefix) {
			t.lengths = append(t.lengths, false)
		}
		t.lengths[len(m.Prefix)] = true
		t.sorted = append(t.sorted, m.Prefix)
	}
	slices.Sort(t.sorted)
	return t, -1
}

// Mounts gives the mounts in the order in which they were given. They must not
// be changed.
func (t *Table) Mounts() []Mount {
	if t == nil {
		return nil
	}
	return t.mounts
}

// Sorted gives the mounts by prefix, bytewise.
func (t *Table) Sorted() []Mount {
	out := slices.Clone(t.Mounts())
	slices.SortFunc(out, func(a, b Mount) int { return cmp.Compare(a.Prefix, b.Prefix) })
	return out
}

// Lookup finds the mount that a clean path lies in, the one of the longest
// prefix, and the path below it ("" for the mount itself).
func (t *Table) Lookup(p string) (i int, rel string, ok bool) {
	if t == nil {
		return 0, "", false
	}
	for at := p; ; {
		if len(at) < len(t.lengths) && t.lengths[len(at)] {
			if i, ok := t.byPath[at]; ok {
				return i, strings.TrimPrefix(p[len(at):], "/"), true
			}
		}
		if at == "/" {
			return 0, "", false
		}
		cut := strings.LastIndexByte(at, '/')
		if cut <= 0 {
			at = "/"
			continue
		}
		at = at[:cut]
	}
}

// Below gives the names in a folder under which mounts are, sorted bytewise.
func (t *Table) Below(dir string) []string {
	var out []string
	for _, p := range t.under(dir) {
		rel := strings.TrimPrefix(p[len(dir):], "/")
		name, _, _ := strings.Cut(rel, "/")
		if len(out) == 0 || out[len(out)-1] != name {
			out = append(out, name)
		}
	}
	slices.Sort(out) // "a-b" is before "a/c" in the table, and after "a" here
	return slices.Compact(out)
}

// HasBelow reports whether a mount is strictly below a folder.
func (t *Table) HasBelow(dir string) bool { return len(t.under(dir)) > 0 }

// under gives the prefixes strictly below a folder.
func (t *Table) under(dir string) []string {
	if t == nil {
		return nil
	}
	var out []string
	for _, p := range t.sorted {
		if p != dir && Within(p, dir) {
			out = append(out, p)
		}
	}
	return out
}

// Under gives the places of the mounts at and below a folder, by prefix.
func (t *Table) Under(dir string) []int {
	if t == nil {
		return nil
	}
	var out []int
	for _, p := range t.sorted {
		if Within(p, dir) {
			out = append(out, t.byPath[p])
		}
	}
	return out
}

// IsMount reports whether a mount is at a path.
func (t *Table) IsMount(p string) bool {
	if t == nil {
		return false
	}
	_, ok := t.byPath[p]
	return ok
}

// Target is where a path leads.
type Target struct {
	Path  string // clean
	Mount int    // its place in the table
	Rel   string // below the mount; "" for the mount itself
	Scope Scope
}

// Resolve finds where a model's path leads, and whether the operation may be
// done there. Errors are Messages.
func (t *Table) Resolve(p string, op Op) (Target, error) {
	clean, err := Clean(p)
	if err != nil {
		return Target{}, err
	}
	i, rel, ok := t.Lookup(clean)
	if !ok {
		return Target{}, t.NotMounted(clean)
	}
	to := Target{Path: clean, Mount: i, Rel: rel, Scope: t.mounts[i].Scope}
	return to, to.Scope.Allow(op, clean)
}

// NotMounted is the message for a path that no mount has.
func (t *Table) NotMounted(clean string) error {
	list := "(none)"
	if t != nil && len(t.sorted) > 0 {
		list = strings.Join(t.sorted, ", ")
	}
	return Message("No workspace is mounted at " + Show(clean) + ". Mounted: " + list)
}
