package engine

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal is a check that failed when a node started. Code is stable; Sentence
// is for the owner and has no secret in it; Exit is the program's status.
type Refusal struct {
	Code     string
	Sentence string
	Exit     int
	Err      error // the cause, if there is one
}

// Error returns "cluster: <code>: <sentence>".
func (r *Refusal) Error() string { return "cluster: " + r.Code + ": " + r.Sentence }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// Refuse makes one; Sentence is formatted.
func Refuse(code string, err error, sentence string, args ...any) *Refusal {
	r := &Refusal{Code: code, Sentence: fmt.Sprintf(sentence, args...), Exit: 1, Err: err}
	switch code {
	case "cluster_incomplete", "cluster_url_invalid", "blobs_url_invalid", "platform_unsupported":
		r.Exit = 2
	}
	return r
}

// Errors of statements.
var (
	// ErrClosed is returned once the engine was closed; nothing was done.
	ErrClosed = errors.New("cluster: the node is closed")
	// ErrBusy: a statement was not sent.
	ErrBusy = errors.New("cluster: the engine takes no statements")
	// ErrSent: a statement was sent, and its outcome is not known yet.
	ErrSent = errors.New("cluster: the engine has not answered")
)

// oneLine makes an error's text fit into a sentence.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
