package luau

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/tetratelabs/wazero/api"
)

// scriptKey is how the host's functions find the script that they serve.
type scriptKey struct{}

// script is one run. The interpreter runs on one goroutine; so does all here.
type script struct {
	p    Program
	ctx  context.Context // the caller's
	call context.Context // for calls into the interpreter
	mod  api.Module
	room *room // its memory

	began uint32 // how large the memory was before the program, in bytes

	madeFor []byte // names of the functions that the state was made ahead for
	state   uint32 // the interpreter's lua_State
	chunk   string // what acceptStringTransaction gives next: source, then name
	name    string
	given   string   // the last value that getLuaValue gave, JSON
	failed  string   // what luaPcall reported of a failure, JSON
	passes  []string // values that luaPcall hands to the function: type, text

	main    string // number of the prelude's function that runs a script
	box     uint32 // address of the prelude's box
	pending []byte // what the prelude fetches next
	boxed   bool

	logs    []string
	logged  int64
	result  []byte
	failure *Error
	done    bool
	fatal   error // of a function of the caller
}

// envID is the number that the interpreter knows its only environment by.
const envID = 1

// Numbers of what is handed over by number.
const (
	txSource = 1
	txName   = 2
	txArgs   = 3
)

// memory is as the interpreter has it now.
func (s *script) memory() memory {
	m := s.mod.Memory()
	b, _ := m.Read(0, m.Size())
	return b
}

func (s *script) do(name string, args ...uint64) (uint32, error) {
	f := s.mod.ExportedFunction(name)
	if f == nil {
		return 0, errBroken
	}
	out, err := f.Call(s.call, args...)
	if err != nil || len(out) == 0 {
		return 0, err
	}
	return uint32(out[0]), nil
}

// text puts a C string into the interpreter's memory.
func (s *script) text(t string) (uint64, error) {
	p, err := s.do("malloc", uint64(len(t)+1))
	if err != nil {
		return 0, err
	}
	b := s.memory().span(p, uint32(len(t)+1))
	if p == 0 || b == nil {
		return 0, errMemory
	}
	copy(b, t)
	b[len(t)] = 0
	return uint64(p), nil
}

// push puts a value onto the stack of a state, as type and text.
func (s *script) push(state uint64, kind, value string) error {
	k, err := s.text(kind)
	if err != nil {
		return err
	}
	v, err := s.text(value)
	if err != nil {
		return err
	}
	_, err = s.do("pushValueToLuaWrapper", state, k, v, k)
	return err
}

// start starts the state and the prelude.
func (s *script) start() error {
	for _, f := range []string{"emscripten_stack_init", "__wasm_call_ctors"} {
		if _, err := s.do(f); err != nil {
			return err
		}
	}
	var err error
	if s.state, err = s.do("makeLuaState", envID); err != nil {
		return err
	}
	if !s.memory().tuneCollector(s.state) {
		return errBroken
	}
	var args [3]uint64
	for i, t := range []string{"__host", "jfunction", "-1"} {
		if args[i], err = s.text(t); err != nil {
			return err
		}
	}
	if _, err := s.do("pushGlobalToLua", uint64(s.state), args[0], args[1], args[2]); err != nil {
		return err
	}
	start, err := s.load(prelude, "=host")
	if err != nil {
		return err
	}
	if err := s.pcall(start); err != nil {
		return err
	}
	var ok bool
	if s.main, ok = reference(s.failed); !ok {
		return errBroken
	}
	return nil
}

// run runs the script.
func (s *script) run() error {
	if i := strings.IndexByte(s.p.Source, 0); i >= 0 {
		return &Error{Type: ParseError, Message: "the script contains a null byte", Line: 1 + strings.Count(s.p.Source[:i], "\n")}
	}
	main, err := s.load(s.p.Source, "=script")
	if err != nil {
		return err
	}
	s.failed = ""
	if err := s.pcall(s.main, "lfunction", main); err != nil {
		return err
	}
	if !s.done {
		// The script yielded where it cannot be resumed, or broke the interpreter.
		return &Error{Type: RuntimeError, Message: "attempt to yield from outside a coroutine"}
	}
	return nil
}

// described is how the interpreter describes a value.
type described struct {
	Type  string `json:"type"`
	Value string `json:"value"`
	Error string `json:"error"`
}

