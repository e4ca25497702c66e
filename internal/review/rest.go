package review

import (
	"cmp"
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/blame"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/revert"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// When a reviewer rejects the rest of a task, some of its lines may not be in the files
// any more, because others deleted them: no hunk of the task shows them. They are
// rejected too, and rejecting that deletion does not bring them back. So it makes no
// difference whose hunks are rejected first. To reject single hunks decides on their
// lines alone: a line that no hunk shows is open once it is back. Lines of changes that
// were undone do not come back either.

// rests is what was rejected as the rest of other tasks, or undone, after a number.
type rests struct {
	byTask map[string]uint64 // the number of the newest commit that rejected the rest
	undone bool              // changes were undone
	newest uint64            // number of the newest of these commits
}

// none reports whether there is nothing of it.
func (r *rests) none() bool { return len(r.byTask) == 0 && !r.undone }

// restsSince reads what was rejected as the rest of all tasks but one, or undone, after
// a number.
func restsSince(ctx context.Context, w *workspace.Workspace, task string, after uint64) (out rests, err error) {
	st := w.Store()
	var list []gitstore.Record
	err = st.Records(ctx, after+1, st.Tip().Seq, func(rec gitstore.Record) error {
		if rec.Reverts && rec.Seq > after {
			out.undone, out.newest = true, rec.Seq
		} else if rec.Source == message.Revert && rec.Task != "" && rec.Task != task && rec.Seq > after {
			list = append(list, rec)
		}
		return nil
	})
	if err != nil || len(list) == 0 {
		return out, err
	}
	var back map[object.ID]bool
	for _, rec := range list {
		c, err := st.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return out, err
		}
		if c.Message.Trailer(message.KeyRest) == "" {
			continue
		}
		if back == nil {
			if back, err = broughtBack(ctx, w); err != nil {
				return out, err
			}
		}
		if back[c.ID] {
			continue
		}
		if out.byTask == nil {
			out.byTask = make(map[string]uint64)
		}
		out.byTask[rec.Task], out.newest = rec.Seq, max(out.newest, rec.Seq)
	}
	return out, nil
}

// rejected reports whether what a commit of a task put into a file, and an entry
// took out, was rejected as the rest of that task.
func (r *rests) rejected(task string, wrote, deleted uint64) bool {
	at := r.byTask[task]
	return wrote < at && deleted < at
}

// withoutRests leaves out of the files without the task what was rejected as the rest
// of other tasks.
func (c *cutter) withoutRests(task string, nets []revert.Net) ([]revert.Net, error) {
	first := uint64(0)
	for i := range nets {
		if n := &nets[i]; n.Without.Exists() && n.Conflict == nil && len(n.Entries) > 0 && (first == 0 || n.Entries[0].Seq < first) {
			first = n.Entries[0].Seq
		}
	}
	if first == 0 {
		return nets, nil
	}
	r, err := restsSince(c.ctx, c.w, task, first)
	if err != nil || r.none() {
		return nets, err
	}
	out := nets[:0]
	for i := range nets {
		n := nets[i]
		if n.Without.Exists() && n.Conflict == nil {
			if err := c.withoutRest(task, &n, &r); err != nil {
				return nil, err
			}
		}
		if n.Now.Path != n.Without.Path || !n.Now.Same(n.Without) {
			out = append(out, n)
		}
	}
	return out, nil
}

// taken is a line that an entry of the task deleted.
type taken struct {
	by     *blame.Line
	number uint64 // of the entry's commit
}

