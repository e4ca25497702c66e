package model

import (
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/revert"
	"umbra/internal/workspace"
	"umbra/internal/workspace/wstest"
	"umbra/internal/wspath"
)

// touched gives the paths that a task's entries name.
func (g *rig) touched(task string) map[string]*change {
	out := make(map[string]*change) // the first entry about each
	for _, e := range g.log {
		if e.TaskID != task {
			continue
		}
		for _, p := range []string{e.Path, e.NewPath} {
			if p = strings.TrimSuffix(p, "/"); p != "" && out[p] == nil {
				out[p] = e
			}
		}
	}
	return out
}

// without gives history's tree without a task: at each path that the task
// touched what stood there before it did, elsewhere what stands there now; and
// the touched paths. alone is false where others were at the same paths since:
// then there is no such simple answer.
func (g *rig) without(task string) (tree wstest.Folder, touched map[string]*change, alone bool, err error) {
	touched = g.touched(task)
	first := uint64(0)
	for _, e := range g.log {
		if first == 0 && e.TaskID == task {
			first = e.Seq
		}
		if first == 0 || e.TaskID == task {
			continue
		}
		for _, p := range []string{e.Path, e.NewPath} {
			if p = strings.TrimSuffix(p, "/"); p == "" {
				continue
			}
			for q := range touched {
				if overlap(p, q) {
					return nil, touched, false, nil
				}
			}
		}
	}
	// What another did before may be taken back since, at a path where nothing was any
	// more: then it does not come back, though no commit shows that.
	for _, other := range tasks {
		t, err := g.cache.Task(background, g.w, other)
		if err != nil {
			return nil, touched, false, err
		}
		for i := range t.Entries {
			e := &t.Entries[i]
			for q := range touched {
				if other != task && e.Undone && (overlap(e.Path, q) || e.NewPath != "" && overlap(e.NewPath, q)) {
					return nil, touched, false, nil
				}
			}
		}
	}
	if tree, err = g.tip(); err != nil {
		return nil, touched, false, err
	}
	for p := range touched {
		delete(tree, p)
	}
	for p, e := range touched {
		snap, err := g.w.Store().SnapshotOf(background, e.parent)
		if err != nil {
			return nil, touched, false, err
		}
		was, err := lookup(snap, p)
		if err != nil {
			return nil, touched, false, err
		}
		if was.Mode != 0 {
			data, err := g.w.Store().ReadBlob(background, was.ID, 1<<30)
			if err != nil {
				return nil, touched, false, err
			}
			tree[p] = wstest.Thing{Mode: was.Mode, Data: string(data)}
		}
	}
	return tree, touched, true, nil
}

func (g *rig) request(s step) (revert.Request, error) {
	req := revert.Request{Task: s.who, By: workspace.By{TaskID: s.who, Actor: "by-" + s.who}, IncludeExternal: !s.rev.noext}
	switch s.rev.scope {
	case "sub":
		req.Scope.Subtask = s.rev.arg
	case "path":
		req.Scope.Path = s.rev.arg
	case "change":
		t, err := g.cache.Task(background, g.w, s.who)
		if err != nil {
			return req, err
		}
		req.Scope.Change = 1
		if n := len(t.Entries); n > 0 {
			req.Scope.Change = uint64(1 + s.rev.n%n)
		}
	}
	switch s.rev.mode {
	case "force":
		req.OnConflict = revert.Force
	case "skip":
		req.OnConflict = revert.Skip
	}
	return req, nil
}

