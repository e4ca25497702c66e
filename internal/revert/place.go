package revert

import (
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
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

// place checks that every file and folder finds its place free once all that
// leave have left. What is left out stays where it is, and may stand in another
// one's way: until nothing more changes.
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
			if !t.stands() || !t.want.Exists() {
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
		if err := p.makeWay(x.to); err != nil {
			return err
		}
	}
	return nil
}

// give settles what stands in the way of one file or folder: nothing, a
// conflict, or, under Force, that it goes. What this revert itself puts there
// does not.
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
	c := &Conflict{Path: b.paths[0], Reason: "occupied", Entry: entries[len(entries)-1].ID}
	var err error
	// It may have come with the change that is undone, as another part of it.
	c.By, err = j.changedBy(c.Path, entries[0].Seq-1, 0)
	if is, lerr := at(p.snap, c.Path); err == nil && lerr == nil && c.By.Commit.IsZero() && is.Exists() {
		// It has the bytes of what went, so that no tree tells: it came with it.
		c.By = cameWith(entries[0])
	}
	return c, err
}

// isBack reports whether somebody has put a deleted file back already.
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

// blockers is what stands in the way of a place.
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

// find tells what keeps a file from its place; there: it stands at it.
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

// findFolder tells what keeps an empty folder from its place.
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

// way tells of a file where a folder above a path must be.
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

// file gives a path if a file stands and stays there.
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

// inFolder gives what stays in a folder on disk when all that leave have left,
// and the folders that would have to go for it to make way.
func (p *plan) inFolder(dir string, left map[string]bool) (stays, folders []string, err error) {
	for _, x := range p.wholes {
		if x.from == dir {
			return nil, nil, nil // it moves away
		}
	}
	folders, others, err := p.ground.under(dir)
	if err != nil {
		return nil, nil, err
	}
	moves := func(path string) bool {
		return slices.ContainsFunc(p.wholes, func(x *whole) bool { return path == x.from || under(path, x.from) })
	}
	for _, o := range others {
		if !left[o] && !moves(o) {
			stays = append(stays, o)
		}
	}
	folders = slices.DeleteFunc(append(folders, dir), moves)
	return stays, folders, nil
}

// whole is a folder that goes back to where it was as one: what is in no
// history goes along, as it did on the way there.
type whole struct {
	from, to string
	told     bool      // folderMove
	targets  []*target // files that go with it
	folder   *folder   // set where it is an empty one, as far as history knows
}

// takes reports whether a file goes back when the folder does.
func (x *whole) takes(t *target) bool {
	return t.leaves() && t.want.Exists() && under(t.now.Path, x.from) && t.want.Path == x.to+t.now.Path[len(x.from):]
}

// findWholes finds the folders that can move back as one: everything in them
// leaves, and nothing else has come to where they were.
func (p *plan) findWholes(left map[string]bool) error {
	p.wholes = nil
	for _, f := range p.tracks {
		if !f.moved || !f.makes() || f.last == "" {
			continue // one that was made in the first place does not come back
		}
		x := &whole{from: f.last, to: f.first(), told: f.told}
		if len(f.entries) > 0 && !slices.ContainsFunc(p.targets, x.takes) {
			x.folder = f
		}
		p.wholes = append(p.wholes, x)
	}
	// One that stays keeps others from moving.
	for again := true; again; {
		n := len(p.wholes)
		for i := 0; i < len(p.wholes); {
			ok, err := p.canMove(p.wholes[i], left)
			if err != nil {
				return err
			}
			if ok {
				i++
			} else {
				p.wholes = slices.Delete(p.wholes, i, i+1)
			}
		}
		again = len(p.wholes) < n
	}
	for _, t := range p.targets {
		// The innermost decides: what does not go where that goes is taken out
		// of it first.
		var in *whole
		for _, x := range p.wholes {
			if under(t.now.Path, x.from) && (in == nil || under(x.from, in.from)) {
				in = x
			}
		}
		if in != nil && in.takes(t) {
			in.targets = append(in.targets, t)
		}
	}
	return nil
}

func (p *plan) canMove(x *whole, left map[string]bool) (bool, error) {
	if x.from == x.to || under(x.from, x.to) || under(x.to, x.from) {
		return false, nil
	}
	for _, o := range p.wholes {
		if o != x && (o.to == x.to || o.from == x.from) {
			return false, nil
		}
	}
	free := true
	for _, dir := range []string{x.from, x.to} {
		if err := p.snap.Walk(wspath.Path(dir), func(e gitstore.Entry) error {
			free = free && left[string(e.Path)]
			return nil
		}); err != nil || !free {
			return false, err
		}
	}
	if bars, err := p.carriesBar(x, left); err != nil || bars {
		return false, err
	}
	kind, err := p.ground.at(x.from)
	if err != nil || kind != workspace.KindDir {
		return false, err
	}
	switch kind, err = p.ground.at(x.to); {
	case err != nil || kind == workspace.KindNone:
		return err == nil, err
	case kind != workspace.KindDir:
		return left[x.to], nil
	}
	if !x.told && !slices.ContainsFunc(p.wholes, func(o *whole) bool { return o.from == x.to }) {
		return false, nil // the files may have been moved out of a folder that stayed
	}
	stays, _, err := p.inFolder(x.to, left)
	return len(stays) == 0, err
}

// carriesBar reports whether something in a folder, a person's link say, would
// go along to where a file, or a folder above one, comes back by itself.
func (p *plan) carriesBar(x *whole, left map[string]bool) (bool, error) {
	for _, t := range p.targets {
		if !t.stands() || !t.want.Exists() || !under(t.want.Path, x.to) || x.takes(t) {
			continue
		}
		for _, at := range append(parents(t.want.Path), t.want.Path) {
			if !under(at, x.to) {
				continue
			}
			along := x.from + at[len(x.to):]
			kind, err := p.ground.at(along)
			if err != nil {
				return false, err
			}
			if kind != workspace.KindNone && kind != workspace.KindDir && !left[along] {
				return true, nil
			}
		}
	}
	return false, nil
}

// makeWay has an empty folder go from where another one comes back.
func (p *plan) makeWay(dir string) error {
	kind, err := p.ground.at(dir)
	if err != nil || kind != workspace.KindDir {
		return err
	}
	_, folders, err := p.inFolder(dir, nil)
	p.vacate = append(p.vacate, folders...)
	return err
}
