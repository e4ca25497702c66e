package sink

import (
	"context"
	"errors"
	"fmt"
	"io"

	"umbra/internal/errs"
)

// Errors of a Sink, to be found by errors.Is. One error may be several of them.
var (
	// ErrRefused says that a call did nothing and never will.
	ErrRefused = errors.New("nothing was done")
	// ErrFenced says that another owner has the workspace, or that the life of this
	// one is over.
	ErrFenced = errors.New("this node does not own the workspace")
	// ErrUnknown says that a call may have been done, or may be done later.
	ErrUnknown = errors.New("the outcome is unknown")
	// ErrStale says that an object which is named for the first time was put too
	// long ago: it is to be put again.
	ErrStale = errors.New("the object was put too long ago")
	// ErrMissing says that no object has the name.
	ErrMissing = errors.New("the object does not exist")
)

// Fenced returns an ErrFenced for a client: owner_moving where the call certainly
// did nothing (it is then an ErrRefused too), outcome_unknown where it may have.
func Fenced(refused bool, cause error) error {
	if refused {
		return &errs.Error{Kind: errs.Unavailable, Code: "owner_moving", Err: join(cause, ErrFenced, ErrRefused),
			Detail: "Another node has taken the workspace over; retry."}
	}
	return unknown(join(cause, ErrFenced))
}

// Unknown returns an ErrUnknown for a client: outcome_unknown.
func Unknown(cause error) error { return unknown(join(cause, ErrUnknown)) }

func unknown(err error) error {
	return &errs.Error{Kind: errs.Unavailable, Code: "outcome_unknown", Err: err,
		Detail: "The write was sent to the log and not confirmed in time: it may have been done. With an Idempotency-Key a retry is safe."}
}

// Unavailable returns an ErrRefused for a client: engine_unavailable with a reason,
// one of "unreachable", "standby" and "read_only".
func Unavailable(reason string, cause error) error {
	e := errs.New(errs.Unavailable, "engine_unavailable", "The log does not take writes (%s); nothing was done.", reason).With("reason", reason)
	e.Err = join(cause, ErrRefused)
	return e
}

// ReplicationOff returns an ErrRefused for a client: replication_off.
func ReplicationOff(cause error) error {
	return &errs.Error{Kind: errs.Unavailable, Code: "replication_off", Err: join(cause, ErrRefused),
		Detail: "The log no longer waits for a standby; nothing was done."}
}

// BlobsUnavailable returns an ErrRefused for a client: blobs_unavailable.
func BlobsUnavailable(cause error) error {
	return &errs.Error{Kind: errs.Unavailable, Code: "blobs_unavailable", Err: join(cause, ErrRefused),
		Detail: "The object store cannot be reached, and this needs it; nothing was done."}
}

// Body returns what reads an object's bytes, whose errors it makes BlobsUnavailable, but for that of
// a caller that has left.
func Body(r io.ReadCloser) io.ReadCloser { return body{r} }

type body struct{ io.ReadCloser }

func (b body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, context.Canceled) {
		err = BlobsUnavailable(err)
	}
	return n, err
}

// Missing returns an ErrMissing for a client: blobs_unavailable.
func Missing(name string) error {
	return BlobsUnavailable(fmt.Errorf("%w: %s", ErrMissing, name))
}

// Stale returns an ErrStale.
func Stale(name string) error {
	return BlobsUnavailable(fmt.Errorf("%w: %s", ErrStale, name))
}

func join(cause error, kinds ...error) error { return errors.Join(append(kinds, cause)...) }
