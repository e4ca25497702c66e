package luau

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

// hostileCases are scripts that would not end, or take all there is.
var hostileCases = []struct {
	name, source string
	want         []ErrorType
}{
	{"loop", `while true do end`, []ErrorType{Timeout}},
	{"for", `for i = 1, math.huge do end`, []ErrorType{Timeout}},
	{"repeat", `repeat until false`, []ErrorType{Timeout}},
	{"in pcall", `while true do pcall(function() while true do end end) end`, []ErrorType{Timeout}},
	{"in pcall of pcall", `local function f() while true do pcall(f) end end f()`, []ErrorType{Timeout, RuntimeError, MemoryLimit}},
	{"in xpcall's handler", `xpcall(error, function() while true do end end)`, []ErrorType{Timeout}},
	{"in a coroutine", `coroutine.wrap(function() while true do end end)()`, []ErrorType{Timeout}},
	{"yielding", `local f = coroutine.wrap(function() while true do coroutine.yield() end end) while true do f() end`, []ErrorType{Timeout}},
	{"in a metamethod", `return setmetatable({}, {__index = function() while true do end end}).x`, []ErrorType{Timeout}},
	{"in tostring", `print(setmetatable({}, {__tostring = function() while true do end end}))`, []ErrorType{Timeout}},
	{"in an iterator", `for _ in function() return 1 end do end`, []ErrorType{Timeout}},
	{"in a pattern", `return string.find(string.rep("a", 200000), string.rep("a-", 60) .. "b")`, []ErrorType{Timeout, RuntimeError}},
	{"in gsub", `return string.gsub(string.rep("a", 1000000), ".-b", "")`, []ErrorType{Timeout}},
	{"in a comparator", `table.sort({3, 1, 2, 5}, function() while true do end end)`, []ErrorType{Timeout}},
	{"a false comparator", `local t = table.create(200000, 1) while true do table.sort(t, function() return true end) end`, []ErrorType{Timeout, RuntimeError}},
	{"in an error's text", `error(setmetatable({}, {__tostring = function() while true do end end}))`, []ErrorType{Timeout}},
	{"concat", `local t = table.create(100000, "x") while true do table.concat(t) end`, []ErrorType{Timeout}},
	{"json", `local t = table.create(100000, "x") while true do json.encode(t) end`, []ErrorType{Timeout}},
	{"a string", `return #string.rep("x", 1e9)`, []ErrorType{MemoryLimit}},
	{"strings, caught", `local t = {} while true do pcall(function() t[#t + 1] = string.rep("x", 1e6) .. #t end) end`, []ErrorType{MemoryLimit}},
	{"doubling", `local s = "x" while true do s ..= s end`, []ErrorType{MemoryLimit}},
	{"tables", `local t = {} while true do t = {t, {}, {}, {}} end`, []ErrorType{MemoryLimit, Timeout}},
	{"a table", `return table.create(1e8, 1)`, []ErrorType{MemoryLimit, RuntimeError}},
	{"buffers", `local t = {} while true do t[#t + 1] = buffer.create(1e6) end`, []ErrorType{MemoryLimit}},
	{"a buffer", `return buffer.create(1e9)`, []ErrorType{MemoryLimit}},
	{"a buffer beyond all", `return buffer.create(1073741824)`, []ErrorType{MemoryLimit, RuntimeError}},
	{"a block too big", `return buffer.create(2e9)`, []ErrorType{MemoryLimit, RuntimeError}},
	{"coroutines", `local t = {} while true do t[#t + 1] = coroutine.create(function() end) coroutine.resume(t[#t]) end`, []ErrorType{MemoryLimit, Timeout}},
	{"a result", `local t = {} for i = 1, 40 do t = {t, t} end return t`, []ErrorType{MemoryLimit, Timeout}},
	{"recursion", `local function f() return 1 + f() end return f()`, []ErrorType{RuntimeError}},
	{"recursion by pcall", `local function f() local ok, e = pcall(f) error(e, 0) end f()`, []ErrorType{RuntimeError}},
	{"recursion by metamethod", `local t = {} setmetatable(t, {__index = function(t, k) return t[k .. "x"] end}) return t.a`, []ErrorType{RuntimeError, MemoryLimit}},
	{"recursion by tostring", `local t t = setmetatable({}, {__tostring = function() return tostring(t) end}) return tostring(t)`, []ErrorType{RuntimeError}},
	{"print", `local s = string.rep("x", 1e6) while true do print(s) end`, []ErrorType{OutputLimit}},
	{"prints, caught", `while true do pcall(print, string.rep("x", 100000)) end`, []ErrorType{OutputLimit}},
	{"a gigabyte of print", `local s = string.rep("x", 1e7) for i = 1, 100 do print(s) end`, []ErrorType{OutputLimit}},
	{"deep source", `return ` + strings.Repeat("(", 20000), []ErrorType{ParseError}},
	{"deep tables", `return ` + strings.Repeat("{", 20000), []ErrorType{ParseError}},
	{"a wide source", `local x = 0 ` + strings.Repeat("x += 1 if x then x = 2 end ", 20000) + ` while true do end`, []ErrorType{Timeout, ParseError}},
}

