package luau

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestErrorsHaveLines(t *testing.T) {
	e := engineFor(t)
	for _, c := range []struct {
		source  string
		kind    ErrorType
		line    int
		message string
	}{
		{"\n\nx = = 1", ParseError, 3, "Expected identifier"},
		{"local x: = 5", ParseError, 1, ""},
		{"a\x00b", ParseError, 1, "null byte"},
		{"return 'unfinished", ParseError, 1, "Malformed string"},
		{"continue", ParseError, 1, ""},
		{"\nlocal x\nx.y = 1", RuntimeError, 3, "attempt to index nil with 'y'"},
		{"\nerror('boom')", RuntimeError, 2, "script:2: boom"},
		{"\n\nerror('boom', 0)", RuntimeError, 3, "boom"},
		{"error({})", RuntimeError, 1, "table: "},
		{"error(setmetatable({}, {__tostring = function() return 'mine' end}))", RuntimeError, 1, "mine"},
		{"error()", RuntimeError, 1, "nil"},
		{"\nlocal f = coroutine.wrap(function() error('in') end)\nf()", RuntimeError, 3, "in"},
		{"\nstring.rep()", RuntimeError, 2, "missing argument #1 to 'rep'"},
		{"error('\\xff', 0)", RuntimeError, 1, "\uFFFD"},
		{"\nfile.save('x')", RuntimeError, 2, "attempt to index nil with 'save'"},
		{"coroutine.yield()", RuntimeError, 1, "attempt to yield"},
		{"local t = {} t.t = t return t", RuntimeError, 0, "contains itself"},
		{"local t = {} for i = 1, 1000 do t = {t} end return t", RuntimeError, 0, "1000 levels"},
		{"print('x', 'y') error('after', 0)", RuntimeError, 1, "after"},
	} {
		out := run(t, e, c.source)
		if out.Err == nil || out.Err.Type != c.kind || out.Err.Line != c.line || !strings.Contains(out.Err.Message, c.message) || string(out.Result) != "null" {
			t.Errorf("%q: %+v, %s", c.source, out.Err, out.Result)
		}
	}
	if out := run(t, e, `local t = {} for i = 1, 998 do t = {t} end return t`); out.Err != nil {
		t.Error(out.Err)
	}
}

func TestLogs(t *testing.T) {
	e := engineFor(t)
	out := run(t, e, `print() print("a", nil, 1.5, true) print("\xff") print("a\nb") error("x")`)
	if want := []string{"", "a\tnil\t1.5\ttrue", "\uFFFD", "a\nb"}; !slices.Equal(out.Logs, want) || out.Err == nil {
		t.Errorf("%q, %v", out.Logs, out.Err)
	}
	if out := run(t, e, `print(string.rep("x", 10485760)) return 1`); out.Err != nil {
		t.Errorf("the limit itself: %v", out.Err)
	}
	if out := run(t, e, `print(string.rep("x", 10485760)) pcall(print, "x") return 1`); out.Err == nil || out.Err.Type != OutputLimit || len(out.Logs) != 1 {
		t.Errorf("beyond the limit: %v", out.Err)
	}
}

func TestStatesAreFresh(t *testing.T) {
	e := engineFor(t)
	run(t, e, `leak = 1 _G.other = 2`)
	if out := run(t, e, `return {leak == nil, other == nil}`); string(out.Result) != "[true,true]" {
		t.Errorf("%s", out.Result)
	}
	a, b := run(t, e, `return math.random()`), run(t, e, `return math.random()`)
	if bytes.Equal(a.Result, b.Result) {
		t.Errorf("two scripts drew the same number %s", a.Result)
	}
}

// TestStatesHaveTheirFunctions runs scripts with other functions in turn: what
// one state begins with is not another's.
func TestStatesHaveTheirFunctions(t *testing.T) {
	e := engineFor(t)
	named := func(library string) Function {
		return Function{Path: []string{library, "name"}, Do: func(context.Context, Args) (Result, error) {
			return Result{Text: []byte(library)}, nil
		}}
	}
	const source = `return (a and a.name() or "-") .. (b and b.name() or "-")`
	for range 2 {
		for want, functions := range map[string][]Function{
			`"--"`: nil, `"a-"`: {named("a")}, `"-b"`: {named("b")}, `"ab"`: {named("a"), named("b")},
		} {
			if out := run(t, e, source, functions...); string(out.Result) != want {
				t.Errorf("%s, %v, want %s", out.Result, out.Err, want)
			}
		}
	}
}

