package revert

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/lineage"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// plan is what a revert would do on one state of the workspace.
type plan struct {
	task    string
	history *history.Task
	sel     selection
	snap    gitstore.Snapshot
	seq     uint64 // of the commit that snap is of
	ground  *ground
	targets []*target
	tracks  []*folder // all folders that the selected entries made or moved
	folders []*folder // those that are entries themselves
	wholes  []*whole  // folders that move back as one
	apart   bool      // none does
	rooms   string    // in the names of the places where files wait
	// What others gave another name since: files, and whole folders. Read only
	// where something is not as it was left.
	since        []lineage.Move
	sinceFolders []lineage.Move
	vacate       []string // folders that have to go for a file or folder to come back there
	prune        []string // folders that go if they are empty then, deepest first
	force        []string // paths of others that make way, under OnConflict Force
}

// makePlan judges a selection on the newest tree.
func makePlan(ctx context.Context, w *workspace.Workspace, cache *history.Cache, t *history.Task, sel selection, way OnConflict, apart bool) (*plan, error) {
	st := w.Store()
	tip := st.Tip()
	snap, err := st.SnapshotOf(ctx, tip.Commit)
	if err != nil {
		return nil, err
	}
	p := &plan{task: t.ID, history: t, sel: sel, snap: snap, seq: tip.Seq, ground: newGround(ctx, w), apart: apart}
	j := &judge{ctx: ctx, st: st, snap: p.snap, w: w, past: newPast(ctx, st, tip), force: way == Force, selected: sel.entries}
	chains, folders := sel.chains(t, nil)
	if again, err := p.mustFollow(chains, folders); err != nil {
		return nil, err
	} else if again {
		if err := p.findMoves(ctx, st); err != nil {
			return nil, err
		}
		chains, _ = sel.chains(t, p.since)
	}
	silent, err := p.silent(ctx, w, cache, chains)
	if err != nil {
		return nil, err
	}
	first, paths := tip.Seq, make(map[string]bool)
	for _, c := range slices.Concat(chains, silent) {
		first = min(first, c.Runs[0].Entries[0].Seq)
		for _, r := range c.Runs {
			paths[r.Before.Path] = true
		}
	}
	if j.since, err = newSince(ctx, w, cache, first, paths); err != nil {
		return nil, err
	}
	for _, c := range chains {
		tg, err := j.chain(c.Chain)
		if err != nil {
			return nil, err
		}
		tg.entries = c.work
		p.targets = append(p.targets, tg)
	}
	for _, c := range silent {
		if is, err := j.rebased(c.Chain); err != nil || is == c.Chain {
			if err != nil {
				return nil, err
			}
			continue // as it was
		}
		tg, err := j.chain(c.Chain)
		if err != nil {
			return nil, err
		}
		p.targets = append(p.targets, tg)
	}
	if err := p.disown(j); err != nil {
		return nil, err
	}
	for _, tg := range p.targets {
		if tg.conflict != nil {
			tg.conflict.Entry = numberOf(tg.newest())
		}
		tg.skipped = tg.conflict != nil && way == Skip
	}
	base := p.snap
	if len(sel.entries) > 0 {
		if base, err = st.SnapshotOf(ctx, t.Base); err != nil {
			return nil, err
		}
	}
	if p.tracks, err = trackFolders(ctx, st, base, t, &sel, p.sinceFolders); err != nil {
		return nil, err
	}
	for _, f := range p.tracks {
		if len(f.entries) > 0 {
			p.folders = append(p.folders, f)
		}
	}
	if err := p.place(j, way); err != nil {
		return nil, err
	}
	if err := p.settleFolders(); err != nil {
		return nil, err
	}
	return p, p.findPrunable()
}

// applies reports whether a target is restored.
func (t *target) applies() bool { return t.conflict == nil && !t.skipped }

// leaves reports whether the file leaves the path where it is now.
func (t *target) leaves() bool {
	return t.applies() && t.now.Exists() && (!t.want.Exists() || t.want.Path != t.now.Path)
}

// stays reports whether the file is brought back at the path where it is now.
func (t *target) stays() bool {
	return t.applies() && t.now.Exists() && t.now.Mode != object.Dir && t.want.Exists() && t.want.Path == t.now.Path
}

