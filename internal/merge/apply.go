package merge

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// kept are the trailers of a call that go along with its changes.
var kept = []string{message.KeyCall, message.KeyTool, message.KeyModel, message.KeyPrompt, message.KeyCertainty}

// carryOut makes the commits. Where one of them fails the ones before it are taken
// back by another.
func (m *merger) carryOut(res *Result) error {
	before := m.into.Store().Tip().Commit
	var reqs []workspace.Request
	if m.req.As == Squash {
		if r, err := m.squash(); err != nil {
			return err
		} else if len(r.Ops) > 0 {
			reqs = append(reqs, r)
		}
	} else {
		for i, s := range m.steps {
			if len(s.todo) == 0 {
				continue
			}
			ops, err := m.ops(s.todo, s.after)
			if err != nil {
				return err
			}
			c := s.commit
			by := m.req.By
			by.SubtaskID, by.Actor, by.Source, by.Message = c.Message.SubtaskID, c.Message.Actor, message.Merge, c.Message.Subject
			extra := append(m.trailers(s), m.deferredTo(i)...)
			for _, t := range c.Message.Extra {
				if slices.Contains(kept, t.Key) {
					extra = append(extra, t)
				}
			}
			reqs = append(reqs, workspace.Request{By: by, Ops: ops, Extra: extra, Authored: c.When, AllowRepoShape: true, Check: m.req.May})
			if len(s.along) == 0 {
				continue
			}
			r, err := m.follows(s)
			if err != nil {
				return err
			}
			reqs = append(reqs, r)
		}
	}
	found := m.found(len(res.Files) == 0)
	switch {
	case len(res.Files) == 0 && len(found) == 0:
		return nil
	case len(res.Files) == 0:
		return m.record(found)
	case len(found) > 0 && m.req.As != Squash:
		last := &reqs[len(reqs)-1]
		last.Extra = append(last.Extra, found...)
	}
	ended := func() error { return nil }
	if len(reqs) > 1 && m.req.Begin != nil {
		var err error
		if ended, err = m.req.Begin(before); err != nil {
			return err
		}
	}
	for _, r := range reqs {
		done, err := m.into.Apply(m.ctx, r)
		if err != nil {
			if len(res.Commits) > 0 {
				err = errors.Join(err, TakeBack(context.WithoutCancel(m.ctx), m.into, before, m.req.By))
			}
			return errors.Join(err, ended())
		}
		if !done.Commit.IsZero() {
			res.Commits = append(res.Commits, done.Commit)
		}
	}
	return ended()
}

// trailers name the commit that a step is made from, and where all of it is merged those
// that it is made from itself: the target has these then, too.
func (m *merger) trailers(s *step) []message.Trailer {
	id := s.commit.ID.String()
	out := []message.Trailer{{Key: KeyFrom, Value: m.from.ID() + " " + id}}
	whole := m.entire(s)
	if whole && s.commit.Message.Trailer(KeyHunk) == "" {
		for _, t := range s.commit.Message.Extra {
			if t.Key == KeyFrom || t.Key == KeyPart {
				out = append(out, t)
			}
		}
	}
	if t := s.commit.Message.TaskID; t != "" {
		out = append(out, message.Trailer{Key: KeyTask, Value: t})
	}
	if s.again {
		out = append(out, message.Trailer{Key: KeyAgain, Value: id})
	}
	for _, h := range s.hunks {
		out = append(out, message.Trailer{Key: KeyHunk, Value: h})
	}
	if s.hunks == nil && !whole {
		out = append(out, m.parts(s, KeyPart, id)...)
	}
	return out
}

// entire reports whether all that a step's commit changed is merged.
func (m *merger) entire(s *step) bool {
	return s.hunks == nil && !s.partial && !slices.ContainsFunc(s.changes, func(c change) bool { return m.skipped[c.path] })
}

// parts are trailers that name the paths of a step that are merged.
func (m *merger) parts(s *step, key, commit string) (out []message.Trailer) {
	for _, c := range s.changes {
		if !m.skipped[c.path] {
			out = append(out, message.Trailer{Key: key, Value: commit + " " + strconv.QuoteToASCII(c.path)})
		}
	}
	return out
}

// deferredTo names the commits of the source of which a step makes what they did, and that
// have no commit of their own in the target.
func (m *merger) deferredTo(i int) (out []message.Trailer) {
	for j, s := range m.steps[:i] {
		if len(s.todo) > 0 || m.left(s) || m.host(j) != i {
			continue
		}
		id := s.commit.ID.String()
		out = append(out, message.Trailer{Key: KeyFrom, Value: m.from.ID() + " " + id})
		if s.again {
			out = append(out, message.Trailer{Key: KeyAgain, Value: id})
		}
		if !m.entire(s) {
			out = append(out, m.parts(s, KeyPart, id)...)
		}
	}
	return out
}

