// Package merge brings the changes of one workspace into another that shares its
// history: a fork's into its parent, and the parent's news into a fork
// (contracts/forks.md).
package merge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/lineage"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// How commits are made again.
const (
	Replay = "replay" // one by one, each with its author
	Squash = "squash" // as one commit
)

// What a conflict does.
const (
	Refuse = "refuse" // nothing is merged
	Skip   = "skip"   // its path is left as it is
)

// Request says what to merge. Empty lists choose everything.
type Request struct {
	Tasks, Subtasks []string
	Paths           []wspath.Path
	Picked          []Picked // of single hunks; nothing else is merged then
	As, OnConflict  string
	Again           bool // also what was merged before and a revert took back
	DryRun          bool
	Plan            string // of a dry run: exactly that is done, or nothing
	By              workspace.By
	May             func() error // may the task of By change now
	// Begin, if set, is called before the first of several commits, with the target's
	// newest one. What it records must outlive a crash until done is called.
	Begin func(before object.ID) (done func() error, err error)
}

// Picked is a file of the source as some of its hunks make it.
type Picked struct {
	Path, From string // From: its former name, where it is renamed
	Was, Want  Content
	Commit     object.ID // of the source; whose the change is
	Hunks      []string
}

// Content is one version of a file; Mode 0: there is none. Data is set where the
// source's history does not have it.
type Content struct {
	Mode object.Mode
	ID   object.ID
	Data []byte
}

// Who made a change.
type Who struct {
	Commit    object.ID
	TaskID    string
	SubtaskID string
	Actor     string
	Source    message.Source
	At        time.Time
}

// Conflict is a path whose two versions cannot be merged.
type Conflict struct {
	Path         string // in the source
	Here         string // its name in the target, where that is why (Renamed)
	Reason       string // "content", "deleted_here", "changed_here", "occupied", Renamed
	Ours, Theirs Who
}

// Renamed is the reason of a file or directory that both sides gave another name.
const Renamed = "renamed"

// File is a path that a merge changes, and how.
type File struct{ Path, Action string } // "created", "modified", "deleted"

// Result reports what a merge did, or would do.
type Result struct {
	Commits   []object.ID // that were made
	Merged    int         // commits of the source that are now in the target
	Skipped   []string    // paths that conflicts left out
	Conflicts []Conflict
	Files     []File
	Plan      string
	// Reverted counts the commits of the source that were merged before, and of which a
	// revert took something back: without Request.Again that is left out.
	Reverted int
	// Dropped reports that retention dropped commits of the target since the common history:
	// the merge may bring again what they were made from.
	Dropped bool
}

// Empty reports whether a merge does, and records, nothing.
func (r *Result) Empty() bool { return len(r.Files) == 0 && len(r.Conflicts) == 0 && r.Merged == 0 }

// Unplanned reports whether a request is refused since it has no plan of a dry run: errs.Gone
// "history_dropped".
func (r *Result) Unplanned(req Request) bool { return r.Dropped && req.Plan == "" && !r.Empty() }

// The trailers of a commit that a merge made: the workspace and commit that it was
// made from, one for each, and for one of which only some paths were merged those.
const (
	KeyFrom = "Merged-From"
	KeyTask = "Merged-Task"
	KeyPart = "Merged-Part"
	// KeyHunk is of a commit that has single hunks of the one that it is made from.
	KeyHunk = "Merged-Hunk"
	// KeyFound names a workspace and a commit, and a path where it is not all of it, that the
	// target had already: nothing was made from it.
	KeyFound = "Merged-Found"
	// KeyAgain is of a commit that brings back what a revert took back of an earlier merge:
	// each commit that it is made from of which it does.
	KeyAgain = "Merged-Again"
	// KeyUndone is of the commit that takes a merge back which did not come to its
	// end: each of its commits.
	KeyUndone = "Merge-Undone"
)

func errStale() error {
	return errs.New(errs.Conflict, "plan_stale", "Something that the plan touches has changed since; ask for a new one.")
}

// Side is a workspace that takes part, and its ancestors: itself first, each with
// the number of its commit at which the one before begins.
type Side struct {
	W       *workspace.Workspace
	Lineage []Ancestor
	Shares  []string // further workspaces whose history these have; one between was deleted
}

