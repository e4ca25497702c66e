package object

import (
	"errors"

	"github.com/pjbgf/sha1cd"
)

// ErrCollision is returned for bytes that are one half of a SHA-1 collision.
var ErrCollision = errors.New("object: the content is part of a SHA-1 collision")

// Checked computes SHA-1 and detects the blocks of known collision attacks, as
// git itself does. It is for content from outside: what history holds has been
// checked. Not for concurrent use.
type Checked struct {
	h sha1cd.CollisionResistantHash
}

// NewChecked returns a hash of no bytes.
func NewChecked() *Checked {
	return &Checked{sha1cd.New().(sha1cd.CollisionResistantHash)}
}

// Write adds bytes. It never fails.
func (c *Checked) Write(p []byte) (int, error) { return c.h.Write(p) }

// ID returns the hash of the bytes so far, or ErrCollision.
func (c *Checked) ID() (ID, error) {
	var id ID
	if _, collides := c.h.CollisionResistantSum(id[:0]); collides {
		return Zero, ErrCollision
	}
	return id, nil
}

// HashChecked is like Hash, and fails with ErrCollision.
func HashChecked(k Kind, data []byte) (ID, error) {
	c := NewChecked()
	_, _ = c.Write(Header(k, int64(len(data)))) // never fails
	_, _ = c.Write(data)                        // never fails
	return c.ID()
}