// host returns the step that makes what one does to a path which is merged as a whole; 0:
// none.
func (m *merger) host(j int) int {
	if len(m.deferred) == 0 {
		return 0
	}
	for i := len(m.steps) - 1; i > j; i-- {
		for _, o := range m.steps[i].todo {
			if m.deferred[o.source] && slices.ContainsFunc(m.steps[j].changes, func(c change) bool { return c.path == o.source }) {
				return i
			}
		}
	}
	return 0
}

// found names the steps that find nothing to do, or all of them: the target has what they
// did. They do not come up again in later merges, when the target may have changed it.
func (m *merger) found(all bool) (out []message.Trailer) {
	for j, s := range m.steps {
		if s.hunks != nil || m.left(s) || !all && (len(s.todo) > 0 || m.host(j) > 0) {
			continue
		}
		id := m.from.ID() + " " + s.commit.ID.String()
		if m.entire(s) {
			out = append(out, message.Trailer{Key: KeyFound, Value: id})
		} else {
			out = append(out, m.parts(s, KeyFound, id)...)
		}
	}
	return out
}

// record notes that a merge changes no file, by a commit without changes.
func (m *merger) record(found []message.Trailer) error {
	by := m.req.By
	_, err := m.into.Note(m.ctx, message.Message{Subject: cmp.Or(by.Message, "merge "+m.from.ID()), Actor: by.Actor, Source: message.Merge,
		TaskID: by.TaskID, SubtaskID: by.SubtaskID, RequestID: by.RequestID, Extra: found}, m.req.May)
	return err
}

// squash makes one request of all steps, in their order.
func (m *merger) squash() (workspace.Request, error) {
	var ops []workspace.Op
	var extra []message.Trailer
	moves := false
	for _, s := range m.steps {
		if !m.left(s) {
			extra = append(extra, m.trailers(s)...)
		}
		for _, o := range s.todo {
			moves = moves || o.from != ""
		}
	}
	steps := m.steps
	if !moves {
		steps = m.once()
	}
	for _, s := range steps {
		todo := slices.DeleteFunc(s.all(), func(o outcome) bool { return o.from == "" && o.was == o.want })
		some, err := m.ops(todo, s.after)
		if err != nil {
			return workspace.Request{}, err
		}
		ops = append(ops, some...)
	}
	by := m.req.By
	by.Source = message.Merge
	if by.Message == "" {
		by.Message = "merge " + m.from.ID()
	}
	return workspace.Request{By: by, Ops: ops, Extra: extra, AllowRepoShape: true, Check: m.req.May}, nil
}

// once returns one step in place of those of the merge, which touches each path once. No
// step moves a file: a move needs what the steps before it made.
func (m *merger) once() []*step {
	all := &step{}
	place := map[string]int{}
	for _, s := range m.steps {
		all.after = s.after
		for _, o := range s.todo {
			if i, ok := place[o.path]; ok {
				all.todo[i].want, all.todo[i].data = o.want, o.data
				continue
			}
			place[o.path] = len(all.todo)
			all.todo = append(all.todo, o)
		}
	}
	return []*step{all}
}

// ops makes the operations of outcomes: moves and deletions first, then directories
// that the source does not have any more, whose place a file may take, then what is
// written.
func (m *merger) ops(list []outcome, after gitstore.Snapshot) ([]workspace.Op, error) {
	var ops, writes []workspace.Op
	prune := map[wspath.Path]bool{}
	for _, o := range list {
		was := o.was
		gone := o.path
		switch {
		case o.apart:
			gone = o.from
			ops = append(ops, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(o.from), If: match(was)})
			op, err := m.write(o, version{})
			if err != nil {
				return nil, err
			}
			writes = append(writes, op)
		case o.from != "":
			gone = o.from
			ops = append(ops, workspace.Op{Kind: workspace.OpRename, Path: wspath.Path(o.from), To: wspath.Path(o.path), If: match(was)})
			if was != o.want {
				op, err := m.write(o, was)
				if err != nil {
					return nil, err
				}
				writes = append(writes, op)
			}
		case o.want.Mode == 0:
			ops = append(ops, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(o.path), If: match(was)})
		default:
			op, err := m.write(o, was)
			if err != nil {
				return nil, err
			}
			writes = append(writes, op)
			continue
		}
		for dir := range wspath.Path(gone).Ancestors() {
			if e, ok, err := after.Lookup(dir); err != nil {
				return nil, err
			} else if !dir.IsRoot() && (!ok || e.Mode != object.Dir) {
				prune[dir] = true
			}
		}
	}
	for _, dir := range slices.Backward(slices.Sorted(maps.Keys(prune))) { // what is inside first
		ops = append(ops, workspace.Op{Kind: workspace.OpPrune, Path: dir})
	}
	return append(ops, writes...), nil
}

