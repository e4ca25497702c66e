package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"umbra/internal/exitcode"
	"umbra/internal/need"
)

// each calls f with every command of the program that is not hidden.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			f(c)
			each(c, f)
		}
	}
}

// TestHelp holds the help of all commands to one form: sentences, an example of
// the command itself, flags with a placeholder that names the value, and lines that
// fit a terminal.
func TestHelp(t *testing.T) {
	var out, errOut bytes.Buffer
	root := command(&out, &errOut)
	each(root, func(c *cobra.Command) {
		path := c.CommandPath()
		switch {
		case c.Short == "" || strings.HasSuffix(c.Short, "."):
			t.Errorf("%s: the short text is %q", path, c.Short)
		case !strings.HasSuffix(c.Long, ".") && !strings.HasSuffix(c.Long, ")"):
			t.Errorf("%s: the long text is no sentence: %q", path, c.Long)
		case !strings.HasPrefix(c.Example, "  "+path):
			t.Errorf("%s: the example is %q", path, c.Example)
		case c.Parent() == root && c.GroupID == "":
			t.Errorf("%s is in no group", path)
		}
		for _, line := range strings.Split(c.Long+"\n"+c.Short, "\n") {
			if n := utf8.RuneCountInString(line); n > 90 {
				t.Errorf("%s: a line of %d characters: %s", path, n, line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			name, usage := pflag.UnquoteUsage(f)
			switch {
			case f.Hidden:
			case name != "" && (name == f.Value.Type() || name == "strings" || name == "stringArray" || strings.ToUpper(name) != name && !strings.ContainsAny(name, "|0123456789") && name != "task"):
				t.Errorf("%s --%s has the placeholder %q", path, f.Name, name)
			case usage == "" || strings.HasSuffix(usage, "."):
				t.Errorf("%s --%s: the text is %q", path, f.Name, usage)
			}
		})
	})
}

// TestArguments: a wrong number of arguments is wrong use, in the program's own words.
func TestArguments(t *testing.T) {
	var out, errOut bytes.Buffer
	each(command(&out, &errOut), func(c *cobra.Command) {
		for _, n := range []int{0, 40} {
			err := c.ValidateArgs(slices.Repeat([]string{"x"}, n))
			if err == nil {
				continue
			}
			text := err.Error()
			if _, ok := errors.AsType[exitcode.UsageError](err); !ok || strings.Contains(text, "arg(s)") {
				t.Errorf("%s with %d arguments: %T %s", c.CommandPath(), n, err, text)
			}
		}
	})
}

// TestManual holds that no page of the manual has a directory of this machine in it.
func TestManual(t *testing.T) {
	t.Setenv("HOME", "/home/of-the-builder")
	t.Setenv("XDG_DATA_HOME", "")
	dir := t.TempDir()
	var out, errOut bytes.Buffer
	if status := run(t.Context(), []string{"man", dir}, &out, &errOut); status != 0 {
		t.Fatalf("status %d: %s", status, &errOut)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 40 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		need.NoError(t, err)
		if bytes.Contains(text, []byte("of\\-the")) || bytes.Contains(text, []byte("of-the-builder")) {
			t.Errorf("%s names a directory of the builder", filepath.Base(page))
		}
	}
}

// TestWrongFirstUse: what a new user gets wrong is refused with what to do.
func TestWrongFirstUse(t *testing.T) {
	for _, x := range []struct{ home, args, want string }{
		{"/home/of-the-builder", "help udno", `unknown command "udno"; did you mean undo?`},
		{"/home/of-the-builder", "help task sttart", `unknown command "sttart"; did you mean start?`},
		{"", "workspaces", "data_dir: HOME is not set, so that there is no default; give --data-dir"},
	} {
		t.Setenv("HOME", x.home)
		t.Setenv("XDG_DATA_HOME", "")
		var out, errOut bytes.Buffer
		root := command(&out, &errOut)
		root.SetArgs(strings.Fields(x.args))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), x.want) || exitcode.Of(err, &errOut) != 2 {
			t.Errorf("umbra %s: %v", x.args, err)
		}
	}
}
