package inuse

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/internal/vfs"
)

// TestStartedFor: a git that was started for a repository is at work in it before it has
// anything of it open, wherever it is.
func TestStartedFor(t *testing.T) {
	top := t.TempDir()
	repo := filepath.Join(top, "repo.git")
	need.NoError(t, os.Mkdir(repo, 0o700))
	var st syscall.Stat_t
	need.NoError(t, syscall.Stat(repo, &st))
	dirs := []vfs.Info{{Dev: uint64(st.Dev), Ino: st.Ino}}
	for _, c := range []struct {
		name    string
		program string
		args    []string
		env     string
		dir     string
		want    bool
	}{
		{"elsewhere", "git", nil, "", top, false},
		{"in it", "git", nil, "", repo, true},
		{"-C", "git", []string{"-C", "git", repo}, "", "/", true},
		{"relative", "git", []string{"-C", "git", "repo.git"}, "", top, true},
		{"--git-dir", "git", []string{"--git-dir=" + repo}, "", "/", true},
		{"GIT_DIR", "git", nil, "GIT_DIR=" + repo, "/", true},
		{"another program", "vi", []string{repo}, "", "/", false},
		{"another's variable", "git", nil, "REPO=" + repo, "/", false},
		{"another", "git", []string{"-C", "git", top}, "GIT_DIR=" + top, "/", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command("sh", append([]string{"-c", "echo; read x", "sh"}, c.args...)...)
			cmd.Args[0] = c.program
			cmd.Dir, cmd.Env = c.dir, append([]string{"PATH=" + os.Getenv("PATH")}, c.env)
			in, err := cmd.StdinPipe()
			need.NoError(t, err)
			out, err := cmd.StdoutPipe()
			need.NoError(t, err)
			need.NoError(t, cmd.Start())
			if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			got, err := Repository(t.Context(), dirs, nil)
			if err != nil && !errors.Is(err, ErrUndecided) || got != c.want {
				t.Errorf("in use: %v, %v", got, err)
			}
			in.Close()
			_ = cmd.Wait()
		})
	}
}
