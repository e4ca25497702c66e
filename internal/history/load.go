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

// Entry is one changelog entry of a task.
type Entry struct {
	workspace.ChangeEntry
	// Undone: an entry in effect takes it back.
	Undone bool
	// TakenBack: it never came to anything. The disk refused it and it was
	// rolled back, or a person's save came first and it was made once more.
	TakenBack bool
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
	// Dropped is the id of the newest change that was dropped with its part of
	// the history; BaseDropped says that the task's base was, which may be
	// without any of its changes.
	Dropped     uint64
	BaseDropped bool
	// Rewrites is the store's count of purges: under another one ids and bytes
	// here may be no more.
	Rewrites uint64
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

// Every gives all that the task did, oldest first, its own reverts too, without
// what never came to anything.
func (t *Task) Every() []*Entry {
	var out []*Entry
	for i := range t.Entries {
		if e := &t.Entries[i]; e.Source != message.Rollback && !e.TakenBack {
			out = append(out, e)
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
	kept  map[key]covered // commits of long tasks that are kept
	clock uint64
}

type key struct{ workspace, task string }

type cached struct {
	mu       sync.Mutex
	raw      []workspace.ChangeEntry
	bare     map[object.ID][]message.EntryRef // undone entries that a commit names beside its own, by commit
	recs     int                              // records of the task that raw covers
	lastID   object.ID                        // of the last of these
	kept     covered                          // in a file
	counts   map[pair]lines                   // of files in the last summary
	counted  int                              // recs when that was made
	from     uint64                           // number of the commit at which the history began
	rewrites uint64                           // of the history, when raw was read
	told     []byte                           // the summary as it is answered
	toldAs   moment
	toldKept bool // in a file
	task     *Task
	sum      *Summary // of task
	used     uint64
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
	back, err := st.TakeBacks(ctx)
	if err != nil {
		return nil, err
	}
	if err := readCommits(ctx, w, recs, s.add); err != nil {
		return nil, err
	}
	taken, err := takenBack(ctx, st, back, id)
	if err != nil {
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
		task.Entries[i].ChangeEntry = s.raw[i]
	}
	rolled := maps.Clone(taken)
	for i := range task.Entries {
		if e := &task.Entries[i]; e.Source == message.Rollback {
			for _, r := range slices.Concat(e.Reverts, s.bare[e.Commit]) {
				rolled[r.ID] = true
			}
		}
	}
	for i := range task.Entries {
		task.Entries[i].TakenBack = rolled[task.Entries[i].ID]
	}
	markUndone(task.Entries, id, s.bare, taken)
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
			bare = s.match(of, bare, c.Message.TaskID)
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
}

// match finds out which of the undone entries that a condensed commit names
// belongs to which of its own, by the files that they are about, and gives those
// that belong to none.
func (s *cached) match(of []workspace.ChangeEntry, refs []message.EntryRef, task string) (bare []message.EntryRef) {
	byPath := make(map[string]*workspace.ChangeEntry, len(of))
	for i := range of {
		if e := &of[i]; len(e.Reverts) == 0 {
			byPath[e.Path] = e
		}
	}
	var undone []*Entry
	for _, r := range refs {
		if i := s.place(r.ID); r.Task == task && i >= 0 {
			undone = append(undone, &Entry{ChangeEntry: s.raw[i]})
		} else {
			bare = append(bare, r)
		}
	}
	slices.SortFunc(undone, func(a, b *Entry) int { return cmp.Compare(a.ID, b.ID) })
	chains, folders := Chains(undone)
	give := func(entries []*Entry, names ...string) {
		for _, name := range names {
			if e := byPath[name]; e != nil {
				for _, u := range entries {
					e.Reverts = append(e.Reverts, message.EntryRef{Task: task, ID: u.ID})
				}
				return
			}
		}
		for _, u := range entries {
			bare = append(bare, message.EntryRef{Task: task, ID: u.ID})
		}
	}
	for _, c := range chains {
		give(c.Entries(), c.Last().Path, c.First().Path)
	}
	for _, e := range folders {
		give([]*Entry{e}, e.Path)
	}
	return bare
}

// place gives where the entry with an id stands, -1 where there is none: ids
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
//
// It counts. When a revert comes into effect again, because what had undone it
// was undone, its entry may have been undone once more meanwhile: then that was
// taken out of the files twice, and has to come back twice.
func markUndone(entries []Entry, task string, bare map[object.ID][]message.EntryRef, gone map[uint64]bool) {
	taken := make(map[uint64]int) // out of the files, by entries that are in them so often
	said := make(map[uint64]bool) // by this commit
	note := func(refs []message.EntryRef, times int) {
		for _, ref := range refs {
			if ref.Task == task && times != 0 && !said[ref.ID] {
				said[ref.ID] = true
				taken[ref.ID] += times
			}
		}
	}
	for end := len(entries); end > 0; {
		begin := end - 1
		for begin > 0 && entries[begin-1].Commit == entries[begin].Commit {
			begin--
		}
		clear(said)
		holds := false
		for i := begin; i < end; i++ {
			e, times := &entries[i], 0
			if !gone[entries[i].ID] {
				times = 1 - taken[e.ID]
			}
			e.Undone = times <= 0
			holds = holds || times > 0
			note(e.Reverts, times)
		}
		if holds {
			note(bare[entries[begin].Commit], 1)
		}
		end = begin
	}
}
