package revert

import (
	"maps"
	"slices"

	"umbra/gitstore"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// whole is a folder that goes back to where it was as one: what is in no
// history goes along, as it did on the way there.
type whole struct {
	from, to string
	recorded bool      // as in folder
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
		if p.apart || !f.moved || !f.makes() || f.last == "" {
			continue // one that was made in the first place does not come back
		}
		x := &whole{from: f.last, to: f.first(), recorded: f.recorded}
		if len(f.entries) > 0 && !slices.ContainsFunc(p.targets, x.takes) {
			x.folder = f
		}
		p.wholes = append(p.wholes, x)
	}
	if len(p.wholes) == 0 {
		return nil
	}
	clears := maps.Clone(left)
	for _, t := range p.targets {
		if t.stays() {
			clears[t.now.Path] = true
		}
	}
	// One that stays keeps others from moving.
	for again := true; again; {
		n := len(p.wholes)
		for i := 0; i < len(p.wholes); {
			ok, err := p.canMove(p.wholes[i], left, clears)
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

// canMove reports whether a directory can go back as one. What clears steps aside while
// it comes: it leaves, or is given its bytes where it is.
func (p *plan) canMove(x *whole, left, clears map[string]bool) (bool, error) {
	if x.from == x.to || under(x.from, x.to) || under(x.to, x.from) {
		return false, nil
	}
	for _, o := range p.wholes {
		if o != x && (o.to == x.to || o.from == x.from) {
			return false, nil
		}
	}
	free := true
	for dir, goes := range map[string]map[string]bool{x.from: left, x.to: clears} {
		if err := p.snap.Walk(wspath.Path(dir), func(e gitstore.Entry) error {
			free = free && goes[string(e.Path)]
			return nil
		}); err != nil || !free {
			return false, err
		}
	}
	if bars, err := p.carriesBar(x, left); err != nil || bars {
		return false, err
	}
	if bars, err := p.bringsBar(x.to, x, left); err != nil || bars {
		return false, err
	}
	for _, dir := range parents(x.to) {
		kind, err := p.ground.at(dir)
		if err != nil {
			return false, err
		}
		if kind != workspace.KindNone && kind != workspace.KindDir && !left[dir] &&
			!slices.ContainsFunc(p.wholes, func(o *whole) bool { return o != x && under(dir, o.from) }) {
			return false, nil // something stays on the way
		}
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
	if !x.recorded && !slices.ContainsFunc(p.wholes, func(o *whole) bool { return o.from == x.to }) {
		return false, nil // the files may have been moved out of a folder that stayed
	}
	stays, _, err := p.inFolder(x.to, clears)
	return len(stays) == 0, err
}

// carriesBar reports whether something in a directory, such as a user's link, would
// move along to where a file, or a directory above one, comes back by itself.
func (p *plan) carriesBar(x *whole, left map[string]bool) (bool, error) {
	for _, t := range p.targets {
		if !t.applies() || !t.want.Exists() || !under(t.want.Path, x.to) || x.takes(t) {
			continue
		}
		for _, at := range append(parents(t.want.Path), t.want.Path) {
			if !under(at, x.to) {
				continue
			}
			if _, by := p.brought(at, nil); at == t.want.Path && by == x {
				if bars, err := p.bringsBar(at, nil, left); err != nil || bars {
					return bars, err
				}
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

// makeWay removes empty directories from where something else comes back: one that
// is there, and one that would be brought there.
func (p *plan) makeWay(to string, x *whole) error {
	if x != nil {
		kind, err := p.ground.at(to)
		if err != nil {
			return err
		}
		if kind == workspace.KindDir {
			_, folders, err := p.inFolder(to, nil)
			if err != nil {
				return err
			}
			p.vacate = append(p.vacate, folders...)
		}
	}
	path, by := p.brought(to, x)
	if by == nil {
		return nil
	}
	kind, err := p.ground.at(path)
	if err != nil || kind != workspace.KindDir {
		return err
	}
	_, folders, err := p.held(path, nil, p.inside(path))
	p.vacate = append(p.vacate, folders...)
	return err
}

// inFolder gives what stays in a folder on disk when all that leave have left,
// and the folders that would have to go for it to make way.
func (p *plan) inFolder(dir string, left map[string]bool) (stays, folders []string, err error) {
	for _, x := range p.wholes {
		if x.from == dir {
			return nil, nil, nil // it moves away
		}
	}
	return p.held(dir, left, p.wholes)
}

// held is inFolder as if only some of the folders moved.
func (p *plan) held(dir string, left map[string]bool, wholes []*whole) (stays, folders []string, err error) {
	folders, others, err := p.ground.under(dir)
	if err != nil {
		return nil, nil, err
	}
	moves := func(path string) bool {
		return slices.ContainsFunc(wholes, func(x *whole) bool { return path == x.from || under(path, x.from) })
	}
	for _, o := range others {
		if !left[o] && !moves(o) {
			stays = append(stays, o)
		}
	}
	folders = slices.DeleteFunc(append(folders, dir), moves)
	return stays, folders, nil
}

// brought returns where the entry is now that another directory's way back (by)
// would bring to a path where something else comes back; empty: none does.
func (p *plan) brought(to string, x *whole) (path string, by *whole) {
	for _, o := range p.wholes {
		if o != x && under(to, o.to) && (by == nil || len(o.to) > len(by.to)) {
			by = o
		}
	}
	if by == nil {
		return "", nil
	}
	path = by.from + to[len(by.to):]
	for _, o := range p.wholes {
		if under(o.from, by.from) && (path == o.from || under(path, o.from)) {
			return "", nil // it leaves that folder itself
		}
	}
	return path, by
}

// bringsBar reports whether what is brought to a path cannot make way: anything
// but a folder that is empty when all that leave have left.
func (p *plan) bringsBar(to string, x *whole, left map[string]bool) (bool, error) {
	path, by := p.brought(to, x)
	if by == nil {
		return false, nil
	}
	kind, err := p.ground.at(path)
	if err != nil || kind == workspace.KindNone {
		return false, err
	}
	if slices.ContainsFunc(p.targets, func(t *target) bool { return under(t.now.Path, path) && by.takes(t) }) {
		return true, nil // it goes along
	}
	if kind != workspace.KindDir {
		return !left[path], nil
	}
	stays, _, err := p.held(path, left, p.inside(path))
	return len(stays) > 0, err
}

// inside gives the folders in a folder that move by themselves.
func (p *plan) inside(dir string) (out []*whole) {
	for _, x := range p.wholes {
		if under(x.from, dir) {
			out = append(out, x)
		}
	}
	return out
}
