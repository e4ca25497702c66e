package revert

import (
	"slices"

	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// applies reports whether a directory's entries are undone.
func (f *folder) applies() bool { return f.conflict == nil && !f.skipped }

// makes reports whether undoing gives the folder back, removes whether it takes
// it away; a folder that moved does both.
func (f *folder) makes() bool   { return f.applies() && f.first() != "" && f.first() != f.last }
func (f *folder) removes() bool { return f.applies() && f.last != "" && f.first() != f.last }

// after returns the path that the entry at a path has when all directories that
// move as one have moved.
func (p *plan) after(path string) string {
	var in *whole
	for _, x := range p.wholes {
		if (path == x.from || under(path, x.from)) && (in == nil || len(x.from) > len(in.from)) {
			in = x
		}
	}
	if in == nil {
		return path
	}
	return in.to + path[len(in.from):]
}

// wanted gives the folders that files are in when they are back.
func (p *plan) wanted() map[string]bool {
	out := make(map[string]bool)
	for _, t := range p.targets {
		if t.applies() && t.want.Exists() {
			for _, dir := range parents(t.want.Path) {
				out[dir] = true
			}
		}
	}
	return out
}

// settleFolders finds out what is to be done for the folders, once the files'
// places are settled: one that holds anything stays, one that is there or that
// a file comes back into need not be made.
func (p *plan) settleFolders() error {
	wanted := p.wanted()
	passed := make(map[string]bool) // folders that the selected entries made, or brought there
	for _, f := range p.tracks {
		passed[f.last] = passed[f.last] || f.first() != f.last
	}
	left := p.left()
	for _, f := range p.folders {
		if p.isWhole(f) {
			continue
		}
		if f.removes() && !wanted[p.after(f.last)] {
			kind, err := p.ground.at(f.last)
			if err != nil {
				return err
			}
			if kind == workspace.KindDir {
				stays, inner, err := p.inFolder(f.last, left)
				if err != nil {
					return err
				}
				f.goes = len(stays) == 0 && !slices.ContainsFunc(inner, func(dir string) bool { return dir != f.last && !passed[dir] })
			}
		}
		if f.makes() && !wanted[f.first()] {
			kind, err := p.ground.at(f.first())
			if err != nil {
				return err
			}
			s, err := at(p.snap, f.first())
			if err != nil {
				return err
			}
			f.comes = kind != workspace.KindDir || s.Exists() && s.Mode != object.Dir || p.after(f.first()) != f.first()
		}
	}
	return nil
}

// movesFolders reports whether folders moved that may go back as one.
func (p *plan) movesFolders() bool {
	return slices.ContainsFunc(p.tracks, func(f *folder) bool { return f.filled && f.makes() && f.last != "" })
}

// isWhole reports whether a folder moves back as one.
func (p *plan) isWhole(f *folder) bool {
	for _, x := range p.wholes {
		if x.folder == f {
			return true
		}
	}
	return false
}

// folderAction names what is done to a folder.
func (p *plan) folderAction(f *folder) (Action, string) {
	switch {
	case p.isWhole(f), f.goes && f.comes:
		return Renamed, f.name
	case f.comes:
		return Restored, f.name
	case f.goes:
		return Deleted, f.last
	case !f.made:
		return Unchanged, f.name
	}
	return Unchanged, trimSlash(lastName(f.entries[len(f.entries)-1]))
}