// revert tells, does, and compares with what was told and with what must be.
func (g *rig) revert(s step) error {
	req, err := g.request(s)
	if err != nil {
		return err
	}
	tip, before := g.w.Store().Tip(), g.disk
	dry := req
	dry.DryRun = true
	planned, derr := revert.Do(background, g.w, g.cache, dry)
	if err := g.look(); err != nil {
		return err
	}
	if err := g.unchanged("a dry run", before, tip); err != nil {
		return err
	}
	if err := g.checkCommits(); err != nil {
		return err
	}
	if derr != nil && !strings.HasSuffix(errs.CodeOf(derr), "_not_found") {
		return broken("dry run", "%v", derr)
	}
	if derr == nil && s.rev.plan != "" {
		req = revert.Request{Task: req.Task, By: req.By, Scope: req.Scope, Plan: planned.Plan}
	}
	if derr == nil && s.rev.plan == "stale" && len(planned.Files) > 0 {
		return g.stale(req, planned)
	}
	tip = g.w.Store().Tip()
	res, err := revert.Do(background, g.w, g.cache, req)
	if lerr := g.look(); lerr != nil {
		return lerr
	}
	if errs.CodeOf(err) == "plan_stale" && err != nil && s.rev.plan != "" && len(g.pending) > 0 {
		return g.unchanged("a stale plan", before, tip) // by what a person did, and nobody had seen
	}
	if derr != nil || err != nil && errs.CodeOf(err) != "revert_conflict" {
		if err == nil || derr == nil || errs.CodeOf(err) != errs.CodeOf(derr) {
			return broken("revert", "planned %v, did %v", derr, err)
		}
		return g.unchanged("a failed revert", before, tip)
	}
	if !reflect.DeepEqual(planned.Conflicts, res.Conflicts) || !reflect.DeepEqual(planned.Files, res.Files) {
		return broken("dry run", "planned %+v %+v\ndid %+v %+v", planned.Files, planned.Conflicts, res.Files, res.Conflicts)
	}
	if err := g.checkConflicts(res.Conflicts); err != nil {
		return err
	}
	if err != nil {
		if s.rev.mode != "" || len(res.Conflicts) == 0 {
			return broken("revert", "%v: %+v", err, res.Conflicts)
		}
		if err := g.unchanged("a conflict", before, tip); err != nil {
			return err
		}
		return g.mayConflict(s, res)
	}
	// Under force one is left where two of the task's own files had one place.
	if len(res.Conflicts) > 0 && s.rev.mode == "" {
		return broken("revert", "done, with conflicts: %+v", res.Conflicts)
	}
	if !res.Commit.IsZero() && planned.Reverted != res.Reverted {
		return broken("dry run", "planned %d entries, undid %d", planned.Reverted, res.Reverted)
	}
	return g.reverted(s, req, res, before, tip)
}

// reverted checks what a revert did.
func (g *rig) reverted(s step, req revert.Request, res *revert.Result, before wstest.Folder, tip gitstore.Tip) error {
	if err := g.checkCommits(); err != nil {
		return err
	}
	if err := g.kept(before); err != nil {
		return err
	}
	if res.Commit.IsZero() {
		if err := g.unchanged("a revert without a commit", before, tip); err != nil {
			return err
		}
	} else if n := g.w.Store().Tip().Seq - tip.Seq; n != 1 && len(g.pending) == 0 && s.rev.mode != "force" { // what makes way is recorded first
		return broken("revert", "made %d commits", n)
	} else if g.solo == "" || g.solo == s.who {
		g.solo = s.who
	} else {
		g.solo = "-"
	}
	g.forced = g.forced || s.rev.mode == "force"
	g.partial = g.partial || req.Scope != (revert.Scope{}) && !res.Commit.IsZero()
	// What an ignored folder had in it is there for all to see where it comes back.
	shown := slices.ContainsFunc(g.log, func(e *change) bool {
		return !res.Commit.IsZero() && e.Commit == res.Commit && e.NewPath != "" && ignored(e.Path) && !ignored(e.NewPath)
	})
	if len(g.pending) > 0 || shown {
		g.pending = append(g.pending, everything)
	}
	stands := make(map[string]bool)
	for _, f := range res.Files {
		stands[f.Path] = stands[f.Path] || f.Action != revert.Deleted && f.Action != revert.Unchanged
	}
	for _, f := range res.Files {
		if x, ok := g.disk[f.Path]; (ok && x.Mode != object.Dir) != stands[f.Path] && !strings.HasSuffix(f.Path, "/") && !ignored(f.Path) && f.Action != revert.Unchanged && !res.Commit.IsZero() {
			return broken("revert", "%s is told as %s: on disk %v", f.Path, f.Action, x.Mode)
		}
	}
	touched := g.touched(s.who)
	moved := false
	var ids []uint64
	for _, e := range g.log {
		if e.TaskID == s.who && e.NewPath != "" {
			moved = true
		}
		if !res.Commit.IsZero() && e.Commit == res.Commit {
			moved = moved || strings.HasSuffix(e.Path, "/")
			ids = append(ids, e.ID)
		}
	}
	for p, t := range before {
		is, ok := g.disk[p]
		near := false
		for q := range touched {
			near = near || overlap(p, q)
		}
		switch {
		case t.Mode == object.Dir, near && (!ok || !is.Same(t)), moved && ignored(p) && !ok:
		case !ok || !is.Same(t):
			return broken("others", "%q, which %s never touched, is another", p, s.who)
		case is.Info.MtimeNs != t.Info.MtimeNs && !moved, !near && (is.Info.Ino != t.Info.Ino || is.Info.Mode != t.Info.Mode):
			return broken("others", "%q is as it was, and was made anew", p)
		}
	}
	if !res.Commit.IsZero() {
		g.last[s.who] = lastRevert{before: before, seq: res.Seq, ids: ids, moved: moved}
	}
	if len(res.Conflicts) > 0 || s.rev.noext {
		return nil
	}
	return g.undone(s, req, res)
}

