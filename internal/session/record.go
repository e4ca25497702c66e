package session

import (
	"crypto/rand"
	"fmt"
	"time"

	"umbra/internal/errs"
)

// Record is what is kept of a session.
type Record struct {
	ID        string    `json:"id"`
	Workspace string    `json:"workspace"` // the workspace's id
	Task      string    `json:"task"`
	OwnTask   bool      `json:"own_task,omitempty"` // made for the session
	AuthType  string    `json:"auth_type,omitempty"`
	Model     string    `json:"model,omitempty"`
	Org       string    `json:"org,omitempty"`
	Created   time.Time `json:"created"`
	LastUsed  time.Time `json:"last_used"` // the end of the last request; up to a flush behind after a kill
	// KeyHash is the idempotency key of the request that made the session.
	KeyHash string `json:"key_hash,omitempty"`
	// Pending: the task is being made. Ended: it is being completed. Either is
	// settled at the next start, or, where several servers share the records, by one of
	// them a while later.
	Pending bool `json:"pending,omitempty"`
	Ended   bool `json:"ended,omitempty"`
}

// newID makes a random UUID (RFC 9562, version 4).
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func notFound() error {
	return errs.New(errs.NotFound, "session_not_found", "Session not found")
}
