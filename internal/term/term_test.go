package term_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/term"
)

func TestParseColor(t *testing.T) {
	for _, ok := range []string{"auto", "always", "never"} {
		if c, err := term.ParseColor(ok); err != nil || string(c) != ok {
			t.Errorf("%s: %v, %v", ok, c, err)
		}
	}
	for _, bad := range []string{"", "yes", "Auto"} {
		if _, err := term.ParseColor(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestColorWanted(t *testing.T) {
	_, tty := pty(t)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	for _, c := range []struct {
		when          term.Color
		w             io.Writer
		noColor, term string
		want          bool
	}{
		{term.Auto, &bytes.Buffer{}, "", "xterm", false},
		{term.Auto, tty, "", "xterm", true},
		{term.Auto, tty, "1", "xterm", false},
		{term.Auto, tty, "", "dumb", false},
		{term.Always, &bytes.Buffer{}, "1", "dumb", true},
		{term.Never, tty, "", "xterm", false},
	} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		if got := c.when.Wanted(c.w); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestPagerCommand(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want string
	}{
		{nil, "less"},
		{map[string]string{"PAGER": "more"}, "more"},
		{map[string]string{"PAGER": "more", "GIT_PAGER": "most -s"}, "most -s"},
		{map[string]string{"GIT_PAGER": "most", "UMBRA_PAGER": "bat"}, "bat"},
		{map[string]string{"GIT_PAGER": "most", "UMBRA_PAGER": "cat"}, ""},
	} {
		if got := term.PagerCommand(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %q", c.env, got)
		}
	}
}

// On a terminal the output goes through the pager, colored; elsewhere not.
func TestPager(t *testing.T) {
	_, tty := pty(t)
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	file := filepath.Join(t.TempDir(), "paged")
	env := func(name string) string {
		if name == "UMBRA_PAGER" {
			return "cat > '" + file + "'; echo $LESS >> '" + file + "'"
		}
		return ""
	}
	o := term.Open(tty, term.Options{Color: term.Auto, Page: true, Env: env})
	o.Printf("%s\n", o.Paint(term.Commit, "text"))
	need.NoError(t, o.Close())
	got, err := os.ReadFile(file)
	need.NoError(t, err)
	if want := "\x1b[33mtext\x1b[m\nFRX\n"; string(got) != want {
		t.Errorf("paged %q, want %q", got, want)
	}
	var plain bytes.Buffer
	o = term.Open(&plain, term.Options{Color: term.Auto, Page: true, Env: env})
	o.Printf("%s\n", o.Paint(term.Commit, "text"))
	if err := o.Close(); err != nil || plain.String() != "text\n" {
		t.Errorf("%q, %v", plain.String(), err)
	}
}

// A pager that is left early ends the output, and that is no error; one that
// does not start leaves the terminal.
func TestPagerLeftAndMissing(t *testing.T) {
	master, tty := pty(t)
	o := term.Open(tty, term.Options{Page: true, Env: func(string) string { return "exit 0; :" }})
	for range 10_000 {
		o.Printf("%s\n", strings.Repeat("x", 100))
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	o = term.Open(tty, term.Options{Page: true, Env: func(string) string { return "no-such-pager" }})
	o.Printf("here\n")
	need.NoError(t, o.Close())
	line := make([]byte, 4)
	if _, err := io.ReadFull(master, line); err != nil || string(line) != "here" {
		t.Errorf("%q, %v", line, err)
	}
}

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		"plain é 漢":              "plain é 漢",
		"  a \n\t b  ":           "a b",
		"a \x1b[31mb":            `a \u001b[31mb`,
		"a\x07\xff \u202e":       `a\u0007\xff \u202e`,
		"\u200b":                 `\u200b`,
		"tail\x00":               `tail\u0000`,
		"replacement \ufffd too": "replacement \ufffd too",
	} {
		if got := term.Line(in); got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\x1b]0;title\x07b")
	f.Add("\xff\xfe\u2028x")
	f.Fuzz(func(t *testing.T, s string) {
		got := term.Line(s)
		for _, r := range got {
			if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
				t.Fatalf("%q is %q", s, got)
			}
		}
	})
}

func TestCut(t *testing.T) {
	if got := term.Cut("äöü", 3); got != "äöü" {
		t.Error(got)
	}
	if got := term.Cut("äöüß", 3); got != "äö…" {
		t.Error(got)
	}
}

// Without its colors a colored patch is the patch, whatever it is.
func FuzzDiff(f *testing.F) {
	f.Add("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n--- not a head\n+++ nor this\n x\n\\ No newline at end of file\n")
	f.Add("@@ -1 +1,999999999999999999999 @@\n+x")
	f.Add("@@ -,+ @@\n@@ -1,2\n")
	f.Add("GIT binary patch\nliteral 3\n" + strings.Repeat("z", 200_000))
	f.Fuzz(func(t *testing.T, patch string) {
		if strings.Contains(patch, "\x1b") {
			return // colors of its own
		}
		var got bytes.Buffer
		o := term.Open(&got, term.Options{Color: term.Always})
		need.NoError(t, o.Diff(strings.NewReader(patch)))
		need.NoError(t, o.Close())
		plain := got.String()
		for _, st := range []term.Style{term.Meta, term.Frag, term.Added, term.Removed, "\x1b[m"} {
			plain = strings.ReplaceAll(plain, string(st), "")
		}
		if plain != patch {
			t.Errorf("%q became %q", patch, plain)
		}
	})
}

func TestDiffColours(t *testing.T) {
	patch := "diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1,3 +1,2 @@ func\n--- gone\n+-- came\n same\n-last\n\\ No newline at end of file\ndiff --git a/b b/b\nold mode 100644\nnew mode 100755\n"
	var got bytes.Buffer
	o := term.Open(&got, term.Options{Color: term.Always})
	need.NoError(t, o.Diff(strings.NewReader(patch)))
	need.NoError(t, o.Close())
	var want strings.Builder
	for _, l := range []struct {
		st   term.Style
		text string
	}{
		{term.Meta, "diff --git a/a b/a"}, {term.Meta, "--- a/a"}, {term.Meta, "+++ b/a"}, {term.Frag, "@@ -1,3 +1,2 @@ func"},
		{term.Removed, "--- gone"}, {term.Added, "+-- came"}, {"", " same"}, {term.Removed, "-last"}, {"", "\\ No newline at end of file"},
		{term.Meta, "diff --git a/b b/b"}, {term.Meta, "old mode 100644"}, {term.Meta, "new mode 100755"},
	} {
		want.WriteString(string(l.st) + l.text)
		if l.st != "" {
			want.WriteString("\x1b[m")
		}
		want.WriteString("\n")
	}
	if got.String() != want.String() {
		t.Errorf("got\n%q\nwant\n%q", got.String(), want.String())
	}
}
