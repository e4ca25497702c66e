package repo

import (
	"context"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Entry is what is at a path of a tree. Mode object.Dir is a folder, 0
// nothing.
type Entry struct {
	Path wspath.Path
	Mode object.Mode
	ID   object.ID
}

// Snapshot is one tree of the workspace: immutable, cheap to copy and to
// keep. Reading one whose objects were dropped gives errs.Gone.
type Snapshot struct {
	src  TreeSource
	tree object.ID
}

// Snapshot gives the tree of the newest durable commit.
func (h History) Snapshot() Snapshot { return Snapshot{src: h.r, tree: h.r.Tip().Tree} }

// SnapshotOf gives the tree of a commit.
func (h History) SnapshotOf(ctx context.Context, commit object.ID) (Snapshot, error) {
	if t := h.r.Tip(); t.Commit == commit {
		return Snapshot{src: h.r, tree: t.Tree}, nil
	}
	if tree, ok := h.r.Cached.memo.get(commit, h.r.Boundary().Seq); ok {
		return Snapshot{src: h.r, tree: tree}, nil
	}
	c, err := h.r.ReadCommit(ctx, commit)
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{src: h.r, tree: c.Tree}, nil
}

// SnapshotOf gives a tree whose objects come from src.
func SnapshotOf(src TreeSource, tree object.ID) Snapshot { return Snapshot{src: src, tree: tree} }

// Tree gives the id of the root tree.
func (n Snapshot) Tree() object.ID { return n.tree }

// node gives the encoded tree at a path; ok is false if there is no folder.
func (n Snapshot) node(id object.ID) (*object.TreeData, error) {
	if id.IsZero() || id == object.EmptyTree {
		return object.NewTree(nil)
	}
	return n.src.Tree(id)
}

// Lookup gives what is at a path. The root is a folder that is always
// there.
func (n Snapshot) Lookup(p wspath.Path) (Entry, bool, error) {
	if p == wspath.Root || p == "" {
		return Entry{Path: wspath.Root, Mode: object.Dir, ID: n.tree}, true, nil
	}
	id, rest := n.tree, string(p)
	for {
		t, err := n.node(id)
		if err != nil {
			return Entry{}, false, err
		}
		name, tail, more := strings.Cut(rest, "/")
		e, ok := t.Find(name)
		if !ok || (more && e.Mode != object.Dir) {
			return Entry{}, false, nil
		}
		if !more {
			return Entry{Path: p, Mode: e.Mode, ID: e.ID}, true, nil
		}
		id, rest = e.ID, tail
	}
}

// List gives the direct children of a folder, in git's order; none for what is
// no folder.
func (n Snapshot) List(p wspath.Path) ([]Entry, error) {
	e, ok, err := n.Lookup(p)
	if err != nil || !ok || e.Mode != object.Dir {
		return nil, err
	}
	t, err := n.node(e.ID)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, t.Len())
	for i := range out {
		c := t.At(i)
		out[i] = Entry{Path: join(p, c.Name), Mode: c.Mode, ID: c.ID}
	}
	return out, nil
}

func join(dir wspath.Path, name string) wspath.Path {
	if dir == wspath.Root || dir == "" {
		return wspath.Path(name)
	}
	return dir + "/" + wspath.Path(name)
}

// Walk calls fn with the file at p, or with all files under it, in git's
// order.
func (n Snapshot) Walk(p wspath.Path, fn func(Entry) error) error {
	e, ok, err := n.Lookup(p)
	if err != nil || !ok {
		return err
	}
	if e.Mode != object.Dir {
		return fn(e)
	}
	return n.walk(e.Path, e.ID, fn)
}

