package layer_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/layer"
	"umbra/internal/need"
)

// rig is a directory and a layer on it.
type rig struct {
	root, upper, work string
	started           func(pid int)
}

func newRig(t *testing.T) rig {
	t.Helper()
	base := t.TempDir()
	t.Cleanup(func() { _ = layer.Remove(base) })
	r := rig{root: filepath.Join(base, "a,b:c\\ d"), upper: filepath.Join(base, "upper"), work: filepath.Join(base, "work")}
	for _, dir := range []string{r.root, r.upper, r.work} {
		need.NoError(t, os.Mkdir(dir, 0o755))
	}
	return r
}

// run runs a command in the layer; without layers the test is skipped, or fails under
// CI.
func (r rig) run(t *testing.T, args ...string) (layer.Exit, string) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	need.NoError(t, err)
	defer null.Close()
	out, err := os.CreateTemp(t.TempDir(), "out")
	need.NoError(t, err)
	defer out.Close()
	exit, err := layer.Run(layer.Command{Root: r.root, Upper: r.upper, Work: r.work, Dir: r.root, Args: args, Env: os.Environ(), Files: [3]*os.File{null, out, out}, Started: r.started})
	if errors.Is(err, layer.ErrUnsupported) {
		need.Missing(t, err.Error())
	}
	need.NoError(t, err)
	text, err := os.ReadFile(out.Name())
	need.NoError(t, err)
	return exit, string(text)
}

func (r rig) read(t *testing.T) []layer.Entry {
	t.Helper()
	var out []layer.Entry
	err := layer.Read(context.Background(), r.upper, func(e layer.Entry) (bool, error) {
		out = append(out, e)
		return true, nil
	})
	need.NoError(t, err)
	return out
}

// apply brings the layer onto the directory, as simply as it can be done.
func (r rig) apply(t *testing.T) {
	t.Helper()
	for _, e := range r.read(t) {
		to, from := filepath.Join(r.root, e.Path), filepath.Join(r.upper, e.Path)
		info, err := os.Lstat(to)
		if err == nil && (e.Kind != layer.Dir || !info.IsDir() || e.Opaque) {
			err = os.RemoveAll(to)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		switch e.Kind {
		case layer.Dir:
			err = os.MkdirAll(to, 0o700)
		case layer.File:
			var data []byte
			if data, err = os.ReadFile(from); err == nil {
				err = os.WriteFile(to, data, 0o600)
			}
		case layer.Symlink:
			err = os.Symlink(e.Target, to)
		default:
			err = nil
		}
		if err == nil && (e.Kind == layer.File || e.Kind == layer.Dir) {
			err = os.Chmod(to, fs.FileMode(e.Perm))
		}
		need.NoError(t, err)
	}
}

// script is a random sequence of shell commands on few names.
func script(r *rand.Rand) string {
	names := []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/f", "x y"}
	n := func() string { return "'" + names[r.IntN(len(names))] + "'" }
	var lines []string
	for range 1 + r.IntN(8) {
		x, y := n(), n()
		lines = append(lines, []string{
			"echo " + fmt.Sprint(r.IntN(1000)) + " > " + x,
			"echo more >> " + x,
			"sed -i s/o/0/ " + x,
			"mv " + x + " " + y,
			"mv -T " + x + " " + y,
			"rm -rf " + x,
			"rm " + x,
			"rmdir " + x,
			"mkdir -p " + x,
			"mkdir " + x,
			"rm -rf " + x + " && mkdir -p " + x + " && echo new > " + x + "/n",
			"ln -s " + y + " " + x,
			"ln -sfn " + y + " " + x,
			"rm -rf " + x + "; ln -s target " + x,
			"ln " + x + " " + y,
			"ln -f " + x + " " + y + " && echo linked >> " + x,
			"chmod 600 " + x,
			"chmod 755 " + x,
			"cp -a " + x + " " + y,
			"cp -r " + x + " " + y,
			"truncate -s 70000 " + x,
			"touch " + x,
			"true > " + x,
			"cp " + x + " t0 && mv t0 " + x,
			"find . -name a -delete",
		}[r.IntN(25)])
	}
	return "umask 022; { " + strings.Join(lines, "; ") + "; } 2>/dev/null; true"
}

// TestModel runs random commands in a layer and in a plain copy.
func TestModel(t *testing.T) {
	rounds := 60
	if os.Getenv("UMBRA_SOAK") != "" {
		rounds = 10_000
	}
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 19))
		rig := newRig(t)
		plain := filepath.Join(filepath.Dir(rig.root), "plain")
		prepare := script(r) + "; " + script(r)
		if out, err := shell(rig.root, prepare); err != nil {
			t.Fatal(err, out)
		}
		// A copy without hard links, which neither history nor an apply keeps.
		if out, err := exec.Command("cp", "-a", "--no-preserve=links", rig.root, plain).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		need.NoError(t, os.RemoveAll(rig.root))
		if out, err := exec.Command("cp", "-a", plain, rig.root).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		before := need.Tree(t, rig.root)
		line := script(r)
		if exit, out := rig.run(t, "sh", "-c", line); exit.Status != 0 {
			t.Fatalf("seed %d: status %d: %s", seed, exit.Status, out)
		}
		if got := need.Tree(t, rig.root); got != before {
			t.Fatalf("seed %d: %s\nthe directory itself changed:\n%s\nwas\n%s", seed, line, got, before)
		}
		if out, err := shell(plain, line); err != nil {
			t.Fatal(err, out)
		}
		rig.apply(t)
		if got, want := need.Tree(t, rig.root), need.Tree(t, plain); got != want {
			t.Fatalf("seed %d\nbefore:\n%s\n%s\ngot:\n%s\nwant:\n%s", seed, before, line, got, want)
		}
	}
}

