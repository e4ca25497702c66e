package history

import (
	"context"
	"sync"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// Entry is one changelog entry of a task.
type Entry struct {
	workspace.ChangeEntry
	// Undone: an entry in effect takes it back.
	Undone bool
}

// IsRevert reports whether the entry undoes others.
func (e *Entry) IsRevert() bool { return e.Source == message.Revert || len(e.Reverts) > 0 }

// Counts reports whether the entry is part of what the task's work comes to:
// in effect, and neither a revert nor a rollback.
func (e *Entry) Counts() bool { return !e.Undone && !e.IsRevert() && e.Source != message.Rollback }

// Task is a task's entries, oldest first, as of a sequence number.
type Task struct {
	ID      string
	Base    object.ID
	Through uint64 // the workspace's tip when it was read
	Entries []Entry
}

// Work gives the entries that count, oldest first.
func (t *Task) Work() []*Entry {
	var out []*Entry
	for i := range t.Entries {
		if t.Entries[i].Counts() {
			out = append(out, &t.Entries[i])
		}
	}
	return out
}

// Find gives the entry with an id, nil if there is none.
func (t *Task) Find(id uint64) *Entry {
	// Ids count from 1 without gaps, so the place is known; looking is for a
	// history whose beginning was dropped.
	if i := int(id) - 1; i >= 0 && i < len(t.Entries) && t.Entries[i].ID == id {
		return &t.Entries[i]
	}
	for i := range t.Entries {
		if t.Entries[i].ID == id {
			return &t.Entries[i]
		}
	}
	return nil
}

// maxCached is how many tasks a cache keeps read.
const maxCached = 32

// Cache keeps tasks read, so that only what came since is read again. All of
// it can be read anew from history at any time. Safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	tasks map[key]*cached
	clock uint64
}

type key struct{ workspace, task string }

type cached struct {
	mu   sync.Mutex
	raw  []workspace.ChangeEntry
	bare map[object.ID][]message.EntryRef // undone entries that a commit names beside its own, by commit
	recs int                              // records of the task that raw covers
	task *Task
	sum  *Summary // of task
	used uint64
}

// NewCache makes an empty cache.
func NewCache() *Cache { return &Cache{tasks: make(map[key]*cached)} }

func (c *Cache) slot(k key) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	s := c.tasks[k]
	if s == nil {
		if len(c.tasks) >= maxCached {
			var oldest key
			for o, t := range c.tasks {
				if c.tasks[oldest] == nil || t.used < c.tasks[oldest].used {
					oldest = o
				}
			}
			delete(c.tasks, oldest)
		}
		s = &cached{}
		c.tasks[k] = s
	}
	s.used = c.clock
	return s
}

// Task reads a task's entries. The result is shared: it must not be changed.
func (c *Cache) Task(ctx context.Context, w *workspace.Workspace, id string) (*Task, error) {
	s := c.slot(key{w.ID(), id})
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read(ctx, w, id)
}

// read brings the slot up to date; mu is held.
func (s *cached) read(ctx context.Context, w *workspace.Workspace, id string) (*Task, error) {
	st := w.Store()
	through := st.Tip().Seq
	if s.task != nil && s.task.Through == through {
		return s.task, nil
	}
	recs, err := st.TaskRecords(ctx, id)
	if err != nil {
		return nil, err
	}
	back, err := st.TakeBacks(ctx)
	if err != nil {
		return nil, err
	}
	if len(recs) < s.recs {
		s.raw, s.recs = nil, 0
	}
	for _, r := range recs[s.recs:] {
		c, err := st.ReadCommit(ctx, r.Commit)
		if err != nil {
			return nil, err
		}
		of, err := w.EntriesOf(ctx, c)
		if err != nil {
			return nil, err
		}
		s.raw = append(s.raw, of...)
		if len(c.Message.RevertsEntries) > 0 {
			if s.bare == nil {
				s.bare = make(map[object.ID][]message.EntryRef)
			}
			s.bare[c.ID] = c.Message.RevertsEntries
		}
		s.recs++
	}
	taken, err := takenBack(ctx, st, back, id)
	if err != nil {
		return nil, err
	}
	t, _ := st.Task(id)
	task := &Task{ID: id, Base: t.Base, Through: through, Entries: make([]Entry, len(s.raw))}
	for i := range s.raw {
		task.Entries[i].ChangeEntry = s.raw[i]
	}
	markUndone(task.Entries, id, s.bare, taken)
	s.task, s.sum = task, nil
	return task, nil
}

// takenBack gives the task's entries that commits of no task took back: a
// person's save came in between, and the change was made once more after it.
func takenBack(ctx context.Context, st *gitstore.Store, recs []gitstore.Record, task string) (map[uint64]bool, error) {
	out := make(map[uint64]bool)
	for _, r := range recs {
		c, err := st.ReadCommit(ctx, r.Commit)
		if err != nil {
			return nil, err
		}
		note := func(refs []message.EntryRef) {
			for _, ref := range refs {
				if ref.Task == task {
					out[ref.ID] = true
				}
			}
		}
		note(c.Message.RevertsEntries)
		for i := range c.Message.Entries {
			note(c.Message.Entries[i].Reverts)
		}
	}
	return out, nil
}

// markUndone decides for every entry whether it is in effect, newest first: an
// entry can only be undone by a later one. What a commit names beside its own
// entries (files of which nothing was left to undo) holds as long as any of
// these is in effect.
func markUndone(entries []Entry, task string, bare map[object.ID][]message.EntryRef, undone map[uint64]bool) {
	note := func(refs []message.EntryRef) {
		for _, ref := range refs {
			if ref.Task == task {
				undone[ref.ID] = true
			}
		}
	}
	for i := len(entries) - 1; i >= 0; i-- {
		e := &entries[i]
		if undone[e.ID] {
			e.Undone = true
			continue
		}
		note(e.Reverts)
		note(bare[e.Commit])
	}
}