func TestFunctions(t *testing.T) {
	e := engineFor(t)
	var got [][]byte
	functions := []Function{
		{Path: []string{"file", "save"}, Do: func(_ context.Context, args Args) (Result, error) {
			b, ok := args.String(1)
			if !ok {
				return Result{}, &LuaError{"content must be a string"}
			}
			got = append(got, b)
			return Result{Text: []byte("/p\x00\xff")}, nil
		}},
		{Path: []string{"sdk", "a", "list"}, Do: func(_ context.Context, args Args) (Result, error) {
			raw, ok, err := args.Table(0)
			if err != nil || !ok || args.Absent(0) || !args.Absent(1) {
				return Result{}, &LuaError{fmt.Sprintf("%s %v %v", raw, ok, err)}
			}
			return Result{JSON: raw}, nil
		}},
		{Path: []string{"sdk", "nothing"}, Do: func(context.Context, Args) (Result, error) { return Result{}, nil }},
		{Path: []string{"sdk", "bad"}, Do: func(context.Context, Args) (Result, error) { return Result{JSON: []byte("{")}, nil }},
	}
	out := run(t, e, `
		assert(file.save("n", "a\0\xff") == "/p\0\xff")
		assert(file.save("n", "") == "/p\0\xff")
		local ok, e = pcall(file.save, "n", 5)
		assert(not ok and e == "content must be a string")
		assert(not pcall(function() file.save = 1 end) and not pcall(function() sdk.a.x = 1 end))
		local r = sdk.a.list({limit = 3, q = {"é", {}}})
		assert(r.limit == 3 and r.q[1] == "é")
		assert(sdk.nothing() == nil and not pcall(sdk.bad))
		local co = coroutine.wrap(function() return file.save("n", "co") end)
		co()
		return r`, functions...)
	if out.Err != nil || string(out.Result) != `{"limit":3,"q":["é",{}]}` {
		t.Errorf("%s, %v", out.Result, out.Err)
	}
	if want := [][]byte{[]byte("a\x00\xff"), {}, []byte("co")}; !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("%q", got)
	}
	broken := errors.New("broken")
	_, err := e.Run(context.Background(), Program{Source: `pcall(f.g) while true do end`, Functions: []Function{
		{Path: []string{"f", "g"}, Do: func(context.Context, Args) (Result, error) { return Result{}, broken }}}})
	if !errors.Is(err, broken) {
		t.Errorf("a function's own error: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	out, err = e.Run(ctx, Program{Source: `pcall(f.g) while true do end`, Functions: []Function{
		{Path: []string{"f", "g"}, Do: func(ctx context.Context, _ Args) (Result, error) {
			<-ctx.Done()
			return Result{}, &LuaError{"late"}
		}}}})
	if err != nil || out.Err == nil || out.Err.Type != Timeout {
		t.Errorf("a function that waits: %v, %v", out.Err, err)
	}
}

// csvScript is the measured case of the contract: 10,000 rows.
const csvScript = `
local rows = {}
for i = 1, 10000 do
	rows[i] = string.format("%d,%s,%.2f,%s", i, "2026-01-02", i * 1.5, "category")
end
file.save("x.csv", table.concat(rows, "\n"))
return #rows`

func BenchmarkCSV(b *testing.B) {
	e := engineFor(b)
	for b.Loop() {
		size := 0
		out := run(b, e, csvScript, Function{Path: []string{"file", "save"}, Do: func(_ context.Context, args Args) (Result, error) {
			content, _ := args.String(1)
			size = len(content)
			return Result{Text: []byte("/x.csv")}, nil
		}})
		if out.Err != nil || size < 300_000 {
			b.Fatal(out.Err, size)
		}
	}
}

func BenchmarkStart(b *testing.B) {
	e := engineFor(b)
	for b.Loop() {
		run(b, e, `return 1`)
	}
}

func FuzzTranscode(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e3,null,true,"x\u00e9\ud83d\ude00"]}`, `[]`, `"\ud800"`, "01", "{", "[\"\xff\"]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := transcode([]byte(s)); err != nil {
			if _, ok := errors.AsType[*LuaError](err); !ok {
				t.Errorf("%v", err)
			}
		}
	})
}

// TestGrowingString is the loop that agents write: it must not run out of
// memory for the garbage that it leaves.
func TestGrowingString(t *testing.T) {
	e := engineFor(t)
	out := run(t, e, `
		local items = {}
		for i = 1, 10000 do
			items[i] = {id = "tx" .. i, date = "2026-01-02", amount = i + 0.5, category = "food"}
		end
		local csv = "id,date,amount,category\n"
		for _, tx in ipairs(items) do
			csv = csv .. string.format("%s,%s,%.2f,%s\n", tx.id, tx.date, tx.amount, tx.category)
		end
		return #csv`)
	if out.Err != nil || string(out.Result) != "307812" {
		t.Errorf("%s, %v", out.Result, out.Err)
	}
}
