package peers

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// libgit2Source is compiled at run time: the benchmarks must build where libgit2
// is not.
//
//go:embed libgit2/peer.c
var libgit2Source []byte

// The names of libgit2's subjects.
const (
	NameLibgit2      = "libgit2, loose objects, no fsync"
	NameLibgit2Fsync = "libgit2, loose objects, fsync"
)

type libgit2 struct {
	name, durable string
	repo          *gitRepo
	in            *bufio.Writer
	out           *bufio.Reader
	stderr        *tail
}

// Libgit2 makes the subject without fsync.
func Libgit2(p Params) (measure.Subject, error) {
	return newLibgit2(p, &libgit2{name: NameLibgit2, durable: "nothing"})
}

// Libgit2Fsync makes it with GIT_OPT_ENABLE_FSYNC_GITDIR.
func Libgit2Fsync(p Params) (measure.Subject, error) {
	return newLibgit2(p, &libgit2{name: NameLibgit2Fsync, durable: "objects and ref, with their directories"}, "fsync")
}

func newLibgit2(p Params, l *libgit2, options ...string) (measure.Subject, error) {
	program, err := compiled(p)
	if err != nil {
		return nil, err
	}
	repo, err := repository(p, "libgit2")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, append([]string{repo.dir}, options...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	l.repo = repo
	l.in, l.out, l.stderr = bufio.NewWriterSize(in, 1<<16), bufio.NewReader(out), new(tail)
	cmd.Stderr = l.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.Env.Defer(l.name, func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return l, nil
}

// compiled builds the peer against the machine's libgit2.
func compiled(p Params) (string, error) {
	flags, err := exec.CommandContext(p.Ctx, "pkg-config", "--cflags", "--libs", "libgit2").Output()
	if err != nil {
		return "", fmt.Errorf("libgit2 (by pkg-config): %w", ErrMissing)
	}
	dir, err := p.Env.Dir("libgit2-peer")
	if err != nil {
		return "", err
	}
	source, program := filepath.Join(dir, "peer.c"), filepath.Join(dir, "peer")
	if err := os.WriteFile(source, libgit2Source, 0o644); err != nil {
		return "", err
	}
	args := append([]string{"-O2", "-Wl,--allow-shlib-undefined", "-o", program, source}, strings.Fields(string(flags))...)
	if out, err := exec.CommandContext(p.Ctx, "gcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("libgit2 (gcc: %w: %s): %w", err, out, ErrMissing)
	}
	return program, nil
}

func (l *libgit2) Name() string    { return l.name }
func (l *libgit2) Durable() string { return l.durable }
func (l *libgit2) OneAtATime()     {}

func (l *libgit2) Change(_ context.Context, _ int, c corpus.Change) error {
	fmt.Fprintf(l.in, "%d %d\n", len(c.Path), len(c.Data))
	io.WriteString(l.in, c.Path)
	l.in.Write(c.Data)
	if err := l.in.Flush(); err != nil {
		return fmt.Errorf("%w: %s", err, l.stderr.String())
	}
	if answer, err := l.out.ReadString('\n'); err != nil || answer != "ok\n" {
		return fmt.Errorf("answer %q: %w: %s", answer, err, l.stderr.String())
	}
	return nil
}
