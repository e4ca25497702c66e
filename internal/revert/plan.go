package revert

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/wspath"
)

// plan is what a revert would do on one state of the workspace.
type plan struct {
	task    string
	sel     selection
	snap    gitstore.Snapshot
	targets []*target
	folders []*folder
	prune   []string // folders that go if they are empty then, deepest first
	force   []string // paths of others that make way, under OnConflict Force
}

// folder is an empty folder that the task made, removed or moved by name.
type folder struct {
	entry  *history.Entry
	make   string // to be made; empty: none
	remove string // to be removed if it is empty
}

// makePlan judges a selection on the newest tree.
func makePlan(ctx context.Context, st *gitstore.Store, t *history.Task, sel selection, way OnConflict) (*plan, error) {
	p := &plan{task: t.ID, sel: sel, snap: st.Snapshot()}
	chains, folders := history.Chains(sel.entries)
	j := &judge{ctx: ctx, st: st, snap: p.snap, force: way == Force}
	for _, c := range chains {
		tg, err := j.chain(c)
		if err != nil {
			return nil, err
		}
		tg.skipped = tg.conflict != nil && way == Skip
		p.targets = append(p.targets, tg)
	}
	if err := p.place(j, way); err != nil {
		return nil, err
	}
	p.undoFolders(folders)
	return p, p.findPrunable(ctx, st, t)
}

// stands reports whether a target is carried out.
func (t *target) stands() bool { return t.conflict == nil && !t.skipped }

// moves reports whether the file leaves the path where it is now.
func (t *target) leaves() bool {
	return t.stands() && t.now.Exists() && (!t.want.Exists() || t.want.Path != t.now.Path)
}

// place checks that every file finds its place free once all that leave have
// left. A target that is left out stays where it is, and may stand in another
// one's way: until nothing more changes.
func (p *plan) place(j *judge, way OnConflict) error {
	for again := true; again; {
		again = false
		left := make(map[string]bool)
		for _, t := range p.targets {
			if t.leaves() {
				left[t.now.Path] = true
			}
		}
		taken := make(map[string]bool)
		p.force = nil
		for _, t := range p.targets {
			if !t.stands() || !t.want.Exists() {
				continue
			}
			blocker, err := p.blocker(t, left)
			if err != nil {
				return err
			}
			if back, err := p.isBack(t, left); err != nil {
				return err
			} else if back {
				t.now = t.want
			}
			if blocker == "" && !taken[t.want.Path] {
				taken[t.want.Path] = true
				continue
			}
			if blocker == "" {
				blocker = t.want.Path
			}
			if way == Force {
				p.force = append(p.force, blocker)
				taken[t.want.Path] = true
				continue
			}
			if err := p.occupied(j, t, blocker); err != nil {
				return err
			}
			t.skipped = way == Skip
			again = true
		}
	}
	return nil
}

// isBack reports whether somebody has put a deleted file back already.
func (p *plan) isBack(t *target, left map[string]bool) (bool, error) {
	if t.now.Exists() || t.data != nil || left[t.want.Path] {
		return false, nil
	}
	s, err := at(p.snap, t.want.Path)
	return s.Exists() && s.Same(t.want), err
}

func (p *plan) occupied(j *judge, t *target, blocker string) error {
	entries := t.chain.Entries()
	newest := entries[len(entries)-1]
	t.conflict = &Conflict{Path: blocker, Reason: "occupied", Entry: newest.ID}
	by, err := j.changedBy(blocker, newest.Seq)
	t.conflict.By = by
	return err
}

// blocker gives what stands in a target's way: a file at its place, files of
// others in a folder there, or a file where a folder above it must be.
func (p *plan) blocker(t *target, left map[string]bool) (string, error) {
	path := t.want.Path
	if t.now.Exists() && t.now.Path == path && t.now.Mode != object.Dir {
		return "", nil
	}
	for _, dir := range parents(path) {
		s, err := at(p.snap, dir)
		if err != nil {
			return "", err
		}
		if s.Exists() && s.Mode != object.Dir && !left[dir] {
			return dir, nil
		}
	}
	s, err := at(p.snap, path)
	if err != nil || !s.Exists() {
		return "", err
	}
	if s.Mode != object.Dir {
		if left[path] || s.Same(t.want) && t.data == nil {
			return "", nil
		}
		return path, nil
	}
	blocked := ""
	err = p.snap.Walk(wspath.Path(path), func(e gitstore.Entry) error {
		if blocked == "" && !left[string(e.Path)] {
			blocked = string(e.Path)
		}
		return nil
	})
	return blocked, err
}

// undoFolders turns the entries about empty folders round, newest first.
func (p *plan) undoFolders(entries []*history.Entry) {
	for _, e := range slices.Backward(entries) {
		f := &folder{entry: e}
		switch e.Operation {
		case message.Mkdir:
			f.remove = trimSlash(e.Path)
		case message.Rmdir:
			f.make = trimSlash(e.Path)
		case message.Rename:
			f.remove, f.make = trimSlash(e.NewPath), trimSlash(e.Path)
		default:
			continue
		}
		p.folders = append(p.folders, f)
	}
}