// newest gives the last entry that is undone, or where there is none (part.work)
// the file's last.
func (t *target) newest() *history.Entry {
	list := t.entries
	if len(list) == 0 {
		list = t.chain.Entries()
	}
	return list[len(list)-1]
}

// findPrunable finds the folders that go once they are empty: those that one of
// the undone changes made, first filled, or brought to where they are.
func (p *plan) findPrunable() error {
	wanted := p.wanted()
	for _, f := range p.tracks { // also those that were empty, and moved along with one around them
		if f.applies() && !f.made && (len(f.entries) > 0 || p.after(f.last) == f.name) {
			for _, dir := range append(parents(f.name), f.name) {
				wanted[dir] = true
			}
		}
	}
	left := p.left()
	for _, f := range p.tracks {
		if !f.removes() || wanted[p.after(f.last)] {
			continue
		}
		kept := false
		if err := p.snap.Walk(wspath.Path(f.last), func(e gitstore.Entry) error {
			kept = kept || !left[string(e.Path)]
			return nil
		}); err != nil {
			return err
		}
		if !kept {
			p.prune = append(p.prune, f.last)
		}
	}
	// Deepest first; among equals by name, so that a plan's token is stable.
	slices.SortFunc(p.prune, func(a, b string) int { return cmp.Or(deeper(a, b), strings.Compare(a, b)) })
	return nil
}

// conflicts returns those that block the revert, or were left out.
func (p *plan) conflicts() []Conflict {
	var out []Conflict
	for _, t := range p.targets {
		if t.conflict != nil {
			out = append(out, *t.conflict)
		}
	}
	for _, f := range p.folders {
		if f.conflict != nil {
			out = append(out, *f.conflict)
		}
	}
	slices.SortStableFunc(out, func(a, b Conflict) int { return strings.Compare(a.Path, b.Path) })
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

// files lists what is done, sorted by path.
func (p *plan) files() []File {
	var out []File
	for _, t := range p.targets {
		if !t.applies() {
			continue
		}
		a, path := t.action()
		out = append(out, File{Path: path, Action: a, Source: string(t.newest().Source)})
	}
	for _, f := range p.folders {
		if f.applies() {
			a, path := p.folderAction(f)
			out = append(out, File{Path: path + "/", Action: a, Source: string(f.entries[len(f.entries)-1].Source)})
		}
	}
	slices.SortStableFunc(out, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// undone gives the entries that the plan undoes.
func (p *plan) undone() []*history.Entry {
	var out []*history.Entry
	for _, t := range p.targets {
		if t.applies() {
			out = append(out, t.entries...)
		}
	}
	for _, f := range p.folders {
		if f.applies() {
			out = append(out, f.entries...)
		}
	}
	slices.SortFunc(out, func(a, b *history.Entry) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// fingerprint identifies a plan: what is undone, the current state, the state it is
// to become. A plan that was shown and the one that is carried out must agree.
func (p *plan) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q\n", p.task, p.sel.what)
	for _, t := range p.targets {
		for _, e := range t.entries {
			fmt.Fprintf(h, "%d ", e.ID)
		}
		state(h, t.now)
		state(h, t.want)
		// The state although the file is gone, or is to be left alone.
		for _, path := range []string{t.chain.First().Path, t.chain.Last().Path} {
			if s, err := at(p.snap, path); err == nil {
				state(h, s)
			}
		}
		fmt.Fprintf(h, "%t %t\n", t.skipped, t.conflict != nil)
	}
	for _, f := range p.folders {
		for _, e := range f.entries {
			fmt.Fprintf(h, "%d ", e.ID)
		}
		fmt.Fprintf(h, "%q %q %t %t\n", f.first(), f.last, f.skipped, f.conflict != nil)
	}
	for _, x := range p.wholes {
		fmt.Fprintf(h, "%q %q\n", x.from, x.to)
	}
	for _, path := range p.force { // what makes way must be what was seen
		if s, err := at(p.snap, path); err == nil {
			state(h, s)
		}
	}
	fmt.Fprintf(h, "%q %q %q", p.prune, p.vacate, p.force)
	return hex.EncodeToString(h.Sum(nil))
}

func state(w io.Writer, s history.State) { fmt.Fprintf(w, "%q %o %s ", s.Path, s.Mode, s.ID) }
