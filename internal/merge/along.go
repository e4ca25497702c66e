package merge

import (
	"fmt"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// along plans that files which the target added to a directory since the common history move
// with it, where a step renames it. A file stays where it is if something is at its new name,
// or the source had, or gets, one at its old or new name.
func (m *merger) along(i int) error {
	s := m.steps[i]
	if s.partial || s.hunks != nil || len(s.todo) == 0 {
		return nil
	}
	for _, d := range s.directories() {
		here, want, ok, err := m.carries(s, d)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		names, err := m.inside(here)
		if err != nil {
			return err
		}
		for _, p := range names {
			rest, _ := wspath.Path(p).Rel(here)
			to := string(want.Join(string(rest)))
			c, err := m.at(p)
			if err != nil {
				return err
			}
			if ok, err := m.goesAlong(i, d, p, string(rest), to, c.version); err != nil {
				return err
			} else if !ok {
				continue
			}
			s.along = append(s.along, outcome{path: to, from: p, was: c.version, want: c.version})
			m.over[p], m.over[to] = cell{}, c
			delete(m.carried, p)
			m.carried[to] = true
		}
	}
	return nil
}

// carries returns the names that a directory which a step renames has in the target before and
// after it; ok is false unless all that the target has of it is moved from one to the other.
func (m *merger) carries(s *step, d wspath.Move) (here, want wspath.Path, ok bool, err error) {
	here = d.From
	for _, r := range m.dirs {
		if now, ok := r.Follow(here); ok {
			here = now
		}
	}
	to, err := m.placed(string(d.To))
	if err != nil {
		return here, want, false, err
	}
	if want = wspath.Path(to); here == want || here.IsUnder(want) || want.IsUnder(here) {
		return here, want, false, nil
	}
	for _, c := range s.changes {
		if of, in := s.directory(c); !in || of != d {
			continue
		}
		if m.leftOut(c.path) || m.leftOut(c.from) {
			return here, want, false, nil
		}
		for _, o := range s.todo {
			if o.source != c.path || o.from == "" {
				continue
			}
			rest, in := wspath.Path(o.from).Rel(here)
			if !in || string(want.Join(string(rest))) != o.path {
				return here, want, false, nil
			}
			ok = true
		}
	}
	return here, want, ok, nil
}

// inside lists the files of a directory of the target that no step planned anything for, and
// those that moved there along with it.
func (m *merger) inside(dir wspath.Path) (names []string, err error) {
	for p := range m.carried {
		if wspath.Path(p).IsUnder(dir) {
			names = append(names, p)
		}
	}
	if e, ok, err := m.tip.Lookup(dir); err != nil || !ok || e.Mode != object.Dir {
		return names, err
	}
	err = m.tip.Walk(dir, func(e gitstore.Entry) error {
		if _, planned := m.over[string(e.Path)]; !planned && (e.Mode == object.Symlink || version{e.Mode, e.ID}.file()) {
			names = append(names, string(e.Path))
		}
		return nil
	})
	slices.Sort(names)
	return names, err
}

// goesAlong reports whether a file of the target moves with its directory.
func (m *merger) goesAlong(i int, d wspath.Move, p, rest, to string, v version) (bool, error) {
	was, now := string(d.From.Join(rest)), string(d.To.Join(rest))
	for _, s := range m.steps[i+1:] { // what a later one puts there is put where the target has nothing
		if slices.ContainsFunc(s.changes, func(c change) bool {
			return c.now.Mode != 0 && (c.path == now || strings.HasPrefix(c.path, now+"/") || strings.HasPrefix(now, c.path+"/"))
		}) {
			return false, nil
		}
	}
	if _, has, err := m.from.Store().Snapshot().Lookup(wspath.Path(now)); err != nil || has {
		return false, err
	}
	if c, err := m.at(to); err != nil || c.Mode != 0 {
		return false, err
	}
	for path, c := range m.over {
		if c.Mode != 0 && strings.HasPrefix(path, to+"/") {
			return false, nil
		}
	}
	if reason, err := m.blocked(to, p, v); err != nil || reason != "" {
		return false, err
	}
	if shared, err := m.inCommon(p); err != nil || shared {
		return false, err
	}
	knew, err := m.knew(was)
	return !knew, err
}

// inCommon reports whether a file of the target comes from the common history.
func (m *merger) inCommon(path string) (bool, error) {
	if m.since == 0 {
		return false, nil
	}
	if m.shared.Tree().IsZero() {
		st := m.from.Store()
		at, err := st.CommitAt(m.ctx, m.since)
		if err == nil {
			m.shared, err = st.SnapshotOf(m.ctx, at)
		}
		if err != nil || m.shared.Tree().IsZero() {
			return false, err
		}
	}
	was := wspath.Path(path)
	for _, r := range slices.Backward(m.moves) {
		if from, ok := r.Back().Follow(was); ok {
			was = from
		}
	}
	_, has, err := m.shared.Lookup(was)
	return has, err
}

// knew reports whether the source did something to a path since the common history.
func (m *merger) knew(path string) (found bool, err error) {
	st := m.from.Store()
	var list []object.ID
	err = st.Records(m.ctx, m.since+1, st.Tip().Seq, func(r gitstore.Record) error {
		if r.Seq > m.since && r.Entries > 0 && r.MayTouch(path) {
			list = append(list, r.Commit)
		}
		return nil
	})
	for i := 0; i < len(list) && err == nil && !found; i++ {
		var entries []workspace.ChangeEntry
		entries, err = m.from.EntriesAt(m.ctx, list[i])
		found = slices.ContainsFunc(entries, func(e workspace.ChangeEntry) bool { return e.Path == path || e.NewPath == path })
	}
	return found, err
}

// follows is the request that moves what goes along with a step's directories. It is the
// merge's own change, in the subtask of what it follows.
func (m *merger) follows(s *step) (workspace.Request, error) {
	ops, err := m.ops(s.along, s.after)
	by := m.req.By
	by.SubtaskID, by.Source, by.Message = s.commit.Message.SubtaskID, message.Merge, fmt.Sprintf("merge %s: what was added to a renamed directory moves along", m.from.ID())
	return workspace.Request{By: by, Ops: ops, AllowRepoShape: true, Check: m.req.May}, err
}