// undone checks that a whole revert leaves nothing to undo, and what stood
// there without the task.
func (g *rig) undone(s step, req revert.Request, res *revert.Result) error {
	t, err := g.cache.Task(background, g.w, s.who)
	if err != nil {
		return err
	}
	for _, e := range t.Work() {
		if res.Commit.IsZero() {
			break // nothing was to be done, so nothing tells of it
		}
		if req.Scope == (revert.Scope{}) || req.Scope.Subtask != "" && e.SubtaskID == req.Scope.Subtask || e.ID == req.Scope.Change {
			return broken("undone", "entry %d (%s %s) is still in effect", e.ID, e.Operation, e.Path)
		}
	}
	if e := t.Find(req.Scope.Change); req.Scope.Change != 0 && !res.Commit.IsZero() && !e.Undone && e.Source != message.Rollback {
		return broken("undone", "entry %d (%s %s) is still in effect", e.ID, e.Operation, e.Path)
	}
	if err := g.checkLines(); err != nil {
		return err
	}
	if req.Scope != (revert.Scope{}) || g.forced {
		return nil
	}
	want, touched, alone, err := g.without(s.who)
	if err != nil || !alone {
		return err
	}
	tip, err := g.tip()
	if err != nil {
		return err
	}
	if d := wstest.Differ("after the revert", tip, "without the task", want); d != "" {
		return broken("full revert", "%s", d)
	}
	if g.solo != s.who || g.partial || g.cut { // after a cut folders that went may be there
		return nil
	}
	// Ignored files and empty folders too. One that was empty before and that the task filled is
	// not told from one that the task made: no tree holds it.
	empty := g.first[s.who].plain()
	for p, x := range empty {
		if is, ok := g.disk[p]; x.Mode == object.Dir && !ok {
			for q := range touched {
				if within(q, p) && q != p {
					delete(empty, p)
				}
			}
		} else if ok && ignored(p) {
			empty[p] = is // history may have recorded it or not
		}
	}
	is := maps.Clone(g.disk)
	maps.DeleteFunc(is, func(p string, t wstest.Thing) bool { return t.Mode == object.Dir && g.through[p] && empty[p].Mode == 0 })
	if d := wstest.Differ("after the revert", is, "before the task", empty); d != "" {
		return broken("full revert", "%s", d)
	}
	return nil
}

// mayConflict fails where there is no reason for a conflict.
func (g *rig) mayConflict(s step, res *revert.Result) error {
	if s.rev.scope != "" || s.rev.noext || g.forced || len(g.pending) > 0 {
		return nil
	}
	// After a part was taken back, a folder with ignored files may stand in two
	// places at once; and what a person put in the way may be in no history.
	hidden := slices.ContainsFunc(res.Conflicts, func(c revert.Conflict) bool {
		return ignored(c.Path) && (g.partial || g.hidden && c.By.Commit.IsZero())
	})
	_, _, alone, err := g.without(s.who)
	if err == nil && alone && !hidden {
		return broken("full revert", "nobody else was there: %+v", res.Conflicts)
	}
	return err
}

