package harness

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"
)

// process is one running program.
type process struct {
	cmd     *exec.Cmd
	stdout  *Output
	exited  chan struct{} // closed when the process has been waited for
	address string        // from the ready line
}

// launch starts a program; it may not be ready yet.
func (s *Server) launch(dataDir, listen, config string, env, more []string) *process {
	s.t.Helper()
	args := []string{"serve", "--data-dir", dataDir, "--listen", listen}
	if config != "" {
		args = append(args, "--config", config)
	}
	p := &process{cmd: Command(s.t, env, append(args, more...)...), stdout: NewOutput(), exited: make(chan struct{})}
	if s.opts.User != 0 {
		s.becomeUser(p.cmd)
	}
	if s.opts.Wrap != nil {
		s.opts.Wrap(p.cmd)
	}
	lines := &lines{to: s.Log}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, lines
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	log := s.Log
	go func() {
		_ = p.cmd.Wait()
		lines.flush()
		p.stdout.close()
		log.close()
		close(p.exited)
	}()
	return p
}

// awaitReady waits for the line that says where the program listens.
func (p *process) awaitReady() error {
	line, ok := p.stdout.Await(func(text string) bool { return strings.Contains(text, "\n") }, patience)
	if !ok {
		return fmt.Errorf("no ready line, but %q", line)
	}
	if p.address, ok = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "umbra listening on "); !ok {
		return fmt.Errorf("the ready line is %q", line)
	}
	return nil
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// lines passes whole lines on, so that those of several programs do not mix.
type lines struct {
	to *Output

	mu   sync.Mutex
	rest []byte
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, p...)
	if end := bytes.LastIndexByte(l.rest, '\n') + 1; end > 0 {
		_, _ = l.to.Write(l.rest[:end]) // it never fails
		l.rest = append(l.rest[:0], l.rest[end:]...)
	}
	return len(p), nil
}

func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		_, _ = l.to.Write(l.rest) // it never fails
	}
}
