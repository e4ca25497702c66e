package gitstore

import (
	"context"
	"sort"
	"strings"

	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
)

// Task is a task's refs and what its info tag says.
type Task struct {
	ID         string
	Base, Head ID // commits; Head is Base until the first change
	InfoTag    ID
	Info       message.Info
	Changes    uint64 // id of the last change, 0 before the first

	// past are info tags that newer ones superseded and that are not yet visible
	// to stock git.
	past []ID
}

// BaseDropped reports whether the task's own base was dropped: Base is then the
// commit at which the history begins, and its earlier changes are not there.
func (t *Task) BaseDropped() bool { return t.Info.BaseWas != "" }

// keepsHistory reports whether nothing after the task's base may be dropped.
func (t *Task) keepsHistory() bool {
	return t.Info.Pinned || t.Info.Status == "executing" || t.Info.Status == "paused"
}

type taskPut struct {
	info message.Info
	base ID
}

// PutTask records a task: a new one on base (a commit; zero means the tip), or
// a new info of a known one, whose base stays. Durable when it returns.
func (s *Store) PutTask(ctx context.Context, info message.Info, base ID) (Task, error) {
	p := newPending()
	p.task = &taskPut{info: info, base: base}
	if err := s.enqueue(ctx, p); err != nil {
		return Task{}, err
	}
	return p.put, p.err
}

// taskOf gives a private copy of a task's state as of this group.
func (g *group) taskOf(id string) (*Task, error) {
	if id == "" {
		return nil, nil
	}
	if g.cut.drops(id) {
		return nil, ErrDropped()
	}
	t, ok := g.tasks[id]
	if !ok {
		known, ok := g.s.Task(id)
		if !ok {
			return nil, errs.New(errs.NotFound, "task_not_found", "The task does not exist.")
		}
		t = &known
	}
	c := *t
	return &c, nil
}

func (g *group) addTask(p *pending, track func(object.ID, journal.Loc)) (bool, error) {
	info := p.task.info
	t, err := g.taskOf(info.TaskID)
	if errs.Is(err, errs.NotFound) {
		base := p.task.base
		if base.IsZero() {
			base = g.tip.Commit
		} else if err := g.s.withinHistory(base); errs.Is(err, errs.Gone) {
			return false, err
		}
		if base.IsZero() {
			return false, errs.New(errs.Conflict, "no_base", "The workspace has no baseline yet.")
		}
		t = &Task{ID: info.TaskID, Base: base, Head: base}
	} else if err != nil {
		return false, err
	}
	info.BaseWas = t.Info.BaseWas // only a cut sets it
	id, err := g.emitInfo(&info, t.Base, track)
	if err != nil {
		return false, err
	}
	if !t.InfoTag.IsZero() && id != t.InfoTag {
		t.past = append(t.past[:len(t.past):len(t.past)], t.InfoTag)
	}
	t.InfoTag, t.Info = id, info
	g.tasks[t.ID] = t
	p.put = *t
	return true, nil
}

// emitInfo appends a task's info tag.
func (g *group) emitInfo(info *message.Info, base ID, track func(object.ID, journal.Loc)) (ID, error) {
	name, email := message.Committer()
	tag := object.TagData{Object: base, Kind: object.Commit, Name: info.TagName(), Message: message.EncodeInfo(info),
		Tagger: object.Signature{Name: name, Email: email, When: g.when}}
	data, err := tag.Encode()
	if err != nil {
		return ID{}, &errs.Error{Kind: errs.Invalid, Code: "validation_failed", Detail: "The task's record cannot be written.", Err: err}
	}
	return g.emitWhole(object.Tag, data, track), nil
}

// Task gives a task's state as of the last durable commit.
func (s *Store) Task(id string) (Task, bool) {
	s.tasks.mu.RLock()
	defer s.tasks.mu.RUnlock()
	t, ok := s.tasks.byID[id]
	if !ok {
		return Task{}, false
	}
	return *t, true
}

// Tasks gives all tasks that have refs, by id.
func (s *Store) Tasks() []Task {
	s.tasks.mu.RLock()
	defer s.tasks.mu.RUnlock()
	out := make([]Task, 0, len(s.tasks.byID))
	for _, t := range s.tasks.byID {
		out = append(out, *t)
	}
	sort.Slice(out, func(a, b int) bool { return out[a].ID < out[b].ID })
	return out
}

// loadTasks reads the tasks' refs at a start; what the journals hold comes on
// top of it in replay.
func (s *Store) loadTasks(ctx context.Context, values map[string]ID) error {
	for name, id := range values {
		rest, ok := strings.CutPrefix(name, storedir.Tasks)
		if !ok {
			continue
		}
		task, which, ok := strings.Cut(rest, "/")
		if !ok {
			continue
		}
		t := s.tasks.byID[task]
		if t == nil {
			t = &Task{ID: task}
			s.tasks.byID[task] = t
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
	for id, t := range s.tasks.byID {
		if t.Base.IsZero() || t.Head.IsZero() || t.InfoTag.IsZero() {
			s.warn("refs of task %s are not whole", id)
			delete(s.tasks.byID, id)
			continue
		}
		if err := s.fillTask(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// fillTask reads what the refs' objects hold: info and the last change's id.
func (s *Store) fillTask(ctx context.Context, t *Task) error {
	_, data, err := s.readObject(t.InfoTag, object.MaxMeta)
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
	c, err := s.ReadCommit(ctx, t.Head)
	if err != nil {
		return err
	}
	if c.Message.TaskID == t.ID && c.Message.Change > 0 {
		t.Changes = c.Message.Change + uint64(c.Message.EntryCount()) - 1
	}
	return nil
}
