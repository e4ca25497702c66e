package harness

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"umbra/internal/need"
)

// Git runs stock git in a folder, without anybody's settings, and gives its
// output without the last newline. It must succeed.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := TryGit(t, dir, args...)
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(out, "\n")
}

// GitInput is Git with something on its standard input.
func GitInput(t testing.TB, dir, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command(need.Tool(t, "git"), args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(input)
	cmd.Env = Env(t, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// TryGit is Git that may fail; the error has git's own words.
func TryGit(t testing.TB, dir string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(need.Tool(t, "git"), args...)
	cmd.Dir = dir
	cmd.Env = Env(t, "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A Person", "GIT_AUTHOR_EMAIL=person@example.org", "GIT_COMMITTER_NAME=A Person", "GIT_COMMITTER_EMAIL=person@example.org")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.String(), &gitError{err, errOut.String()}
	}
	return out.String(), nil
}

type gitError struct {
	err    error
	stderr string
}

func (e *gitError) Error() string { return e.err.Error() + "\n" + e.stderr }
func (e *gitError) Unwrap() error { return e.err }
