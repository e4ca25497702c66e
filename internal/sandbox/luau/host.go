package luau

import (
	"context"
	"encoding/binary"
	"runtime"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// hostFunction is one that the interpreter imports.
type hostFunction struct {
	module, name    string
	params, results []api.ValueType
	do              func(s *script, mod api.Module, stack []uint64)
}

// Shorthands of the binary format's types.
const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
	f64 = api.ValueTypeF64
)

// export defines what the interpreter imports, except for what emscripten's own
// convention gives (invoke_… and longjmp).
func export(ctx context.Context, r wazero.Runtime, env wazero.HostModuleBuilder) error {
	wasi := r.NewHostModuleBuilder("wasi_snapshot_preview1")
	for _, f := range hostFunctions() {
		builder := env
		if f.module != "env" {
			builder = wasi
		}
		do := f.do
		builder.NewFunctionBuilder().WithGoModuleFunction(api.GoModuleFunc(func(ctx context.Context, mod api.Module, stack []uint64) {
			s, ok := ctx.Value(scriptKey{}).(*script)
			if !ok {
				panic(errBroken)
			}
			do(s, mod, stack)
		}), f.params, f.results).Export(f.name)
	}
	if _, err := env.Instantiate(ctx); err != nil {
		return err
	}
	_, err := wasi.Instantiate(ctx)
	return err
}

func types(t ...api.ValueType) []api.ValueType { return t }

// hostFunctions lists them. Those that serve objects of the host are of no use
// here: the script is never given one but the prelude's function.
func hostFunctions() []hostFunction {
	one := types(i32)
	refuse := func(*script, api.Module, []uint64) { panic(errBroken) }
	const wasi = "wasi_snapshot_preview1"
	return []hostFunction{
		{"env", "ensureInterop", nil, nil, tick},
		{"env", "setEnvFromJS", types(i32, i32, i32, i32), nil, func(*script, api.Module, []uint64) {}},
		{"env", "acceptStringTransaction", types(i32, i32), one, acceptString},
		{"env", "pushTransactionString", types(i32, i32), one, takeString},
		{"env", "pushArgs", types(i32, i32, i32), one, pushArgs},
		{"env", "setMultretData", types(i32, i32, i32, i32), nil, takeResults},
		{"env", "__asyncjs__callJSFunction", types(i32, i32, i32, i32), one, callHost},
		{"env", "pushRetData", types(i32, i32, i32), one, func(_ *script, _ api.Module, stack []uint64) { stack[0] = 0 }},
		{"env", "sendValueToJS", types(i32, i32), one, refuse},
		{"env", "getJSProperty", types(i32, i32, i32, i32), one, noProperty},
		{"env", "setJSProperty", types(i32, i32, i32, i32, i32), one, refuse},
		{"env", "getJSIteratorNext", types(i32, i32, i32, i32, i32), one, refuse},
		{"env", "prepareJSKeyList", types(i32, i32, i32), one, format}, // see embed
		{"env", "releaseJSKeyList", types(i32, i32), nil, refuse},
		{"env", "__cxa_throw", types(i32, i32, i32), nil, throw},
		{"env", "_abort_js", nil, nil, refuse},
		{"env", "emscripten_resize_heap", one, one, grow},
		{"env", "emscripten_get_now", nil, types(f64), now},
		{"env", "emscripten_date_now", nil, types(f64), now},
		{"env", "_tzset_js", types(i32, i32, i32, i32), nil, timezone},
		{"env", "_localtime_js", types(i64, i32), nil, calendar},
		{"env", "_gmtime_js", types(i64, i32), nil, calendar},
		{wasi, "clock_time_get", types(i32, i64, i32), one, clock},
		{wasi, "fd_close", one, one, func(_ *script, _ api.Module, stack []uint64) { stack[0] = 0 }},
		{wasi, "fd_seek", types(i32, i64, i32, i32), one, func(_ *script, _ api.Module, stack []uint64) { stack[0] = 0 }},
		{wasi, "fd_write", types(i32, i32, i32, i32), one, discard},
	}
}

// tick is called by each loop, once in some thousand rounds.
func tick(s *script, _ api.Module, _ []uint64) {
	if s.ctx.Err() != nil {
		panic(errDeadline)
	}
	runtime.Gosched()
}