// related reports whether two sides have history of one workspace. Equal commits alone do not
// mean that: empty workspaces that are made in one second begin with the same.
func related(a, b Side) bool {
	ids := func(s Side) []string {
		out := slices.Clone(s.Shares)
		for _, x := range s.Lineage {
			out = append(out, x.ID)
		}
		return out
	}
	other := ids(b)
	return slices.ContainsFunc(ids(a), func(id string) bool { return slices.Contains(other, id) })
}

// Ancestor is a workspace that another is a fork of, directly or not.
type Ancestor struct {
	ID  string
	Seq uint64 // the newest commit of it that the other shares
}

// base gives the number of the newest commit that both sides share.
func base(a, b Side) (uint64, bool) {
	for _, x := range a.Lineage {
		for _, y := range b.Lineage {
			if x.ID == y.ID {
				return min(x.Seq, y.Seq), true
			}
		}
	}
	return 0, false
}

// sharedUntil returns the number of the newest commit that two histories share; 0: there is
// none. By it workspaces are related of which one between was deleted.
func sharedUntil(ctx context.Context, a, b *gitstore.Store) (uint64, error) {
	var err error
	at := func(st *gitstore.Store, seq uint64) object.ID {
		if err != nil {
			return object.Zero
		}
		id, aerr := st.CommitAt(ctx, seq)
		if aerr != nil && !errs.Is(aerr, errs.NotFound) && !errs.Is(aerr, errs.Gone) {
			err = aerr
		}
		return id
	}
	// Numbers from 1 on are shared up to one; the first ones may be dropped of either.
	last := min(a.Tip().Seq, b.Tip().Seq)
	n := uint64(sort.Search(int(last), func(i int) bool {
		x, y := at(a, uint64(i)+1), at(b, uint64(i)+1)
		return x != y && !x.IsZero() && !y.IsZero()
	}))
	if n > 0 {
		if x, y := at(a, n), at(b, n); x != y || x.IsZero() {
			return 0, err
		}
	}
	return n, err
}

// Do merges what from has and into lacks. Writers of into wait meanwhile; what its
// disk holds otherwise than history is to be recorded before.
//
// Unprocessable "unrelated"; Gone "history_dropped", also without the plan of a dry run where
// the target's history does not show what was merged before; Conflict "merge_conflict" with the field "conflicts",
// "plan_stale"; the errors of workspace.Apply.
func Do(ctx context.Context, from, into Side, req Request) (*Result, error) {
	since, ok := base(from, into)
	if !ok && related(from, into) {
		var err error
		if since, err = sharedUntil(ctx, from.W.Store(), into.W.Store()); err != nil {
			return nil, err
		}
	}
	if a, b := from.W.Store().Boundary(), into.W.Store().Boundary(); !ok && since == 0 && related(from, into) && !(a.Whole() && b.Whole()) {
		return nil, errs.New(errs.Gone, "history_dropped", "Retention dropped the commits that %s and %s share.", from.W.ID(), into.W.ID())
	}
	if !ok && since == 0 {
		return nil, errs.New(errs.Unprocessable, "unrelated", "The workspaces share no history.").With("field", "into")
	}
	if from.W.Store().Boundary().Seq > since {
		return nil, errs.New(errs.Gone, "history_dropped", "Retention dropped commits of %s that are to be merged.", from.W.ID())
	}
	if !req.DryRun {
		held, release, err := into.W.Hold(ctx, []wspath.Path{wspath.Root})
		if err != nil {
			return nil, err
		}
		defer release()
		ctx = held
	}
	m := &merger{ctx: ctx, from: from.W, into: into.W, since: since, req: &req, brought: map[uint64]bool{}}
	if err := m.choose(); err != nil {
		return nil, err
	}
	if !req.DryRun {
		if err := into.W.RecordPaths(ctx, m.touched()); err != nil {
			return nil, err
		}
	}
	if err := m.plan(); err != nil {
		return nil, err
	}
	m.dropped = into.W.Store().Boundary().Seq > since // after all of it was read
	res := m.result()
	blocked := len(m.conflicts) > 0 && req.OnConflict != Skip
	if !blocked {
		if err := m.obeys(); err != nil {
			return nil, err
		}
	}
	switch {
	case req.DryRun:
		return res, nil
	case req.Plan != "" && req.Plan != res.Plan:
		return nil, errStale()
	case res.Unplanned(req):
		return nil, errs.New(errs.Gone, "history_dropped",
			"Retention dropped commits of %s since the fork: what was merged before may be merged again. Check a dry run, then merge with its plan.", into.W.ID())
	case blocked:
		return res, errs.New(errs.Conflict, "merge_conflict", "%d of the paths cannot be merged; nothing was changed.", len(m.conflicts))
	}
	return res, m.carryOut(res)
}

