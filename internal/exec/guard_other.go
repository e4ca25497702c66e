//go:build !linux

package exec

import (
	"context"

	"umbra/gitstore"
	"umbra/internal/workspace"
)

type guard struct {
	s        *Service
	l        Layer
	of, fork *workspace.Workspace
	tree     gitstore.Snapshot
	seq      uint64
}

func (g *guard) run(context.Context) {}

// Began does nothing: only Linux has layers.
func Began(string, int) error { return nil }

func (s *Service) attend(string) {}
