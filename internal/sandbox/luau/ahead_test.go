package luau

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// waiting gives how many states wait, once nothing is being made.
func waiting(e *Engine) int {
	e.ahead.working.Wait()
	e.ahead.mu.Lock()
	defer e.ahead.mu.Unlock()
	return len(e.ahead.states)
}

func named(path ...string) Function {
	return Function{Path: path, Do: func(context.Context, Args) (Result, error) { return Result{Text: []byte(path[len(path)-1])}, nil }}
}

// States are made ahead for what the last scripts had, serve one script each, and
// go when none comes for a while.
func TestMadeAhead(t *testing.T) {
	e := engineFor(t)
	if n := waiting(e); n != 0 {
		t.Fatalf("%d states before the first script", n)
	}
	first, second, third := named("file", "save"), named("file", "load"), named("file", "copy")
	for i := range 4 {
		for _, f := range []Function{first, second, third} {
			name := f.Path[1]
			// What one script leaves in its globals, its heap or its functions is not
			// the next one's.
			out := run(t, e, fmt.Sprintf(`
				local fresh = seen == nil
				seen = string.rep("x", 3000000)
				return { fresh, file.%s == nil, file.%s() }`, map[string]string{"save": "load", "load": "copy", "copy": "save"}[name], name), f)
			if want := fmt.Sprintf(`[true,true,%q]`, name); out.Err != nil || string(out.Result) != want {
				t.Errorf("round %d: %s, %v", i, out.Result, out.Err)
			}
			if n := waiting(e); n < 1 || n > mostAhead {
				t.Errorf("%d states wait", n)
			}
		}
	}
	before := e.ahead.states[0]
	if s := e.take(before.madeFor); s != before {
		t.Error("a state that waits is not taken")
	} else {
		s.close()
	}
	if s := e.take([]byte("unknown")); s != nil {
		t.Error("a state was given that was made for others")
	}
	e.ahead.drop()
	if n := waiting(e); n != 0 {
		t.Errorf("%d states are left", n)
	}
	if out := run(t, e, `return file.save()`, first); string(out.Result) != `"save"` {
		t.Errorf("after all went: %s, %v", out.Result, out.Err)
	}
}

// A state that was made ahead has the program's limits, not its maker's.
func TestMadeAheadIsLimited(t *testing.T) {
	e := engineFor(t)
	run(t, e, `return 1`)
	for range 3 {
		if waiting(e) == 0 {
			t.Fatal("no state waits")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		out, err := e.Run(ctx, Program{Source: `while true do end`})
		cancel()
		if err != nil || out.Err == nil || out.Err.Type != Timeout {
			t.Errorf("%v, %v", out.Err, err)
		}
		waiting(e)
		if out := run(t, e, `local t = {} while true do t[#t + 1] = string.rep("x", 100000 + #t) end`); out.Err == nil || out.Err.Type != MemoryLimit {
			t.Errorf("%v", out.Err)
		}
		waiting(e)
		out, err = e.Run(context.Background(), Program{Source: `while true do print("x") end`, MaxLog: 100})
		if err != nil || out.Err == nil || out.Err.Type != OutputLimit {
			t.Errorf("%v, %v", out.Err, err)
		}
	}
}