// reference reads the number of the first function of a call's results.
func reference(results string) (string, bool) {
	var list []described
	if json.Unmarshal([]byte(results), &list) != nil || len(list) == 0 || list[0].Type != "function" {
		return "", false
	}
	return list[0].Value, true
}

// load compiles a chunk and gives the number that its function is known by.
func (s *script) load(source, name string) (string, error) {
	s.chunk, s.name = source, name
	status, err := s.do("luauLoad", uint64(s.state), txSource, txName)
	s.chunk = ""
	if err != nil {
		return "", err
	}
	last := int32(-1)
	if _, err := s.do("getLuaValue", uint64(s.state), uint64(uint32(last))); err != nil {
		return "", err
	}
	var v described
	if json.Unmarshal([]byte(s.given), &v) != nil || status == 0 && v.Type != "function" {
		return "", errBroken
	}
	if status != 0 {
		return "", parseError(v.Value)
	}
	return v.Value, nil
}

var position = regexp.MustCompile(`^script:([0-9]+): `)

// parseError makes one of the compiler's message, which begins with the place.
func parseError(message string) *Error {
	e := &Error{Type: ParseError, Message: strings.ToValidUTF8(message, "\uFFFD")}
	if m := position.FindStringSubmatch(message); m != nil {
		e.Line, _ = strconv.Atoi(m[1]) // of digits
	}
	return e
}

// pcall calls a function by its number; values are types and texts in turn.
func (s *script) pcall(function string, values ...string) error {
	n, err := strconv.ParseUint(function, 10, 31)
	if err != nil {
		return errBroken
	}
	s.passes = values
	status, err := s.do("luaPcall", uint64(s.state), n, txArgs)
	if err != nil {
		return err
	}
	if status != 0 && !s.done {
		return s.fromPcall()
	}
	return nil
}

// fromPcall is a failure that the prelude did not see.
func (s *script) fromPcall() error {
	var list []described
	message := "the script failed"
	if json.Unmarshal([]byte(s.failed), &list) == nil && len(list) > 0 && list[0].Error != "" {
		message = strings.ToValidUTF8(list[0].Error, "\uFFFD")
	}
	return runtimeError(message, 0)
}

// How the interpreter says that it could not allocate; it has no code for it.
const (
	outOfMemory = "not enough memory"
	blockTooBig = "memory allocation error: block too big"
)

func runtimeError(message string, line int) *Error {
	if message == outOfMemory || message == blockTooBig {
		return &Error{Type: MemoryLimit, Message: memoryMessage, Line: line}
	}
	return &Error{Type: RuntimeError, Message: message, Line: line}
}

const memoryMessage = "the script needs more than 64 MiB of memory"

// outcome sorts out how the run ended.
func (s *script) outcome(err error) (Outcome, error) {
	out := Outcome{Result: null}
	if s.fatal != nil {
		return out, s.fatal
	}
	if err == nil {
		out.Err = s.failure
		if s.failure == nil {
			out.Result = s.result
		}
		return out, nil
	}
	if own, ok := errors.AsType[*Error](err); ok {
		out.Err = own
		return out, nil
	}
	switch t, isThrown := errors.AsType[*thrown](err); {
	case errors.Is(err, errDeadline):
		if s.ctx.Err() != nil && !errors.Is(s.ctx.Err(), context.DeadlineExceeded) {
			return out, context.Cause(s.ctx)
		}
		out.Err = &Error{Type: Timeout, Message: "the script ran longer than its time limit"}
	case errors.Is(err, errMemory):
		out.Err = &Error{Type: MemoryLimit, Message: memoryMessage}
	case errors.Is(err, errOutput):
		out.Err = &Error{Type: OutputLimit, Message: "the script printed more than " + strconv.FormatInt(s.p.MaxLog, 10) + " bytes"}
	case isThrown && t.line > 0:
		out.Err = &Error{Type: ParseError, Message: "script:" + strconv.Itoa(t.line) + ": " + t.message, Line: t.line}
	case isThrown && strings.Contains(t.class, "bad_alloc"):
		out.Err = &Error{Type: MemoryLimit, Message: memoryMessage}
	default:
		// A trap: the interpreter ran out of its own stack, most likely.
		out.Err = &Error{Type: RuntimeError, Message: "stack overflow in the interpreter"}
	}
	return out, nil
}