// outcome is what a step does to a path of the target.
type outcome struct {
	path, from string // from: its former name, where it is moved
	source     string // the path's name in the source
	apart      bool   // it is no rename on disk: one path is a directory of the other
	was, want  version
	data       []byte // of a merge of texts
}

type merger struct {
	ctx        context.Context
	from, into *workspace.Workspace
	since      uint64
	req        *Request

	steps     []*step
	tip       gitstore.Snapshot   // of into
	over      map[string]cell     // what is planned for paths of into
	moves     []lineage.Move      // of files that into made since
	sent      []lineage.Move      // and from, if into made any
	shared    gitstore.Snapshot   // of the common history, likewise
	seq       uint64              // of the commit of from that is planned
	dirs      []lineage.Move      // of whole directories
	deferred  map[string]bool     // paths of the source that are merged as a whole
	excluded  map[string]Conflict // paths that are left out of all commits
	conflicts []Conflict
	skipped   map[string]bool
	reverted  int
	dropped   bool // Result.Dropped

	brought map[uint64]bool   // commits of into that are made from ones of from
	names   map[string]string // that files of from have in into by the plan, where they differ
	named   map[string]string // likewise, before the step that is planned
	carried map[string]bool   // paths of into at which the plan has what moved along with a directory
	apart   *wspath.Move      // the names of a directory in into and from that are in conflict
}

// cell is the planned content of a path.
type cell struct {
	version
	data []byte // of a merge that no history has yet
}

// source is a commit of the source.
type source struct {
	id  object.ID
	seq uint64
}

