package model

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"reflect"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace/wstest"
	"umbra/internal/wspath"
)

// check holds after every step.
func (g *rig) check() error {
	if err := g.checkTip(); err != nil {
		return err
	}
	if err := g.checkCommits(); err != nil {
		return err
	}
	for p, t := range g.disk {
		if strings.Contains(path.Base(p), ".umbra-") {
			return broken("litter", "%q is left on disk", p)
		}
		if !g.cut && strings.HasPrefix(t.Data, "secret") && t.Mode != object.Symlink && t.Info.Mode.Perm()&0o077 != 0 {
			return broken("private", "%q has the bits %v", p, t.Info.Mode.Perm())
		}
	}
	return nil
}

// checkTip compares disk and tip: kinds, modes, bytes.
func (g *rig) checkTip() error {
	tip := make(map[string]gitstore.Entry)
	if err := g.w.Store().Snapshot().Walk(wspath.Root, func(e gitstore.Entry) error {
		tip[string(e.Path)] = e
		return nil
	}); err != nil {
		return err
	}
	named := func(p string) bool {
		return slices.ContainsFunc(g.pending, func(q string) bool { return overlap(p, q) })
	}
	for p, t := range g.disk {
		if t.Mode == object.Dir || named(p) {
			delete(tip, p)
			continue
		}
		e, ok := tip[p]
		delete(tip, p)
		switch {
		case !ok && ignored(p):
		case !ok:
			return broken("tip", "%q is on disk only", p)
		case e.Mode != t.Mode:
			return broken("tip", "%q is %v on disk, %v in history", p, t.Mode, e.Mode)
		case e.ID != object.Hash(object.Blob, []byte(t.Data)):
			return broken("tip", "%q has other bytes on disk: %.60q", p, t.Data)
		}
	}
	for p := range tip {
		if !named(p) {
			return broken("tip", "%q is in history only", p)
		}
	}
	return nil
}

// checkCommits looks at what was committed since the last look: the entries
// tell what lies between the trees, no less and no more, and count on.
func (g *rig) checkCommits() error {
	st := g.w.Store()
	for ; g.seen < st.Tip().Seq; g.seen++ {
		id, err := st.CommitAt(background, g.seen+1)
		if err != nil {
			return err
		}
		c, err := st.ReadCommit(background, id)
		if err != nil {
			return err
		}
		entries, err := g.w.EntriesOf(background, c)
		if err != nil {
			return err
		}
		if c.Seq != g.seen+1 {
			return broken("entries", "commit %d is told as %d", g.seen+1, c.Seq)
		}
		for i := range entries {
			g.log = append(g.log, &change{entries[i], c.Parent})
		}
		if c.Message.Source == message.Baseline {
			continue
		}
		if err := g.checkEntries(c, g.log[len(g.log)-len(entries):]); err != nil {
			return err
		}
	}
	return nil
}

// checkTouched: the index says of no commit that it did not touch what it changed. A
// purge passes over the commits of which it says so.
func (g *rig) checkTouched() error {
	st := g.w.Store()
	return st.Records(background, 2, st.Tip().Seq, func(rec gitstore.Record) error {
		c, err := st.ReadCommit(background, rec.Commit)
		if err != nil {
			return err
		}
		return st.DiffTrees(background, c.Parent, c.ID, wspath.Root, func(t gitstore.TreeChange) error {
			if !rec.MayTouch(string(t.Path)) {
				return broken("index", "commit %d did not touch %s by the index", rec.Seq, t.Path)
			}
			return nil
		})
	})
}

func lookup(snap gitstore.Snapshot, p string) (gitstore.Entry, error) {
	e, ok, err := snap.Lookup(wspath.Path(p))
	if err != nil || !ok || e.Mode == object.Dir {
		return gitstore.Entry{}, err
	}
	return e, nil
}

