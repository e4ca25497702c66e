package server

import (
	"context"
	"log/slog"

	"umbra/config"
	"umbra/internal/state"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
	"umbra/watcher"
)

// folderWatcher is package watcher as the workspaces see it.
type folderWatcher struct{ *watcher.Watcher }

// openWatcher starts the one watcher of all workspaces. Where the system has
// none to give, they are scanned; that is said once.
func openWatcher(cfg config.Config, dir *state.Dir, log *slog.Logger, d *deps) workspace.Watcher {
	w, err := watcher.New(watcher.Options{Log: log, MaxWatches: cfg.Workspaces.MaxWatches, CookieDir: dir.Join("watch")})
	if err != nil {
		log.Warn("directories cannot be watched; they are scanned every minute", "error", err)
		return unwatched{}
	}
	d.closers = append(d.closers, func(context.Context) error { return w.Close() })
	return folderWatcher{w}
}

// Add is workspace.Watcher's.
func (w folderWatcher) Add(ctx context.Context, id, root string, to workspace.WatchSpace) error {
	return w.Watcher.Add(ctx, id, root, watcher.Space{
		Rules: to.Rules, TrackedUnder: to.TrackedUnder, Prune: to.Prune, Dirty: to.Dirty, RulesChanged: to.RulesChanged,
		Lost: func(watcher.Reason) { to.Lost() }, Gone: to.Gone,
	})
}

// State is workspace.Watcher's.
func (w folderWatcher) State(id string) (watching, trusted bool) {
	s := w.Watcher.State(id)
	return s.Watching, s.Trusted
}

// unwatched represents a watcher where there is none: everything is scanned.
type unwatched struct{}

func (unwatched) Add(context.Context, string, string, workspace.WatchSpace) error { return nil }

func (unwatched) Remove(string) {}

func (unwatched) Sync(context.Context, string) error { return context.Canceled }

func (unwatched) State(string) (watching, trusted bool) { return false, false }

func (unwatched) Cover(string, wspath.Path) {}