func shell(dir, line string) (string, error) {
	cmd := exec.Command("sh", "-c", line)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestStatus(t *testing.T) {
	for _, x := range []struct {
		want int
		args []string
	}{
		{0, []string{"true"}},
		{3, []string{"sh", "-c", "exit 3"}},
		{128 + 15, []string{"sh", "-c", "kill -TERM $$"}},
		{127, []string{"no-such-command-of-anyone"}},
		{127, []string{"./absent"}},
		{127, []string{""}},
		{126, []string{"./text"}},
		{126, []string{"/"}},
		{9, []string{"./plain"}},
	} {
		r := newRig(t) // a layer's directories serve one command
		need.NoError(t, os.WriteFile(filepath.Join(r.root, "text"), []byte("no program"), 0o644))
		need.NoError(t, os.WriteFile(filepath.Join(r.root, "plain"), []byte("exit 9"), 0o755))
		exit, out := r.run(t, x.args...)
		if exit.Status != x.want {
			t.Errorf("%q: status %d, want %d (%s%s)", x.args, exit.Status, x.want, out, exit.Failure)
		}
		if failed := x.want == 126 || x.want == 127; failed != (exit.Failure != "") {
			t.Errorf("%q: failure %q", x.args, exit.Failure)
		}
	}
}

// TestBackground: what a command leaves running ends with it, in a session of its
// own too, and also where it ignores SIGTERM.
func TestBackground(t *testing.T) {
	r := newRig(t)
	began := time.Now()
	exit, out := r.run(t, "sh", "-c", "setsid sleep 600 & (trap '' TERM; sleep 601; sleep 602) & trap 'echo got > term; exit' TERM; echo $! > pid; exit 4")
	if exit.Status != 4 {
		t.Fatal(exit, out)
	}
	if took := time.Since(began); took > 60*time.Second {
		t.Errorf("it took %v", took)
	}
	pid, err := os.ReadFile(filepath.Join(r.upper, "pid"))
	need.NoError(t, err)
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Error("a process is left")
	}
}

// TestOwnNamespace: the command alone sees its layer; no thread of this process is in the
// command's namespace while it runs.
func TestOwnNamespace(t *testing.T) {
	own, err := os.Readlink("/proc/self/ns/mnt")
	need.NoError(t, err)
	dir, err := os.Getwd()
	need.NoError(t, err)
	r, checked := newRig(t), false
	r.started = func(pid int) {
		if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid)); err != nil || its == own {
			t.Error("the command is in no namespace of its own", its, err)
		}
		list, err := filepath.Glob("/proc/self/task/*/ns/mnt")
		if err != nil || len(list) == 0 {
			t.Error(list, err)
		}
		for _, name := range list {
			if at, err := os.Readlink(name); err == nil && at != own {
				t.Errorf("%s is %s, not %s", name, at, own)
			}
		}
		checked = true
		_ = syscall.Kill(pid, syscall.SIGTERM)
	}
	if exit, out := r.run(t, "sleep", "600"); exit.Status != 128+15 || !checked {
		t.Fatal(exit, out, checked)
	}
	if now, err := os.Getwd(); err != nil || now != dir {
		t.Error(now, err)
	}
}

func TestStop(t *testing.T) {
	stop := make(chan struct{})
	close(stop)
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	need.NoError(t, err)
	defer null.Close()
	exit, err := layer.Run(layer.Command{Dir: "/", Args: []string{"sleep", "600"}, Env: os.Environ(), Files: [3]*os.File{null, null, null}, Stop: stop, Group: true})
	if err != nil || exit.Status != 128+15 || !exit.Stopped {
		t.Fatal(exit, err)
	}
	// What it left running is no reason to say that it was stopped.
	late := make(chan struct{})
	time.AfterFunc(500*time.Millisecond, func() { close(late) })
	exit, err = layer.Run(layer.Command{Dir: "/", Args: []string{"sh", "-c", "(trap '' TERM; sleep 600; sleep 601) & exit 3"}, Env: os.Environ(), Files: [3]*os.File{null, null, null}, Stop: late, Group: true})
	if err != nil || exit.Status != 3 || exit.Stopped {
		t.Fatal(exit, err)
	}
}

