package workspace

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/wspath"
)

// checkpoint syncs what was materialised since the last one and records it.
func (w *Workspace) checkpoint(ctx context.Context, clean bool) error {
	return w.progress.Checkpoint(clean, func(paths map[wspath.Path]struct{}) ([]wspath.Path, error) {
		w.keeper.DropNow()
		held, err := w.syncPaths(ctx, paths)
		if err == nil && len(held) > 0 {
			w.warnUnsynced(held)
		}
		return held, err
	})
}

// warnUnsynced warns of the first path that cannot be opened for a sync.
func (w *Workspace) warnUnsynced(held []wspath.Path) {
	if w.unsyncable.CompareAndSwap(false, true) {
		w.warn("%q cannot be opened by the server, so its bytes cannot be synced; until it can, a start after a power failure compares more files with history", held[0])
	}
}

// syncPaths makes files and the folders that name them durable. held are files
// and directories that could not be opened, so that they are not.
func (w *Workspace) syncPaths(ctx context.Context, paths map[wspath.Path]struct{}) (held []wspath.Path, err error) {
	dirs := make(map[wspath.Path]struct{})
	for p := range paths {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(err, "")
		}
		dirs[p.Dir()] = struct{}{}
		s, err := w.disk.LstatDirect(p)
		switch {
		case errors.Is(err, fs.ErrPermission): // of a directory above it
			held = append(held, p)
			continue
		case err != nil:
			return nil, err
		case s.Kind == KindDir:
			dirs[p] = struct{}{}
			continue
		case s.Kind != KindFile:
			continue // gone, or behind a link now
		}
		switch err := w.syncFile(ctx, p); {
		case errors.Is(err, fs.ErrPermission):
			held = append(held, p)
		case err != nil:
			return nil, err
		}
	}
	for dir := range dirs {
		err := w.disk.FS.SyncDir(string(dir))
		if errors.Is(err, fs.ErrPermission) {
			held = append(held, dir)
			continue
		}
		if err != nil && !disk.IsAbsent(err) && !errors.Is(err, syscall.ELOOP) && !errors.Is(err, vfs.ErrEscapes) {
			return nil, errs.Wrap(err, string(dir))
		}
	}
	return held, nil
}

// syncFile syncs one file. After a failed sync the kernel may have dropped the
// pages: the file is rewritten from history, and that is synced. The error is
// fs.ErrPermission, unwrapped, if the file may not be opened.
func (w *Workspace) syncFile(ctx context.Context, p wspath.Path) error {
	f, err := w.disk.FS.Open(string(p))
	if disk.IsAbsent(err) || errors.Is(err, syscall.ELOOP) {
		return nil // the scan records what became of it
	}
	if errors.Is(err, fs.ErrPermission) {
		return fs.ErrPermission
	}
	if err != nil {
		return errs.Wrap(err, string(p))
	}
	err = f.Sync()
	f.Close()
	if err == nil {
		return nil
	}
	w.log.Warn("file not synced; it is rewritten", "path", string(p), "error", err)
	return w.rewrite(ctx, p)
}

// rewrite puts the tip's bytes of a file in place of what cannot be synced.
func (w *Workspace) rewrite(ctx context.Context, p wspath.Path) error {
	return w.locks.With(ctx, []wspath.Path{p}, func(*pathlock.Lock) error {
		e, ok, err := w.store.Snapshot().Lookup(p)
		if err != nil || !ok {
			return err
		}
		return w.target.Rewrite(ctx, e)
	})
}
