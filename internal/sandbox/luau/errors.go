package luau

import (
	"errors"
	"strings"
)

// ErrorType says what ended a script.
type ErrorType string

// The types of a script's failure (contracts/scripts.md).
const (
	ParseError   ErrorType = "parse_error"
	RuntimeError ErrorType = "runtime_error"
	Timeout      ErrorType = "timeout"
	MemoryLimit  ErrorType = "memory_limit"
	OutputLimit  ErrorType = "output_limit"
)

// Error is a script's failure.
type Error struct {
	Type    ErrorType
	Message string // UTF-8
	Line    int    // in the script, from 1; 0: not known
}

// Error gives type and message.
func (e *Error) Error() string { return string(e.Type) + ": " + e.Message }

// LuaError is an error that a function of the caller raises in the script,
// where pcall catches it.
type LuaError struct{ Message string }

// Error gives the message.
func (e *LuaError) Error() string { return e.Message }

// What ends a script from within the host; nothing in the script catches it.
var (
	errDeadline = errors.New("the script ran out of time")
	errMemory   = errors.New("the script ran out of memory")
	errOutput   = errors.New("the script printed too much")
	errBroken   = errors.New("the interpreter gave up")
)

// thrown is a C++ exception, which this build cannot catch.
type thrown struct {
	class, message string
	line           int
}

func (t *thrown) Error() string { return t.class + ": " + t.message }

// utf8Text makes text of bytes that a script made.
func utf8Text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }
