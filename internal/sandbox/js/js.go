// Package js runs untrusted TypeScript and JavaScript programs (POST /execute) and
// checks their text.
//
// Each run has a process of its own: the same binary, started again with a
// hidden verb, in which esbuild makes one ES module of the program and what it
// imports, and QuickJS runs that. The process gets its job over a pipe, has
// no other way out than to ask the server over it, and is killed when
// it has answered, when its time is over, or when it takes too much. Idle ones
// wait for the next job, so that a start costs a program nothing.
//
// Three walls separate a program from the machine: the engine, which has
// no functions for files, processes or the network; the process, which has
// given away, as far as the system lets it, the right to open anything
// (seccomp, Landlock, limits); and the server, which reads for it inside the
// code workspace alone. Where the system lacks the second, the others
// remain.
package js

import (
	"context"
	"fmt"
	"time"
)

// Files reads for programs. Names are relative to the code workspace, or
// absolute below "/workspace" or the folder's own path.
type Files interface {
	// ReadFile gives a file's bytes: errs.NotFound, errs.Conflict
	// "is_a_directory", or any other error for what may not be read.
	ReadFile(ctx context.Context, name string) ([]byte, error)
}

// Saver is file.save: it gives the absolute path, or an error whose text the
// program gets. One run calls it one at a time.
type Saver func(ctx context.Context, name string, content []byte) (path string, err error)

// Job is one program to run.
type Job struct {
	Name    string // its file in the workspace, "hello.ts"
	Code    string
	Env     map[string]string
	Args    []string
	Timeout time.Duration // from the start of running
	Save    Saver         // nil: the program has no file
	NoFiles bool          // the program may read nothing of the code workspace
}

// Failure says why a run did not end well.
type Failure string

// The failures; empty is none.
const (
	FailedExit    Failure = "exit"    // a throw, an unhandled rejection, or an exit code
	FailedCompile Failure = "compile" // it does not parse, or imports what is not there
	FailedTime    Failure = "timeout"
	FailedMemory  Failure = "memory"
	FailedOutput  Failure = "output"
)

// Outcome is how a run ended.
type Outcome struct {
	ExitCode       int
	Stdout, Stderr []byte
	Took           time.Duration
	Failure        Failure
	Message        string // of FailedCompile: file, line and what is wrong
	Diagnostics    []Diagnostic
}

// Severity of a diagnostic.
type Severity string

// The severities.
const (
	SeverityError   Severity = "error"
	SeverityWarning Severity = "warning"
)

// Position is a place in a text: lines from 1, columns from 0, in UTF-16 units.
type Position struct {
	Line int `json:"line"`
	Col  int `json:"col"`
}

// Range is a part of a text; End is the first place after it.
type Range struct {
	Start Position `json:"start"`
	End   Position `json:"end"`
}

// Diagnostic is something that is wrong, or looks so, with a text.
type Diagnostic struct {
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
	Range    Range    `json:"range"`
	Filename string   `json:"filename"`
	Hint     string   `json:"hint,omitempty"`
}

// String gives file, line, column (from 1) and sentence.
func (d Diagnostic) String() string {
	if d.Filename == "" {
		return d.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", d.Filename, d.Range.Start.Line, d.Range.Start.Col+1, d.Message)
}
