package js

import (
	"crypto/rand"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"
	"unsafe"

	"modernc.org/libquickjs"
	"modernc.org/quickjs"
)

//go:embed prelude.js
var preludeText string

//go:embed url.js
var urlText string

// outside is what a program reaches beyond its engine.
type outside interface {
	// write takes output; fd is 1 or 2.
	write(fd int, text string)
	// exit ends the program; it does not return.
	exit(code int)
	read(name string) (data []byte, fault string)
	save(name string, content []byte) (path, fault string)
}

// engine is one QuickJS VM with the prelude's globals, used by one goroutine.
type engine struct {
	vm       *quickjs.VM
	runtime  *libquickjs.TJSRuntime
	api      map[string]quickjs.Value
	builtins map[string][]string
	uncaught rejections
	mapping  *sourceMap
	bundle   string
	began    time.Time
	out      outside
}

// apiNames are the prelude's functions for us.
var apiNames = [...]string{"turn", "modules", "run", "state", "rejected", "begin", "exitCode", "failure"}

// preludeCode compiles the prelude. The server does it once and hands the code
// to its children, whom it would cost most of their start.
func preludeCode() ([]byte, error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}
	code, err := vm.Compile(strings.Replace(preludeText, "//URL//", urlText, 1), quickjs.EvalGlobal)
	return code, errors.Join(err, vm.Close())
}

// newEngine makes a VM that is ready for a program.
func newEngine(out outside, prelude []byte) (*engine, error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}
	e := &engine{vm: vm, out: out, api: map[string]quickjs.Value{}, began: time.Now(), mapping: &sourceMap{}}
	hooks := map[string]quickjs.HostFunc{
		"__write": func(a []any) (any, error) {
			if fd, ok := a[0].(int); ok {
				out.write(fd, textOf(a[1]))
			}
			return nil, nil
		},
		"__exit": func(a []any) (any, error) { code, _ := a[0].(int); out.exit(code); return nil, nil },
		"__read": func(a []any) (any, error) {
			data, fault := out.read(textOf(a[0]))
			return []any{fault, latin1(data)}, nil
		},
		"__save": func(a []any) (any, error) {
			content := []byte(textOf(a[1]))
			if raw, _ := a[2].(bool); raw {
				content = unlatin1(textOf(a[1]))
			}
			path, fault := out.save(textOf(a[0]), content)
			return []any{fault, path}, nil
		},
		"__map": func(a []any) (any, error) { return e.mapping.stack(textOf(a[0])), nil },
		"__now": func([]any) (any, error) { return float64(time.Since(e.began)) / float64(time.Millisecond), nil },
		"__random": func(a []any) (any, error) {
			n, _ := a[0].(int)
			b := make([]byte, max(0, min(n, 1<<16)))
			_, err := rand.Read(b)
			return latin1(b), err
		},
	}
	for name, fn := range hooks {
		if err := vm.RegisterHostFunc(name, fn); err != nil {
			return nil, err
		}
	}
	api, err := vm.EvalBytecodeValue(prelude)
	if err != nil {
		return nil, fmt.Errorf("js: prelude: %w", err)
	}
	for _, name := range apiNames {
		atom, err := vm.NewAtom(name)
		if err != nil {
			return nil, err
		}
		if e.api[name], err = api.GetPropertyValue(atom); err != nil {
			return nil, err
		}
	}
	raw, err := e.call("modules")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(textOf(raw)), &e.builtins); err != nil {
		return nil, err
	}
	vm.SetModuleLoader(e.load, func(_ *quickjs.VM, _, name string) (string, error) { return name, nil })
	if e.runtime = runtimeOf(vm); e.runtime == nil {
		return nil, errors.New("js: the engine is not the one that this was built for")
	}
	e.uncaught.track(e.runtime)
	return e, nil
}

func (e *engine) call(name string, args ...any) (any, error) {
	return e.api[name].Call(quickjs.UndefinedValue, args...)
}

// load gives the program's module. What a program imports by a name that it
// makes while it runs is not there.
func (e *engine) load(_ *quickjs.VM, name string) (string, error) {
	if name == bundleName {
		return e.bundle, nil
	}
	//lint:ignore ST1005 the sentence is what the program sees, as its engine words it
	return "", fmt.Errorf("Module %q is not available: the name of a module must be in the import", name)
}

