package httpapi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
	"umbra/internal/witness"
)

// OwnerCall is a part of a request that the node which owns a workspace carries out, while
// another node answers the request. Its route is Internal, and answers by ServeForOwner.
type OwnerCall struct {
	Workspace string
	Path      string // of the route, POST
	Body      []byte // JSON
	Caller    Caller
	RequestID string
	Remote    string         // the client's address
	Reads     bool           // it changes nothing
	Keyed     bool           // it is known by its idempotency key: it may be sent twice
	Progress  func(Progress) // may be nil
}

// AtOwner carries calls out at the owners of their workspaces, and returns what the route
// answered. sent is false where no other node owns the workspace: this node does the work,
// as for its own requests. errs.Unavailable "outcome_unknown" where a call that must not be
// done twice was sent and not answered.
type AtOwner func(ctx context.Context, o OwnerCall) (answer json.RawMessage, sent bool, err error)

// ServeForOwner answers an OwnerCall about a workspace with what work returns, as ServeWork
// does. Where this node does not own the workspace, nothing is done (421), and where it lost
// it meanwhile, work's context says that the request can go to another node. A read is
// answered only if the lease is still held after it.
func ServeForOwner(c *gin.Context, workspace string, work func(ctx context.Context, progress func(Progress)) (answer any, err error)) error {
	f := factsOf(c)
	cluster := f.server.opts.Cluster
	if !f.received.Claim && !cluster.Owns(c.Request.Context(), workspace) {
		return ErrNotOwner()
	}
	return ServeWork(c, func(ctx context.Context, progress func(Progress)) (any, error) {
		ctx, note := witness.Into(witness.Forwardable(ctx, workspace))
		answer, err := work(ctx, progress)
		if err != nil {
			return nil, err
		}
		if !note.Wrote() {
			if err := cluster.Leased(); err != nil {
				return nil, err
			}
		}
		out := ownerAnswer{Answer: answer}
		out.Workspace, out.Seq, out.Wrote, _ = note.Of(workspace)
		return out, nil
	})
}

// ownerAnswer is what ServeForOwner answers: the work's answer, and the newest commit of the
// workspace that it reflects.
type ownerAnswer struct {
	Answer    any    `json:"answer"`
	Workspace string `json:"workspace,omitempty"`
	Seq       uint64 `json:"seq,omitempty"`
	Wrote     bool   `json:"wrote,omitempty"`
}

// OwnerAnswered decodes what ServeForOwner answered, and notes the commit in ctx.
func OwnerAnswered(ctx context.Context, raw json.RawMessage, answer any) error {
	a := ownerAnswer{Answer: answer}
	if err := json.Unmarshal(raw, &a); err != nil {
		return errs.Wrap(err, "")
	}
	if a.Workspace != "" {
		witness.Opened(ctx, a.Workspace, &a, a.Seq)
		if a.Wrote {
			witness.Committed(ctx, &a, a.Seq)
		}
	}
	return nil
}

// SentKey is an idempotency key for the node that carries out an OwnerCall.
type SentKey struct {
	Hash        string    `json:"hash"`
	Key         []byte    `json:"key"`
	Fingerprint []byte    `json:"fingerprint"`
	At          time.Time `json:"at"`
}

// Sent returns the key for an OwnerCall.
func (i *Idempotency) Sent() (k SentKey, err error) {
	if k.Hash, err = i.KeyHash(); err != nil {
		return k, err
	}
	fp, err := i.fingerprint()
	k.Key, k.Fingerprint, k.At = i.key[:], fp[:], i.at
	return k, err
}

// BeginSent has what the request does until end marked with a key, as another node sent it.
func BeginSent(c *gin.Context, k SentKey) (end func()) {
	var key, fp [sha256.Size]byte
	copy(key[:], k.Key)
	copy(fp[:], k.Fingerprint)
	return factsOf(c).server.opts.Answers.BeginKey(k.Hash, key, fp, k.At)
}

// KindOfStatus is the kind of an error that another node answered with a status.
func KindOfStatus(status int) errs.Kind {
	switch status {
	case http.StatusBadRequest:
		return errs.Invalid
	case http.StatusNotFound:
		return errs.NotFound
	case http.StatusConflict:
		return errs.Conflict
	case http.StatusPreconditionFailed:
		return errs.Precondition
	case http.StatusRequestEntityTooLarge:
		return errs.TooLarge
	case http.StatusUnprocessableEntity:
		return errs.Unprocessable
	case http.StatusForbidden:
		return errs.Forbidden
	case http.StatusInsufficientStorage:
		return errs.NoSpace
	case http.StatusServiceUnavailable:
		return errs.Unavailable
	}
	return errs.Internal
}
