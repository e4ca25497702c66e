package workspace

import (
	"context"
	"time"

	"umbra/internal/workspace/reconcile"
	"umbra/internal/wspath"
)

// Sync records what differs from history in the directory, as reconcile.Reconciler.Sync
// does; with Adopt it takes a directory that is in place of the one that was opened.
func (w *Workspace) Sync(ctx context.Context, o reconcile.SyncOptions) (reconcile.SyncResult, error) {
	if o.Adopt && w.adopt != nil && w.disk.Check() != nil {
		return w.adopt(ctx, o.Allow)
	}
	if err := w.enter(); err != nil {
		return reconcile.SyncResult{}, err
	}
	defer w.leave()
	return w.recon.Sync(ctx, o)
}

// Reconcile is reconcile.Reconciler.Reconcile as a request.
func (w *Workspace) Reconcile(ctx context.Context, o reconcile.SyncOptions, since time.Duration) (reconcile.SyncResult, error) {
	if err := w.enter(); err != nil {
		return reconcile.SyncResult{}, err
	}
	defer w.leave()
	return w.recon.Reconcile(ctx, o, since)
}

// Coverage is reconcile.Reconciler.Coverage as a request.
func (w *Workspace) Coverage(ctx context.Context) (reconcile.Coverage, error) {
	if err := w.enter(); err != nil {
		return reconcile.Coverage{}, err
	}
	defer w.leave()
	return w.recon.Coverage(ctx)
}

// Compare is reconcile.Reconciler.Compare as a request.
func (w *Workspace) Compare(ctx context.Context) ([]reconcile.Difference, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	defer w.leave()
	return w.recon.Compare(ctx)
}

// RecordPaths is reconcile.Reconciler.RecordPaths as a request.
func (w *Workspace) RecordPaths(ctx context.Context, paths []wspath.Path) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	return w.recon.RecordPaths(ctx, paths)
}

// RecordThen is reconcile.Reconciler.RecordThen as a request.
func (w *Workspace) RecordThen(ctx context.Context, then func()) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	return w.recon.RecordThen(ctx, then)
}

// Keep is reconcile.Reconciler.Keep as a request.
func (w *Workspace) Keep(ctx context.Context, paths []wspath.Path) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	return w.recon.Keep(ctx, paths)
}

// LookAt is reconcile.Reconciler.LookAt as a request.
func (w *Workspace) LookAt(ctx context.Context, paths []wspath.Path) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	_, err := w.recon.LookAt(ctx, paths, reconcile.SyncOptions{Attribute: true})
	return err
}

// Resembles takes over what another workspace knows of its files: this one's directory
// shows the same files, by inode number, size and times. It is called before anything
// else is known.
func (w *Workspace) Resembles(other *Workspace) { w.disk.Index.Take(other.disk.Index) }