// run runs a compiled program to its end. flush is called before it waits.
func (e *engine) run(t *task, c compiled, flush func()) result {
	e.bundle, e.mapping = c.code, &sourceMap{raw: c.mapping}
	job, err := json.Marshal(map[string]any{"env": t.Env, "args": t.Args, "file": t.File, "name": t.Name})
	if err != nil {
		return broken(err)
	}
	if _, err := e.call("begin", string(job)); err != nil {
		return broken(err)
	}
	if t.Memory > 0 {
		e.vm.SetMemoryLimit(uintptr(t.Memory + memoryMargin))
	}
	if _, err := e.call("run", bundleName); err != nil {
		return broken(err)
	}
	const reason = "\x01umbra.rejection"
	for {
		// A job's own exception is the promise's that waits for it.
		_, _ = e.vm.ExecutePendingJobs()
		if e.uncaught.take(reason) {
			if _, err := e.call("rejected", reason); err != nil {
				return broken(err)
			}
		}
		state, err := e.call("state")
		if err != nil {
			return broken(err)
		}
		if state == "broken" {
			return e.failed()
		}
		wait, err := e.call("turn")
		if err != nil {
			return broken(err)
		}
		switch ms := number(wait); {
		case ms > 0:
			flush()
			time.Sleep(time.Duration(ms * float64(time.Millisecond)))
		case ms == 0:
		case state == "done":
			code, err := e.call("exitCode")
			if err != nil {
				return broken(err)
			}
			r := result{Exit: int(number(code)) & 0xff}
			if r.Exit != 0 {
				r.Failure = FailedExit
			}
			return r
		default:
			// A promise that never settles: the program's time will end it.
			flush()
			select {}
		}
	}
}

// memoryMargin lies between the limit that watchMemory holds and the one where
// the engine itself refuses an allocation. A program that comes near that has
// errors that cannot be distinguished from others, as the engine then has no
// memory to make them in; a single allocation beyond it is an ordinary, catchable error.
const memoryMargin = 64 << 20

// watchMemory calls over once a program holds more than its limit. It looks
// every few milliseconds, from a goroutine of its own: the number is one word
// that the engine alone writes.
func (e *engine) watchMemory(limit int64, over func()) {
	for range time.Tick(2 * time.Millisecond) {
		if int64(atomic.LoadUint64((*uint64)(unsafe.Pointer(&e.runtime.Fmalloc_ctx.Fmalloc_state.Fmalloc_size)))) > limit {
			over()
			return
		}
	}
}

// failed reports an uncaught value, on the program's standard error.
func (e *engine) failed() result {
	// Room to say it in, where the memory was at its end.
	e.vm.SetMemoryLimit(1 << 40)
	got, err := e.call("failure")
	if err != nil {
		return broken(err)
	}
	var pair []string
	if o, ok := got.(*quickjs.Object); !ok || o.Into(&pair) != nil || len(pair) != 2 {
		return result{Exit: 1, Failure: FailedExit}
	}
	e.out.write(2, "Uncaught "+pair[1]+"\n")
	if pair[0] == "memory" {
		return result{Exit: 1, Failure: FailedMemory}
	}
	return result{Exit: 1, Failure: FailedExit}
}

// broken is the end of a program that has broken the prelude's own functions,
// as only one without memory can.
func broken(err error) result {
	if e, ok := errors.AsType[*quickjs.Error](err); ok && strings.HasPrefix(e.Message, "out of memory") {
		return result{Exit: 1, Failure: FailedMemory}
	}
	return result{Exit: 1, Failure: FailedExit, Message: err.Error()}
}

func number(v any) float64 {
	switch v := v.(type) {
	case int:
		return float64(v)
	case float64:
		return v
	}
	return -1
}

func textOf(v any) string {
	s, _ := v.(string)
	return s
}

// latin1 is bytes as a string of code points up to 255, the only form in which
// any byte crosses into the engine.
func latin1(b []byte) string {
	out := make([]byte, 0, len(b)+len(b)/8)
	for _, c := range b {
		out = utf8.AppendRune(out, rune(c))
	}
	return string(out)
}

func unlatin1(s string) []byte {
	out := make([]byte, 0, len(s))
	for _, r := range s {
		out = append(out, byte(r))
	}
	return out
}
