package peers

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"umbra/tests/bench/measure"
)

// stopPatience is how long a program gets to end by itself.
const stopPatience = 15 * time.Second

// Process is a program that the benchmark runs.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  *os.File // its standard error
	once sync.Once
	err  error
}

// start runs a program until its stop, which hangs on the Env.
func start(env *measure.Env, name string, cmd *exec.Cmd) (*Process, error) {
	// A file in memory: the log is part of what a server does, but neither the
	// measured disk nor a reader of this program is to have work with it.
	log, err := memoryFile("stderr")
	if err != nil {
		return nil, err
	}
	p := &Process{name: name, cmd: cmd, log: log}
	cmd.Stderr = p.log
	// A group of its own: Ctrl-C is for us, and we stop it in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), p.log.Close())
	}
	env.Defer(name, p.Stop)
	return p, nil
}

// startServer runs a program that says on its first line where it listens, and
// gives that line's last word.
func startServer(ctx context.Context, env *measure.Env, name, program string, args ...string) (*Process, string, error) {
	cmd := exec.Command(program, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	p, err := start(env, name, cmd)
	if err != nil {
		return nil, "", err
	}
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(out)
		first, _ := r.ReadString('\n')
		line <- first
		io.Copy(io.Discard, r)
	}()
	select {
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	case first := <-line:
		words := strings.Fields(first)
		if len(words) == 0 {
			return nil, "", errors.Join(fmt.Errorf("%s did not start", name), p.Stop())
		}
		return p, words[len(words)-1], nil
	}
}

// Stop ends the program and waits for it; an exit status other than 0 is an
// error. Again, it does nothing.
func (p *Process) Stop() error {
	p.once.Do(func() {
		p.cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(stopPatience, func() { p.cmd.Process.Kill() })
		defer late.Stop()
		if err := p.cmd.Wait(); err != nil {
			p.err = fmt.Errorf("%s: %w: %s", p.name, err, p.lastWords())
		}
		p.log.Close()
	})
	return p.err
}

// lastWords gives the end of the program's log.
func (p *Process) lastWords() []byte {
	st, err := p.log.Stat()
	if err != nil {
		return nil
	}
	words := make([]byte, min(st.Size(), tailBytes))
	p.log.ReadAt(words, st.Size()-int64(len(words)))
	return bytes.TrimSpace(words)
}

// PID gives the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Memory is what a process holds, in bytes.
type Memory struct{ Resident, Anonymous int64 }

// Memory reads /proc/PID/status (proc_pid_status(5)).
func (p *Process) Memory() (Memory, error) {
	v, err := p.proc("status")
	return Memory{Resident: v["VmRSS"] << 10, Anonymous: v["RssAnon"] << 10}, err
}

// ResetPeak has Peak begin again (proc_pid_clear_refs(5)).
func (p *Process) ResetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0)
}

// Peak gives the most bytes that were resident since the start, or ResetPeak.
func (p *Process) Peak() (int64, error) {
	v, err := p.proc("status")
	return v["VmHWM"] << 10, err
}

// Written gives the bytes that the process made dirty on their way to a disk so
// far: write_bytes of /proc/PID/io (proc_pid_io(5)).
func (p *Process) Written() (int64, error) {
	v, err := p.proc("io")
	return v["write_bytes"], err
}

// proc reads a file of "name: number" lines.
func (p *Process) proc(file string) (map[string]int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.PID(), file))
	if err != nil {
		return nil, err
	}
	values := make(map[string]int64)
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		if words := strings.Fields(rest); len(words) > 0 {
			if n, err := strconv.ParseInt(words[0], 10, 64); err == nil {
				values[name] = n
			}
		}
	}
	return values, nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if len(t.buf) > 2*tailBytes {
		t.buf = bytes.Clone(t.buf[len(t.buf)-tailBytes:])
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.buf))
}
