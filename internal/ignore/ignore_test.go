package ignore_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// files is a tree of rule files for Options.ReadFile.
type files map[wspath.Path]string

func (f files) ReadFile(p wspath.Path) ([]byte, error) {
	if s, ok := f[p]; ok {
		return []byte(s), nil
	}
	return nil, &fs.PathError{Op: "open", Path: string(p), Err: syscall.ENOENT}
}

func root(t *testing.T, opts ignore.Options, f files) *ignore.Dir {
	t.Helper()
	opts.ReadFile = f.ReadFile
	d, err := ignore.NewRoot(opts)
	need.NoError(t, err)
	return d
}

func lookup(t *testing.T, d *ignore.Dir, p wspath.Path, isDir bool) ignore.Verdict {
	t.Helper()
	v, err := d.Lookup(p, isDir)
	need.NoError(t, err)
	return v
}

// The sets never override each other: what one hides, another's negation does
// not bring back.
func TestSetsAreSeparate(t *testing.T) {
	d := root(t, ignore.Options{Codey: true, InfoExclude: []byte("info\n"), UmbraExclude: []byte("gone\n")}, files{
		".gitignore":          "*.log\n!keep.log\n!info\n",
		".umbraignore":        "*.tmp\n!a.log\n",
		"sub/.umbraignore":    "deep\n!x.tmp\n",
		".codeyignore":        "secret/\n!*.log\n",
		"sub/.codeyignore":    "never-read\n",
		"sub/skip/.gitignore": "!*\n",
	})
	cases := []struct {
		path              wspath.Path
		dir               bool
		git, umbra, codey bool
	}{
		{"a.log", false, true, false, false},
		{"keep.log", false, false, false, false},
		{"a.tmp", false, false, true, false},
		{"sub/x.tmp", false, false, false, false},
		{"sub/y.tmp", false, false, true, false},
		{"sub/deep/f", false, false, true, false},
		{"deep", false, false, false, false},
		{"secret/f", false, false, false, true},
		{"secret", false, false, false, false},
		{"sub/never-read", false, false, false, false},
		{"info", false, false, false, false},
		{"gone", false, false, true, false},
		{"secret/a.log", false, true, false, true},
		{".", true, false, false, false},
	}
	for _, c := range cases {
		v := lookup(t, d, c.path, c.dir)
		if v.ByGit() != c.git || v.ByUmbra() != c.umbra || v.ByCodey() != c.codey || v.Ignored() != (c.git || c.umbra || c.codey) {
			t.Errorf("%s: git %v, umbra %v, codey %v", c.path, v.ByGit(), v.ByUmbra(), v.ByCodey())
		}
	}
}

func TestChildHaving(t *testing.T) {
	reads := 0
	f := files{"a/.gitignore": "x\n"}
	d, err := ignore.NewRoot(ignore.Options{ReadFile: func(p wspath.Path) ([]byte, error) {
		reads++
		return f.ReadFile(p)
	}})
	need.NoError(t, err)
	reads = 0
	c, err := d.ChildHaving("a", func(string) bool { return false })
	if err != nil || reads != 0 || c.Match("x", false).Ignored() {
		t.Errorf("a file that is not there was read: %d, %v", reads, err)
	}
	c, err = d.ChildHaving("a", func(file string) bool { return file == ignore.GitFile })
	if err != nil || reads != 1 || !c.Match("x", false).ByGit() || c.Path() != "a" {
		t.Errorf("%d reads, %v", reads, err)
	}
}

// Siblings share their parent's rules, and none sees another's.
func TestSiblings(t *testing.T) {
	d := root(t, ignore.Options{InfoExclude: []byte("i\n")}, files{".gitignore": "r\n", "a/.gitignore": "a\n", "b/.gitignore": "b\n"})
	a, err1 := d.Child("a")
	b, err2 := d.Child("b")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if !a.Match("a", false).Ignored() || a.Match("b", false).Ignored() || !b.Match("b", false).Ignored() || b.Match("a", false).Ignored() {
		t.Error("rules leak between siblings")
	}
}

func TestReadErrors(t *testing.T) {
	for _, c := range []struct {
		err   error
		fatal bool
	}{
		{syscall.ENOENT, false}, {syscall.EACCES, false}, {syscall.ELOOP, false}, {syscall.EISDIR, false}, {syscall.ENOTDIR, false},
		{syscall.ENXIO, false}, {syscall.EIO, true}, {syscall.EMFILE, true},
	} {
		_, err := ignore.NewRoot(ignore.Options{ReadFile: func(p wspath.Path) ([]byte, error) {
			return nil, &fs.PathError{Op: "open", Path: string(p), Err: c.err}
		}})
		if (err != nil) != c.fatal || c.fatal && !errors.Is(err, c.err) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
}

// Patterns that take plain recursion exponential time.
func TestNoBlowUp(t *testing.T) {
	long := strings.Repeat("a", 250)
	deep := strings.TrimSuffix(strings.Repeat("a/", 2000), "/")
	for _, c := range []struct{ pattern, path string }{
		{strings.Repeat("*a", 100) + "*b", long},
		{"/" + strings.Repeat("*a", 100) + "*b", long},
		{strings.Repeat("**/a*/", 100) + "b", deep},
		{strings.Repeat("**/", 1000) + "b", deep},
		{"**/" + strings.Repeat("a/*/", 500) + "b", deep},
		{strings.Repeat("**/*a*a*a*/", 50) + "*b", deep},
		{strings.Repeat("[a-z]*", 100) + "b", long},
		{strings.Repeat(`**\/`, 200) + "b", deep},
	} {
		d := root(t, ignore.Options{InfoExclude: []byte(c.pattern)}, nil)
		start := time.Now()
		if d.Match(c.path, false).Ignored() {
			t.Errorf("%.40q matches", c.pattern)
		}
		if took := time.Since(start); took > time.Minute { // by trying all ways it is years
			t.Errorf("%.40q took %v", c.pattern, took)
		}
	}
}
