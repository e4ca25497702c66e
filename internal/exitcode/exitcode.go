// Package exitcode says with which status the program ends: 0 done, 1 it did not
// work or something was found, 2 wrong use.
package exitcode

import (
	"errors"
	"fmt"
	"io"
)

// The statuses with which the program ends.
const (
	Done    = 0
	Failed  = 1
	Misused = 2
)

// UsageError is wrong use: exit status 2.
type UsageError struct{ error }

// Unwrap implements errors.Unwrap.
func (e UsageError) Unwrap() error { return e.error }

// Usage returns an error that ends the program with the exit status of wrong use.
func Usage(err error) error { return UsageError{err} }

// StatusError ends with a status; what there is to say has been said.
type StatusError struct{ status int }

// Error implements error.
func (e StatusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// With returns an error that ends the program with a status, without a text.
func With(status int) error { return StatusError{status} }

// Of prints an error and returns the exit status that it ends with.
func Of(err error, stderr io.Writer) int {
	if e, ok := errors.AsType[StatusError](err); ok {
		return e.status
	}
	fmt.Fprintln(stderr, "umbra:", err)
	if _, ok := errors.AsType[UsageError](err); ok {
		return Misused
	}
	return Failed
}