// callHost is the prelude's call.
func callHost(s *script, _ api.Module, stack []uint64) {
	if s.ctx.Err() != nil {
		panic(errDeadline)
	}
	s.serve(uint32(stack[0]))
	stack[0] = 0
}

func acceptString(s *script, _ api.Module, stack []uint64) {
	text := s.chunk
	if uint32(stack[1]) == txName {
		text = s.name
	}
	p, err := s.text(text)
	if err != nil {
		panic(err)
	}
	stack[0] = p
}

// cString reads text that ends in NUL.
func (s *script) cString(at uint32) string {
	m := s.memory()
	if uint64(at) >= uint64(len(m)) {
		return ""
	}
	text, _, _ := strings.Cut(string(m[at:min(uint64(len(m)), uint64(at)+maxText)]), "\x00")
	return text
}

// maxText bounds what the interpreter's own descriptions are read of: results
// and values go another way.
const maxText = 64 << 10

func takeString(s *script, _ api.Module, stack []uint64) {
	s.given = s.cString(uint32(stack[1]))
	stack[0] = 0
}

func takeResults(s *script, _ api.Module, stack []uint64) { s.failed = s.cString(uint32(stack[2])) }

func pushArgs(s *script, _ api.Module, stack []uint64) {
	state, n := stack[0], len(s.passes)/2
	for i := range n {
		if err := s.push(state, s.passes[2*i], s.passes[2*i+1]); err != nil {
			panic(err)
		}
	}
	stack[0] = uint64(n)
}

// noProperty answers an index of the prelude's function.
func noProperty(s *script, _ api.Module, stack []uint64) {
	if err := s.push(stack[0], "nil", "nil"); err != nil {
		panic(err)
	}
	stack[0] = 1
}

// throw ends the script with a C++ exception. Luau's own errors of compiling
// are laid out as a vtable, a location of four numbers, and the message.
func throw(s *script, _ api.Module, stack []uint64) {
	m := s.memory()
	at := uint32(stack[0])
	t := &thrown{class: s.cString(m.u32(uint32(stack[1]) + 4))}
	if strings.Contains(t.class, "CompileError") || strings.Contains(t.class, "ParseError") {
		t.line = int(m.u32(at+4)) + 1
		t.message = utf8Text(m.stdString(at + 20))
	}
	panic(t)
}

// stdString reads a std::string of libc++: short ones lie in place, the last
// byte their size; of long ones address, size and capacity.
func (m memory) stdString(at uint32) []byte {
	if size := m.byte(at + 11); size < 0x80 {
		return m.span(at, uint32(size))
	}
	return m.span(m.u32(at), m.u32(at+4))
}

func now(_ *script, _ api.Module, stack []uint64) {
	stack[0] = api.EncodeF64(float64(time.Now().UnixNano()) / 1e6)
}

func clock(_ *script, mod api.Module, stack []uint64) {
	mod.Memory().WriteUint64Le(uint32(stack[2]), uint64(time.Now().UnixNano()))
	stack[0] = 0
}

// timezone says UTC: a script knows nothing of the machine.
func timezone(_ *script, mod api.Module, stack []uint64) {
	mem := mod.Memory()
	mem.WriteUint32Le(uint32(stack[0]), 0)
	mem.WriteUint32Le(uint32(stack[1]), 0)
	mem.WriteString(uint32(stack[2]), "UTC\x00")
	mem.WriteString(uint32(stack[3]), "UTC\x00")
}

// calendar fills a struct tm, in UTC.
func calendar(_ *script, mod api.Module, stack []uint64) {
	t := time.Unix(int64(stack[0]), 0).UTC()
	b, ok := mod.Memory().Read(uint32(stack[1]), 40)
	if !ok {
		return
	}
	for i, n := range []int{t.Second(), t.Minute(), t.Hour(), t.Day(), int(t.Month()) - 1, t.Year() - 1900, int(t.Weekday()), t.YearDay() - 1, 0, 0} {
		binary.LittleEndian.PutUint32(b[4*i:], uint32(int32(n)))
	}
}

// discard takes what the interpreter would write to its standard output.
func discard(s *script, _ api.Module, stack []uint64) {
	m := s.memory()
	n := uint32(0)
	for i := range min(uint32(stack[2]), 1024) {
		n += m.u32(uint32(stack[1]) + 8*i + 4)
	}
	if b := m.span(uint32(stack[3]), 4); b != nil {
		binary.LittleEndian.PutUint32(b, n)
	}
	stack[0] = 0
}