// The prelude's operations and what they come to; prelude.luau has the same.
const (
	opFetch = iota + 1
	opPrint
	opEncode
	opDecode
	opDone
	opFailed
	opNames
	opSeed
	opReady
	opCall
)

const (
	gotNothing = iota
	gotString
	gotValue
	gotError
)

// serve answers one call of the prelude. It panics with what ends the script.
func (s *script) serve(state uint32) {
	m := s.memory()
	if !s.boxed {
		// The first argument is the function itself, the second the box.
		s.box, s.boxed = m.value(m.u32(state+stateBase)+valueSize).pointer(), true
		return
	}
	a, b := m.item(s.box, 2), m.item(s.box, 3)
	got, data, err := gotNothing, []byte(nil), error(nil)
	switch op := m.item(s.box, 1).number(); op {
	case opFetch:
		copy(m.buffer(a), s.pending)
		s.pending = nil
		return
	case opPrint:
		s.print(m.bytes(a))
	case opEncode:
		got = gotString
		data, err = appendJSON(s.ctx, m, a)
	case opDecode:
		got = gotValue
		data, err = transcode(m.bytes(a))
	case opDone:
		s.finish(m, a)
	case opFailed:
		s.done, s.failure = true, runtimeError(utf8Text(m.bytes(a)), int(b.number()))
	case opNames:
		got, data = gotValue, namesOf(s.p.Functions)
	case opSeed:
		got, data = gotValue, binary.LittleEndian.AppendUint64([]byte{tagNumber}, math.Float64bits(float64(rand.Int32())))
	case opReady:
		s.seal(m, a.pointer())
	case opCall:
		got, data, err = s.callOut(int(a.number()), b)
	default:
		panic(errBroken)
	}
	if raised, ok := errors.AsType[*LuaError](err); ok {
		got, data = gotError, []byte(raised.Message)
	} else if err != nil {
		panic(err)
	}
	s.pending = data
	m = s.memory()
	m.setNumber(s.box, 1, float64(got))
	m.setNumber(s.box, 2, float64(len(data)))
}

// seal makes the chunk's globals the script's: there is no way behind them any
// more, and the compiler may take builtins for what they are.
func (s *script) seal(m memory, globals uint32) {
	if b := m.span(globals+tableMeta, 4); b != nil {
		clear(b)
	}
	if b := m.span(globals+tableSafe, 1); b != nil {
		b[0] = 1
	}
}

func (s *script) print(line []byte) {
	text := utf8Text(line)
	s.logged += int64(len(line))
	if s.logged > s.p.MaxLog || len(s.logs) >= maxLines {
		panic(errOutput)
	}
	s.logs = append(s.logs, text)
}

func (s *script) finish(m memory, v value) {
	result, err := appendJSON(s.ctx, m, v)
	s.done = true
	if raised, ok := errors.AsType[*LuaError](err); ok {
		s.failure = &Error{Type: RuntimeError, Message: "the script's result cannot be JSON: " + raised.Message}
	} else if err != nil {
		panic(err)
	}
	s.result = result
}

// namesOf lists the paths of the caller's functions, as the prelude reads them.
func namesOf(functions []Function) []byte {
	out := binary.LittleEndian.AppendUint32([]byte{tagArray}, uint32(len(functions)))
	for _, f := range functions {
		out = binary.LittleEndian.AppendUint32(append(out, tagArray), uint32(len(f.Path)))
		for _, name := range f.Path {
			out = binary.LittleEndian.AppendUint32(append(out, tagString), uint32(len(name)))
			out = append(out, name...)
		}
	}
	return out
}

// callOut runs one of the caller's functions.
func (s *script) callOut(index int, args value) (int, []byte, error) {
	if index < 1 || index > len(s.p.Functions) || args.kind != kindTable {
		panic(errBroken)
	}
	res, err := s.p.Functions[index-1].Do(s.ctx, Args{s: s, table: args.pointer()})
	if err != nil {
		if _, ok := errors.AsType[*LuaError](err); ok {
			return gotNothing, nil, err
		}
		if s.ctx.Err() != nil {
			return gotNothing, nil, errDeadline
		}
		s.fatal = err
		return gotNothing, nil, err
	}
	switch {
	case res.JSON != nil:
		data, err := transcode(res.JSON)
		return gotValue, data, err
	case res.Text != nil:
		return gotString, res.Text, nil
	}
	return gotNothing, nil, nil
}
