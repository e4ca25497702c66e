package history

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// Entry is one changelog entry of a task: what its commit says, which several may
// share and none may change, and what became of it since.
type Entry struct {
	*workspace.ChangeEntry
	// Undone: an entry in effect takes it back.
	Undone bool
	// TakenBack: it never came to anything. The disk refused it and it was
	// rolled back, or a user's save came first and it was made once more.
	TakenBack bool
	// Elsewhere: an entry of another task, or of none, undid it.
	Elsewhere bool
	// Ref is the entry's name in history.
	Ref message.EntryRef

	// subtasks are the task's subtasks that may have made a shared change; the first
	// of them is SubtaskID.
	subtasks []string

	n      uint32 // its place in its commit, from 0; set by a Picker
	undoes bool   // it undoes entries that are not among the task's
}

// Of reports whether a subtask made the change, or may have made it.
func (e *Entry) Of(subtask string) bool {
	return e.SubtaskID == subtask || slices.Contains(e.subtasks, subtask)
}

// IsRevert reports whether the entry undoes others.
func (e *Entry) IsRevert() bool { return e.Source == message.Revert || len(e.Reverts) > 0 || e.undoes }

// Counts reports whether the entry is part of what the task's work comes to:
// in effect, and neither a revert nor a rollback. That a reviewer took some of it
// back is part of it.
func (e *Entry) Counts() bool {
	return !e.Undone && (!e.IsRevert() || e.Rejects) && e.Source != message.Rollback
}

// Shared reports whether several tasks may have made the change, this one among
// them.
func (e *Entry) Shared() bool { return e.Source == message.Shared }

// at is the number of the commit in which the change was recorded.
func (e *Entry) at() uint64 {
	if e.ClaimsSeq != 0 {
		return e.ClaimsSeq
	}
	return e.Seq
}

// Task is a task's entries as of a sequence number: its own, oldest first, then
// those of shared changes that it may have made.
type Task struct {
	ID      string
	Base    object.ID
	Through uint64 // the workspace's tip when it was read
	Entries []Entry
	// Dropped is the id of the newest change that was dropped with its part of
	// the history; BaseDropped says that the task's base was, which may be
	// without any of its changes.
	Dropped     uint64
	BaseDropped bool
	// Rewrites is the store's count of purges: under another one ids and bytes
	// here may be no more.
	Rewrites uint64

	marked []*Entry                         // the entries, and those of others that undo some, in order
	bare   map[object.ID][]message.EntryRef // undone entries that a commit names for itself
	gone   map[message.EntryRef]bool
}

// UndoneAt returns which entries were undone as of a commit's number, if those that off
// names had never been made.
func (t *Task) UndoneAt(seq uint64, off func(*Entry) bool) map[message.EntryRef]bool {
	entries := make([]*Entry, 0, len(t.marked))
	for _, e := range t.marked {
		if e.at() <= seq && !off(e) {
			then := *e
			entries = append(entries, &then)
		}
	}
	mark(entries, t.ID, func(c object.ID) []message.EntryRef { return t.bare[c] }, t.gone)
	out := make(map[message.EntryRef]bool)
	for _, e := range entries {
		if e.Undone {
			out[e.Ref] = true
		}
	}
	return out
}

// Work gives the entries that count, oldest first.
func (t *Task) Work() []*Entry {
	out := make([]*Entry, 0, len(t.Entries))
	for i := range t.Entries {
		if t.Entries[i].Counts() {
			out = append(out, &t.Entries[i])
		}
	}
	return inOrder(out)
}

// inOrder sorts entries by when their changes were made: shared ones are after
// the others, and those that became the task's later after later ones.
func inOrder(list []*Entry) []*Entry {
	if slices.ContainsFunc(list, func(e *Entry) bool { return e.Shared() || e.ClaimsSeq != 0 }) {
		slices.SortStableFunc(list, func(a, b *Entry) int { return cmp.Compare(a.at(), b.at()) })
	}
	return list
}