// withoutRest is withoutRests for one file.
func (c *cutter) withoutRest(task string, n *revert.Net, r *rests) error {
	if n.Entries[0].Seq >= r.newest {
		return nil
	}
	if err := c.namesWithoutRest(task, n, r); err != nil {
		return err
	}
	if n.Without.Mode == object.Symlink || n.Now.ID == n.Without.ID {
		return nil
	}
	gone := func() {
		n.Without = history.State{Path: n.Without.Path}
		n.Now.Path = n.Without.Path
	}
	old, ok, err := c.textOf(n.Without.ID, n.Data)
	if err != nil {
		return err
	}
	if !ok || len(old) == 0 { // whose it is, no line says
		theirs, err := c.theirs(n, r)
		if theirs {
			gone()
		}
		return err
	}
	var now []byte
	if n.Now.Exists() {
		if now, ok, err = c.textOf(n.Now.ID, nil); err != nil || !ok {
			return err
		}
	}
	var t diff.Table
	a, b := t.Cut(now), t.Cut(old)
	changes := t.Compare(a, b, &diff.Work{})
	back := make(map[string]bool) // the lines that are there without the task alone
	for _, ch := range changes {
		for i := ch.New.Start; i < ch.New.End; i++ {
			back[string(b.Line(i))] = true
		}
	}
	if len(back) == 0 && n.Now.Exists() {
		return nil
	}
	lost, err := c.deletedBy(n.Entries, r, back)
	if err != nil {
		return err
	}
	left := make(map[string]bool)
	for line := range back {
		list := lost[line]
		all := len(list) > 0
		for _, x := range list {
			if all, err = c.rejected(task, &x, r); err != nil || !all {
				break
			}
		}
		if err != nil {
			return err
		}
		if all {
			left[line] = true
		}
	}
	if len(left) == 0 {
		return nil
	}
	data := make([]byte, 0, len(old))
	at := 0
	for _, ch := range changes {
		data = append(data, b.Bytes(at, ch.New.Start)...)
		for i := ch.New.Start; i < ch.New.End; i++ {
			if !left[string(b.Line(i))] {
				data = append(data, b.Line(i)...)
			}
		}
		at = ch.New.End
	}
	data = append(data, b.Bytes(at, b.Len())...)
	if len(data) == 0 && !n.Now.Exists() {
		gone()
		return nil
	}
	n.Without.ID, n.Data, n.Merged = object.Hash(object.Blob, data), data, true
	return nil
}

// theirs reports whether a file that the task deleted, and that has no lines, was made
// by another task, of which the rest was rejected since.
func (c *cutter) theirs(n *revert.Net, r *rests) (bool, error) {
	last := n.Entries[len(n.Entries)-1]
	if n.Now.Exists() || !last.After.IsZero() {
		return false, nil
	}
	for task := range r.byTask {
		chains, err := c.r.chains(c.ctx, c.w, task)
		if err != nil {
			return false, err
		}
		for _, x := range chains {
			first := x.Entries()[0]
			if !x.First().Exists() && x.Last().Path == last.Path && r.rejected(task, first.Seq, last.Seq) {
				k, err := c.keptOf(task)
				if err != nil {
					return false, err
				}
				at := k.others[keptAll+" "+last.Path]
				return at <= first.Seq || at > last.Seq, nil
			}
		}
	}
	return false, nil
}

// rejected reports whether a line that the task deleted was rejected as the rest of
// another task, or the change that wrote it undone.
func (c *cutter) rejected(task string, x *taken, r *rests) (bool, error) {
	of := x.by.Origin
	by, err := c.w.Store().ReadCommit(c.ctx, of.Commit)
	if errs.Is(err, errs.Gone) {
		return false, nil
	}
	if err != nil || by.Message.TaskID == "" || by.Message.TaskID == task || by.Message.Source == message.Revert {
		return false, err
	}
	if r.rejected(by.Message.TaskID, of.Seq, x.number) {
		k, err := c.keptOf(by.Message.TaskID)
		if err != nil {
			return false, err
		}
		at := k.lines[*of][x.by.No]
		return at == 0 || at > x.number, nil
	}
	if !r.undone {
		return false, nil
	}
	return c.undone(by.Message.TaskID, of.Commit, of.Path)
}

// undone reports whether what a commit of a task did to a file is undone.
func (c *cutter) undone(task string, commit object.ID, path string) (bool, error) {
	t, err := c.r.History.Task(c.ctx, c.w, task)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(t.Entries, func(e history.Entry) bool {
		return e.Undone && e.Commit == commit && cmp.Or(e.NewPath, e.Path) == path
	}), nil
}

