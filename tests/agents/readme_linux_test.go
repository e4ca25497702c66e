package agents

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// readmeCommands returns the commands of the first code block below a heading of the
// README, without their comments.
func readmeCommands(t *testing.T, heading string) []string {
	t.Helper()
	raw, err := os.ReadFile("../../README.md")
	need.NoError(t, err)
	_, section, ok := strings.Cut(string(raw), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("the README has no %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, ok := strings.Cut(section, "\n```\n")
	block, _, ended := strings.Cut(block, "\n```")
	if !ok || !ended {
		t.Fatalf("%q has no commands", heading)
	}
	var out []string
	for line := range strings.Lines(block) {
		command, _, _ := strings.Cut(line, " #")
		out = append(out, strings.TrimSpace(command))
	}
	return out
}

// archive writes a release archive as make dist lays it out.
func archive(t *testing.T, name, version string) {
	t.Helper()
	program, err := os.ReadFile(harness.Binary(t))
	need.NoError(t, err)
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for file, data := range map[string][]byte{"bin/umbra": program, "share/doc/umbra/README.md": []byte("umbra\n"), "LICENSE": nil} {
		err := w.WriteHeader(&tar.Header{Name: "umbra-" + version + "-linux-amd64/" + file, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write(data)
		}
		need.NoError(t, err)
	}
	need.NoError(t, errors.Join(w.Close(), z.Close(), os.WriteFile(name, b.Bytes(), 0o644)))
}

// typed runs a command line in a terminal, and answers yes to each question.
func (s *scene) typed(t *testing.T, command string) (status int, out string) {
	t.Helper()
	main, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	need.NoError(t, err)
	defer main.Close()
	n, err := unix.IoctlGetInt(int(main.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(main.Fd()), unix.TIOCSPTLCK, 0)
	}
	need.NoError(t, err)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	need.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.dir, s.env, tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	tty.Close()
	need.NoError(t, err)
	var text bytes.Buffer
	for buf := make([]byte, 4096); ; { // ends when the last process has closed the terminal
		n, err := main.Read(buf)
		text.Write(buf[:n])
		if bytes.HasSuffix(text.Bytes(), []byte("[y/N] ")) {
			if _, err := io.WriteString(main, "y\n"); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait()
	return cmd.ProcessState.ExitCode(), text.String()
}

// TestReadmeFirstUndo: in a new home, with the README's own commands alone, umbra is
// installed and wired, an agent edits by its shell, and that is undone, within a minute.
func TestReadmeFirstUndo(t *testing.T) {
	need.Tool(t, "bash")
	packages := installed(t, "codex", "opencode")
	home, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	s := &scene{home: home, dir: filepath.Join(home, "project"), packages: packages}
	s.env = []string{"PATH=" + filepath.Join(home, ".local", "bin") + ":" + filepath.Join(packages, ".bin") + ":" + os.Getenv("PATH"),
		"HOME=" + home, "TMPDIR=" + t.TempDir(), "TERM=xterm", "LC_ALL=C.UTF-8", "NO_PROXY=127.0.0.1", "SHELL=/bin/sh"}
	s.put(t, "base.txt", "old\n")
	s.put(t, "gone.txt", "not committed\n")
	const version = "1.2.3"
	need.NoError(t, os.MkdirAll(filepath.Join(home, ".local"), 0o755))
	archive(t, filepath.Join(home, "umbra-"+version+"-linux-amd64.tar.gz"), version)
	m := newModel(t, map[string]map[string][]step{"codex": {"main": {{calls: []toolCall{{name: "exec_command", args: map[string]any{
		"cmd": "sed -i s/old/new/ base.txt; rm gone.txt; echo one > added.txt"}}}}}}}, nil)
	s.settings(t, m)
	t.Cleanup(func() { s.endStarted(t) })
	before := s.files(t)
	var after map[string]string
	began := time.Now()
	for _, command := range append(readmeCommands(t, "## Install"), readmeCommands(t, "## Undo what your agent did")...) {
		line := command
		if strings.HasPrefix(command, "tar ") {
			line = "cd && " + strings.ReplaceAll(command, "VERSION", version)
		}
		status, out := s.typed(t, line)
		if status != 0 {
			t.Fatalf("%s: status %d\n%s", command, status, out)
		}
		switch fields := strings.Fields(command); {
		case fields[0] == "tar":
		case strings.HasPrefix(command, "umbra init"):
			if status, out := s.start(t, m, "codex", time.Minute); status != 0 {
				t.Fatalf("codex: status %d\n%s", status, out)
			}
			after = s.files(t)
			if want := map[string]string{"base.txt": "new\n", "added.txt": "one\n"}; !maps.Equal(after, want) {
				t.Fatalf("codex made %s", describe(after))
			}
		case command == "umbra turns":
			if !strings.Contains(out, "codex") {
				t.Errorf("umbra turns: %s", out)
			}
		case command == "umbra undo":
			if now := s.files(t); !maps.Equal(now, before) {
				t.Fatalf("after umbra undo: %s\n%s", describe(now), out)
			}
			took := time.Since(began)
			t.Logf("from the archive to the undo: %.1f s", took.Seconds())
			if took > time.Minute {
				t.Errorf("it took %s", took)
			}
		case command == "umbra redo":
			if now := s.files(t); !maps.Equal(now, after) {
				t.Errorf("after umbra redo: %s\n%s", describe(now), out)
			}
		default:
			t.Errorf("this test does not know the README's command %q", command)
		}
	}
}
