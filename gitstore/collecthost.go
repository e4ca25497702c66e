package gitstore

import (
	"context"
	"slices"

	"umbra/gitstore/collect"
	"umbra/gitstore/pace"
	"umbra/internal/errs"
)

// Pace bounds what long work takes.
type Pace = pace.Pace

// How a collection goes, and what it did.
type (
	CollectOptions = collect.Options
	CollectReport  = collect.Report
)

// Collect rewrites the packs that hold unreachable objects: those that no commit
// from the boundary on reaches, nor a user's ref, reflog or worktree. Superseded
// packs are removed after the grace, or at once. Writers, readers and git commands
// go on concurrently; only the last step holds up commits, for a few milliseconds.
// A crash at any moment leaves the old packs, or the new ones next to them, and the
// next run continues. A fork's history
// is never shortened, so there is nothing to collect in it.
func (s *Store) Collect(ctx context.Context, opt CollectOptions) (CollectReport, error) {
	opt.Among = slices.DeleteFunc(slices.Clone(opt.Among), func(id ID) bool { return !s.HasBlob(id) })
	if s.r.Base != nil {
		return CollectReport{Left: len(opt.Among) > 0}, nil
	}
	s.r.Upkeep.Collecting.Lock()
	defer s.r.Upkeep.Collecting.Unlock()
	return s.collect(ctx, opt)
}

// collect is Collect with cmu held.
func (s *Store) collect(ctx context.Context, opt CollectOptions) (CollectReport, error) {
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	if err := s.resumeCut(ctx); err != nil {
		return CollectReport{}, err
	}
	begin := s.Boundary()
	if opt.DryRun && opt.From.Seq > begin.Seq {
		begin = opt.From
	}
	report, err := collect.Run(ctx, s.r, collectHost{s}, begin, opt)
	if err == nil && !opt.DryRun {
		report.Left = slices.ContainsFunc(opt.Among, s.HasBlob)
		s.r.Upkeep.Swept.Store(&begin)
	}
	return report, errs.Wrap(err, "")
}

// Swept reports whether a collection has come to its end since the store was
// opened, with the boundary where it is.
func (s *Store) Swept() bool {
	swept := s.r.Upkeep.Swept.Load()
	return swept != nil && *swept == s.Boundary()
}

// collectHost is the store as a collection needs it.
type collectHost struct{ s *Store }

func (h collectHost) Seal(ctx context.Context) error { return h.s.Seal(ctx) }

func (h collectHost) KickMaintainer() { h.s.kickMaintainer() }
