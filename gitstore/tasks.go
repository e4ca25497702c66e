package gitstore

import (
	"context"

	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
)

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
		t.Past = append(t.Past[:len(t.Past):len(t.Past)], t.InfoTag)
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
