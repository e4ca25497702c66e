package revert

import (
	"context"

	"umbra/internal/history"
	"umbra/internal/workspace"
)

// Net is what a task's work makes of one file now: the file as it is, and as it
// would be without the task.
type Net struct {
	Now     history.State // Mode 0: there is no file
	Without history.State // the same
	// Data is the content without the task where that is no version of history: it
	// was merged with what others did since.
	Data    []byte
	Merged  bool
	Entries []*history.Entry // of the task, oldest first
	// Conflict is set where others changed the same places since, so that the
	// task's part cannot be separated from theirs; Without is then what the task found.
	Conflict *Conflict
}

// NetOf returns what a task's work makes of the files, or of those below a path,
// given what others did since. Changes that may be another's work, which a revert
// leaves by default, count as others'. Files that are as they would be without the task
// are left out. Under a workspace.Hold (held) the workspace is not scanned, and an error
// may be *workspace.NotHeld, possibly wrapped.
func NetOf(ctx context.Context, w *workspace.Workspace, cache *history.Cache, task, path string, held bool) ([]Net, error) {
	req := &Request{Task: task, Scope: Scope{Path: path}, OnConflict: Skip}
	p, err := settle(ctx, w, cache, newLoader(w, cache, req), req, true, held)
	if err != nil {
		return nil, err
	}
	var out []Net
	for _, t := range p.targets {
		n := Net{Now: t.now, Without: t.want, Data: t.data, Merged: t.merged, Entries: t.entries, Conflict: t.conflict}
		if n.Conflict != nil {
			n.Without = t.chain.First()
		}
		if len(n.Entries) > 0 && (n.Conflict != nil || n.Now.Path != n.Without.Path || !n.Now.Same(n.Without)) && (n.Now.Exists() || n.Without.Exists()) {
			out = append(out, n)
		}
	}
	return out, nil
}
