package policy

import (
	"io"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/internal/need"
)

func rules(t *testing.T, r *Rules, own Task, name string, size int64) string {
	t.Helper()
	list, err := r.Judge(own, Change{Path: name, Size: size})
	need.NoError(t, err)
	var out []string
	for _, x := range list {
		out = append(out, x.Rule)
	}
	return strings.Join(out, " ")
}

// TestSecrets holds that only a secret that a change brings counts, under whatever
// name.
func TestSecrets(t *testing.T) {
	b, err := New(Settings{Secrets: Refuse})
	need.NoError(t, err)
	r := b.Of(nil, nil)
	open := func(text string) func() (io.ReadCloser, error) {
		return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
	}
	const one, two = "a = \"AKIAY3T2ZQ7WJMH5RKPD\"\n", "b = \"ghp_J7kQ2mXw9RtY4vBn6ZpL8sDf3GhC5aE1uW0i\"\n"
	for _, x := range []struct {
		name string
		c    Change
		rule string
	}{
		{"new", Change{Path: "a.go", Content: open("x\n" + one)}, "aws-access-token"},
		{"kept", Change{Path: "a.go", Content: open("x\n" + one), Before: open(one)}, ""},
		{"one more", Change{Path: "a.go", Content: open(one + two), Before: open(one)}, "github-pat"},
		{"renamed", Change{Path: "b.go", From: "a.go", Content: open(one), Before: open(one), Same: true}, ""},
		{"renamed from a name that is not looked at", Change{Path: "b.go", From: "a.png", Content: open(one), Before: open(one), Same: true}, "aws-access-token"},
		{"deleted", Change{Path: "a.go", Before: open(one)}, ""},
	} {
		list, err := r.Judge(Task{}, x.c)
		got := ""
		if len(list) > 0 {
			got = list[0].Secret
			if strings.Contains(list[0].Detail, "AKIA") || strings.Contains(list[0].Detail, "ghp_") {
				t.Errorf("%s: the refusal has the secret: %s", x.name, list[0].Detail)
			}
		}
		if err != nil || got != x.rule {
			t.Errorf("%s: %q %v, want %q", x.name, got, err, x.rule)
		}
	}
	for _, bad := range []Settings{{Secrets: "on"}, {After: "undo"}, {Places: []Place{{}}}, {Places: []Place{{Root: "x"}}}, {Places: []Place{{Root: "/x", Settings: Settings{Protected: []string{"[a"}}}}}} {
		if _, err := New(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

func TestJudge(t *testing.T) {
	b, err := New(Settings{Protected: []string{"/.github/**", "*.lock", "secret/"}, MaxFileBytes: 10,
		Places: []Place{{Root: "/p", Settings: Settings{Protected: []string{"more"}, MaxFileBytes: 20}}, {Workspace: "w", Settings: Settings{After: Revert}}}})
	need.NoError(t, err)
	r := b.Of([]string{"/q"}, []string{"x"})
	for _, at := range []string{"/p", "/p/d"} {
		if got := rules(t, b.Of([]string{at}, nil), Task{}, "more", 15); got != RuleProtected {
			t.Errorf("%s: %q", at, got)
		}
	}
	if got := b.Of([]string{"/pp"}, nil); got != r || r.TakesBack() || !b.Of(nil, []string{"f", "w"}).TakesBack() {
		t.Error("a place holds for others too, or not for a fork")
	}
	none := Task{}
	allowed := TaskOf([]message.Trailer{{Key: KeyAllow, Value: "/go.lock"}})
	only := TaskOf([]message.Trailer{{Key: KeyOnly, Value: "/src/**"}, {Key: KeyOnly, Value: "*.md"}})
	for _, x := range []struct {
		task Task
		path string
		size int64
		rule string
	}{
		{none, "a", 0, ""}, {none, ".github/workflows/x", 0, "protected"}, {none, "d/.github/x", 0, ""}, {none, "d/x.lock", 0, "protected"},
		{none, "secret/x/y", 0, "protected"}, {none, "a", 11, "max_file_bytes"}, {none, "a", 10, ""},
		{allowed, "go.lock", 0, ""}, {allowed, "d/go.lock", 0, "protected"},
		{only, "src/a/b", 0, ""}, {only, "d/x.md", 0, ""}, {only, "a", 0, "only"}, {only, "src/a.lock", 0, "protected"}, {only, "a.lock", 11, "only protected max_file_bytes"},
	} {
		if got := rules(t, r, x.task, x.path, x.size); got != x.rule {
			t.Errorf("%s (%d): %q, want %q", x.path, x.size, got, x.rule)
		}
	}
	var off *Rules
	if rules(t, off, none, "x.lock", 1<<40) != "" || !off.None(none) || off.None(only) {
		t.Error("no rules refuse")
	}
	for _, bad := range []string{"", " ", "!x", "# x", "[a", "a/[", "x\ny", "/", "./a", "../a", "a/../b", "a//b", "a\\"} {
		if Valid(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestPatterns holds that rules are those of git: what its documentation promises is
// protected.
func TestPatterns(t *testing.T) {
	for _, x := range []struct{ rule, path string }{
		{"**/keys/id", "keys/a/keys/id"}, {"a/**/b/c", "a/b/x/b/c"}, {"/docs/**.md", "docs/x.md"}, {"a**b", "axb"}, {"[!x]*", "y"}, {"[[:upper:]]*", "Y"},
		{"/.github/**", ".github/workflows/x"}, {"secret/", "secret/x"}, {"secret/", "d/secret/x/y"}, {"/a\\*b", "a*b"}, {"x?", "x\xff"},
	} {
		for _, folds := range []bool{false, true} {
			b, err := New(Settings{Protected: []string{x.rule}})
			need.NoError(t, err)
			r := b.Of(nil, nil)
			if folds {
				r = r.Folding()
			}
			if got := rules(t, r, Task{}, x.path, 0); got != RuleProtected {
				t.Errorf("%s does not protect %q", x.rule, x.path)
			}
		}
	}
	b, err := New(Settings{Protected: []string{"/.github/**", "Caf\u00e9", "*.lock"}})
	need.NoError(t, err)
	exact := b.Of(nil, nil)
	for _, name := range []string{".GitHub/x", "cafe\u0301", "GO.LOCK"} {
		if rules(t, exact, Task{}, name, 0) != "" || rules(t, exact.Folding(), Task{}, name, 0) != RuleProtected {
			t.Errorf("%q", name)
		}
	}
	list, err := exact.Folding().Judge(Task{}, Change{Path: ".GITHUB", Link: true})
	if err != nil || len(list) != 1 {
		t.Errorf("a link above: %v %v", list, err)
	}
	only := TaskOf([]message.Trailer{{Key: KeyOnly, Value: "/src/lib/**"}})
	for name, want := range map[string]string{"src": "", "src/lib": "", "src/lib/x": "", "srcs": RuleOnly, "src/other": RuleOnly} {
		list, err := exact.Judge(only, Change{Path: name, Dir: true})
		got := ""
		if len(list) > 0 {
			got = list[0].Rule
		}
		if err != nil || got != want {
			t.Errorf("the directory %s: %q %v", name, got, err)
		}
	}
	// The time does not grow exponentially with the pattern.
	slow, err := New(Settings{Protected: []string{strings.Repeat("*a", 400) + "b", strings.Repeat("**/a*", 150) + "/b"}})
	need.NoError(t, err)
	began := time.Now()
	rules(t, slow.Of(nil, nil), Task{}, strings.Repeat(strings.Repeat("a", 250)+"/", 15)+"x", 0)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a pattern took %s", took)
	}
}
