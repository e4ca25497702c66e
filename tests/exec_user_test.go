package tests

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// ordinary is the folder of a user without rights, on a server that has none either,
// with a plain copy of the folder and a home of the user's own.
type ordinary struct {
	*project
	plain, home, program string
}

// newOrdinary has the files belong to the user, but for those that own names.
func newOrdinary(t *testing.T, files map[string]string, own ...string) *ordinary {
	t.Helper()
	u := &ordinary{project: limited(t, files), plain: t.TempDir(), home: t.TempDir(), program: filepath.Join(t.TempDir(), "umbra")}
	for _, name := range own {
		need.NoError(t, os.Lchown(filepath.Join(u.dir, name), 0, 0))
	}
	if out, err := exec.Command("cp", "-a", u.dir+"/.", u.plain).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	raw, err := os.ReadFile(harness.Binary(t))
	need.NoError(t, err)
	need.NoError(t, os.WriteFile(u.program, raw, 0o755))
	for _, name := range []string{u.plain, u.home, u.program} {
		u.Give(name)
	}
	return u
}

func (u *ordinary) command(dir, name string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
	cmd, out, errOut := exec.Command(name, args...), new(bytes.Buffer), new(bytes.Buffer)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, errOut
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + u.home, "TMPDIR=" + u.home}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true}}
	return cmd, out, errOut
}

// run runs a shell command in a layer.
func (u *ordinary) run(t *testing.T, line string, flags ...string) (r execResult, stdout, stderr string) {
	t.Helper()
	args := append([]string{"exec", "--server", u.URL, "--isolate=require", "--json", "--agent=a", "--session=s"}, flags...)
	cmd, out, errOut := u.command(u.dir, u.program, append(args, "--", "sh", "-c", line)...)
	_ = cmd.Run()
	return execAnswer(t, cmd, out.String(), errOut.String())
}

// plainly runs a shell command in the plain copy, and returns both trees.
func (u *ordinary) plainly(t *testing.T, line string) (got, want string) {
	t.Helper()
	cmd, out, errOut := u.command(u.plain, "sh", "-c", line)
	if err := cmd.Run(); err != nil {
		t.Fatal(err, out, errOut)
	}
	return need.Tree(t, u.dir), need.Tree(t, u.plain)
}

// TestExecAsAnOrdinaryUser: a user without rights, in a home of its own, runs random
// commands in layers on a server that has none either. The command is that user, and not
// the root of its namespace: it can do nothing that it could not do without the layer.
func TestExecAsAnOrdinaryUser(t *testing.T) {
	p := newOrdinary(t, map[string]string{"a": "a\n", "d/a": "da\n", "out/a": "oa\n", ".gitignore": "out/\n*.o\n", "locked/x": "x\n"}, "locked")
	r, out, errOut := p.run(t, `id -u; id -g; ! echo y > /etc/umbra-test; ! echo y > locked/x; ! chown 0 a; ! chroot / true; ! mount -t tmpfs x /mnt`)
	if r.ExitCode != 0 || out != fmt.Sprintf("%d\n%d\n", nobody, nobody) || p.read(t, "locked/x") != "x\n" {
		t.Fatalf("%+v %q %s", r, out, errOut)
	}
	rounds, seed := execRounds(t, 10, 1000, 7)
	lines := rand.New(rand.NewPCG(19, seed))
	for i := range rounds {
		// In a layer mv(1) copies a directory, so it cannot move one that it may not read.
		line := `mv() { test -n "$(find "$1" -type d ! -perm -500)" || command mv "$@"; }; ` + execLine(lines)
		before := need.Tree(t, p.dir)
		res, _, errOut := p.run(t, line)
		if res.occupied() {
			need.NoError(t, os.RemoveAll(p.plain))
			if out, err := exec.Command("cp", "-a", p.dir, p.plain).CombinedOutput(); err != nil {
				t.Fatal(err, string(out))
			}
			continue
		}
		if res.ExitCode != 0 {
			t.Fatalf("seed %d round %d: %s: %+v %s\nin\n%s", seed, i, line, res, errOut, before)
		}
		if got, want := p.plainly(t, line); got != want {
			t.Fatalf("seed %d round %d: %s\nin\n%s\ngot\n%s\nwant\n%s", seed, i, line, before, got, want)
		}
	}
	err := filepath.WalkDir(p.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && st.Uid != nobody && !strings.HasSuffix(name, "locked") {
			t.Errorf("%s belongs to %d", name, st.Uid)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
