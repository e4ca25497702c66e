package revert

import (
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
)

// folder is an empty folder as the selected entries knew it: where it was
// before, and where they left it; empty: nowhere.
type folder struct {
	first, last string
	entries     []*history.Entry
	conflict    *Conflict
	skipped     bool
	goes, comes bool // there is something to remove, to make
}

// stands reports whether a folder's entries are undone.
func (f *folder) stands() bool { return f.conflict == nil && !f.skipped }

// threadFolders threads the entries about empty folders, oldest first.
func threadFolders(entries []*history.Entry) []*folder {
	var out []*folder
	at := make(map[string]*folder)
	for _, e := range entries {
		from, to := trimSlash(e.Path), ""
		switch e.Operation {
		case message.Mkdir:
			to = from
		case message.Rename:
			to = trimSlash(e.NewPath)
		case message.Rmdir:
		default:
			continue
		}
		f := at[from]
		if f == nil || (f.last == "") != (e.Operation == message.Mkdir) {
			f = &folder{}
			if e.Operation != message.Mkdir {
				f.first = from
			}
			out = append(out, f)
		}
		delete(at, from)
		f.last = to
		f.entries = append(f.entries, e)
		if to == "" {
			to = from // it may be made again there
		}
		at[to] = f
	}
	return out
}

// makes reports whether undoing gives the folder back, removes whether it takes
// it away; a folder that moved does both.
func (f *folder) makes() bool   { return f.stands() && f.first != "" && f.first != f.last }
func (f *folder) removes() bool { return f.stands() && f.last != "" && f.first != f.last }

// settleFolders finds out what is to be done for the folders, once the files'
// places are settled: one that holds anything stays, one that is there or that
// a file comes back into need not be made.
func (p *plan) settleFolders(ctx context.Context, st *gitstore.Store, base gitstore.Snapshot) error {
	wanted := make(map[string]bool)
	for _, t := range p.targets {
		if t.stands() && t.want.Exists() {
			for _, dir := range parents(t.want.Path) {
				wanted[dir] = true
			}
		}
	}
	passed := make(map[string]bool) // folders that the selected entries made, or may have
	for _, e := range p.sel.entries {
		passed[trimSlash(lastName(e))] = true
		for _, dir := range parents(trimSlash(lastName(e))) {
			passed[dir] = true
		}
	}
	left := p.left()
	for _, f := range p.folders {
		if p.isWhole(f) {
			continue
		}
		goesAway := func(dir string) bool {
			return slices.ContainsFunc(p.wholes, func(x *whole) bool { return dir == x.from || under(dir, x.from) })
		}
		if f.removes() && !wanted[f.last] {
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
		if f.makes() && !wanted[f.first] {
			kind, err := p.ground.at(f.first)
			if err != nil {
				return err
			}
			s, err := at(p.snap, f.first)
			if err != nil {
				return err
			}
			if mine, err := p.isOwn(ctx, st, base, f.first, f.entries[0].Seq); err != nil || mine {
				if err != nil {
					return err
				}
				continue // without the task it was not there
			}
			f.comes = kind != workspace.KindDir || s.Exists() && s.Mode != object.Dir || goesAway(f.first)
		}
	}
	return nil
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
		return Renamed, f.first
	case f.comes:
		return Restored, f.first
	case f.goes:
		return Deleted, f.last
	case f.first != "":
		return Unchanged, f.first
	}
	return Unchanged, trimSlash(lastName(f.entries[len(f.entries)-1]))
}
