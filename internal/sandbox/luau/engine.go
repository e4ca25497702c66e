package luau

import (
	"context"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"
)

// Options of an Engine.
type Options struct {
	// CacheDir is where the compiled interpreter is kept, for the next start;
	// it is made if missing. Empty: it is compiled once a process.
	CacheDir string
}

// Engine runs scripts. The interpreter is compiled at the first one. Its
// methods may be called concurrently; how many scripts run at once is the
// caller's to bound, each may take 64 MiB. A few states that are made ahead or
// are being given back come on top of them.
type Engine struct {
	o Options

	mu      sync.Mutex
	closed  bool
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	code    wazero.CompiledModule

	prepared prepared
	ahead    ahead
}

// New makes an engine; nothing is loaded yet.
func New(o Options) *Engine { return &Engine{o: o} }

// load compiles the interpreter, once. ErrNotEmbedded if there is none.
func (e *Engine) load(ctx context.Context) (wazero.Runtime, wazero.CompiledModule, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, fmt.Errorf("luau: the engine is closed")
	}
	if e.code != nil {
		return e.runtime, e.code, nil
	}
	binary, err := module()
	if err != nil {
		return nil, nil, err
	}
	// Half a second of work that many wait for: not given up with the first.
	ctx = context.WithoutCancel(ctx)
	config := wazero.NewRuntimeConfig()
	if e.o.CacheDir != "" {
		cache, err := wazero.NewCompilationCacheWithDir(e.o.CacheDir)
		if err != nil {
			return nil, nil, fmt.Errorf("luau: %w", err)
		}
		e.cache = cache
		config = config.WithCompilationCache(cache)
	}
	r := wazero.NewRuntimeWithConfig(ctx, config)
	code, err := r.CompileModule(ctx, binary)
	if err == nil {
		env := r.NewHostModuleBuilder("env")
		exportInvokes(code, env)
		err = export(ctx, r, env)
	}
	if err != nil {
		_ = r.Close(ctx)
		return nil, nil, fmt.Errorf("luau: %w", err)
	}
	e.runtime, e.code = r, code
	return r, code, nil
}

// Prepare compiles the interpreter, if it is not compiled yet, so that it does not
// count in a script's time. ErrNotEmbedded if there is none.
func (e *Engine) Prepare(ctx context.Context) error {
	_, _, err := e.load(ctx)
	return err
}

// Close ends the engine. No script may run any more.
func (e *Engine) Close(ctx context.Context) error {
	e.ahead.close()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.runtime == nil {
		return nil
	}
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		if cerr := e.cache.Close(ctx); err == nil {
			err = cerr
		}
	}
	e.runtime, e.code, e.cache = nil, nil, nil
	return err
}

// Program is a script and what it is given.
type Program struct {
	Source string
	// Functions are next to Luau's own, in read-only tables: file.save.
	Functions []Function
	// MaxLog bounds what is printed, in bytes; 0: 10,485,760.
	MaxLog int64
}

// Function is one that a script may call.
type Function struct {
	// Path is its place, at least two names: "file", "save".
	Path []string
	// Do runs it, while the script waits. An error that is a *LuaError is
	// raised in the script; any other ends it, and Run gives it. ctx ends with
	// the script's time.
	Do func(ctx context.Context, args Args) (Result, error)
}

// Result is what a function gives to a script: text of any bytes, or JSON, or
// nothing (the zero value, nil).
type Result struct {
	Text []byte
	JSON []byte // nil: Text counts; what is no JSON is raised in the script
}

// Outcome is what came of a script.
type Outcome struct {
	Result []byte // JSON; null unless the script came to its end
	Logs   []string
	Err    *Error // the script's own failure
}

// maxLog and maxLines bound what a script prints.
const (
	maxLog   = 10_485_760
	maxLines = 1_000_000
)

// Run runs a script to its end. ctx's deadline is the script's limit, and
// makes a Timeout; if ctx is cancelled, the error is its cause. An error that
// is not the script's own comes with what it printed until then.
func (e *Engine) Run(ctx context.Context, p Program) (Outcome, error) {
	s, err := e.begin(ctx, p)
	if s == nil {
		return Outcome{Result: null}, err
	}
	defer e.end(s)
	if err == nil {
		err = s.run()
	}
	out, err := s.outcome(err)
	out.Logs = s.logs
	return out, err
}

var null = []byte("null")
