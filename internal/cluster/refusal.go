package cluster

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

func refuse(code string, err error, sentence string, args ...any) *Refusal {
	r := &Refusal{Code: code, Sentence: fmt.Sprintf(sentence, args...), Exit: 1, Err: err}
	switch code {
	case "cluster_incomplete", "cluster_url_invalid", "blobs_url_invalid", "platform_unsupported":
		r.Exit = 2
	}
	return r
}

// Errors of a node in addition to those of package sink.
var (
	// ErrNotFound is returned when the cluster does not have the workspace.
	ErrNotFound = errors.New("cluster: workspace not found")
	// ErrClosed is returned once the node was closed; nothing was done.
	ErrClosed = errors.New("cluster: the node is closed")

	// errBusy: a statement was not sent.
	errBusy = errors.New("cluster: the engine takes no statements")
	// errSent: a statement was sent, and its outcome is not known yet.
	errSent = errors.New("cluster: the engine has not answered")
)

// OwnedError is returned by a claim of a workspace that another live node owns.
type OwnedError struct {
	Workspace string
	Owner     Peer
	Epoch     int64
}

// Error names the owner.
func (e *OwnedError) Error() string {
	return fmt.Sprintf("cluster: workspace %s is owned by node %s", e.Workspace, e.Owner.Name)
}

// oneLine makes an error's text fit into a sentence.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
