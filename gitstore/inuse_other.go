//go:build !linux

package gitstore

import (
	"context"

	"umbra/internal/vfs"
)

// inUse cannot tell here: the grace alone decides.
func inUse(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil }
