package task

import (
	"context"
	"sort"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Filter says which changelog entries are wanted; the zero value selects all.
type Filter struct {
	Subtask string
	// Path selects entries of this path, by its old or new name, and of all
	// under it. Empty or the root selects all.
	Path wspath.Path
	Task string // for a workspace's log
	// Source selects the entries of commits of one source; empty: of all.
	Source message.Source
}

// Wants reports whether an entry matches the filter.
func (f *Filter) Wants(e *workspace.ChangeEntry) bool {
	if f.Subtask != "" && e.SubtaskID != f.Subtask || f.Task != "" && e.TaskID != f.Task {
		return false
	}
	if f.Path == "" || f.Path.IsRoot() {
		return true
	}
	return named(e.Path, f.Path) || named(e.NewPath, f.Path)
}

func named(entry string, p wspath.Path) bool {
	return wspath.Path(strings.TrimSuffix(entry, "/")).Within(p)
}

func (f *Filter) record(r *gitstore.Record) bool {
	return (f.Subtask == "" || r.Subtask == f.Subtask) && (f.Task == "" || r.Task == f.Task) && (f.Source == "" || r.Source == f.Source)
}

// Changes gives up to limit entries of a task's changelog with ids after one,
// oldest first, and the id to go on after, 0 if there are no more.
//
// It begins after the boundary; Gone "history_dropped" for a task that lies
// wholly before it.
func (s *Service) Changes(ctx context.Context, r *Ref, f Filter, after uint64, limit int) (entries []workspace.ChangeEntry, next uint64, err error) {
	if err := r.InHistory(); err != nil {
		return nil, 0, err
	}
	recs, err := r.Store().TaskRecords(ctx, r.Task.ID)
	if err != nil {
		return nil, 0, err
	}
	first := sort.Search(len(recs), func(i int) bool { return recs[i].Change+uint64(recs[i].Entries) > after+1 })
	for i := first; i < len(recs); i++ {
		if !f.record(&recs[i]) {
			continue
		}
		of, err := r.Workspace.EntriesAt(ctx, recs[i].Commit)
		if err != nil {
			return nil, 0, err
		}
		for j := range of {
			if of[j].ID <= after || !f.Wants(&of[j]) {
				continue
			}
			if len(entries) == limit {
				return entries, entries[limit-1].ID, nil
			}
			entries = append(entries, of[j])
		}
	}
	return entries, 0, nil
}

// Change gives one entry of a task's changelog. NotFound "change_not_found", Gone
// "history_dropped".
func (s *Service) Change(ctx context.Context, r *Ref, id uint64) (workspace.ChangeEntry, error) {
	missing := errs.New(errs.NotFound, "change_not_found", "The task has no change %d.", id)
	if id == 0 {
		return workspace.ChangeEntry{}, missing
	}
	rec, ok, err := recordOfChange(ctx, r, id)
	if err != nil {
		return workspace.ChangeEntry{}, err
	}
	if !ok {
		return workspace.ChangeEntry{}, missing
	}
	of, err := r.Workspace.EntriesAt(ctx, rec.Commit)
	if err != nil {
		return workspace.ChangeEntry{}, err
	}
	for i := range of {
		if of[i].ID == id {
			return of[i], nil
		}
	}
	return workspace.ChangeEntry{}, missing
}

func recordOfChange(ctx context.Context, r *Ref, id uint64) (gitstore.Record, bool, error) {
	if err := r.InHistory(); err != nil {
		return gitstore.Record{}, false, err
	}
	recs, err := r.Store().TaskRecords(ctx, r.Task.ID)
	if err != nil {
		return gitstore.Record{}, false, err
	}
	// Ids are given without gaps, so one before the first that is left was.
	if t, ok := r.Store().Task(r.Task.ID); ok && t.BaseDropped() && id <= t.Changes && id > 0 && (len(recs) == 0 || id < firstChange(recs)) {
		return gitstore.Record{}, false, gitstore.ErrDropped()
	}
	i := sort.Search(len(recs), func(i int) bool { return recs[i].Change+uint64(recs[i].Entries) > id })
	if i == len(recs) || recs[i].Change > id {
		return gitstore.Record{}, false, nil
	}
	return recs[i], true, nil
}

// firstChange gives the id of the first change that records count.
func firstChange(recs []gitstore.Record) uint64 {
	for i := range recs {
		if recs[i].Change > 0 {
			return recs[i].Change
		}
	}
	return 0
}

// Log gives up to limit entries of a workspace's history, newest first, that
// come before a place in it, and the place to go on at. A zero place is the
// newest end, or, as what to go on at, the other one.
func (s *Service) Log(ctx context.Context, w *workspace.Workspace, f Filter, place Place, limit int) (entries []workspace.ChangeEntry, next Place, err error) {
	tip := w.Store().Tip().Seq
	if place.Seq == 0 || place.Seq > tip {
		place = Place{Seq: tip, Entry: -1}
	}
	const chunk = 512
	// It ends where the history begins: what that commit changed is not known.
	begin := uint64(1)
	if b := w.Store().Boundary(); !b.Whole() {
		begin = b.Seq + 1
	}
	for to := place.Seq; to >= begin; {
		from := begin
		if to-begin >= chunk {
			from = to - chunk + 1
		}
		var recs []gitstore.Record
		err := w.Store().Records(ctx, from, to, func(r gitstore.Record) error {
			if r.Entries > 0 && f.record(&r) {
				recs = append(recs, r)
			}
			return nil
		})
		if err != nil {
			return nil, Place{}, err
		}
		for i := len(recs) - 1; i >= 0; i-- {
			of, err := w.EntriesAt(ctx, recs[i].Commit)
			if err != nil {
				return nil, Place{}, err
			}
			j := len(of)
			if recs[i].Seq == place.Seq && place.Entry >= 0 {
				j = min(j, place.Entry)
			}
			for j--; j >= 0; j-- {
				if !f.Wants(&of[j]) {
					continue
				}
				if len(entries) == limit {
					return entries, Place{Seq: recs[i].Seq, Entry: j + 1}, nil
				}
				entries = append(entries, of[j])
			}
		}
		to = from - 1
	}
	return entries, Place{}, nil
}

// Place is a place in a workspace's log: before the Entry-th entry (counted
// from 0) of commit Seq, or, with Entry -1, after all of it.
type Place struct {
	Seq   uint64
	Entry int
}
