package plan

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// netChanges is what a change set comes to: however often it touches a file,
// that is one entry of the changelog, from what the file was before to what it
// is after. A file is followed through renames; one that is made and deleted
// again is nothing.
type netChanges struct {
	files []*netFile
	now   byPath[*netFile] // by path in the view, those that are there
	dirs  []*netDir
	idle  []message.EntryRef // undone by operations that had nothing to do
}

// netFile is one file or link.
type netFile struct {
	origin  wspath.Path    // before the change set; empty if it was not there
	before  gitstore.Entry // Mode 0: not there
	perm    fs.FileMode    // before, if hasPerm
	hasPerm bool

	path    wspath.Path // now
	gone    bool
	mode    object.Mode
	id      object.ID
	content *content.Content // set where its bytes are new
	reverts []message.EntryRef
}

// netDir is an empty folder that was made, removed or moved by name.
type netDir struct {
	origin  wspath.Path // empty: made
	path    wspath.Path // empty: removed
	reverts []message.EntryRef
}

func newNet() *netChanges { return &netChanges{now: newByPath[*netFile]()} }

// known gives the record of a file that history tracks and that an operation
// touches, making it at the first touch.
func (c *netChanges) known(now, then wspath.Path, before gitstore.Entry) *netFile {
	if f := c.now.at[now]; f != nil {
		return f
	}
	f := &netFile{origin: then, before: before, path: now, mode: before.Mode, id: before.ID}
	c.add(f)
	return f
}

func (c *netChanges) add(f *netFile) {
	c.files = append(c.files, f)
	c.now.put(f.path, f)
}

// write notes that a path has new content.
func (c *netChanges) write(p wspath.Path, mode object.Mode, id object.ID, content *content.Content, reverts []message.EntryRef) {
	f := c.now.at[p]
	if f == nil {
		f = &netFile{path: p}
		c.add(f)
	}
	f.mode, f.id, f.content = mode, id, content
	f.reverts = append(f.reverts, reverts...)
}

// remove notes that a file is gone.
func (c *netChanges) remove(p wspath.Path, reverts []message.EntryRef) {
	if f := c.now.at[p]; f != nil {
		f.gone = true
		f.reverts = append(f.reverts, reverts...)
		c.now.remove(p)
	}
}

// move notes that a file, or all that is known under a folder, has another
// name.
func (c *netChanges) move(from, to wspath.Path, reverts []message.EntryRef) {
	var moved []*netFile
	for _, p := range append(c.now.under(from), from) {
		if f := c.now.at[p]; f != nil {
			moved = append(moved, f)
			c.now.remove(p)
		}
	}
	for _, f := range moved {
		rel, _ := f.path.Rel(from)
		f.path = to.Join(string(rel))
		f.reverts = append(f.reverts, reverts...)
		c.now.put(f.path, f)
	}
	for _, d := range c.dirs {
		if d.path != "" && d.path.Within(from) {
			rel, _ := d.path.Rel(from)
			d.path = to.Join(string(rel))
		}
	}
}

// undo notes which entries are undone, by the paths of the files now.
func (c *netChanges) undo(refs map[wspath.Path][]message.EntryRef) {
	for p, list := range refs {
		if f := c.now.at[p]; f != nil {
			f.reverts = append(f.reverts, list...)
		}
	}
}

func (c *netChanges) mkdir(p wspath.Path, reverts []message.EntryRef) {
	for _, d := range c.dirs {
		if d.path == "" && d.origin == p {
			d.path, d.reverts = p, append(d.reverts, reverts...)
			return
		}
	}
	c.dirs = append(c.dirs, &netDir{path: p, reverts: reverts})
}

func (c *netChanges) rmdir(p wspath.Path, reverts []message.EntryRef) {
	for _, d := range c.dirs {
		if d.path == p && p != "" {
			d.path, d.reverts = "", append(d.reverts, reverts...)
			return
		}
	}
	c.dirs = append(c.dirs, &netDir{origin: p, reverts: reverts})
}

func (c *netChanges) moveDir(from, to wspath.Path, reverts []message.EntryRef) {
	for _, d := range c.dirs {
		if d.path == to {
			d.reverts = append(d.reverts, reverts...)
			return // made, or moved, by this change set: move has renamed it
		}
	}
	c.dirs = append(c.dirs, &netDir{origin: from, path: to, reverts: reverts})
}

