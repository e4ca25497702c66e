package revert

import (
	"slices"

	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// left gives the paths that files leave.
func (p *plan) left() map[string]bool {
	out := make(map[string]bool)
	for _, t := range p.targets {
		if t.leaves() {
			out[t.now.Path] = true
		}
	}
	return out
}

// place checks that the place of every file and directory is free once all that
// leave have left. One that is left out stays, and may block another one: this is
// repeated until nothing changes.
func (p *plan) place(j *judge, way OnConflict) error {
	for again := true; again; {
		again = false
		left := p.left()
		if err := p.findWholes(left); err != nil {
			return err
		}
		s := spots{p: p, left: left, taken: make(map[string]bool), above: make(map[string]bool)}
		p.force, p.vacate = nil, nil
		for _, t := range p.targets {
			if !t.applies() || !t.want.Exists() {
				continue
			}
			if back, err := p.isBack(t, left); err != nil {
				return err
			} else if back {
				t.now = t.want
			}
			blockers, err := s.find(t.want, t.now.Exists() && t.now.Path == t.want.Path && t.now.Mode != object.Dir)
			if err != nil {
				return err
			}
			if t.conflict, err = p.give(j, way, blockers, t.chain.Entries()); err != nil {
				return err
			}
			if t.conflict == nil {
				s.take(t.want.Path)
				continue
			}
			t.skipped, again = way != Fail, true
		}
		for _, f := range p.folders {
			if !f.makes() {
				continue
			}
			blockers, err := s.findFolder(f.first())
			if err != nil {
				return err
			}
			if f.conflict, err = p.give(j, way, blockers, f.entries); err != nil {
				return err
			}
			if f.conflict != nil {
				f.skipped, again = way != Fail, true
			}
		}
	}
	for _, x := range p.wholes {
		if err := p.makeWay(x.to, x); err != nil {
			return err
		}
	}
	for _, t := range p.targets {
		if t.applies() && t.want.Exists() && !slices.ContainsFunc(p.wholes, func(x *whole) bool { return x.takes(t) }) {
			if err := p.makeWay(t.want.Path, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// give decides about what blocks one file or directory: nothing, a conflict, or,
// under Force, its removal. What this revert itself puts there stays.
func (p *plan) give(j *judge, way OnConflict, b blockers, entries []*history.Entry) (*Conflict, error) {
	if len(b.paths) == 0 {
		p.vacate = append(p.vacate, b.vacate...)
		return nil, nil
	}
	if way == Force && !b.ours {
		p.force = append(p.force, b.paths...)
		p.vacate = append(p.vacate, b.vacate...)
		return nil, nil
	}
	c := &Conflict{Path: b.paths[0], Reason: "occupied", Entry: numberOf(entries[len(entries)-1])}
	if is, err := at(p.snap, c.Path); err != nil || !is.Exists() && !b.ours {
		return c, err // in no history yet, so unknown
	}
	var err error
	// It may have come with the change that is undone, as another part of it.
	c.By, err = j.changedBy(c.Path, entries[0].Seq-1, 0)
	if err == nil && c.By.Commit.IsZero() {
		c.By, err = p.put(j, c.Path, entries[0])
	}
	return c, err
}

// put names who put the file at a path there, where it was not changed since an
// entry.
func (p *plan) put(j *judge, path string, since *history.Entry) (ChangedBy, error) {
	if by, err := j.changedBy(path, p.sel.entries[0].Seq-1, 0); err != nil || !by.Commit.IsZero() {
		return by, err
	}
	// It has the bytes of the removed file, so that no tree shows it.
	for i := range slices.Backward(p.history.Entries) {
		if e := &p.history.Entries[i]; lastName(e) == path {
			return cameWith(e), nil
		}
	}
	return cameWith(since), nil
}

// isBack reports whether a deleted file is back already.
func (p *plan) isBack(t *target, left map[string]bool) (bool, error) {
	if t.now.Exists() || t.data != nil || left[t.want.Path] {
		return false, nil
	}
	s, err := at(p.snap, t.want.Path)
	return s.Exists() && s.Same(t.want), err
}

// spots knows which places are free once all that leave have left.
type spots struct {
	p            *plan
	left         map[string]bool
	taken, above map[string]bool // by what comes back, and the folders above that
}

// blockers is what occupies a place.
type blockers struct {
	paths  []string
	ours   bool     // what this revert brings back itself
	vacate []string // folders that go with them, since a file comes there
}

func (s *spots) take(path string) {
	s.taken[path] = true
	for _, dir := range parents(path) {
		s.above[dir] = true
	}
}

// find returns what keeps a file from its place; there: it is at it.
func (s *spots) find(want history.State, there bool) (blockers, error) {
	if s.taken[want.Path] || s.above[want.Path] {
		return blockers{paths: []string{want.Path}, ours: true}, nil
	}
	b, err := s.way(want.Path)
	if err != nil || len(b.paths) > 0 || there {
		return b, err
	}
	is, err := at(s.p.snap, want.Path)
	if err != nil {
		return b, err
	}
	if is.Exists() && is.Mode != object.Dir {
		if !s.left[want.Path] {
			b.paths = []string{want.Path}
		}
		return b, nil
	}
	kind, err := s.p.ground.at(want.Path)
	switch {
	case err != nil || kind == workspace.KindNone:
	case kind != workspace.KindDir:
		b.paths = []string{want.Path}
	default:
		b.paths, b.vacate, err = s.p.inFolder(want.Path, s.left)
	}
	return b, err
}

// findFolder returns what keeps an empty directory from its place.
func (s *spots) findFolder(path string) (blockers, error) {
	if s.taken[path] {
		return blockers{paths: []string{path}, ours: true}, nil
	}
	b, err := s.way(path)
	if err != nil || len(b.paths) > 0 {
		return b, err
	}
	b.paths, err = s.file(path)
	return b, err
}

// way returns a file where a directory above a path must be.
func (s *spots) way(path string) (b blockers, err error) {
	for _, dir := range parents(path) {
		if s.taken[dir] {
			return blockers{paths: []string{dir}, ours: true}, nil
		}
		if b.paths, err = s.file(dir); err != nil || len(b.paths) > 0 {
			return b, err
		}
	}
	return b, nil
}

// file returns a path if a file is and stays there.
func (s *spots) file(path string) ([]string, error) {
	is, err := at(s.p.snap, path)
	if err != nil || s.left[path] {
		return nil, err
	}
	if !is.Exists() || is.Mode == object.Dir { // a person may have put something else there
		kind, err := s.p.ground.at(path)
		if err != nil || kind == workspace.KindNone || kind == workspace.KindDir {
			return nil, err
		}
	}
	return []string{path}, nil
}
