// Package serve runs commands for POST /tasks/{id}/exec (contracts/calls.md): in a
// layer over the task's workspace where the system gives one, so that what a command
// changes is known exactly; else as an ordinary call. A virtual workspace is given
// as a directory for the time of the command.
package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"umbra/gitstore/object"
	"umbra/internal/calls"
	"umbra/internal/errs"
	"umbra/internal/exec"
	"umbra/internal/layer"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Options of a service.
type Options struct {
	Enabled     bool
	Concurrency int           // commands at once
	OutputBytes int64         // of each stream that is answered; the rest is read and dropped
	Timeout     time.Duration // the longest, and the default
	Server      string        // for UMBRA_SERVER
	Layers      *exec.Service
	Calls       *calls.Service
	Tasks       *task.Service
}

// Service runs commands. Its methods may be called from any goroutine.
type Service struct {
	o     Options
	slots chan struct{}
}

// New makes a service.
func New(o Options) *Service { return &Service{o, make(chan struct{}, max(1, o.Concurrency))} }

// Request is a command.
type Request struct {
	Args      []string
	Subtask   string
	Actor     string
	Cwd       wspath.Path // in the workspace
	Env       map[string]string
	Stdin     string
	Timeout   time.Duration // 0: the service's
	Require   bool          // fail where there is no layer
	DryRun    bool
	RequestID string
	Sees      task.Sees
	// Started, if not nil, is called when nothing that can be checked first speaks
	// against the command, before it runs; once more where it runs live instead.
	Started func()
	// Once, if not nil, records that the command begins, so that it is not run again.
	Once Once
}

// Once is where a command's begin is recorded.
type Once interface {
	// Begin records durably, before the command runs, the ID of its call.
	Begin(call string) error
	// NotBegun removes what Begin recorded: the command did not run.
	NotBegun() error
}

// Answer reports how a command ended, and what it changed.
type Answer struct {
	ExitCode       int // of no meaning if it timed out
	TimedOut       bool
	Stdout, Stderr string
	Truncated      bool
	CallID         string
	Commit         object.ID // zero: nothing was recorded
	Entries        []workspace.ChangeEntry
	Conflicts      []exec.Conflict
	Skipped        []exec.Skip
	Patch          []byte // of a dry run
	Isolated       bool
}

// ErrBusy is returned where too many commands run.
var ErrBusy = errors.New("too many commands run")

// waitForSlot is how long a command waits for others to end.
const waitForSlot = 10 * time.Second

// Check fails where commands are off.
func (s *Service) Check() error {
	if !s.o.Enabled {
		return errs.New(errs.Forbidden, "exec_disabled", "Commands are off on this server. Its owner turns them on with exec.enabled: true in the settings, or UMBRA_EXEC_ENABLED=true.")
	}
	return nil
}

// Do runs a command and returns what it changed. The function, if not nil, is called
// with the name of a stream and what came on it, one call at a time.
//
// Forbidden "exec_disabled"; ErrBusy; Invalid "invalid_field"; Unavailable
// "no_layer" where a layer is required; the errors of calls and layers. A command
// whose ctx ends is ended; what it changed in a layer stays there.
func (s *Service) Do(ctx context.Context, ref *task.Ref, r Request, tell func(stream string, text []byte)) (*Answer, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	if err := s.o.Tasks.MayWrite(ref); err != nil {
		return nil, err
	}
	select {
	case s.slots <- struct{}{}:
	default:
		t := time.NewTimer(waitForSlot)
		defer t.Stop()
		select {
		case s.slots <- struct{}{}:
		case <-t.C:
			return nil, ErrBusy
		case <-ctx.Done():
			return nil, errs.Wrap(context.Cause(ctx), "")
		}
	}
	defer func() { <-s.slots }()
	if r.Timeout <= 0 || r.Timeout > s.o.Timeout {
		r.Timeout = s.o.Timeout
	}
	c := &command{s: s, ref: ref, r: r, out: &capture{max: s.o.OutputBytes, name: "stdout", tell: tell}, err: &capture{max: s.o.OutputBytes, name: "stderr", tell: tell}}
	c.err.mu = &sync.Mutex{}
	c.out.mu = c.err.mu
	var err error
	switch {
	case ref.Root() == "":
		err = c.virtual(ctx)
	default:
		err = c.physical(ctx)
	}
	if err != nil {
		return nil, err
	}
	c.out.flush()
	c.err.flush()
	c.a.Stdout, c.a.Stderr = c.out.text(), c.err.text()
	c.a.Truncated = c.out.cut || c.err.cut
	return &c.a, nil
}