// slack is what a script may take beyond its limit.
const slack = 200 * time.Millisecond

// tries is how often a script may be late: the machine may have other work.
const tries = 5

func hostile(t *testing.T, e *Engine, limit time.Duration) {
	t.Helper()
	for _, c := range hostileCases {
		own := limit
		if !slices.Contains(c.want, Timeout) {
			own = 30 * time.Second // it ends by itself, in its time
		}
		for try := 1; ; try++ {
			ctx, cancel := context.WithTimeout(context.Background(), own)
			began := time.Now()
			out, err := e.Run(ctx, Program{Source: c.source})
			took := time.Since(began)
			cancel()
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if out.Err == nil || !slices.Contains(c.want, out.Err.Type) {
				t.Errorf("%s: %v, want %v", c.name, out.Err, c.want)
			}
			if took <= own+slack {
				break
			}
			if try == tries {
				t.Errorf("%s: took %v of %v", c.name, took, own)
				break
			}
		}
	}
}

func TestHostile(t *testing.T) { hostile(t, engineFor(t), 300*time.Millisecond) }

func TestHostileLeavesNothing(t *testing.T) {
	need.Soak(t, "a thousand hostile scripts")
	e := engineFor(t)
	hostile(t, e, 100*time.Millisecond)
	e.ahead.working.Wait()
	debug.FreeOSMemory()
	before, goroutines := resident(t), runtime.NumGoroutine()
	for n := 0; n < 1000; n += len(hostileCases) {
		hostile(t, e, 100*time.Millisecond)
	}
	e.ahead.working.Wait()
	debug.FreeOSMemory()
	if after := resident(t); after > before+64<<20 {
		t.Errorf("%d bytes resident before, %d after", before, after)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines before, %d after", goroutines, n)
	}
}

func resident(t *testing.T) int64 {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		need.Missing(t, err.Error())
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(raw), &size, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestBeside holds that loops do not hold each other, nor anything else.
func TestBeside(t *testing.T) {
	e := engineFor(t)
	ctx, cancel := context.WithCancel(context.Background())
	loops := 2 * runtime.GOMAXPROCS(0)
	ended := make(chan error, loops)
	for range loops {
		go func() {
			_, err := e.Run(ctx, Program{Source: `while true do end`})
			ended <- err
		}()
	}
	for range 5 {
		began := time.Now()
		if out := run(t, e, `return 1`); string(out.Result) != "1" {
			t.Errorf("%s, %v", out.Result, out.Err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("a small script took %v during loops", took)
		}
	}
	cancel()
	for range loops {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("a cancelled script gave %v", err)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	e := engineFor(t)
	const n = 200
	ended := make(chan error, n)
	for i := range n {
		go func() {
			out, err := e.Run(context.Background(), Program{Source: fmt.Sprintf(`local n = 0 for i = 1, 10000 do n += 1 end return n + %d`, i)})
			if err == nil && string(out.Result) != fmt.Sprint(10000+i) {
				err = fmt.Errorf("%s, %v", out.Result, out.Err)
			}
			ended <- err
		}()
	}
	for range n {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
