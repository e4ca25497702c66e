package tests

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// terminal is a program that runs in a terminal of its own.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	main *os.File
	got  chan []byte
	text bytes.Buffer
}

// inTerminal starts umbra in a new terminal, as its controlling one.
func (p *project) inTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	need.NoError(t, err)
	t.Cleanup(func() { main.Close() })
	n, err := unix.IoctlGetInt(int(main.Fd()), unix.TIOCGPTN)
	need.NoError(t, err)
	need.NoError(t, unix.IoctlSetPointerInt(int(main.Fd()), unix.TIOCSPTLCK, 0))
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	need.NoError(t, err)
	defer tty.Close()
	cmd := harness.Command(t, []string{"UMBRA_DATA_DIR=" + p.DataDir, "TERM=xterm", "NO_COLOR="}, args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = p.dir, tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	need.NoError(t, cmd.Start())
	x := &terminal{t: t, cmd: cmd, main: main, got: make(chan []byte, 1024)}
	go func() {
		defer close(x.got)
		for {
			buf := make([]byte, 4096)
			n, err := main.Read(buf)
			if n > 0 {
				x.got <- buf[:n]
			}
			if err != nil {
				return // EIO: the program has ended
			}
		}
	}()
	return x
}

// see waits until the terminal shows a text that it did not show before, and returns
// what came until then.
func (x *terminal) see(what string) string {
	x.t.Helper()
	late := time.After(30 * time.Second)
	for {
		if at := bytes.Index(x.text.Bytes(), []byte(what)); at >= 0 {
			return string(x.text.Next(at + len(what)))
		}
		select {
		case b, ok := <-x.got:
			if !ok {
				x.t.Fatalf("the program ended without %q: %s", what, x.text.String())
			}
			x.text.Write(b)
		case <-late:
			x.t.Fatalf("no %q: %s", what, x.text.String())
		}
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	if _, err := io.WriteString(x.main, keys); err != nil {
		x.t.Fatal(err)
	}
}

// status waits for the end.
func (x *terminal) status() int {
	x.t.Helper()
	err := x.cmd.Wait()
	for b := range x.got {
		x.text.Write(b)
	}
	if err != nil && x.cmd.ProcessState == nil {
		x.t.Fatal(err)
	}
	return x.cmd.ProcessState.ExitCode()
}

// TestReviewTerminal holds a review in a terminal: a question a hunk, with its colors,
// each key as in git add -p, and nothing done by an interrupt.
func TestReviewTerminal(t *testing.T) {
	p := newProject(t, map[string]string{"a": numbered(60), "b": "b\n"})
	k := p.task(t)
	text := strings.NewReplacer("line 5\n", "five\n", "line 8\n", "eight\n", "line 30\n", "thirty\n", "line 50\n", "fifty\n").Replace(numbered(60))
	k.put(t, "a", text)
	k.put(t, "b", "B\n")

	x := p.inTerminal(t, "review")
	first := x.see("(1/4) Accept this hunk [y,n,q,a,d,j,k,s,?]? ")
	if !strings.Contains(first, "\x1b[") || !strings.Contains(first, "+five") {
		t.Errorf("%q", first)
	}
	x.press("n\n")
	x.see("(2/4) Accept this hunk")
	x.press("\x03") // Ctrl-C
	if x.status() == 0 || p.read(t, "a") != text {
		t.Errorf("an interrupt: %d", x.cmd.ProcessState.ExitCode())
	}

	x = p.inTerminal(t, "review")
	x.see("(1/4) Accept this hunk")
	x.press("?\n")
	x.see("print help")
	x.see("(1/4) Accept this hunk")
	x.press("s\n")
	x.see("Split into 2 hunks.")
	x.see("(1/5) Accept this hunk")
	x.press("j\n")
	x.see("(2/5) Accept this hunk")
	x.press("n\n")
	x.see("(3/5) Accept this hunk")
	x.press("k\n")
	x.see("(1/5) Accept this hunk")
	x.press("y\n")
	x.see("(3/5) Accept this hunk")
	x.press("d\n") // this and the rest of a
	x.see("(5/5) Accept this hunk")
	x.press("\x04") // Ctrl-D, as q
	if status := x.status(); status != 0 || !strings.Contains(x.text.String(), "1 accepted, 3 rejected") {
		t.Errorf("%d %q", status, x.text.String())
	}
	if got, want := p.read(t, "a"), strings.Replace(numbered(60), "line 5\n", "five\n", 1); got != want {
		t.Errorf("%q", got)
	}
	if p.read(t, "b") != "B\n" {
		t.Error("b was decided on")
	}

	// q leaves what was not decided on; a accepts the rest of a file.
	text = strings.NewReplacer("line 20\n", "twenty\n", "line 40\n", "forty\n").Replace(p.read(t, "a"))
	k.put(t, "a", text)
	x = p.inTerminal(t, "review")
	x.see("(1/3) Accept this hunk")
	x.press("q\n")
	if status := x.status(); status != 0 || p.read(t, "a") != text {
		t.Errorf("q: %d", status)
	}
	x = p.inTerminal(t, "review")
	x.see("(1/3) Accept this hunk")
	x.press("k\n")
	x.see("No earlier hunk is undecided.")
	x.press("a\n")
	x.see("(3/3) Accept this hunk")
	x.press("y\n")
	if status := x.status(); status != 0 || !strings.Contains(x.text.String(), "3 accepted, 0 rejected") || p.read(t, "a") != text {
		t.Errorf("%d %q", status, x.text.String())
	}
}
