package tests

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"umbra/tests/harness"
)

// TestExecAsAnOrdinaryUser: a user without rights, in a home of its own, runs random
// commands in layers on a server that has none either. The command is that user, and not
// the root of its namespace: it can do nothing that it could not do without the layer.
func TestExecAsAnOrdinaryUser(t *testing.T) {
	p := limited(t, map[string]string{"a": "a\n", "d/a": "da\n", "out/a": "oa\n", ".gitignore": "out/\n*.o\n", "locked/x": "x\n"})
	if err := os.Chown(filepath.Join(p.dir, "locked"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(p.dir, "locked"), 0o755); err != nil {
		t.Fatal(err)
	}
	plain, home := t.TempDir(), t.TempDir()
	if out, err := exec.Command("cp", "-a", p.dir+"/.", plain).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	raw, err := os.ReadFile(harness.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "umbra")
	if err := os.WriteFile(program, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{plain, home, program} {
		p.Give(name)
	}
	asUser := func(dir, name string, args ...string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
		cmd, out, errOut := exec.Command(name, args...), new(bytes.Buffer), new(bytes.Buffer)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, errOut
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody, NoSetGroups: true}}
		return cmd, out, errOut
	}
	run := func(line string) (execResult, string, string) {
		t.Helper()
		cmd, out, errOut := asUser(p.dir, program, "exec", "--server", p.URL, "--isolate=require", "--json", "--agent=a", "--session=s", "--", "sh", "-c", line)
		_ = cmd.Run()
		return execAnswer(t, cmd, out.String(), errOut.String())
	}
	r, out, errOut := run(`id -u; id -g; ! echo y > /etc/umbra-test; ! echo y > locked/x; ! chown 0 a; ! chroot / true; ! mount -t tmpfs x /mnt`)
	if r.ExitCode != 0 || out != fmt.Sprintf("%d\n%d\n", nobody, nobody) || p.read(t, "locked/x") != "x\n" {
		t.Fatalf("%+v %q %s", r, out, errOut)
	}
	rounds, seed := execRounds(t, 10, 1000, 7)
	lines := rand.New(rand.NewPCG(19, seed))
	for i := range rounds {
		// A directory that its owner may not enter is no place from which a server without
		// rights can apply files.
		line := regexp.MustCompile(`chmod 600 ('[^']*')`).ReplaceAllString(execLine(lines), "{ test -d $1 || chmod 600 $1; }")
		before := execTree(t, p.dir)
		res, _, errOut := run(line)
		if res.ExitCode != 0 {
			t.Fatalf("seed %d round %d: %s: %+v %s\nin\n%s", seed, i, line, res, errOut, before)
		}
		cmd, out, plainErr := asUser(plain, "sh", "-c", line)
		if err := cmd.Run(); err != nil {
			t.Fatal(err, out, plainErr)
		}
		if got, want := execTree(t, p.dir), execTree(t, plain); got != want {
			t.Fatalf("seed %d round %d: %s\nin\n%s\ngot\n%s\nwant\n%s", seed, i, line, before, got, want)
		}
	}
	err = filepath.WalkDir(p.dir, func(name string, d fs.DirEntry, err error) error {
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