// checkConflicts: each names a commit, which changed what stands there.
func (g *rig) checkConflicts(list []revert.Conflict) error {
	st := g.w.Store()
	for _, x := range list {
		_, tracked, err := st.Snapshot().Lookup(wspath.Path(x.Path))
		if err != nil {
			return err
		}
		if x.By.Commit.IsZero() {
			if _, there := g.disk[x.Path]; there && !tracked || len(g.pending) > 0 {
				continue // in no history yet, so nobody's
			}
			return broken("conflict", "nobody is named: %+v", x)
		}
		c, err := st.ReadCommit(background, x.By.Commit)
		if err != nil {
			return err
		}
		changed := false
		if err := st.DiffTrees(background, c.Parent, c.ID, wspath.Path(x.Path), func(gitstore.TreeChange) error {
			changed = true
			return nil
		}); err != nil {
			return err
		}
		changed = changed || slices.ContainsFunc(g.log, func(e *change) bool {
			return e.Commit == x.By.Commit && (within(e.Path, x.Path) || e.NewPath != "" && within(e.NewPath, x.Path))
		})
		if !changed {
			return broken("conflict", "the commit that is named did not change it: %+v", x)
		}
	}
	return nil
}

// stale changes what a plan touches, and has the plan refused.
func (g *rig) stale(req revert.Request, planned *revert.Result) error {
	f := planned.Files[len(planned.Files)-1]
	p := strings.TrimSuffix(f.Path, "/")
	if p != f.Path || f.Action == revert.Renamed {
		return nil
	}
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		if g.disk[d].Mode == object.Symlink {
			return nil // what is written there comes to another path
		}
	}
	data := fmt.Sprintf("stale %d", g.seen)
	if slices.Contains(lineFiles, p) { // there B has a line of its own
		data = setLine(g.disk[p].Data, lineOf(slices.Index(owners(), owner{"B", ""})), data)
	}
	res, err := g.w.Apply(background, workspace.Request{By: workspace.By{TaskID: "B", Actor: "by-B"}, Ops: []workspace.Op{
		{Kind: workspace.OpWrite, Path: wspath.Path(p), Data: []byte(data), NoFollow: true}}})
	if err != nil || res.Commit.IsZero() {
		return g.look()
	}
	g.solo = "-"
	if err := g.look(); err != nil {
		return err
	}
	before, tip := g.disk, g.w.Store().Tip()
	if _, err := revert.Do(background, g.w, g.cache, req); errs.CodeOf(err) != "plan_stale" {
		return broken("stale", "%s %s: %v", f.Action, f.Path, err)
	}
	if err := g.look(); err != nil {
		return err
	}
	return g.unchanged("a stale plan", before, tip)
}

// unrevert takes back a task's last revert, change by change, the newest first.
// If all of it can be and nothing else happened since, the files are what they
// were.
func (g *rig) unrevert(task string) error {
	l, ok := g.last[task]
	if !ok {
		return nil
	}
	delete(g.last, task)
	g.partial = true
	exact := g.w.Store().Tip().Seq == l.seq && len(g.pending) == 0
	for _, id := range slices.Backward(l.ids) {
		req := revert.Request{Task: task, By: workspace.By{TaskID: task, Actor: "by-" + task}, Scope: revert.Scope{Change: id}}
		before, tip := g.disk, g.w.Store().Tip()
		_, err := revert.Do(background, g.w, g.cache, req)
		if lerr := g.look(); lerr != nil {
			return lerr
		}
		if errs.CodeOf(err) == "revert_conflict" && err != nil {
			if exact && !l.moved {
				return broken("unrevert", "change %d: %v", id, err)
			}
			exact = false
			if err := g.unchanged("a conflict", before, tip); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return broken("unrevert", "change %d: %v", id, err)
		}
		if len(g.pending) > 0 { // a folder's move takes along what history does not know
			g.pending = append(g.pending, everything)
		}
		if err := g.check(); err != nil {
			return err
		}
	}
	if exact {
		got, want := maps.Clone(g.disk.Files()), maps.Clone(l.before.Files())
		drop := func(p string, _ wstest.Thing) bool { return ignored(p) }
		maps.DeleteFunc(got, drop)
		maps.DeleteFunc(want, drop)
		if d := wstest.Differ("after", got, "before", want); d != "" {
			return broken("unrevert", "%s", d)
		}
	}
	return nil
}
