package js

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"umbra/internal/errs"
	"umbra/internal/telemetry"
)

// Options of a Pool. The zero value of a field means its default.
type Options struct {
	Files Files
	// Command starts a child; default: this binary with Verb.
	Command []string
	// Parallel is how many programs run at once; 8.
	Parallel int
	// Queue is how many wait beyond that; 200.
	Queue int
	// Warm is how many children wait for a job; 4. They end when none has run
	// for IdleAfter; 1 minute.
	Warm      int
	IdleAfter time.Duration
	// Memory of a program, in bytes, the compiler's work on its text included; 256 MiB.
	Memory int64
	// RequireWalls lets no child run where the kernel refuses one of its walls.
	RequireWalls bool
	// Output and error together, in bytes; 10 MiB.
	Output int64
	Log    *slog.Logger
	Meter  *telemetry.Sandbox // counts runs, not checks; may be nil
}

func (o *Options) setDefaults() {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&o.Parallel, 8)
	def(&o.Queue, 200)
	def(&o.Warm, 4)
	if o.IdleAfter <= 0 {
		o.IdleAfter = time.Minute
	}
	if o.Memory <= 0 {
		o.Memory = 256 << 20
	}
	if o.Output <= 0 {
		o.Output = 10 << 20
	}
	if len(o.Command) == 0 {
		o.Command = []string{"/proc/self/exe", Verb}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// CheckWalls warns once, at the start of a server, of the walls around programs
// that this kernel or build lacks; with require a missing one is an error.
func CheckWalls(require bool, log *slog.Logger) error {
	missing := strings.Join(MissingWalls(), ", ")
	if missing == "" {
		return nil
	}
	if require {
		return errors.New("sandbox.require: this system lacks " + missing)
	}
	log.Warn("programs run without a wall that this system lacks", "missing", missing)
	return nil
}

// Pool runs programs. Its methods may be called concurrently.
type Pool struct {
	o       Options
	slots   chan struct{}
	prelude func() ([]byte, error) // compiled at the first start

	mu      sync.Mutex
	closed  bool
	waiting int
	active  int
	warm    []*process
	filling bool
	idle    *time.Timer
	owned   sync.WaitGroup // the goroutines that fill and reap
}

// NewPool makes one; no process is started before the first job.
func NewPool(o Options) *Pool {
	o.setDefaults()
	p := &Pool{o: o, slots: make(chan struct{}, o.Parallel), prelude: sync.OnceValues(preludeCode)}
	p.idle = time.AfterFunc(o.IdleAfter, p.retire)
	p.idle.Stop()
	return p
}

// Active is how many programs run now.
func (p *Pool) Active() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active
}

// enter waits for a place to run at. errs.Unavailable "queue_full", "stopping".
func (p *Pool) enter(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
	default:
		p.mu.Lock()
		if p.waiting >= p.o.Queue {
			p.mu.Unlock()
			return errs.New(errs.Unavailable, "queue_full", "Too many programs are waiting to run; try again later")
		}
		p.waiting++
		p.mu.Unlock()
		var err error
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		p.mu.Lock()
		p.waiting--
		p.mu.Unlock()
		if err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		<-p.slots
		return errs.New(errs.Unavailable, "stopping", "The server is stopping.")
	}
	p.active++
	return nil
}

func (p *Pool) leave() {
	p.mu.Lock()
	p.active--
	p.mu.Unlock()
	<-p.slots
}

// Run runs a program to its end. How that was, is the outcome; the error is
// for what is not the program's doing: errs.Unavailable "queue_full" and
// "stopping", and the cause of the context's end, which ends the program.
func (p *Pool) Run(ctx context.Context, job Job) (*Outcome, error) {
	t := task{Name: job.Name, Code: job.Code, Env: job.Env, Args: job.Args, File: job.Save != nil, Memory: p.o.Memory, Output: p.o.Output}
	if t.Env == nil {
		t.Env = map[string]string{}
	}
	if t.Args == nil {
		t.Args = []string{}
	}
	return p.o.counted(func() (*Outcome, error) { return p.do(ctx, &t, p.o.readable(job), job.Save, job.Timeout) })
}