// choose lists the commits of the source that are asked for and not merged yet.
func (m *merger) choose() error {
	if m.req.Picked != nil {
		return m.pick()
	}
	h, err := m.merged()
	if err != nil {
		return err
	}
	st := m.from.Store()
	var list []source
	err = st.Records(m.ctx, m.since+1, st.Tip().Seq, func(r gitstore.Record) error {
		if r.Seq > m.since && r.Entries > 0 && (!h.whole[r.Commit] || len(h.taken[r.Commit]) > 0) && m.wants(r) {
			list = append(list, source{r.Commit, r.Seq})
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, of := range list {
		id := of.id
		has := func(c change) bool { return h.whole[id] || h.parts[id][c.path] }
		again := false
		s, err := m.step(id, func(c change) (bool, error) {
			if !has(c) || !m.req.Again {
				return has(c), nil
			}
			back, err := m.takenBack(h, of, c)
			again = again || back
			return !back, err
		})
		if err != nil {
			return err
		}
		if s != nil {
			s.again = again
			m.steps = append(m.steps, s)
		}
		if len(h.taken[id]) == 0 || m.req.Again {
			continue
		}
		left, err := m.step(id, func(c change) (bool, error) {
			back, err := m.takenBack(h, of, c)
			return !back || !has(c), err
		})
		if err != nil {
			return err
		}
		if left != nil {
			m.reverted++
		}
	}
	return nil
}

// pick makes a step of each file with hunks that are asked for.
func (m *merger) pick() error {
	st := m.from.Store()
	for _, p := range m.req.Picked {
		c, err := st.ReadCommit(m.ctx, p.Commit)
		if err != nil {
			return err
		}
		snap := st.Snapshot()
		s := &step{commit: c, before: snap, after: snap, hunks: p.Hunks,
			changes: []change{{path: p.Path, from: p.From, old: version{p.Was.Mode, p.Was.ID}, now: version{p.Want.Mode, p.Want.ID}, oldData: p.Was.Data, nowData: p.Want.Data}}}
		s.index()
		m.steps = append(m.steps, s)
	}
	return nil
}

func (m *merger) wants(r gitstore.Record) bool {
	return (len(m.req.Tasks) == 0 || slices.Contains(m.req.Tasks, r.Task)) && (len(m.req.Subtasks) == 0 || slices.Contains(m.req.Subtasks, r.Subtask))
}

func (m *merger) within(path string) bool {
	return len(m.req.Paths) == 0 || slices.ContainsFunc(m.req.Paths, func(p wspath.Path) bool {
		return p.IsRoot() || wspath.Path(path) == p || wspath.Path(path).IsUnder(p)
	})
}

// follow gives the name that a path of the common history has in the target now.
func (m *merger) follow(path string) (string, error) {
	if to, ok := m.named[path]; ok {
		return to, nil
	}
	if to, err := m.moved(path); err != nil || to != "" {
		return to, err
	}
	if v, err := m.at(path); err != nil || v.Mode != 0 {
		return path, err
	}
	if was := m.origin(path); was != path {
		if to, _ := m.forward(was); to != "" {
			if v, err := m.at(to); err != nil || v.Mode != 0 {
				return to, err
			}
		}
	}
	switch to, by := m.forward(path); {
	case to == "":
		return path, nil
	case len(by) > 0:
		return to, nil
	}
	now := wspath.Path(path)
	for _, r := range m.dirs { // it came after the directory was renamed
		if to, ok := r.Follow(now); ok {
			now = to
		}
	}
	if v, err := m.at(string(now)); err != nil || v.Mode == 0 {
		return path, err
	}
	return string(now), nil
}

// moved returns the name that the target gave a file of the common history which the source
// has at a path, before the commit that is planned; empty: it gave it none. The target may
// have another file at the path by now.
func (m *merger) moved(path string) (string, error) {
	now, _ := m.forward(path)
	left := func(r lineage.Move) bool {
		_, ok := r.Follow(wspath.Path(path))
		return ok && r.Seq < m.seq
	}
	if now == path || now == "" || slices.ContainsFunc(m.sent, left) {
		return "", nil
	}
	if _, ok, err := m.shared.Lookup(wspath.Path(path)); err != nil || !ok {
		return "", err
	}
	if v, err := m.at(now); err != nil || v.Mode == 0 {
		return "", err
	}
	return now, nil
}

// touched lists the paths that the target may be changed at.
func (m *merger) touched() []wspath.Path {
	seen := map[string]bool{}
	for _, s := range m.steps {
		for _, c := range s.changes {
			seen[c.path] = true
			if c.from != "" {
				seen[c.from] = true
			}
		}
	}
	out := make([]wspath.Path, 0, len(seen))
	for p := range seen {
		out = append(out, wspath.Path(p))
	}
	slices.Sort(out)
	return out
}

// result reports what the plan does.
func (m *merger) result() *Result {
	res := &Result{Reverted: m.reverted, Dropped: m.dropped, Commits: []object.ID{}, Conflicts: m.conflicts, Files: []File{}, Skipped: []string{}}
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %q %q\n", m.from.ID(), m.into.ID(), m.req.As, m.req.OnConflict)
	if m.dropped {
		fmt.Fprintln(h, "dropped")
	}
	first := map[string]version{}
	last := map[string]version{}
	for _, s := range m.steps {
		fmt.Fprintf(h, "%s\n", s.commit.ID)
		if len(s.todo) > 0 || !m.left(s) {
			res.Merged++
		}
		for _, o := range s.all() {
			fmt.Fprintf(h, "%q %q %o %s %o %s\n", o.from, o.path, o.was.Mode, o.was.ID, o.want.Mode, o.want.ID)
			if o.from != "" {
				note(first, last, o.from, o.was, version{})
				note(first, last, o.path, version{}, o.want)
			} else {
				note(first, last, o.path, o.was, o.want)
			}
		}
	}
	for _, c := range m.conflicts {
		fmt.Fprintf(h, "conflict %q %q %s\n", c.Path, c.Here, c.Reason)
		if m.req.OnConflict == Skip {
			res.Skipped = append(res.Skipped, c.Path)
		}
	}
	for p, was := range first {
		now := last[p]
		switch {
		case was == now:
		case was.Mode == 0:
			res.Files = append(res.Files, File{p, "created"})
		case now.Mode == 0:
			res.Files = append(res.Files, File{p, "deleted"})
		default:
			res.Files = append(res.Files, File{p, "modified"})
		}
	}
	slices.SortFunc(res.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	res.Plan = hex.EncodeToString(h.Sum(nil))
	return res
}

// left reports whether all of a step is left out by conflicts.
func (m *merger) left(s *step) bool {
	return !slices.ContainsFunc(s.changes, func(c change) bool { return !m.skipped[c.path] })
}

func note(first, last map[string]version, p string, was, want version) {
	if _, ok := first[p]; !ok {
		first[p] = was
	}
	last[p] = want
}
