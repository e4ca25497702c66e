package reconcile

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// RecordPaths records what people changed at a few paths, as Sync does for the
// whole folder: before a revert judges them. Files that history does not track
// are recorded too, since they may have to make way. Folders and special files
// are passed over.
func (r *Reconciler) RecordPaths(ctx context.Context, paths []wspath.Path) error {
	if err := r.Disk.Check(); err != nil {
		return err
	}
	if !r.Disk.Physical() {
		return nil
	}
	s := r.newScanner(false)
	above := make(map[wspath.Path]bool)
	for _, p := range paths {
		if p.IsRoot() || r.Disk.IsOwn(p) {
			continue
		}
		tip, tracked, err := s.tip.Lookup(p)
		if err != nil {
			return err
		}
		folder := tracked && tip.Mode == object.Dir
		tracked = tracked && !folder
		now, err := r.Disk.LstatDirect(p)
		if err != nil {
			return err
		}
		if folder && (now.Kind == op.KindFile || now.Kind == op.KindSymlink) {
			// A file where history has a folder: what it has in there is gone.
			if err := s.tip.Walk(p, func(e gitstore.Entry) error {
				s.list = append(s.list, candidate{path: e.Path})
				return nil
			}); err != nil {
				return err
			}
		}
		switch {
		case now.Kind == op.KindNone && !tracked, now.Kind == op.KindDir && !tracked, now.Kind == op.KindSpecial && !tracked:
			continue
		case now.Kind == op.KindFile && tracked && now.Mode == tip.Mode:
			if id, known := r.Disk.Index.Lookup(p, now.Info); known && id == tip.ID {
				continue
			}
		}
		c := candidate{path: p}
		if now.Kind == op.KindFile || now.Kind == op.KindSymlink {
			c.seen = now
			c.old = !tracked // it was hidden from the scans: no one's
			if err := s.replacedAbove(p, above); err != nil {
				return err
			}
		}
		s.list = append(s.list, c)
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	_, err := s.record(ctx, SyncOptions{Attribute: true})
	return err
}

// replacedAbove has a file recorded as gone that history has in place of a directory above
// a path. seen are the directories that were checked.
func (s *scanner) replacedAbove(p wspath.Path, seen map[wspath.Path]bool) error {
	for dir := range p.Ancestors() {
		if dir.IsRoot() || seen[dir] {
			return nil
		}
		seen[dir] = true
		if e, ok, err := s.tip.Lookup(dir); err != nil || ok {
			if err == nil && e.Mode != object.Dir {
				s.gone(dir)
			}
			return err
		}
	}
	return nil
}