// readable gives the options with what a job may read.
func (o Options) readable(job Job) Options {
	if job.NoFiles {
		o.Files = nil
	}
	return o
}

// counted counts a run.
func (o *Options) counted(run func() (*Outcome, error)) (*Outcome, error) {
	o.Meter.Begin()
	out, err := run()
	if err != nil {
		o.Meter.End(0, false, err)
		return nil, err
	}
	o.Meter.End(out.Took, out.Failure != "", nil)
	return out, nil
}

// Check gives what is wrong with a text; imports are looked for, not read.
// errs.Unavailable "check_timeout" when it takes too long.
func (p *Pool) Check(ctx context.Context, job Job) ([]Diagnostic, error) {
	out, err := p.do(ctx, &task{Check: true, Name: job.Name, Code: job.Code, Output: p.o.Output}, p.o.readable(job), nil, job.Timeout)
	if err != nil {
		return nil, err
	}
	switch out.Failure {
	case "":
		return out.Diagnostics, nil
	case FailedTime:
		return nil, errs.New(errs.Unavailable, "check_timeout", "The check timed out")
	}
	return []Diagnostic{{Code: "syntax-error", Message: "The text is too deeply nested or too large to be parsed", Severity: SeverityError,
		Range: Range{Start: Position{Line: 1}, End: Position{Line: 1}}, Filename: job.Name}}, nil
}

func (p *Pool) do(ctx context.Context, t *task, o Options, save Saver, timeout time.Duration) (*Outcome, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	child, err := p.take()
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	defer p.reap(child)
	defer p.fill()
	return child.do(ctx, t, o, save, timeout)
}

// take gives a child that is ready, or starts one.
func (p *Pool) take() (*process, error) {
	p.mu.Lock()
	p.idle.Reset(p.o.IdleAfter)
	for len(p.warm) > 0 {
		child := p.warm[0]
		p.warm = p.warm[1:]
		if child.alive() {
			p.mu.Unlock()
			p.fill()
			return child, nil
		}
		p.owned.Go(child.end)
	}
	p.mu.Unlock()
	return p.start()
}

func (p *Pool) start() (*process, error) {
	prelude, err := p.prelude()
	if err != nil {
		return nil, err
	}
	return startProcess(p.o.Command, prelude, p.o.Memory, p.o.RequireWalls)
}

// fill starts children until enough wait, in one goroutine.
func (p *Pool) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling || p.closed || len(p.warm) >= p.o.Warm {
		return
	}
	p.filling = true
	p.owned.Go(func() {
		for {
			p.mu.Lock()
			if p.closed || len(p.warm) >= p.o.Warm {
				p.filling = false
				p.mu.Unlock()
				return
			}
			p.mu.Unlock()
			child, err := p.start()
			p.mu.Lock()
			if err != nil || p.closed {
				p.filling = false
				p.mu.Unlock()
				if err != nil {
					p.o.Log.Warn("a process for programs could not be started", "error", err)
				} else {
					child.end()
				}
				return
			}
			p.warm = append(p.warm, child)
			p.mu.Unlock()
		}
	})
}

// reap ends a child concurrently with the answer.
func (p *Pool) reap(child *process) {
	child.kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.owned.Go(child.end)
		return
	}
	child.end()
}

// retire ends the children that wait, when nothing has run for a while.
func (p *Pool) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.active > 0 {
		return
	}
	for _, child := range p.warm {
		p.owned.Go(child.end)
	}
	p.warm = nil
}

// Close ends the children that wait, and what is still running is no longer
// waited for: its callers' contexts have ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.idle.Stop()
	warm := p.warm
	p.warm = nil
	p.mu.Unlock()
	for _, child := range warm {
		child.end()
	}
	p.owned.Wait()
}
