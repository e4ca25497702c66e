package script

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/sandbox/luau"
	"umbra/internal/sdk"
	"umbra/internal/task"
	"umbra/internal/telemetry"
)

// The limits of an execution (contracts/scripts.md).
const (
	DefaultTimeout = 30 * time.Second
	MaxTimeout     = 300 * time.Second
)

// Options of a Service. Engine and Tasks are needed.
type Options struct {
	Engine *luau.Engine
	Tasks  *task.Service
	Output *Output  // nil: scripts have no file
	SDK    *sdk.SDK // nil: scripts have no sdk
	Log    *slog.Logger
	// Running bounds how many scripts run at once, Waiting how many wait.
	Running, Waiting int
	Meter            *telemetry.Sandbox // may be nil
}

// Service runs scripts. Its methods may be called concurrently.
type Service struct {
	o     Options
	slots chan struct{}
	queue chan struct{}
}

// Where returns the workspace of a task, "" if there is none.
func (s *Service) Where(task string) (workspaceID string, err error) { return s.o.Tasks.Where(task) }

// New makes the service.
func New(o Options) *Service {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{o: o, slots: make(chan struct{}, max(o.Running, 1)), queue: make(chan struct{}, max(o.Waiting, 0))}
}

// Request is one script to run.
type Request struct {
	Script  string
	Timeout time.Duration // 0: DefaultTimeout
	Owner   Owner
	// Begin, if not nil, is called when nothing that can be checked first speaks against
	// the script, before it runs; its error ends the execution.
	Begin func() error
}

// Stats are what an execution took.
type Stats struct {
	Calls    int // of sdk functions
	Duration time.Duration
}

// Result describes an execution, also a failed one.
type Result struct {
	Value json.RawMessage // null if the script failed
	Logs  []string
	Stats Stats
	Files []File
	Task  string      // "": none was given, and nothing saved
	Err   *luau.Error // the script's failure; nil: it came to its end
}

// Execute runs a script to its end; its limits count from when it runs. A
// script that fails is a result. An error is of the request (NotFound
// "task_not_found", Conflict "task_ended", "task_paused"), of the server
// (Unavailable "queue_full", "engine_missing"), or ctx's cause; what was saved
// by then stays.
func (s *Service) Execute(ctx context.Context, req Request) (*Result, error) {
	s.o.Meter.Begin()
	audit.Allowed(ctx, audit.Exec, "", slog.String("language", "luau"))
	res, err := s.execute(ctx, req)
	if err != nil {
		s.o.Meter.End(0, false, err)
		return nil, err
	}
	s.o.Meter.End(res.Stats.Duration, res.Err != nil, nil)
	return res, nil
}

func (s *Service) execute(ctx context.Context, req Request) (*Result, error) {
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	var saver *Saver
	// Who may not know of the output directory saves nothing there.
	if sees := req.Owner.Sees; s.o.Output != nil && (sees == nil || sees("")) {
		if req.Owner.Goal == "" {
			req.Owner.Goal = "Run a script"
		}
		saver, err = s.o.Output.Begin(ctx, req.Owner)
	} else {
		err = mayWrite(ctx, s.o.Tasks, req.Owner.Task, req.Owner.Sees)
	}
	if err != nil {
		return nil, err
	}
	return s.run(ctx, req, saver)
}

func (s *Service) run(ctx context.Context, req Request, saver *Saver) (*Result, error) {
	if req.Timeout <= 0 {
		req.Timeout = DefaultTimeout
	}
	if err := s.o.Engine.Prepare(ctx); err != nil {
		return nil, engineError(err)
	}
	if req.Begin != nil {
		if err := req.Begin(); err != nil {
			return nil, err
		}
	}
	started := time.Now()
	limited, cancel := context.WithDeadline(ctx, started.Add(req.Timeout))
	defer cancel()
	program := luau.Program{Source: req.Script}
	if saver != nil {
		program.Functions = append(program.Functions, luau.Function{Path: []string{"file", "save"}, Do: saver.call})
	}
	var calls *sdk.Session
	if s.o.SDK != nil {
		calls = s.o.SDK.Begin()
		program.Functions = append(program.Functions, calls.Functions()...)
	}
	out, err := s.o.Engine.Run(limited, program)
	if saver != nil {
		saver.End(ctx, err == nil && out.Err == nil)
	}
	if err != nil {
		return nil, engineError(err)
	}
	res := &Result{Value: out.Result, Logs: out.Logs, Err: out.Err, Task: req.Owner.Task}
	res.Stats.Duration = time.Since(started)
	if calls != nil {
		res.Stats.Calls = calls.Calls()
	}
	if saver != nil {
		res.Files, res.Task = saver.Files(), saver.Task()
	}
	return res, nil
}

func engineError(err error) error {
	if errors.Is(err, luau.ErrNotEmbedded) {
		return &errs.Error{Kind: errs.Unavailable, Code: "engine_missing", Detail: "This build of the server has no Luau interpreter.", Err: err}
	}
	return err
}

// enter waits for a place to run. Callers beyond the queue are refused.
func (s *Service) enter(ctx context.Context) (leave func(), err error) {
	leave = func() { <-s.slots }
	select {
	case s.slots <- struct{}{}:
		return leave, nil
	default:
	}
	select {
	case s.queue <- struct{}{}:
		defer func() { <-s.queue }()
	default:
		return nil, errs.New(errs.Unavailable, "queue_full", "Too many scripts wait already; try again later.")
	}
	select {
	case s.slots <- struct{}{}:
		return leave, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// call is file.save.
func (s *Saver) call(ctx context.Context, args luau.Args) (luau.Result, error) {
	name, ok := args.String(0)
	if !ok {
		return luau.Result{}, &luau.LuaError{Message: "filename must be a string"}
	}
	content, ok := args.String(1)
	if !ok {
		return luau.Result{}, &luau.LuaError{Message: "content must be a string"}
	}
	path, err := s.Save(ctx, string(name), content)
	if r, ok := errors.AsType[*Refused](err); ok {
		return luau.Result{}, &luau.LuaError{Message: r.Message}
	}
	return luau.Result{Text: []byte(path)}, err
}

// Declarations are Luau type declarations of what a script has in addition to the
// language's own.
func (s *Service) Declarations() string {
	text := "declare json: {\n\tencode: (value: any) -> string,\n\tdecode: (text: string) -> any,\n}\n"
	if s.o.Output != nil {
		text += "declare file: {\n\t-- Saves a file in the output directory; gives its absolute path.\n\tsave: (filename: string, content: string) -> string,\n}\n"
	}
	if s.o.SDK != nil {
		text += s.o.SDK.Declarations()
	}
	return text
}
