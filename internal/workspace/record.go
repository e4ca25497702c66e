package workspace

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/wspath"
)

// RecordPaths records what people changed at a few paths, as Sync does for the
// whole folder: before a revert judges them. Files that history does not track
// are recorded too, since they may have to make way. Folders and special files
// are passed over.
func (w *Workspace) RecordPaths(ctx context.Context, paths []wspath.Path) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	if err := w.checkFolder(); err != nil {
		return err
	}
	if w.virtual != nil {
		return nil
	}
	s := w.newScanner(false)
	for _, p := range paths {
		if p.IsRoot() || w.IsOwn(p) {
			continue
		}
		tip, tracked, err := s.tip.Lookup(p)
		if err != nil {
			return err
		}
		folder := tracked && tip.Mode == object.Dir
		tracked = tracked && !folder
		now, err := w.lstatDirect(p)
		if err != nil {
			return err
		}
		if folder && (now.kind == KindFile || now.kind == KindSymlink) {
			// A file where history has a folder: what it has in there is gone.
			if err := s.tip.Walk(p, func(e gitstore.Entry) error {
				s.list = append(s.list, candidate{path: e.Path})
				return nil
			}); err != nil {
				return err
			}
		}
		switch {
		case now.kind == KindNone && !tracked, now.kind == KindDir && !tracked, now.kind == KindSpecial && !tracked:
			continue
		case now.kind == KindFile && tracked && now.mode == tip.Mode:
			if id, known := w.index.Lookup(p, now.info); known && id == tip.ID {
				continue
			}
		}
		c := candidate{path: p}
		if now.kind == KindFile || now.kind == KindSymlink {
			c.seen = now
			c.old = !tracked // it was hidden from the scans: nobody's
		}
		s.list = append(s.list, c)
	}
	if err := s.identify(ctx); err != nil {
		return err
	}
	_, err := s.record(ctx, SyncOptions{Attribute: true})
	return err
}
