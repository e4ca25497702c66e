package js

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"umbra/internal/errs"
)

// process is one child. One goroutine uses it; kill may come from any.
type process struct {
	cmd    *exec.Cmd
	wire   *wire
	pipes  []io.Closer
	crash  *tail // what the runtime itself said on standard error
	ended  sync.Once
	exited chan struct{}
}

// startPatience bounds how long a child may take to be ready.
const startPatience = 30 * time.Second

// startProcess starts a child and waits until it is ready. memory, in bytes, is
// what its program may take; with walls it does not start where one is missing.
func startProcess(command []string, prelude []byte, memory int64, walls bool) (*process, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = "/"
	// Nothing of the server's own environment is any of a program's business.
	cmd.Env = []string{"TZ=UTC", "LC_ALL=C", "GOMAXPROCS=2", "GOGC=200", "GOTRACEBACK=none", memoryVariable + "=" + strconv.FormatInt(memory, 10)}
	if walls {
		cmd.Env = append(cmd.Env, requireVariable+"=1")
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	p := &process{cmd: cmd, crash: &tail{}, pipes: []io.Closer{stdin}, wire: newWire(stdout, stdin), exited: make(chan struct{})}
	cmd.Stderr = p.crash
	isolate(cmd)
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	timer := time.AfterFunc(startPatience, p.kill)
	err = p.wire.write(framePrelude, prelude)
	var kind byte
	if err == nil {
		kind, _, err = p.wire.read()
	}
	timer.Stop()
	if err != nil || kind != frameReady {
		p.end()
		return nil, errors.Join(errors.New("js: the process for programs did not start: "+p.crash.String()), err)
	}
	return p, nil
}

// kill ends the process at once; end must still be called.
func (p *process) kill() { _ = p.cmd.Process.Kill() } // one that has ended needs no killing

// end kills the process and waits until the system has forgotten it.
func (p *process) end() {
	p.ended.Do(func() {
		p.kill()
		for _, c := range p.pipes {
			_ = c.Close()
		}
		_ = p.cmd.Wait() // it was killed: its status says nothing
		close(p.exited)
	})
}

// alive reports whether a process that waits is still there.
func (p *process) alive() bool {
	return p.cmd.Process.Signal(nullSignal) == nil
}

// do gives the child its job and serves it until it has ended.
func (p *process) do(ctx context.Context, t *task, o Options, save Saver, timeout time.Duration) (*Outcome, error) {
	start := time.Now()
	var late bool
	var mu sync.Mutex
	timer := time.AfterFunc(timeout, func() {
		mu.Lock()
		late = true
		mu.Unlock()
		p.kill()
	})
	defer timer.Stop()
	defer context.AfterFunc(ctx, p.kill)()
	out := &Outcome{}
	res, err := p.serve(ctx, t, o, save, out)
	out.Took = time.Since(start)
	mu.Lock()
	timedOut := late
	mu.Unlock()
	switch {
	case err == nil:
		out.ExitCode, out.Failure, out.Message, out.Diagnostics = res.Exit, res.Failure, res.Message, res.Diagnostics
		if res.Message != "" && res.Failure != "" {
			out.Stderr = append(out.Stderr, res.Message+"\n"...)
		}
		return out, nil
	case timedOut:
		out.Failure = FailedTime
		return out, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, errTooMuch):
		out.ExitCode, out.Failure = 1, FailedOutput
		return out, nil
	}
	// It died: of its memory, or of a stack beyond measure.
	p.end()
	out.ExitCode, out.Failure = 1, FailedExit
	switch words := p.crash.String(); {
	case strings.Contains(words, "out of memory"), strings.Contains(words, "cannot allocate memory"), strings.Contains(words, "cannot reserve"):
		out.Failure = FailedMemory
	case strings.Contains(words, "stack overflow"), strings.Contains(words, "stack exceeds"):
		out.Stderr = append(out.Stderr, "Uncaught RangeError: Maximum call stack size exceeded\n"...)
	default:
		if status, ok := p.cmd.ProcessState.Sys().(interface{ Signaled() bool }); ok && status.Signaled() {
			out.Failure = FailedMemory // the system takes no other program's life unasked
			break
		}
		out.Stderr = append(out.Stderr, "The engine ended unexpectedly\n"+words...)
	}
	return out, nil
}

var errTooMuch = errors.New("js: too much output")

// serve answers the child's requests until it reports its result.
func (p *process) serve(ctx context.Context, t *task, o Options, save Saver, out *Outcome) (result, error) {
	var res result
	if err := p.wire.writeJSON(frameJob, t); err != nil {
		return res, err
	}
	for {
		kind, payload, err := p.wire.read()
		if err != nil {
			return res, err
		}
		switch kind {
		case frameOut:
			out.Stdout = append(out.Stdout, payload...)
		case frameErr:
			out.Stderr = append(out.Stderr, payload...)
		case frameAsk:
			if err := p.answer(ctx, payload, o.Files, save); err != nil {
				return res, err
			}
		case frameResult:
			_, err := cutJSON(payload, &res)
			return res, err
		default:
			return res, errFrame
		}
		if int64(len(out.Stdout)+len(out.Stderr)) > o.Output {
			return res, errTooMuch
		}
	}
}

func (p *process) answer(ctx context.Context, payload []byte, files Files, save Saver) error {
	var a ask
	content, err := cutJSON(payload, &a)
	if err != nil {
		return err
	}
	switch {
	case a.Op == "read" && files != nil:
		data, err := files.ReadFile(ctx, a.Name)
		if err != nil {
			return p.wire.writeJSON(frameReply, reply{Fault: faultOf(err)})
		}
		return p.wire.writeJSON(frameReply, reply{}, data)
	case a.Op == "save" && save != nil:
		path, err := save(ctx, a.Name, content)
		if err != nil {
			return p.wire.writeJSON(frameReply, reply{Fault: err.Error()})
		}
		return p.wire.writeJSON(frameReply, reply{}, []byte(path))
	}
	return p.wire.writeJSON(frameReply, reply{Fault: "EACCES"})
}

// faultOf is the name of what refused a read, as programs know it.
func faultOf(err error) string {
	switch {
	case errs.Is(err, errs.NotFound):
		return "ENOENT"
	case errs.CodeOf(err) == "is_a_directory":
		return "EISDIR"
	}
	return "EACCES"
}

// tail keeps the beginning of what a dying runtime says.
type tail struct {
	mu   sync.Mutex
	data []byte
}

const maxTail = 16 << 10

// Write never fails: a writer that did would hold the child's end up.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, b[:min(len(b), maxTail-len(t.data))]...)
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.data)
}

var nullSignal os.Signal = signalZero