// entries gives the change set's entries: what is gone first where its name was
// taken over by another file, otherwise in the order of the operations.
func (c *netChanges) entries(perm func(object.Mode) fs.FileMode) []record.Entry {
	c.replaceInPlace()
	var out []record.Entry
	for _, f := range c.files {
		if e, ok := f.entry(perm); ok {
			out = append(out, e)
		}
	}
	// The deletion of a file that a rename put another in the place of is
	// before that rename.
	slices.SortStableFunc(out, func(a, b record.Entry) int {
		first := func(e record.Entry) int {
			if e.Operation == message.Delete && c.now.at[wspath.Path(e.Path)] != nil {
				return 0
			}
			return 1
		}
		return cmp.Compare(first(a), first(b))
	})
	for _, d := range c.dirs {
		if e, ok := c.dirEntry(d); ok {
			out = append(out, e)
		}
	}
	return out
}

// replaceInPlace joins a file that went and one that came in its place to one
// that was modified.
func (c *netChanges) replaceInPlace() {
	gone := make(map[wspath.Path]*netFile)
	for _, f := range c.files {
		if f.gone && f.origin != "" {
			gone[f.origin] = f
		}
	}
	if len(gone) == 0 {
		return
	}
	for _, f := range c.files {
		old := gone[f.path]
		if f.gone || f.origin != "" || old == nil {
			continue
		}
		f.origin, f.before, f.perm, f.hasPerm = old.origin, old.before, old.perm, old.hasPerm
		f.reverts = append(old.reverts, f.reverts...)
		old.origin, old.reverts = "", nil // nothing by itself any more
	}
}

// unsaid gives the undone entries of operations that came to nothing: a file
// that is again what it was, a folder that files came into. The commit names
// them itself.
func (c *netChanges) unsaid(entries []record.Entry) []message.EntryRef {
	said := make(map[message.EntryRef]bool)
	for _, e := range entries {
		for _, r := range e.Reverts {
			said[r] = true
		}
	}
	var out []message.EntryRef
	note := func(refs []message.EntryRef) {
		for _, r := range refs {
			if !said[r] {
				said[r] = true
				out = append(out, r)
			}
		}
	}
	for _, f := range c.files {
		note(f.reverts)
	}
	for _, d := range c.dirs {
		note(d.reverts)
	}
	note(c.idle)
	return out
}

func (f *netFile) entry(perm func(object.Mode) fs.FileMode) (record.Entry, bool) {
	e := record.Entry{Before: f.before, Content: f.content}
	e.Reverts = f.reverts
	e.Path = string(f.path)
	if !f.gone {
		e.After = gitstore.Entry{Path: f.path, Mode: f.mode, ID: f.id}
	}
	switch {
	case f.gone && f.origin == "":
		return e, false
	case f.gone:
		e.Operation, e.Path = message.Delete, string(f.origin)
	case f.origin == "":
		e.Operation = message.Create
		if f.mode == object.Symlink {
			e.Operation = message.Symlink
		}
		return e, true
	case f.origin != f.path:
		e.Operation, e.OldPath = message.Rename, string(f.origin)
	case f.id == f.before.ID && f.mode == f.before.Mode:
		return e, false
	case f.id == f.before.ID && f.mode != object.Symlink && f.before.Mode != object.Symlink:
		e.Operation = message.Chmod
	default:
		e.Operation = message.Modify
	}
	if f.hasPerm && f.before.Mode != object.Symlink && f.perm != perm(f.before.Mode) &&
		(e.Operation == message.Delete || e.Operation == message.Modify || e.Operation == message.Rename && f.id != f.before.ID) {
		e.Permissions = fmt.Sprintf("%04o", f.perm)
	}
	return e, true
}

func (c *netChanges) dirEntry(d *netDir) (record.Entry, bool) {
	e := record.Entry{}
	e.Reverts = d.reverts
	e.Path = string(d.path) + "/"
	switch {
	case d.origin == "" && d.path == "", d.origin == d.path:
		return e, false
	case d.path == "":
		e.Operation, e.Path = message.Rmdir, string(d.origin)+"/"
	case c.now.anyUnder(d.path):
		return e, false // a folder on the way to a file is no entry
	case d.origin == "":
		e.Operation = message.Mkdir
	default:
		e.Operation, e.OldPath = message.Rename, string(d.origin)+"/"
	}
	return e, true
}

// filledFolder reports whether files came into an empty folder that moved, so
// that no entry names it.
func (c *netChanges) filledFolder() bool {
	return slices.ContainsFunc(c.dirs, func(d *netDir) bool {
		return d.origin != "" && d.path != "" && d.origin != d.path && c.now.anyUnder(d.path)
	})
}