// textOf returns a text of history, or one that is known; ok is false where it is none,
// or too large to be cut.
func (c *cutter) textOf(id object.ID, known []byte) (data []byte, ok bool, err error) {
	if data = known; data == nil {
		data, err = c.w.Store().ReadBlob(c.ctx, id, maxText)
		if errs.Is(err, errs.TooLarge) {
			return nil, false, nil
		}
	}
	return data, err == nil && !diff.Binary(data), err
}

// deletedBy returns who wrote those of some lines that entries deleted before the newest
// of the rests. Of equal lines it has all.
func (c *cutter) deletedBy(entries []*history.Entry, r *rests, lines map[string]bool) (map[string][]taken, error) {
	out := make(map[string][]taken)
	for _, e := range entries {
		if e.Before.IsZero() || e.Before == e.After || e.BeforeMode == object.Symlink {
			continue
		}
		was, ok, err := c.textOf(e.Before, nil)
		if err != nil {
			return nil, err
		}
		var is []byte
		if ok && !e.After.IsZero() {
			is, ok, err = c.textOf(e.After, nil)
		}
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		var t diff.Table
		x := t.Cut(was)
		var from *blame.File
		for _, ch := range t.Compare(x, t.Cut(is), &diff.Work{}) {
			for i := ch.Old.Start; i < ch.Old.End; i++ {
				line := string(x.Line(i))
				if !lines[line] {
					continue
				}
				if from == nil {
					if from, err = c.before(e); err != nil {
						return nil, err
					}
				}
				if i < len(from.Lines) {
					out[line] = append(out[line], taken{&from.Lines[i], e.Seq})
				}
			}
		}
	}
	return out, nil
}

// before blames the file that an entry found.
func (c *cutter) before(e *history.Entry) (*blame.File, error) {
	st := c.w.Store()
	of, err := st.ReadCommit(c.ctx, e.Commit)
	if err != nil {
		return nil, err
	}
	parent, err := st.ReadCommit(c.ctx, of.Parent)
	if err != nil {
		return nil, err
	}
	return c.r.Blame.Of(c.ctx, c.w, parent, wspath.Path(e.Path), blame.Options{})
}

// coversRest reports whether there may be something of a task that no hunk shows: since
// its rest was rejected last it changed files that others changed as well.
func (r *Reader) coversRest(ctx context.Context, w *workspace.Workspace, task string) (bool, error) {
	chains, err := r.chains(ctx, w, task)
	if err != nil {
		return false, err
	}
	snap, own := w.Store().Snapshot(), uint64(0)
	recs, err := w.Store().TaskRecords(ctx, task)
	if err != nil {
		return false, err
	}
	for i := range recs {
		if rec := &recs[i]; rec.Source == message.Revert && !rec.Reverts {
			of, err := w.Store().ReadCommit(ctx, rec.Commit)
			if err != nil && !errs.Is(err, errs.Gone) {
				return false, err
			}
			if err == nil && of.Message.Trailer(message.KeyRest) != "" {
				own = rec.Seq
			}
		}
	}
	for _, c := range chains {
		last, entries := c.Last(), c.Entries()
		if entries[len(entries)-1].Seq <= own {
			continue
		}
		e, ok, err := snap.Lookup(wspath.Path(last.Path))
		if err != nil {
			return false, err
		}
		if c.Mixed() || ok != last.Exists() || ok && (e.Mode != last.Mode || e.ID != last.ID) {
			return true, nil
		}
	}
	return false, nil
}

// chains returns the files that a task's work is in, but for what was undone.
func (r *Reader) chains(ctx context.Context, w *workspace.Workspace, task string) ([]*history.Chain, error) {
	t, err := r.History.Task(ctx, w, task)
	if err != nil {
		return nil, err
	}
	var entries []*history.Entry
	for _, e := range t.Every() {
		if e.Counts() {
			entries = append(entries, e)
		}
	}
	chains, _ := t.Chains(entries, nil)
	return chains, nil
}
