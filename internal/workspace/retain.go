package workspace

import (
	"context"

	"umbra/gitstore"
	"umbra/internal/errs"
)

// Retain drops old history as gitstore.Store.Retain does. What a power cut may
// still undo on disk keeps its history: recovery needs the versions since the
// last checkpoint, so one is made first, and the history goes on from it.
//
// A history that forks continue, or that continues another's, stays whole.
func (w *Workspace) Retain(ctx context.Context, opt gitstore.RetainOptions) (gitstore.RetainReport, error) {
	if w.wholly() != nil {
		return gitstore.RetainReport{From: w.store.Boundary(), To: w.store.Boundary()}, nil
	}
	if w.disk.Physical() {
		if !opt.DryRun && !w.disk.Missing() {
			if err := w.checkpoint(ctx, false); err != nil {
				return gitstore.RetainReport{}, err
			}
		}
		through := w.progress.Through()
		if through == 0 {
			return gitstore.RetainReport{From: w.store.Boundary(), To: w.store.Boundary()}, nil
		}
		if opt.Through == 0 || through < opt.Through {
			opt.Through = through
		}
	}
	opt.Moving = w.unshared
	rep, err := w.store.Retain(ctx, opt)
	if errs.CodeOf(err) == "has_forks" { // since it began
		err = nil
	}
	return rep, err
}
