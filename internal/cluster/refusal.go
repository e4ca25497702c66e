package cluster

import (
	"errors"
	"fmt"
	"strings"

	"umbra/internal/cluster/engine"
)

// Refusal is a check that failed when a node started.
type Refusal = engine.Refusal

// Errors of a node in addition to those of package sink.
var (
	// ErrNotFound is returned when the cluster does not have the workspace.
	ErrNotFound = errors.New("cluster: workspace not found")
	// ErrClosed is returned once the node was closed; nothing was done.
	ErrClosed = engine.ErrClosed
)

// prefixed returns an error whose text begins with "cluster: ", once.
func prefixed(err error) error {
	if strings.HasPrefix(err.Error(), "cluster: ") {
		return err
	}
	return fmt.Errorf("cluster: %w", err)
}

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
