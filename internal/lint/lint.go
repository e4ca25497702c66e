// Package lint checks the text of a program (contracts/code.md, POST /lint):
// with the compiler that is in the server, or with an engine found on the
// machine.
package lint

import (
	"context"
	"time"

	"umbra/internal/sandbox/js"
)

// Text is what to check.
type Text struct {
	Name string // the program's file, "hello.ts"
	Code string
	// NoFiles: the program sees no file of the code workspace.
	NoFiles bool
}

// Report is what a check found.
type Report struct {
	Diagnostics []js.Diagnostic
	Checked     []string
}

// Linter checks texts. Its methods may be called concurrently.
type Linter interface {
	// Lint gives what it found; nothing is no error. errs.Unavailable
	// "check_timeout" when it takes longer than it may.
	Lint(ctx context.Context, t Text, timeout time.Duration) (*Report, error)
}

// Checker is the compiler's part of the sandbox.
type Checker interface {
	Check(ctx context.Context, job js.Job) ([]js.Diagnostic, error)
}

// Embedded is the linter that needs nothing of the machine: syntax errors,
// imports that lead nowhere, and what the compiler finds suspicious.
type Embedded struct{ Checker Checker }

// Lint implements Linter.
func (e Embedded) Lint(ctx context.Context, t Text, timeout time.Duration) (*Report, error) {
	found, err := e.Checker.Check(ctx, js.Job{Name: t.Name, Code: t.Code, NoFiles: t.NoFiles, Timeout: timeout})
	if err != nil {
		return nil, err
	}
	if found == nil {
		found = []js.Diagnostic{}
	}
	return &Report{Diagnostics: found, Checked: []string{t.Name}}, nil
}
