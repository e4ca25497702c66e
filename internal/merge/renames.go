package merge

import (
	"slices"

	"umbra/internal/lineage"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// renamed returns the path to which a file that a step renames is moved; the target has it at
// a path. Names are merged three-way, as contents are: those that one side gave a file, and
// the other a directory that it is in, are combined. Two names of one are a conflict.
func (m *merger) renamed(i int, c change, at string) (to, reason string, err error) {
	ours, err := m.at(at)
	if err != nil {
		return "", "", err
	}
	final := m.final(i, c.path)
	if at == c.from || ours.Mode == 0 || final == "" {
		to, err = m.placed(c.path)
		return to, "", err
	}
	if names := m.formerly(i, c); final == names[len(names)-1] {
		return at, "", nil // the source has it at its old name again
	}
	if last, err := m.placed(final); err != nil || last == at {
		return at, "", err // a later step gives it the target's name
	}
	if d, ok := m.steps[i].directory(c); ok {
		return m.renamedDir(i, d, at)
	}
	place := func(name string) (string, error) {
		if wspath.Path(name).Dir() == wspath.Path(c.from).Dir() {
			return string(wspath.Path(at).Dir().Join(wspath.Path(name).Base())), nil
		}
		return m.placed(name)
	}
	if to, err = place(c.path); err != nil || to == at {
		return to, "", err
	}
	if given, err := m.gave(c.from); err != nil || !given {
		return to, "", err
	}
	if last, err := place(final); err != nil || last == at {
		return at, "", err // likewise, in the target's directory
	}
	return "", Renamed, nil
}

// renamedDir is renamed for a file of a directory that the step renames.
func (m *merger) renamedDir(i int, d wspath.Move, at string) (to, reason string, err error) {
	here, given := d.From, false // by the target
	for _, r := range m.dirs {
		given = given || r.From == here
		if now, ok := r.Follow(here); ok {
			here = now
		}
	}
	rest, in := wspath.Path(at).Rel(here)
	if !in {
		return at, "", nil // the target moved it out of the directory
	}
	want, err := m.placed(string(d.To))
	if err != nil || !given || here == d.From || want == string(here) {
		return string(wspath.Path(want).Join(string(rest))), "", err
	}
	last := d.To
	for _, s := range m.steps[i+1:] {
		if now, ok := wspath.Moved(s.directories(), last); ok {
			last = now
		}
	}
	if last, err := m.placed(string(last)); err != nil || last == string(here) {
		return at, "", err
	}
	m.apart = &wspath.Move{From: here, To: d.To}
	return "", Renamed, nil
}

// directories returns the directories that a step renames as one.
func (s *step) directories() []wspath.Move {
	return wspath.NetMoves(workspace.FolderMoves(s.commit.Message))
}

// directory returns the directory whose rename is that of a file.
func (s *step) directory(c change) (wspath.Move, bool) {
	list := s.directories()
	i := slices.IndexFunc(list, func(d wspath.Move) bool {
		to, ok := d.Follow(wspath.Path(c.from))
		return ok && string(to) == c.path
	})
	if i < 0 {
		return wspath.Move{}, false
	}
	return list[i], true
}

// final returns the name that the steps leave a file which the source has at a path after one
// of them; empty: they delete it.
func (m *merger) final(i int, path string) string {
	for _, s := range m.steps[i+1:] {
		if next, ok := s.next[path]; ok {
			if path = next; path == "" {
				break
			}
		}
	}
	return path
}

// formerly returns the names that a file has in the source up to a step, the newest first.
func (m *merger) formerly(i int, c change) []string {
	names := []string{c.path}
	for _, s := range slices.Backward(m.steps[:i+1]) {
		if was, ok := s.prev[names[len(names)-1]]; ok {
			names = append(names, was)
		}
	}
	return names
}

// origin returns the name that a file had in the common history which the source has at a
// path, before the commit that is planned.
func (m *merger) origin(path string) string {
	was, last := wspath.Path(path), uint64(0)
	for _, r := range slices.Backward(m.sent) {
		if from, ok := r.Back().Follow(was); ok && !r.Whole && r.Seq < m.seq && r.Seq != last {
			was, last = from, r.Seq
		}
	}
	return string(was)
}

// forward returns where the renames of the target lead from a path, and those that do. A
// rename to where the file is has ended it: those that follow are of another one, until that
// is renamed again. to is empty where another file is at the last name that the target gave
// the file: it exists under no name.
func (m *merger) forward(path string) (to string, by []lineage.Move) {
	now, last, taken := wspath.Path(path), uint64(0), false
	for i, r := range m.moves {
		if _, onto := r.Back().Follow(now); onto && r.Seq != last && !m.leaves(now, m.moves[i:]) {
			taken = true
			continue
		}
		next, ok := r.Follow(now)
		switch {
		case !ok || r.Seq == last: // a commit's renames are at one time
		case taken:
			taken, last = false, r.Seq
		default:
			by = append(by, lineage.Move{Seq: r.Seq, Move: wspath.Move{From: now, To: next}})
			now, last = next, r.Seq
		}
	}
	if taken && len(by) > 0 {
		now = ""
	}
	return string(now), by
}

// leaves reports whether the first commit of some renames renames what is at a path.
func (m *merger) leaves(path wspath.Path, list []lineage.Move) bool {
	return slices.ContainsFunc(list, func(r lineage.Move) bool {
		_, ok := r.Follow(path)
		return ok && r.Seq == list[0].Seq
	})
}

// gave reports whether the target renamed a file of the source itself, other than by a merge
// of the source and more than directories that it is in.
func (m *merger) gave(path string) (bool, error) {
	for _, start := range []string{m.origin(path), path} {
		to, by := m.forward(start)
		if to == "" || len(by) == 0 {
			continue
		}
		if _, ok, err := m.tip.Lookup(wspath.Path(to)); err != nil {
			return false, err
		} else if !ok {
			continue
		}
		given := false
		for _, r := range by {
			given = string(r.To) != path && (given || !m.brought[r.Seq] && !slices.ContainsFunc(m.dirs, func(d lineage.Move) bool {
				next, ok := d.Follow(r.From)
				return ok && d.Seq == r.Seq && next == r.To
			}))
		}
		return given, nil
	}
	return false, nil
}
