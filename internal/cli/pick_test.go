package cli

import (
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
)

func TestPathIn(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	need.NoError(t, os.MkdirAll(filepath.Join(root, "sub", "deep"), 0o777))
	w := Place{ID: "w", Root: root}
	for _, c := range []struct{ dir, arg, want string }{
		{root, "a.txt", "a.txt"},
		{root, ".", ""},
		{root, "./sub/", "sub"},
		{filepath.Join(root, "sub"), "a.txt", "sub/a.txt"},
		{filepath.Join(root, "sub"), "..", ""},
		{filepath.Join(root, "sub", "deep"), "../x", "sub/x"},
		{filepath.Join(root, "sub"), filepath.Join(root, "y"), "y"},
		{"/", "a.txt", "a.txt"},
		{"/", root, ""},
	} {
		t.Chdir(c.dir)
		if got, err := PathIn(w, c.arg); err != nil || got != c.want {
			t.Errorf("in %s: %q is %q, %v; want %q", c.dir, c.arg, got, err, c.want)
		}
	}
	for _, bad := range []string{"../x", "/etc/passwd", "sub/../../x"} {
		t.Chdir("/")
		if got, err := PathIn(w, bad); err == nil {
			t.Errorf("%q is %q", bad, got)
		}
	}
}
