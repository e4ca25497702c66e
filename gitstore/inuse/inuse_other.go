//go:build !linux

package inuse

import (
	"context"

	"umbra/internal/vfs"
)

// Repository cannot know here: the grace alone decides.
func Repository(context.Context, []vfs.Info, []vfs.Info) (bool, error) { return false, nil }
