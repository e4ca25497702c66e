package taskfiles

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// KeepName is the empty file that makes a directory of a virtual workspace
// exist without any other file: Git trees hold no empty directories. Listings,
// searches and globs of a virtual workspace leave it out.
const KeepName = ".umbrakeep"

// Entry is one file, directory or symbolic link.
type Entry struct {
	Path   wspath.Path // from the workspace's root, links as the caller wrote them
	Kind   workspace.Kind
	Info   vfs.Info
	Mode   object.Mode
	Target string    // of a symbolic link
	Blob   object.ID // of a file's bytes where known; else zero
	// Link reports that Path is a symbolic link, followed or not.
	Link bool
}

// errStop ends a walk early.
var errStop = errors.New("taskfiles: stop")

// Virtual reports whether a workspace has no directory on disk.
func Virtual(w *workspace.Workspace) bool { return w.Root() == "" }

// walker visits what is below a directory in the bytewise order of the paths.
type walker struct {
	ctx  context.Context
	w    *workspace.Workspace
	o    workspace.ListOptions
	keep bool // show KeepName
	// after skips all paths up to and including this one.
	after string
	// visit is called with each path as the caller wrote it and with its links
	// resolved; errStop ends the walk.
	visit func(shown, at wspath.Path, t fs.FileMode) error
	// descend reports whether to visit what is below a directory.
	descend func(shown wspath.Path) bool
}

// item is one step in a directory: an entry, or what is below one.
type item struct {
	key   string // of the sort: the name, with a slash for what is below
	name  string
	typ   fs.FileMode
	below bool
}

// folder walks one directory. A directory below the first that is gone or
// cannot be read is empty.
func (k *walker) folder(shown, at wspath.Path, first bool) error {
	if err := k.ctx.Err(); err != nil {
		return errs.Wrap(err, "")
	}
	root, _, err := k.w.Tree(k.ctx, at, 1, math.MaxInt, k.o)
	if err != nil {
		code := errs.CodeOf(err)
		if !first && (code == "file_not_found" || code == "not_a_directory" || errs.Is(err, errs.Forbidden)) {
			return nil
		}
		return err
	}
	for _, it := range k.items(root) {
		p, q := shown.Join(it.name), at.Join(it.name)
		if !it.below {
			if k.after == "" || string(p) > k.after {
				if err := k.visit(p, q, it.typ); err != nil {
					return err
				}
			}
			continue
		}
		prefix := string(p) + "/"
		if k.after > prefix && !strings.HasPrefix(k.after, prefix) || !k.descend(p) {
			continue
		}
		if err := k.folder(p, q, false); err != nil {
			return err
		}
	}
	return nil
}

// items returns a directory's entries and subtrees in the order of a walk.
func (k *walker) items(root *workspace.Node) []item {
	items := make([]item, 0, len(root.Children))
	for _, c := range root.Children {
		name := c.Path.Base()
		if !k.keep && name == KeepName {
			continue
		}
		items = append(items, item{key: name, name: name, typ: c.Type})
		if c.Type.IsDir() {
			items = append(items, item{key: name + "/", name: name, typ: c.Type, below: true})
		}
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.key, b.key) })
	return items
}
