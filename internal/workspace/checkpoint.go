package workspace

import (
	"context"
	"errors"
	"io/fs"
	"syscall"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/wspath"
)

// unsynced is what checkpoints could not sync. One checkpoint at a time uses it.
type unsynced struct {
	warned bool                          // of a file that cannot be opened
	moved  map[wspath.Path]time.Duration // when it was first found not to be there, by clock.Boot
}

// checkpoint syncs what was materialised since the last one and records it.
func (w *Workspace) checkpoint(ctx context.Context, clean bool) error {
	return w.progress.Checkpoint(clean, func(paths map[wspath.Path]struct{}) ([]wspath.Path, error) {
		w.keeper.DropNow()
		held, err := w.syncPaths(ctx, paths)
		if err == nil && len(held) > 0 && !w.unsynced.warned {
			w.unsynced.warned = true
			w.warn("%q cannot be opened by the server, so its bytes cannot be synced; until it can, a start after a power failure compares more files with history", held[0])
		}
		return append(held, w.movedAway(paths)...), err
	})
}

// movedAway gives the paths at which history has a file, and the disk not or another: a
// user moved it, and no scan has recorded that yet. What a request did to the file was not
// synced with the path, so the checkpoint must not cover it: that the file is elsewhere
// says a scan, which is waited for once.
func (w *Workspace) movedAway(paths map[wspath.Path]struct{}) (held []wspath.Path) {
	now := clock.Boot()
	moved := make(map[wspath.Path]time.Duration)
	for p := range paths {
		if !w.isElsewhere(p) {
			continue
		}
		since, before := w.unsynced.moved[p]
		if !before {
			since = now
		}
		if w.recon.ScannedAt() <= since {
			moved[p], held = since, append(held, p)
		}
	}
	w.unsynced.moved = moved
	return held
}

// isElsewhere reports whether the file that history has at a path is not there. While a
// request changes the path that is not asked.
func (w *Workspace) isElsewhere(p wspath.Path) bool {
	s, err := w.disk.LstatDirect(p)
	if err != nil || s.Kind == KindFile && !w.disk.Index.IsAnother(p, s.Info.Ino) {
		return false // or in a directory that is closed, which held it already
	}
	lock, err := w.locks.Acquire(ended, []wspath.Path{p})
	if err != nil {
		return false
	}
	defer lock.Release()
	e, ok, err := w.store.Snapshot().Lookup(p)
	if err != nil || !ok || e.Mode != object.Regular && e.Mode != object.Executable {
		return false
	}
	s, err = w.disk.LstatDirect(p)
	return err == nil && (s.Kind != KindFile || w.disk.Index.IsAnother(p, s.Info.Ino))
}

// ended has ended: who acquires a lock with it does not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

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
