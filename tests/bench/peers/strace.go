package peers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"umbra/tests/bench/measure"
)

// Synced are the system calls that make the disk do something, by strace's
// names.
const Synced = "fsync,fdatasync,sync_file_range,syncfs,sync"

// Trace counts what a running process (all its threads) syncs, until stop is
// called. ErrMissing where there is no strace, or it may not trace.
func Trace(ctx context.Context, env *measure.Env, p *Process) (stop func() (map[string]int, error), err error) {
	if _, err := exec.LookPath("strace"); err != nil {
		return nil, fmt.Errorf("strace: %w", ErrMissing)
	}
	dir, err := env.Dir("strace")
	if err != nil {
		return nil, err
	}
	table := filepath.Join(dir, "calls")
	cmd := exec.CommandContext(ctx, "strace", "-f", "-c", "-U", "calls,name", "-e", "trace="+Synced, "-o", table, "-p", strconv.Itoa(p.PID()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(stderr)
	first, _ := lines.ReadString('\n') // what it says is what counts
	if !strings.Contains(first, "attached") {
		return nil, errors.Join(fmt.Errorf("strace %w: %s", ErrMissing, strings.TrimSpace(first)), cmd.Wait())
	}
	drained := make(chan struct{})
	go func() { io.Copy(io.Discard, lines); close(drained) }()
	return func() (map[string]int, error) {
		cmd.Process.Signal(syscall.SIGINT)
		<-drained
		cmd.Wait() // by the signal: not an error
		return readCalls(table)
	}, nil
}

// traced runs a command under strace and adds what it and its children sync to
// counts.
func traced(cmd *exec.Cmd, table string, counts map[string]int) error {
	path, err := exec.LookPath("strace")
	if err != nil {
		return fmt.Errorf("strace: %w", ErrMissing)
	}
	cmd.Args = append([]string{"strace", "-f", "-c", "-U", "calls,name", "-e", "trace=" + Synced, "-o", table}, cmd.Args...)
	cmd.Path = path
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	calls, err := readCalls(table)
	for name, n := range calls {
		counts[name] += n
	}
	return err
}

// readCalls reads the table that strace -c -U calls,name writes.
func readCalls(name string) (map[string]int, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	calls := make(map[string]int)
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) != 2 || words[1] == "total" {
			continue
		}
		if n, err := strconv.Atoi(words[0]); err == nil {
			calls[words[1]] = n
		}
	}
	return calls, nil
}