func (n Snapshot) walk(dir wspath.Path, id object.ID, fn func(Entry) error) error {
	t, err := n.node(id)
	if err != nil {
		return err
	}
	for i := range t.Len() {
		c := t.At(i)
		e := Entry{Path: join(dir, c.Name), Mode: c.Mode, ID: c.ID}
		if c.Mode == object.Dir {
			err = n.walk(e.Path, e.ID, fn)
		} else {
			err = fn(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TreeChange is one file that differs between two trees; a side with Mode 0
// has none.
type TreeChange struct {
	Path     wspath.Path
	Old, New Entry
}

// DiffTrees calls fn with every file that differs between the trees of two
// commits (zero: the empty tree) at or under a path. Folders that are equal
// are not opened.
func (h History) DiffTrees(ctx context.Context, a, b object.ID, under wspath.Path, fn func(TreeChange) error) error {
	side := func(commit object.ID) (Snapshot, error) {
		if commit.IsZero() {
			return Snapshot{src: h.r}, nil
		}
		return h.r.SnapshotOf(ctx, commit)
	}
	na, err := side(a)
	if err != nil {
		return err
	}
	nb, err := side(b)
	if err != nil {
		return err
	}
	return Diff(ctx, na, nb, under, fn)
}

// Diff is DiffTrees for snapshots.
func Diff(ctx context.Context, a, b Snapshot, under wspath.Path, fn func(TreeChange) error) error {
	d := differ{ctx: ctx, a: a, b: b, fn: fn}
	ea, _, err := a.Lookup(under)
	if err != nil {
		return err
	}
	eb, _, err := b.Lookup(under)
	if err != nil {
		return err
	}
	p := ea.Path
	if p == "" {
		p = eb.Path
	}
	return d.entry(p, object.Entry{Mode: ea.Mode, ID: ea.ID}, object.Entry{Mode: eb.Mode, ID: eb.ID})
}

// DiffBoth is Diff of two root trees; trees is called with every directory that both
// have and that differs.
func DiffBoth(ctx context.Context, a, b Snapshot, fn func(TreeChange) error, trees func(old, now object.ID)) error {
	d := differ{ctx: ctx, a: a, b: b, fn: fn, trees: trees}
	return d.entry(wspath.Root, object.Entry{Mode: object.Dir, ID: a.tree}, object.Entry{Mode: object.Dir, ID: b.tree})
}

type differ struct {
	ctx   context.Context
	a, b  Snapshot
	fn    func(TreeChange) error
	trees func(old, now object.ID) // every folder that both have, differing; may be nil
}

func (d *differ) entry(p wspath.Path, x, y object.Entry) error {
	if x.Mode == y.Mode && x.ID == y.ID {
		return nil
	}
	var c TreeChange
	if x.Mode != 0 && x.Mode != object.Dir {
		c.Old = Entry{Path: p, Mode: x.Mode, ID: x.ID}
	}
	if y.Mode != 0 && y.Mode != object.Dir {
		c.New = Entry{Path: p, Mode: y.Mode, ID: y.ID}
	}
	if c.Old.Mode != 0 || c.New.Mode != 0 {
		c.Path = p
		if err := d.fn(c); err != nil {
			return err
		}
	}
	if x.Mode != object.Dir && y.Mode != object.Dir {
		return nil
	}
	var xid, yid object.ID
	if x.Mode == object.Dir {
		xid = x.ID
	}
	if y.Mode == object.Dir {
		yid = y.ID
	}
	if d.trees != nil && !xid.IsZero() && !yid.IsZero() {
		d.trees(xid, yid)
	}
	return d.dirs(p, xid, yid)
}

func (d *differ) dirs(p wspath.Path, x, y object.ID) error {
	if err := d.ctx.Err(); err != nil {
		return errs.Wrap(err, "")
	}
	tx, err := d.a.node(x)
	if err != nil {
		return err
	}
	ty, err := d.b.node(y)
	if err != nil {
		return err
	}
	// By name, not by git's order: a file and a folder of one name are one
	// path that changed its type.
	from, to, ofrom, oto := tx.Window(ty)
	for i := from; i < to; i++ {
		e := tx.At(i)
		o, _ := ty.Find(e.Name)
		if err := d.entry(join(p, e.Name), e, o); err != nil {
			return err
		}
	}
	for i := ofrom; i < oto; i++ {
		e := ty.At(i)
		if _, ok := tx.Find(e.Name); ok {
			continue
		}
		if err := d.entry(join(p, e.Name), object.Entry{}, e); err != nil {
			return err
		}
	}
	return nil
}

// TreeSource gives trees by id: the committer's own group first, then the
// store.
type TreeSource interface {
	Tree(id object.ID) (*object.TreeData, error)
}