// findPrunable finds the folders that go once they are empty: those that were
// not there at the task's base and that one of the undone changes first filled.
func (p *plan) findPrunable(ctx context.Context, st *gitstore.Store, t *history.Task) error {
	emptied := make(map[string]bool)
	for _, tg := range p.targets {
		if tg.leaves() {
			for _, dir := range parents(tg.now.Path) {
				emptied[dir] = true
			}
		}
	}
	if len(emptied) == 0 {
		return nil
	}
	for _, tg := range p.targets {
		if tg.stands() && tg.want.Exists() {
			for _, dir := range parents(tg.want.Path) {
				delete(emptied, dir)
			}
		}
	}
	base, err := st.SnapshotOf(ctx, t.Base)
	if err != nil {
		return err
	}
	left := make(map[string]bool)
	for _, tg := range p.targets {
		if tg.leaves() {
			left[tg.now.Path] = true
		}
	}
	for dir := range emptied {
		if was, err := at(base, dir); err != nil {
			return err
		} else if was.Mode == object.Dir {
			continue
		}
		kept := false
		if err := p.snap.Walk(wspath.Path(dir), func(e gitstore.Entry) error {
			kept = kept || !left[string(e.Path)]
			return nil
		}); err != nil {
			return err
		}
		if kept {
			continue
		}
		if first, err := p.firstFilled(ctx, st, dir); err != nil {
			return err
		} else if first {
			p.prune = append(p.prune, dir)
		}
	}
	// Deepest first; among equals by name, so that a plan's token is stable.
	slices.SortFunc(p.prune, func(a, b string) int {
		if d := strings.Count(b, "/") - strings.Count(a, "/"); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return nil
}

// firstFilled reports whether one of the selected entries put the first file
// into a folder.
func (p *plan) firstFilled(ctx context.Context, st *gitstore.Store, dir string) (bool, error) {
	for _, e := range p.sel.entries {
		if !under(lastName(e), dir) {
			continue
		}
		c, err := st.ReadCommit(ctx, e.Commit)
		if err != nil {
			return false, err
		}
		before, err := st.SnapshotOf(ctx, c.Parent)
		if err != nil {
			return false, err
		}
		s, err := at(before, dir)
		if err != nil {
			return false, err
		}
		if s.Mode != object.Dir {
			return true, nil
		}
	}
	return false, nil
}

// conflicts gives those that stand in the way, or were left out.
func (p *plan) conflicts() []Conflict {
	var out []Conflict
	for _, t := range p.targets {
		if t.conflict != nil {
			out = append(out, *t.conflict)
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// action names what is done to a target's file.
func (t *target) action() (Action, string) {
	switch {
	case !t.want.Exists() && !t.now.Exists():
		return Unchanged, t.chain.First().Path
	case !t.want.Exists():
		return Deleted, t.now.Path
	case t.merged && !t.want.Same(t.now):
		return Merged, t.want.Path
	case !t.now.Exists():
		return Restored, t.want.Path
	case t.want.Path != t.now.Path:
		return Renamed, t.want.Path
	case t.want.Same(t.now):
		return Unchanged, t.want.Path
	}
	return Restored, t.want.Path
}

// files tells what is done, sorted by path.
func (p *plan) files() []File {
	var out []File
	for _, t := range p.targets {
		if !t.stands() {
			continue
		}
		a, path := t.action()
		entries := t.chain.Entries()
		out = append(out, File{Path: path, Action: a, Source: string(entries[len(entries)-1].Source)})
	}
	for _, f := range p.folders {
		switch {
		case f.make != "" && f.remove != "":
			out = append(out, File{Path: f.make + "/", Action: Renamed, Source: string(f.entry.Source)})
		case f.make != "":
			out = append(out, File{Path: f.make + "/", Action: Restored, Source: string(f.entry.Source)})
		default:
			out = append(out, File{Path: f.remove + "/", Action: Deleted, Source: string(f.entry.Source)})
		}
	}
	slices.SortStableFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// undone gives the entries that the plan undoes.
func (p *plan) undone() []*history.Entry {
	var out []*history.Entry
	for _, t := range p.targets {
		if t.stands() {
			out = append(out, t.chain.Entries()...)
		}
	}
	for _, f := range p.folders {
		out = append(out, f.entry)
	}
	slices.SortFunc(out, func(a, b *history.Entry) int { return int(a.ID) - int(b.ID) })
	return out
}

// fingerprint tells plans apart: what is undone, what is there now, what it is
// to become. A plan that was told and one that is carried out must agree.
func (p *plan) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", p.task, p.sel.what)
	for _, t := range p.targets {
		for _, e := range t.chain.Entries() {
			fmt.Fprintf(h, "%d ", e.ID)
		}
		state(h, t.now)
		state(h, t.want)
		fmt.Fprintf(h, "%t %t\n", t.skipped, t.conflict != nil)
	}
	for _, f := range p.folders {
		fmt.Fprintf(h, "%d %q %q\n", f.entry.ID, f.make, f.remove)
	}
	fmt.Fprintf(h, "%q %q", p.prune, p.force)
	return hex.EncodeToString(h.Sum(nil))
}

func state(w io.Writer, s history.State) { fmt.Fprintf(w, "%q %o %s ", s.Path, s.Mode, s.ID) }
