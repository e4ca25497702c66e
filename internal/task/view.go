package task

import (
	"context"
	"encoding/json"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// View is a task as it is told: what its record says and what follows from
// history.
type View struct {
	ID, Goal          string
	WorkspaceID, Root string // Root is empty for a virtual workspace
	Kind              string // "physical" or "virtual"
	Status            Status
	Pinned            bool
	Metadata          json.RawMessage
	Base, Head        object.ID // commits
	GitDir            string    // host path
	Scratch           string    // host path
	Artifacts         string    // host path
	Created, Updated  time.Time // UTC; Updated is the last change's, or the record's
	Changes           uint64    // changelog entries
	Subtasks          []Subtask
	Warnings          []string
}

// Subtask sums up the changes of one subtask.
type Subtask struct {
	ID          string
	Changes     uint64
	First, Last uint64 // change ids
}

// View reads what a task is now.
func (s *Service) View(ctx context.Context, r *Ref) (*View, error) {
	t, ok := r.Store().Task(r.Task.ID)
	if !ok {
		return nil, notFound(r.Task.ID)
	}
	return s.viewOf(ctx, r.Workspace, t)
}

func (s *Service) viewOf(ctx context.Context, w *workspace.Workspace, t gitstore.Task) (*View, error) {
	rec, ok := s.o.Workspaces.Record(w.ID())
	if !ok {
		return nil, notFound(t.ID)
	}
	v := &View{ID: t.ID, Goal: t.Info.Goal, WorkspaceID: rec.ID, Root: rec.Root, Kind: rec.Kind, Status: Status(t.Info.Status),
		Pinned: t.Info.Pinned, Metadata: t.Info.Metadata, Base: t.Base, Head: t.Head, GitDir: w.GitDir(),
		Scratch: s.AreaDir(t.ID, Scratch), Artifacts: s.AreaDir(t.ID, Artifacts), Created: t.Info.Created, Updated: t.Info.Updated,
		Changes: t.Changes, Warnings: w.Warnings()}
	if t.Changes == 0 {
		return v, nil
	}
	recs, err := w.Store().TaskRecords(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	v.Subtasks = subtasks(recs)
	if n := len(recs); n > 0 {
		if last := time.Unix(recs[n-1].WhenUnix, 0).UTC(); last.After(v.Updated) {
			v.Updated = last
		}
	}
	return v, nil
}

// subtasks sums up by subtask, in the order of their first changes.
func subtasks(recs []gitstore.Record) []Subtask {
	var out []Subtask
	at := map[string]int{}
	for _, rec := range recs {
		if rec.Subtask == "" || rec.Entries == 0 {
			continue
		}
		i, ok := at[rec.Subtask]
		if !ok {
			i = len(out)
			at[rec.Subtask] = i
			out = append(out, Subtask{ID: rec.Subtask, First: rec.Change})
		}
		out[i].Changes += uint64(rec.Entries)
		out[i].Last = rec.Change + uint64(rec.Entries) - 1
	}
	return out
}
