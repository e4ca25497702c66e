package gitcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// A command sees the history that there was when its shallow commits were
// pinned, in a whole repository and in a shallow one.
func TestPinShallow(t *testing.T) {
	need.Tool(t, "git")
	dir := filepath.Join(t.TempDir(), "r.git")
	need.NoError(t, os.Mkdir(dir, 0o700))
	git := func(prepare func(args ...string) (string, error), args ...string) string {
		t.Helper()
		out, err := prepare(args...)
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return out
	}
	plain := func(args ...string) (string, error) {
		cmd, err := Command(t.Context(), dir, args...)
		if err != nil {
			return "", err
		}
		var out strings.Builder
		cmd.Stdout = &out
		cmd.Env = append(cmd.Env, "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@x", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@x")
		err = Run(cmd)
		return strings.TrimSpace(out.String()), err
	}
	git(plain, "init", "-q", "--bare")
	tree := git(plain, "hash-object", "-t", "tree", "-w", os.DevNull)
	var commits []string
	for i := range 4 {
		args := []string{"commit-tree", "-m", string(rune('a' + i)), tree}
		if i > 0 {
			args = append(args, "-p", commits[i-1])
		}
		commits = append(commits, git(plain, args...))
	}
	counted := func(change string) string {
		cmd, err := Command(t.Context(), dir, "rev-list", "--count", commits[3])
		need.NoError(t, err)
		done, err := PinShallow(cmd, dir)
		need.NoError(t, err)
		defer done()
		need.NoError(t, os.WriteFile(filepath.Join(dir, "shallow"), []byte(change+"\n"), 0o600))
		var out strings.Builder
		cmd.Stdout = &out
		need.NoError(t, Run(cmd))
		return strings.TrimSpace(out.String())
	}
	if n := counted(commits[1]); n != "4" {
		t.Errorf("%s commits of a history that was whole", n)
	}
	if n := counted(commits[3]); n != "3" {
		t.Errorf("%s commits of a history that began at the second of four", n)
	}
	if n := git(plain, "rev-list", "--count", commits[3]); n != "1" {
		t.Errorf("%s commits of the history that begins at the fourth", n)
	}
}
