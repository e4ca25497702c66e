package repo

import (
	"context"
	"sort"
	"strings"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
)

// Task is a task's refs and what its info tag says.
type Task struct {
	ID         string
	Base, Head object.ID // commits; Head is Base until the first change
	InfoTag    object.ID
	Info       message.Info
	Changes    uint64 // id of the last change, 0 before the first

	// Past are info tags that newer ones superseded and that are not yet visible
	// to stock git.
	Past []object.ID
}

// BaseDropped reports whether the task's own base was dropped: Base is then the
// commit at which the history begins, and its earlier changes are not there.
func (t *Task) BaseDropped() bool { return t.Info.BaseWas != "" }

// KeepsHistory reports whether nothing after the task's base may be dropped.
func (t *Task) KeepsHistory() bool {
	return t.Info.Pinned || t.Info.Status == "executing" || t.Info.Status == "paused"
}

// Task gives a task's state as of the last durable commit.
func (h History) Task(id string) (Task, bool) {
	h.r.TaskMap.Mu.RLock()
	defer h.r.TaskMap.Mu.RUnlock()
	t, ok := h.r.TaskMap.ByID[id]
	if !ok {
		return Task{}, false
	}
	return *t, true
}

// Tasks gives all tasks that have refs, by id.
func (h History) Tasks() []Task {
	h.r.TaskMap.Mu.RLock()
	defer h.r.TaskMap.Mu.RUnlock()
	out := make([]Task, 0, len(h.r.TaskMap.ByID))
	for _, t := range h.r.TaskMap.ByID {
		out = append(out, *t)
	}
	sort.Slice(out, func(a, b int) bool { return out[a].ID < out[b].ID })
	return out
}

// LoadTasks reads the tasks' refs at a start; what the journals hold comes on
// top of it in replay.
func (r *Repo) LoadTasks(ctx context.Context, values map[string]object.ID) error {
	for name, id := range values {
		rest, ok := strings.CutPrefix(name, storedir.Tasks)
		if !ok {
			continue
		}
		task, which, ok := strings.Cut(rest, "/")
		if !ok {
			continue
		}
		t := r.TaskMap.ByID[task]
		if t == nil {
			t = &Task{ID: task}
			r.TaskMap.ByID[task] = t
		}
		switch which {
		case "base":
			t.Base = id
		case "head":
			t.Head = id
		case "info":
			t.InfoTag = id
		}
	}
	for id, t := range r.TaskMap.ByID {
		if t.Base.IsZero() || t.Head.IsZero() || t.InfoTag.IsZero() {
			r.Warn("refs of task %s are not whole", id)
			delete(r.TaskMap.ByID, id)
			continue
		}
		if err := r.fillTask(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// fillTask reads what the refs' objects hold: info and the last change's id.
func (r *Repo) fillTask(ctx context.Context, t *Task) error {
	_, data, err := r.ReadObject(t.InfoTag, object.MaxMeta)
	if err != nil {
		return err
	}
	tag, err := object.ParseTag(data)
	if err != nil {
		return err
	}
	info, err := message.ParseInfo(tag.Message)
	if err != nil {
		return err
	}
	t.Info = *info
	if t.Head == t.Base {
		return nil
	}
	c, err := r.ReadCommit(ctx, t.Head)
	if err != nil {
		return err
	}
	if c.Message.TaskID == t.ID && c.Message.Change > 0 {
		t.Changes = c.Message.Change + uint64(c.Message.EntryCount()) - 1
	}
	return nil
}