func (g *rig) checkEntries(c *gitstore.Commit, entries []*change) error {
	st := g.w.Store()
	before, err := st.SnapshotOf(background, c.Parent)
	if err != nil {
		return err
	}
	after, err := st.SnapshotOf(background, c.ID)
	if err != nil {
		return err
	}
	type side struct {
		mode object.Mode
		id   object.ID
	}
	want := make(map[string]side) // what the entries make of the paths that they name
	for _, e := range entries {
		if !strings.HasSuffix(e.Path, "/") && e.BeforeMode != 0 {
			want[e.Path] = side{}
		}
	}
	for _, e := range entries {
		if e.TaskID != "" && e.ID != g.nextID(e) {
			return broken("entries", "%s has the number %d", e.Path, e.ID)
		}
		if strings.HasSuffix(e.Path, "/") {
			continue
		}
		to := e.Path
		if e.NewPath != "" {
			to = e.NewPath
		}
		was, err := lookup(before, e.Path)
		if err != nil {
			return err
		}
		if e.BeforeMode != 0 && (was.Mode != e.BeforeMode || was.ID != e.Before) {
			return broken("entries", "commit %d, %s %s: before is %v %v, the tree had %v %v", c.Seq, e.Operation, e.Path, e.BeforeMode, e.Before, was.Mode, was.ID)
		}
		if e.Mode != 0 {
			if s, ok := want[to]; ok && s.mode != 0 {
				return broken("entries", "commit %d: two entries put something at %s", c.Seq, to)
			}
			want[to] = side{e.Mode, e.After}
			data, err := st.ReadBlob(background, e.After, 1<<30)
			if err != nil {
				return err
			}
			sum := sha256.Sum256(data)
			if e.AfterHash != "sha256:"+hex.EncodeToString(sum[:]) {
				return broken("entries", "commit %d, %s %s: the after-hash is another file's", c.Seq, e.Operation, e.Path)
			}
		}
	}
	for p, s := range want {
		is, err := lookup(after, p)
		if err != nil {
			return err
		}
		if is.Mode != s.mode || is.ID != s.id {
			return broken("entries", "commit %d: by the entries %s is %v %v, in the tree %v %v", c.Seq, p, s.mode, s.id, is.Mode, is.ID)
		}
	}
	return st.DiffTrees(background, c.Parent, c.ID, wspath.Root, func(t gitstore.TreeChange) error {
		if _, ok := want[string(t.Path)]; !ok {
			return broken("entries", "commit %d: no entry tells of %s", c.Seq, t.Path)
		}
		return nil
	})
}

// nextID is the number that an entry must have: one more than the task's last.
func (g *rig) nextID(e *change) uint64 {
	n := uint64(1)
	for _, o := range g.log {
		if o == e {
			break
		}
		if o.TaskID == e.TaskID {
			n = o.ID + 1
		}
	}
	return n
}

// checkEnd holds at the end: what was computed on the way is what is computed
// anew, and the summaries come to what the trees say.
func (g *rig) checkEnd() error {
	var all []*change
	for seq := uint64(2); seq <= g.seen; seq++ {
		id, err := g.w.Store().CommitAt(background, seq)
		if err != nil {
			return err
		}
		c, err := g.w.Store().ReadCommit(background, id)
		if err != nil {
			return err
		}
		entries, err := g.w.EntriesOf(background, c)
		if err != nil {
			return err
		}
		for i := range entries {
			all = append(all, &change{entries[i], c.Parent})
		}
	}
	if !reflect.DeepEqual(all, g.log) {
		return broken("history", "entries are told otherwise than before")
	}
	if err := g.checkTouched(); err != nil {
		return err
	}
	fresh := history.NewCache()
	for _, id := range tasks {
		warm, err := g.cache.Task(background, g.w, id)
		if err != nil {
			return err
		}
		cold, err := fresh.Task(background, g.w, id)
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(warm, cold) {
			return broken("history", "task %s is remembered otherwise than it is read", id)
		}
		if err := g.checkUndone(cold); err != nil {
			return err
		}
		sum, err := g.cache.Summary(background, g.w, id)
		if err != nil {
			return err
		}
		if err := g.checkSummary(cold, sum); err != nil {
			return err
		}
	}
	return nil
}