// command is one at work.
type command struct {
	s        *Service
	ref      *task.Ref
	r        Request
	out, err *capture
	a        Answer
}

// physical runs in a layer, or live.
func (c *command) physical(ctx context.Context) error {
	dir, err := directory(c.ref.Root(), c.r.Cwd)
	if err != nil {
		return err
	}
	b := c.call(false)
	done, err := c.layered(ctx, b, dir)
	if done || err != nil {
		return err
	}
	if c.r.DryRun {
		return errs.New(errs.Unavailable, "no_layer", "A dry run needs a layer, and this system gives none.")
	}
	begun, err := c.s.o.Calls.Begin(ctx, b)
	if err != nil {
		return err
	}
	c.a.CallID = begun.ID
	exit, err := c.run(ctx, begun.ID, nil, spec{Dir: dir, Args: c.r.Args})
	end := calls.End{Status: calls.OK}
	if err != nil || exit.Status != 0 || c.a.TimedOut {
		end.Status = calls.Failed
	}
	if err == nil && !c.a.TimedOut {
		end.ExitCode = &exit.Status
	}
	told, ended := c.s.o.Calls.End(context.WithoutCancel(ctx), begun.ID, end)
	if err = errors.Join(err, ended); err != nil {
		return err
	}
	c.a.Entries = told.Entries
	if n := len(told.Commits); n > 0 {
		c.a.Commit = told.Commits[n-1]
	}
	return nil
}

// call is the call that the command is.
func (c *command) call(layer bool) calls.Begin {
	sum := sha256.Sum256([]byte(strings.Join(c.r.Args, "\x00")))
	return calls.Begin{Workspace: c.ref.ID(), Task: c.ref.Task.ID, Subtask: c.r.Subtask, Actor: c.r.Actor, Tool: "exec", Command: hex.EncodeToString(sum[:]),
		TTL: min(24*time.Hour, c.r.Timeout+time.Minute), Layer: layer, Hosted: true, RequestID: c.r.RequestID, Sees: c.r.Sees}
}

// directory returns the host's path of a directory below root. A link out of the
// root is none.
func directory(root string, p wspath.Path) (string, error) {
	if p.IsRoot() {
		return root, nil
	}
	r, err := os.OpenRoot(root)
	if err != nil {
		return "", errs.Wrap(err, "")
	}
	defer r.Close()
	if info, err := r.Stat(string(p)); err != nil || !info.IsDir() {
		return "", errs.New(errs.Invalid, "invalid_field", "cwd is not a directory of the workspace.").With("field", "cwd")
	}
	return filepath.Join(root, filepath.FromSlash(string(p))), nil
}

// layered runs in a layer; done is false where there is none, and none is required.
func (c *command) layered(ctx context.Context, b calls.Begin, dir string) (done bool, err error) {
	none := func() (bool, error) {
		if c.r.Require {
			return true, errs.New(errs.Unavailable, "no_layer", "This system gives no layer, which isolate asks for.")
		}
		return false, nil
	}
	if layer.Supported() != nil {
		return none()
	}
	begun, err := c.s.o.Layers.Begin(ctx, b)
	if err != nil {
		return true, err
	}
	ending := context.WithoutCancel(ctx)
	lock, err := exec.HoldFile(begun.Dir)
	if err != nil {
		return true, errors.Join(errs.Wrap(err, ""), c.s.o.Layers.Drop(ending, begun.ID, nil))
	}
	exit, err := c.run(ctx, begun.ID, lock, spec{Root: c.ref.Root(), Upper: filepath.Join(begun.Dir, "upper"), Work: filepath.Join(begun.Dir, "work"), Dir: dir, Args: c.r.Args})
	lock.Close()
	if e, ok := errors.AsType[*notRunError](err); ok {
		if err := c.s.o.Layers.Drop(ending, begun.ID, nil); err != nil {
			return true, err
		}
		if e.noLayer {
			return none()
		}
		return true, err
	}
	if err != nil {
		// The layer stays, and may be applied or dropped.
		_, ended := c.s.o.Calls.End(ending, begun.ID, calls.End{Status: calls.Cancelled})
		return true, errors.Join(err, ended)
	}
	apply := exec.Apply{DryRun: c.r.DryRun, Patch: c.r.DryRun, RequestID: c.r.RequestID}
	if !c.a.TimedOut {
		apply.ExitCode = &exit.Status
	}
	res, err := c.s.o.Layers.Apply(ending, begun.ID, apply)
	if err != nil {
		return true, err
	}
	if c.r.DryRun {
		if err := c.s.o.Layers.Drop(ending, begun.ID, nil); err != nil {
			return true, err
		}
	}
	c.a.CallID, c.a.Isolated = begun.ID, true
	c.a.Commit, c.a.Entries, c.a.Conflicts, c.a.Skipped, c.a.Patch = res.Commit, res.Entries, res.Conflicts, res.Skipped, res.Patch
	return true, nil
}

