package task

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/areas"
	"umbra/internal/policy"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// View is a task as callers see it: its record and what follows from history.
type View struct {
	ID, Goal          string
	WorkspaceID, Root string // Root is empty for a virtual workspace
	Kind              string // "physical" or "virtual"
	Status            Status
	Pinned            bool
	BaseDropped       bool // the part of history that the task began in was dropped
	Metadata          json.RawMessage
	Base, Head        object.ID // commits
	GitDir            string    // host path
	Scratch           string    // host path
	Artifacts         string    // host path
	Created, Updated  time.Time // UTC; Updated is the last change's, or the record's
	Changes           uint64    // changelog entries
	Subtasks          []Subtask
	Warnings          []string
	Only, Allow       []string // its own rules
	Hold              bool     // rejections wait until no call is open
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
		return s.droppedView(r.Workspace, r.Task.ID)
	}
	return s.viewOf(ctx, r.Workspace, t)
}

func (s *Service) viewOf(ctx context.Context, w *workspace.Workspace, t gitstore.Task) (*View, error) {
	rec, ok := s.o.Workspaces.Record(w.ID())
	if !ok {
		return nil, notFound(t.ID)
	}
	v := s.viewBase(w, rec, t)
	sum, err := s.sums.of(ctx, w, t)
	if err != nil {
		return nil, err
	}
	v.Subtasks = sum.subtasks
	if sum.last.After(v.Updated) {
		v.Updated = sum.last
	}
	return v, nil
}

// viewBase is the part of the view that follows from the record alone.
func (s *Service) viewBase(w *workspace.Workspace, rec workspaces.Record, t gitstore.Task) *View {
	only, allow := policy.TaskOf(t.Info.Extra).Texts()
	return &View{Only: only, Allow: allow, Hold: message.Holds(t.Info.Extra), ID: t.ID, Goal: t.Info.Goal, WorkspaceID: rec.ID, Root: rec.Root, Kind: rec.Kind, Status: Status(t.Info.Status),
		Pinned: t.Info.Pinned, BaseDropped: t.BaseDropped(), Metadata: t.Info.Metadata, Base: t.Base, Head: t.Head, GitDir: w.GitDir(),
		Scratch: s.AreaDir(t.ID, areas.Scratch), Artifacts: s.AreaDir(t.ID, areas.Artifacts), Created: t.Info.Created, Updated: t.Info.Updated,
		Changes: t.Changes, Warnings: w.Warnings()}
}

// sum is what a view reports of a task's changes.
type sum struct {
	changes  uint64 // up to which change it goes
	begin    uint64 // number of the commit at which the history began
	subtasks []Subtask
	last     time.Time // of the last change
}

// sumCache keeps the sums of tasks that were asked for: a list of tasks that
// do not change reads no history.
type sumCache struct {
	mu     sync.Mutex
	byTask map[string]sum // by workspace and task: an id may come again on another
}

// maxSums bounds the cache; beyond it any one goes.
const maxSums = 1024

func (c *sumCache) of(ctx context.Context, w *workspace.Workspace, t gitstore.Task) (sum, error) {
	if t.Changes == 0 {
		return sum{}, nil
	}
	key := w.ID() + "/" + t.ID
	c.mu.Lock()
	known, ok := c.byTask[key]
	c.mu.Unlock()
	begin := w.Store().Boundary().Seq
	if ok && known.changes == t.Changes && known.begin == begin {
		return known, nil
	}
	recs, err := w.Store().TaskRecords(ctx, t.ID)
	if err != nil {
		return sum{}, err
	}
	// What was committed since t was read stays out: a view is of one moment.
	for len(recs) > 0 && recs[len(recs)-1].Change > t.Changes {
		recs = recs[:len(recs)-1]
	}
	made := sum{changes: t.Changes, begin: begin, subtasks: subtasks(recs)}
	if n := len(recs); n > 0 {
		made.last = time.Unix(recs[n-1].WhenUnix, 0).UTC()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byTask == nil {
		c.byTask = make(map[string]sum)
	}
	for id := range c.byTask {
		if len(c.byTask) < maxSums {
			break
		}
		delete(c.byTask, id)
	}
	c.byTask[key] = made
	return made, nil
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