// checkUndone decides again, entry by entry, what is in effect: how often each is
// in the files, less how often what undoes it is. What a commit names beside its
// entries is undone while any of them is in effect.
func (g *rig) checkUndone(t *history.Task) error {
	byCommit := make(map[object.ID][]*history.Entry)
	for i := range t.Entries {
		byCommit[t.Entries[i].Commit] = append(byCommit[t.Entries[i].Commit], &t.Entries[i])
	}
	by := make(map[uint64]map[object.ID][]*history.Entry) // in each commit, those that undo an entry
	add := func(id uint64, commit object.ID, entries ...*history.Entry) {
		if by[id] == nil {
			by[id] = make(map[object.ID][]*history.Entry)
		}
		by[id][commit] = append(by[id][commit], entries...)
	}
	for id, entries := range byCommit {
		c, err := g.w.Store().ReadCommit(background, id)
		if err != nil {
			return err
		}
		for _, e := range entries {
			for _, r := range e.Reverts {
				add(r.ID, id, e)
			}
		}
		for _, r := range c.Message.RevertsEntries {
			if by[r.ID][id] == nil {
				add(r.ID, id, entries...)
			}
		}
	}
	known := make(map[uint64]int)
	var times func(e *history.Entry) int
	times = func(e *history.Entry) int {
		if n, ok := known[e.ID]; ok {
			return n
		}
		n := 1
		for _, of := range by[e.ID] {
			for _, r := range of {
				if r.ID > e.ID && times(r) != 0 {
					n -= times(r)
					break
				}
			}
		}
		known[e.ID] = n
		return n
	}
	for i := range t.Entries {
		if e := &t.Entries[i]; e.Undone == (times(e) > 0) {
			return broken("undone", "%s %d is taken for undone: %t", t.ID, e.ID, e.Undone)
		}
	}
	return nil
}

// checkSummary: each path in one list, and where nobody else was at the task's
// files and nothing of its was taken back, its state without them with the
// summary applied is the tip.
func (g *rig) checkSummary(t *history.Task, sum *history.Summary) error {
	seen := make(map[string]bool)
	reverted := false
	for i := range t.Entries {
		reverted = reverted || t.Entries[i].IsRevert()
	}
	for _, f := range sum.Files {
		if seen[f.Path+"\x00"+string(f.Status)] {
			return broken("summary", "%s: %q is listed twice", t.ID, f.Path)
		}
		seen[f.Path+"\x00"+string(f.Status)] = true
		ok := true
		switch f.Status {
		case history.Created:
			ok = !f.Before.Exists() && f.After.Exists()
		case history.Modified:
			ok = f.Before.Exists() && f.After.Exists() && f.Before.Path == f.After.Path
		case history.Deleted:
			ok = f.Before.Exists() && !f.After.Exists()
		case history.Renamed:
			ok = f.Before.Exists() && f.After.Exists() && f.Before.Path == f.From && f.From != f.Path
		}
		if !ok {
			return broken("summary", "%s: %q is no %s: %v, %v", t.ID, f.Path, f.Status, f.Before, f.After)
		}
	}
	if reverted || len(t.Entries) == 0 {
		return nil
	}
	base, _, alone, err := g.without(t.ID)
	if err != nil || !alone {
		return err
	}
	for _, f := range sum.Files {
		if f.Before.Exists() {
			x, ok := base[f.Before.Path]
			if !ok || x.Mode != f.Before.Mode || object.Hash(object.Blob, []byte(x.Data)) != f.Before.ID {
				return broken("summary", "%s: %q was not %v before", t.ID, f.Path, f.Before)
			}
			delete(base, f.Before.Path)
		}
	}
	for _, f := range sum.Files {
		if f.After.Exists() {
			data, err := g.w.Store().ReadBlob(background, f.After.ID, 1<<30)
			if err != nil {
				return err
			}
			base[f.After.Path] = wstest.Thing{Mode: f.After.Mode, Data: string(data)}
		}
	}
	tip, err := g.tip()
	if err != nil {
		return err
	}
	if d := wstest.Differ("by the summary", base, "in history", tip); d != "" {
		return broken("summary", "task %s:\n%s", t.ID, d)
	}
	return nil
}