// run runs the command of a call to its end or its time's. An error is the server's; it
// is a *notRunError where the command did not run.
func (c *command) run(ctx context.Context, call string, lock *os.File, s spec) (layer.Exit, error) {
	s.Env = c.env(call)
	if c.r.Once != nil {
		if err := c.r.Once.Begin(call); err != nil {
			return layer.Exit{}, &notRunError{error: err}
		}
	}
	if c.r.Started != nil {
		c.r.Started()
	}
	limited, cancel := context.WithTimeout(ctx, c.r.Timeout)
	defer cancel()
	exit, err := run(limited, s, strings.NewReader(c.r.Stdin), c.out, c.err, lock)
	if _, ok := errors.AsType[*notRunError](err); ok && c.r.Once != nil {
		err = errors.Join(err, c.r.Once.NotBegun())
	}
	if err != nil {
		return exit, err
	}
	if ctx.Err() != nil {
		return exit, errs.Wrap(context.Cause(ctx), "")
	}
	c.a.TimedOut = exit.Stopped
	if c.a.ExitCode = exit.Status; exit.Failure != "" {
		_, _ = io.WriteString(c.err, "umbra: "+exit.Failure+"\n")
	}
	return exit, nil
}

// env is the server's environment with what the request adds, and the call's.
func (c *command) env(call string) []string {
	own := map[string]string{"UMBRA_CALL": call, "UMBRA_TASK": c.ref.Task.ID, "UMBRA_SUBTASK": c.r.Subtask, "UMBRA_SERVER": c.s.o.Server}
	for name, value := range c.r.Env {
		if _, fixed := own[name]; !fixed {
			own[name] = value
		}
	}
	var out []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if _, ok := own[name]; !ok {
			out = append(out, v)
		}
	}
	for name, value := range own {
		out = append(out, name+"="+value)
	}
	return out
}

// capture keeps what comes on a stream, up to a bound, and passes it on.
type capture struct {
	mu   *sync.Mutex // of both streams
	name string
	max  int64
	kept []byte
	cut  bool
	tell func(string, []byte)
	rest []byte // the beginning of a character that is not whole
}

// Write never fails: a command is not ended by who does not listen.
func (o *capture) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if room := o.max - int64(len(o.kept)); room >= int64(len(b)) {
		o.kept = append(o.kept, b...)
	} else {
		o.kept, o.cut = append(o.kept, b[:room]...), true
	}
	if o.tell != nil {
		text := append(o.rest, b...)
		n := whole(text)
		if n > 0 {
			o.tell(o.name, text[:n])
		}
		o.rest = append([]byte(nil), text[n:]...)
	}
	return len(b), nil
}

// whole gives the length of a text without a character at its end that is cut off.
func whole(b []byte) int {
	for i := 1; i <= min(utf8.UTFMax, len(b)); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}

func (o *capture) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.tell != nil && len(o.rest) > 0 {
		o.tell(o.name, o.rest)
		o.rest = nil
	}
}

func (o *capture) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.kept
	if o.cut {
		kept = kept[:whole(kept)]
	}
	return strings.ToValidUTF8(string(kept), "\uFFFD")
}