// match is the condition that a path has a version.
func match(v version) workspace.Condition {
	if v.Mode == 0 {
		return workspace.Condition{NoneMatchAny: true}
	}
	return workspace.Condition{Match: []string{v.ID.String()}}
}

// write is the operation that gives a path its content.
func (m *merger) write(o outcome, was version) (workspace.Op, error) {
	path := wspath.Path(o.path)
	if o.want.Mode == object.Symlink {
		target, err := m.ownerOf(o.want.ID).Store().ReadBlob(m.ctx, o.want.ID, wspath.MaxTarget)
		return workspace.Op{Kind: workspace.OpSymlink, Path: path, Target: string(target), Overwrite: true, If: match(was)}, err
	}
	op := workspace.Op{Kind: workspace.OpWrite, Path: path, Mode: &o.want.Mode, NoFollow: true, If: match(was)}
	switch {
	case o.data != nil:
		op.Data = o.data
	case m.into.Store().HasBlob(o.want.ID):
		op.Blob = &o.want.ID
	default:
		size, err := m.from.Store().BlobSize(m.ctx, o.want.ID)
		if err != nil {
			return op, err
		}
		op.Body, op.Size = &blob{m: m, id: o.want.ID}, size
	}
	return op, nil
}

// blob reads a version of the source, which is opened at the first read.
type blob struct {
	m  *merger
	id object.ID
	r  io.ReadCloser
}

func (b *blob) Read(p []byte) (int, error) {
	if b.r == nil {
		var err error
		if b.r, _, err = b.m.from.Store().OpenBlob(b.m.ctx, b.id); err != nil {
			return 0, err
		}
	}
	n, err := b.r.Read(p)
	if err != nil {
		b.r.Close()
	}
	return n, err
}

// TakeBack undoes a merge that did not come to its end: the commits of its task after
// one of the target's. What others changed since stays.
func TakeBack(ctx context.Context, into *workspace.Workspace, before object.ID, by workspace.By) error {
	st := into.Store()
	first, err := st.ReadCommit(ctx, before)
	if err != nil {
		return err
	}
	was, err := st.SnapshotOf(ctx, before)
	if err != nil {
		return err
	}
	var ids []object.ID
	err = st.Records(ctx, first.Seq+1, st.Tip().Seq, func(r gitstore.Record) error {
		if r.Seq > first.Seq && r.Source == message.Merge && r.Task == by.TaskID {
			ids = append(ids, r.Commit)
		}
		return nil
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	left := map[string]version{} // by the last of the commits that touched a path
	var extra []message.Trailer
	for _, id := range ids {
		c, err := st.ReadCommit(ctx, id)
		if err != nil {
			return err
		}
		extra = append(extra, message.Trailer{Key: KeyUndone, Value: id.String()})
		err = st.DiffTrees(ctx, c.Parent, id, wspath.Root, func(d gitstore.TreeChange) error {
			left[string(d.Path)] = version{d.New.Mode, d.New.ID}
			return nil
		})
		if err != nil {
			return err
		}
	}
	m := &merger{ctx: ctx, from: into, into: into, tip: st.Snapshot()}
	var list []outcome
	for path, then := range left {
		now, err := m.at(path)
		if err != nil {
			return err
		}
		e, ok, err := was.Lookup(wspath.Path(path))
		if err != nil {
			return err
		}
		var want version
		if ok && e.Mode != object.Dir {
			want = version{e.Mode, e.ID}
		}
		if now.version == then && now.version != want {
			list = append(list, outcome{path: path, was: then, want: want})
		}
	}
	slices.SortFunc(list, func(a, b outcome) int {
		return cmp.Or(cmp.Compare(kindOf(a), kindOf(b)), strings.Compare(a.path, b.path))
	})
	ops, err := m.ops(list, was)
	if err != nil {
		return err
	}
	by.Source, by.Message = message.Rollback, "a merge that did not come to its end is taken back"
	_, err = into.Apply(ctx, workspace.Request{By: by, Ops: ops, Extra: extra, AllowRepoShape: true})
	return err
}

// kindOf orders what goes before what comes.
func kindOf(o outcome) int {
	if o.want.Mode == 0 {
		return 0
	}
	return 1
}