// TestShapes: each shape of an upper directory is read as what it is.
func TestShapes(t *testing.T) {
	r := newRig(t)
	if out, err := shell(r.root, "mkdir d o; echo 1 > d/gone; echo 2 > o/old; echo 3 > f; ln -s f l; echo 4 > m; chmod 644 m"); err != nil {
		t.Fatal(out)
	}
	exit, out := r.run(t, "sh", "-c", "rm d/gone; rm -r o; mkdir o; echo n > o/new; rm l; echo 5 > l; chmod 640 m; mkfifo p; ln f g; truncate -s 1G sparse; mkdir -m 0 closed")
	if exit.Status != 0 {
		t.Fatal(exit, out)
	}
	var got []string
	for _, e := range r.read(t) {
		got = append(got, fmt.Sprintf("%s %d %v %o %d %s", e.Path, e.Kind, e.Opaque, e.Perm, e.Size, e.Type))
	}
	for _, want := range []string{
		"d/gone 1 false", "o 2 true 755", "o/new 3 false 644 2", "l 3 false 644 2", "m 3 false 640 2", "p 5 false 644 0 fifo", "g 3 false 644 2",
		fmt.Sprintf("sparse 3 false 644 %d", 1<<30), "closed 2 ",
	} {
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want) }) {
			t.Errorf("%q is not in\n%s", want, strings.Join(got, "\n"))
		}
	}
	need.NoError(t, layer.Strip(r.upper))
	for _, e := range r.read(t) {
		if n, err := unix.Llistxattr(filepath.Join(r.upper, e.Path), make([]byte, 1024)); n > 0 || err != nil {
			t.Errorf("%s has an attribute of the overlay after Strip", e.Path)
		}
	}
	need.NoError(t, layer.Remove(filepath.Dir(r.upper)))
}

// TestOthersChange: what the command has not touched it sees as it becomes, and
// what it has touched stays its own.
func TestOthersChange(t *testing.T) {
	r := newRig(t)
	base := filepath.Dir(r.root)
	if out, err := shell(r.root, "echo old > touched; echo old > other; mkfifo ../ready ../go"); err != nil {
		t.Fatal(out)
	}
	done := make(chan error, 1)
	go func() {
		_, err := os.ReadFile(filepath.Join(base, "ready"))
		err = errors.Join(err, os.WriteFile(filepath.Join(r.root, "touched"), []byte("new\n"), 0o644), os.WriteFile(filepath.Join(r.root, "other"), []byte("new\n"), 0o644))
		done <- errors.Join(err, os.WriteFile(filepath.Join(base, "go"), nil, 0))
	}()
	exit, out := r.run(t, "sh", "-c", "echo mine >> touched; echo > ../ready; cat ../go > /dev/null; cat touched other")
	if err := <-done; err != nil || exit.Status != 0 {
		t.Fatal(err, exit, out)
	}
	if out != "old\nmine\nnew\n" {
		t.Errorf("the command saw %q", out)
	}
}

// TestMapped: what is written through mmap(2) is in the layer.
func TestMapped(t *testing.T) {
	if name := os.Getenv("UMBRA_TEST_MAPPED"); name != "" {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		need.NoError(t, err)
		m, err := syscall.Mmap(int(f.Fd()), 0, 4, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
		need.NoError(t, err)
		copy(m, "new!")
		return // without msync(2) and munmap(2)
	}
	r := newRig(t)
	need.NoError(t, os.WriteFile(filepath.Join(r.root, "f"), []byte("old, and more"), 0o644))
	exit, out := r.run(t, "env", "UMBRA_TEST_MAPPED="+filepath.Join(r.root, "f"), os.Args[0], "-test.run=^TestMapped$")
	if exit.Status != 0 {
		t.Fatal(exit, out)
	}
	if raw, err := os.ReadFile(filepath.Join(r.upper, "f")); err != nil || string(raw) != "new! and more" {
		t.Errorf("%q %v", raw, err)
	}
	if raw, err := os.ReadFile(filepath.Join(r.root, "f")); err != nil || string(raw) != "old, and more" {
		t.Errorf("%q %v", raw, err)
	}
}

// TestRedirectIsRefused: an entry whose content is elsewhere is not read as empty.
func TestRedirectIsRefused(t *testing.T) {
	for _, attr := range []string{"user.overlay.redirect", "user.overlay.metacopy", "user.overlay.metacopy of a file"} {
		r := newRig(t)
		name := filepath.Join(r.upper, "x")
		attr, _, file := strings.Cut(attr, " of ")
		if file { // without data of its own
			err := os.WriteFile(name, nil, 0o644)
			if err = errors.Join(err, os.Truncate(name, 100)); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Mkdir(name, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setxattr(name, attr, []byte("/elsewhere"), 0); err != nil {
			need.Missing(t, "no user attributes: "+err.Error())
		}
		err := layer.Read(context.Background(), r.upper, func(layer.Entry) (bool, error) { return true, nil })
		if _, refused := errors.AsType[*layer.UnsupportedError](err); !refused {
			t.Errorf("%s: %v", attr, err)
		}
	}
}