// Every gives all that the task did, oldest first, its own reverts too, without
// what never came to anything, or was undone by another task.
func (t *Task) Every() []*Entry {
	out := make([]*Entry, 0, len(t.Entries))
	for i := range t.Entries {
		if e := &t.Entries[i]; e.Source != message.Rollback && !e.TakenBack && !(e.Undone && e.Elsewhere) {
			out = append(out, e)
		}
	}
	return inOrder(out)
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
// it can be read again from history at any time. Safe for concurrent use.
type Cache struct {
	mu    sync.Mutex
	tasks map[key]*cached
	kept  map[key]covered // commits of long tasks that are kept
	clock uint64
}

type key struct{ workspace, task string }

type cached struct {
	mu          sync.Mutex
	raw         []workspace.ChangeEntry
	shared      shared                           // changes that others may have made too
	bare        map[object.ID][]message.EntryRef // undone entries that a commit names in addition to its own, by commit
	recs        int                              // records of the task that raw covers
	lastID      object.ID                        // of the last of these
	kept        covered                          // in a file
	counts      map[pair]lines                   // of files in the last summary
	counted     int                              // recs when that was made
	from        uint64                           // number of the commit at which the history began
	rewrites    uint64                           // of the history, when raw was read
	encoded     []byte                           // the summary as it is answered
	encodedAs   moment
	encodedKept bool // in a file
	task        *Task
	sum         *Summary // of task
	used        uint64
}

// NewCache makes an empty cache.
func NewCache() *Cache {
	return &Cache{tasks: make(map[key]*cached), kept: make(map[key]covered)}
}

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
	rewrites, through, from := st.Rewrites(), st.Tip().Seq, st.Boundary().Seq
	if from != s.from || rewrites != s.rewrites {
		s.forget()
		s.task, s.from, s.rewrites = nil, from, rewrites
	}
	if s.task != nil && s.task.Through == through {
		return s.task, nil
	}
	if s.recs == 0 {
		s.load(ctx, w, id)
	}
	recs, all, err := st.TaskRecordsFrom(ctx, id, s.recs)
	if err == nil && all < s.recs {
		s.forget()
		recs, _, err = st.TaskRecordsFrom(ctx, id, 0)
	}
	if err != nil {
		return nil, err
	}
	if err := readCommits(ctx, w, recs, s.add); err != nil {
		return nil, err
	}
	t, ok := st.Task(id)
	if !ok && from > 0 {
		return nil, gitstore.ErrDropped()
	}
	task := &Task{ID: id, Base: t.Base, Through: through, Rewrites: rewrites, Entries: make([]Entry, len(s.raw)), BaseDropped: t.BaseDropped()}
	if task.BaseDropped {
		if task.Dropped = t.Changes; len(s.raw) > 0 {
			task.Dropped = s.raw[0].ID - 1
		}
	}
	for i := range s.raw {
		task.Entries[i].ChangeEntry = &s.raw[i]
		task.Entries[i].Ref = message.EntryRef{Task: id, ID: s.raw[i].ID}
	}
	others, err := readUndoing(ctx, w, id, task.Entries)
	if err != nil {
		return nil, err
	}
	if err := s.shared.read(ctx, w, id); err != nil {
		return nil, err
	}
	task.Entries = append(task.Entries, s.shared.entries()...)
	rolled := maps.Clone(others.gone)
	if rolled == nil {
		rolled = make(map[message.EntryRef]bool)
	}
	entries := others.entries
	for i := range task.Entries {
		e := &task.Entries[i]
		entries = append(entries, e)
		if e.Source == message.Rollback {
			for _, r := range slices.Concat(e.Reverts, s.bare[e.Commit]) {
				rolled[r] = true
			}
		}
	}
	if len(others.entries) > 0 || len(task.Entries) > len(s.raw) {
		slices.SortStableFunc(entries, order)
	}
	for i := range task.Entries {
		task.Entries[i].TakenBack = rolled[task.Entries[i].Ref]
	}
	task.marked, task.gone = entries, others.gone
	task.bare = maps.Clone(s.bare) // that grows when the next commits are read
	if task.bare == nil {
		task.bare = others.bare
	} else {
		maps.Copy(task.bare, others.bare)
	}
	mark(entries, id, func(c object.ID) []message.EntryRef { return task.bare[c] }, others.gone)
	s.task, s.sum = task, nil
	return task, nil
}

// add takes in the next commit of the task; mu is held.
func (s *cached) add(c *gitstore.Commit, of []workspace.ChangeEntry) {
	if bare := c.Message.RevertsEntries; len(bare) > 0 {
		if s.bare == nil {
			s.bare = make(map[object.ID][]message.EntryRef)
		}
		if c.Message.Condensed {
			bare = match(of, bare, func(r message.EntryRef) *Entry {
				if i := s.place(r.ID); r.Task == c.Message.TaskID && i >= 0 {
					return &Entry{ChangeEntry: &s.raw[i], Ref: r}
				}
				return nil
			})
		}
		s.bare[c.ID] = bare
	}
	s.raw = append(s.raw, of...)
	s.recs++
	s.lastID = c.ID
}

// forget drops what was read.
func (s *cached) forget() {
	s.raw, s.bare, s.recs, s.lastID, s.counts, s.counted, s.kept = nil, nil, 0, object.Zero, nil, 0, covered{}
	s.shared = shared{}
}

// place gives where the entry with an id is, -1 where there is none: ids
// count without gaps, from the first that the history has.
func (s *cached) place(id uint64) int {
	if len(s.raw) == 0 || id < s.raw[0].ID {
		return -1
	}
	if i := int(id - s.raw[0].ID); i < len(s.raw) && s.raw[i].ID == id {
		return i
	}
	return -1
}
