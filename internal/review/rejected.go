package review

import (
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/history"
	"umbra/internal/revert"
	"umbra/internal/workspace"
)

// RejectedOf gives the hunks that were rejected of a task and not brought
// back since, the oldest first, by the ids that they had then.
func RejectedOf(ctx context.Context, w *workspace.Workspace, task string) ([]Hunk, error) {
	back, err := broughtBack(ctx, w)
	if err != nil {
		return nil, err
	}
	var out []Hunk
	var entries []*history.Entry
	err = eachReview(ctx, w, task, 0, func(c *gitstore.Commit) error {
		ids := c.Message.Trailers(message.KeyRejects)
		if len(ids) == 0 || back[c.ID] {
			return nil
		}
		hunks, err := hunksOf(ctx, w, c, func(p string) string { return p })
		if err != nil {
			return err
		}
		if slices.ContainsFunc(hunks, func(h Hunk) bool { return idAmong(&h, ids, nil) == "" }) {
			// The task had renamed a file.
			if entries == nil {
				mine := func(r *gitstore.Record) bool { return r.Task == task }
				if _, entries, err = history.NewPicker(w, history.Picks{Record: mine}).Task(ctx); err != nil {
					return err
				}
			}
			if hunks, err = hunksOf(ctx, w, c, func(p string) string { return firstPath(entries, p, c.Seq) }); err != nil {
				return err
			}
		}
		for i := range hunks {
			h := &hunks[i]
			if id := idAmong(h, ids, out); id != "" {
				h.ID = id
			}
			h.Status = Rejected
			out = append(out, *h)
		}
		return nil
	})
	return out, err
}

// hunksOf cuts what a commit took back. The ids of its hunks name their files as first
// does.
func hunksOf(ctx context.Context, w *workspace.Workspace, c *gitstore.Commit, first func(path string) string) ([]Hunk, error) {
	of, err := w.EntriesAt(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	cut := &cutter{ctx: ctx, w: w, seen: make(map[string]int)}
	for i := range of {
		e := &of[i]
		n := revert.Net{Now: history.State{Path: e.Path, Mode: e.BeforeMode, ID: e.Before}, Without: history.State{Path: e.Path, Mode: e.Mode, ID: e.After}}
		if e.NewPath != "" {
			n.Without.Path = e.NewPath
		}
		n.Entries = []*history.Entry{{ChangeEntry: &workspace.ChangeEntry{Path: first(pathOf(&n))}}}
		if err := cut.file(&n); err != nil {
			return nil, err
		}
	}
	return cut.hunks, nil
}

// idAmong returns the id of ids by which a hunk was rejected, and which none of others
// has: that of its lines, or one that it had next to others with the same lines. Empty:
// there is none.
func idAmong(h *Hunk, ids []string, others []Hunk) string {
	for _, id := range ids {
		if (id == h.content || strings.HasPrefix(id, h.content+"-")) && !slices.ContainsFunc(others, func(x Hunk) bool { return x.ID == id }) {
			return id
		}
	}
	return ""
}

// firstPath gives the path at which a task's work on a file began that is at p before a
// commit's number.
func firstPath(entries []*history.Entry, p string, before uint64) string {
	for _, e := range slices.Backward(entries) {
		if e.Seq < before && e.NewPath == p {
			p = e.Path
		}
	}
	return p
}
