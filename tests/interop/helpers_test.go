package interop

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// soak tells whether the long forms of the tests are wanted.
func soak() bool { return os.Getenv("UMBRA_SOAK") != "" }

// scratch gives an empty folder, on tmpfs if the machine has one: what is
// tested here is the form of what is written, not the disk.
func scratch(t testing.TB) string {
	t.Helper()
	base := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "interop-")
	need.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// open opens the store of a folder; what fails there is the test's failure.
func open(t testing.TB, dir string, opt gitstore.Options) *gitstore.Store {
	t.Helper()
	fsys, err := vfs.OS(dir)
	need.NoError(t, err)
	opt.FS = fsys
	s, err := gitstore.Open(context.Background(), opt)
	need.NoError(t, err)
	return s
}

func closeStore(t testing.TB, s *gitstore.Store) {
	t.Helper()
	need.NoError(t, s.Close(context.Background()))
}

func repoOf(dir string) string { return filepath.Join(dir, "repo.git") }

// command makes a process that knows nobody's settings.
func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "LC_ALL=C.UTF-8", "TZ=UTC",
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A Person", "GIT_AUTHOR_EMAIL=person@example.org",
		"GIT_COMMITTER_NAME=A Person", "GIT_COMMITTER_EMAIL=person@example.org"}
	return cmd
}

// run runs a program that must succeed and gives what it wrote to standard
// output.
func run(t testing.TB, cmd *exec.Cmd) []byte {
	t.Helper()
	out, err := try(cmd)
	need.NoError(t, err)
	return out
}

// try is run that may fail; the error tells the command and its own words.
func try(cmd *exec.Cmd) ([]byte, error) {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, tail(out.Bytes()), errOut.Bytes())
	}
	return out.Bytes(), nil
}

// tail keeps an error message readable.
func tail(b []byte) []byte {
	const most = 2000
	if len(b) > most {
		return b[len(b)-most:]
	}
	return b
}

// git runs stock git in a folder and gives its output without the last newline.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return strings.TrimSuffix(string(run(t, command(t.Context(), dir, need.Tool(t, "git"), args...))), "\n")
}

// gitFed is git with something on standard input.
func gitFed(t testing.TB, dir, input string, args ...string) string {
	t.Helper()
	cmd := command(t.Context(), dir, need.Tool(t, "git"), args...)
	cmd.Stdin = strings.NewReader(input)
	return string(run(t, cmd))
}

// fsck demands that stock git finds nothing to tell but objects that nothing
// refers to.
func fsck(t testing.TB, repo string) {
	t.Helper()
	if out := git(t, repo, "fsck", "--strict", "--full", "--no-dangling", "--no-progress"); out != "" {
		t.Fatalf("fsck: %s", out)
	}
}
