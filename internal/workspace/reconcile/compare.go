package reconcile

import (
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Difference is a path where disk and history differ, and how: "modified",
// "missing" (history has it, the disk has not), "unrecorded" (the other way
// round).
type Difference struct {
	Path   string
	Reason string
}

// Compare reports where the disk differs from the tip, and records nothing. What
// is not captured at all is no difference. Writers go on next to it.
//
// errs.Conflict workspace_missing.
func (r *Reconciler) Compare(ctx context.Context) ([]Difference, error) {
	if err := r.Disk.Check(); err != nil {
		return nil, err
	}
	if !r.Disk.Physical() {
		return nil, nil
	}
	s := r.newScanner(false)
	s.readNew = true
	if err := s.find(ctx); err != nil || len(s.list) == 0 {
		return nil, err
	}
	// A write may have been under way: compared again with no one writing there.
	paths := make([]wspath.Path, 0, len(s.list))
	for _, c := range s.list {
		paths = append(paths, c.path)
	}
	if len(paths) > maxScanLocks {
		paths = []wspath.Path{wspath.Root}
	}
	lock, err := r.Locks.Acquire(ctx, paths)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	defer lock.Release()
	s.tip = r.Disk.Store.Snapshot()
	var out []Difference
	for i := range s.list {
		d, differs, err := s.difference(ctx, &s.list[i])
		if err != nil {
			return nil, err
		}
		if differs {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b Difference) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// difference compares one candidate as it is now; its path is locked.
func (s *scanner) difference(ctx context.Context, c *candidate) (d Difference, differs bool, err error) {
	tip, tracked, err := s.tip.Lookup(c.path)
	if err != nil {
		return d, false, err
	}
	if tracked && tip.Mode == object.Dir {
		tip, tracked = gitstore.Entry{}, false
	}
	now, err := s.r.Disk.Lstat(c.path)
	if err != nil {
		return d, false, nil // not readable: nothing is known of it
	}
	d = Difference{Path: string(c.path), Reason: "modified"}
	there := now.Kind == op.KindFile || now.Kind == op.KindSymlink
	switch {
	case !there && !tracked:
		return d, false, nil
	case !there:
		d.Reason = "missing"
		return d, true, nil
	case !tracked:
		d.Reason = "unrecorded"
		return d, true, nil
	}
	c.seen = now
	differs, err = s.differs(ctx, c)
	return d, differs, err
}
