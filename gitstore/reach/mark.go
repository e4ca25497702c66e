// Package reach finds what is reached in a repository: by the workspace's history, and
// by what people have put there (refs, reflogs, worktrees, indexes).
package reach

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"umbra/gitstore/cache"
	"umbra/gitstore/object"
	"umbra/gitstore/pace"
	"umbra/gitstore/packset"
	"umbra/gitstore/repo"
)

// Table is all objects of some packs, sorted by id, with a bit for each
// that is marked: 32 bytes an object.
type Table struct {
	Rows   []Row
	marked []uint64
}

// Row is one object.
type Row struct {
	ID object.ID
	// Home is the pack of which the object is not taken for a copy, as an index
	// into the packs; -1: superseded packs alone have it.
	Home int32
	Size int64 // bytes that it takes there, compressed
}

// NewTable lists what packs hold. Of two in use that hold an object the one that
// comes first is its home.
func NewTable(ctx context.Context, used, superseded []*packset.File, pace *pace.Pace) (*Table, error) {
	n := 0
	for _, f := range slices.Concat(used, superseded) {
		n += f.Count
	}
	rows := make([]Row, 0, n)
	for i, f := range slices.Concat(used, superseded) {
		home := int32(i)
		if i >= len(used) {
			home = -1
		}
		layout, err := f.Pack.Layout()
		if err != nil {
			return nil, err
		}
		for _, e := range layout {
			rows = append(rows, Row{e.ID, home, e.End - e.Offset})
		}
		if err := pace.Step(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		// As unsigned numbers, so that -1 comes last.
		return cmp.Or(bytes.Compare(a.ID[:], b.ID[:]), cmp.Compare(uint32(a.Home), uint32(b.Home)))
	})
	rows = slices.CompactFunc(rows, func(a, b Row) bool { return a.ID == b.ID })
	return &Table{Rows: rows, marked: make([]uint64, (len(rows)+63)/64)}, pace.Step(ctx)
}

// Find gives an object's row.
func (t *Table) Find(id object.ID) (int, bool) {
	return slices.BinarySearchFunc(t.Rows, id, func(r Row, id object.ID) int { return bytes.Compare(r.ID[:], id[:]) })
}

// IsMarked reports whether a row is marked.
func (t *Table) IsMarked(i int) bool { return t.marked[i/64]&(1<<(i%64)) != 0 }

// Marker marks what is reached. It reads through the store, with a cache of
// trees of its own: the committer's is not to be swept out by it.
type Marker struct {
	s     *repo.Repo
	ctx   context.Context
	Pace  *pace.Pace
	table *Table
	extra map[object.ID]bool // marked, and in none of the table's packs
	Fresh []int              // rows that were marked, if noted
	Noted bool
	Bytes int64 // of the rows that were marked
	trees repo.TreeCache
	ends  map[object.ID]bool // commits whose parents are not followed
	their *Theirs
	// Lenient passes over what is missing: a user's partial clone, or damage
	// to what is theirs, is not ours to stop at.
	Lenient bool
}

// NewMarker makes a marker for one goroutine.
func NewMarker(ctx context.Context, s *repo.Repo, table *Table, their *Theirs, pace *pace.Pace) (*Marker, error) {
	lines, err := s.Refs.Shallow()
	if err != nil {
		return nil, err
	}
	m := &Marker{s: s, ctx: ctx, Pace: pace, table: table, extra: make(map[object.ID]bool), trees: repo.NewTreeCache(cache.NewBudget(markTrees)), their: their, ends: make(map[object.ID]bool)}
	for _, id := range lines {
		m.ends[id] = true
	}
	return m, nil
}

// markTrees bounds a marker's cache of trees, in bytes.
const markTrees = 8 << 20

// Mark marks an object; false if it was marked before.
func (m *Marker) Mark(id object.ID) bool {
	if i, ok := m.table.Find(id); ok {
		if m.table.IsMarked(i) {
			return false
		}
		m.table.marked[i/64] |= 1 << (i % 64)
		m.Bytes += m.table.Rows[i].Size
		if m.Noted {
			m.Fresh = append(m.Fresh, i)
		}
		return true
	}
	if m.extra[id] {
		return false
	}
	m.extra[id] = true
	return true
}

// History marks the commits of some numbers with all that they reach. before is
// the tree of a commit next to the first that is marked already, or zero.
func (m *Marker) History(from, through uint64, before object.ID) error {
	for seq := from; seq <= through; seq++ {
		var err error
		if before, err = m.Commit(seq, before); err != nil {
			return err
		}
	}
	return nil
}

// Commit marks one of our commits next to the tree of one that is marked, and
// gives its own.
func (m *Marker) Commit(seq uint64, near object.ID) (object.ID, error) {
	if err := m.Pace.Step(m.ctx); err != nil {
		return object.ID{}, err
	}
	rec, err := m.s.Index.At(seq)
	if err != nil {
		return object.ID{}, err
	}
	_, data, err := m.s.ReadObject(rec.Commit, object.MaxMeta)
	if err != nil {
		return object.ID{}, fmt.Errorf("commit number %d, %s: %w", seq, rec.Commit, err)
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return object.ID{}, err
	}
	m.Mark(rec.Commit)
	if near.IsZero() {
		return c.Tree, m.tree(c.Tree)
	}
	return c.Tree, m.diff(near, c.Tree)
}

// node gives a tree; the empty one need not be there.
func (m *Marker) node(id object.ID) (*object.TreeData, error) {
	if t, ok := m.trees.Get(id); ok {
		return t, nil
	}
	kind, data, ok, err := m.their.Meta(id)
	if err != nil {
		return nil, err
	}
	if !ok && (id == object.EmptyTree || m.Lenient) {
		return object.NewTree(nil)
	}
	if !ok || kind != object.Tree {
		return nil, repo.Missing(id)
	}
	t, err := object.NewTree(data)
	if err == nil {
		m.trees.Add(id, t)
	}
	return t, err
}

// tree marks a tree with all that is in it.
func (m *Marker) tree(id object.ID) error {
	if !m.Mark(id) {
		return nil
	}
	if err := m.Pace.Step(m.ctx); err != nil {
		return err
	}
	t, err := m.node(id)
	if err != nil {
		return err
	}
	for i := range t.Len() {
		if err := m.entry(t.At(i)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Marker) entry(e object.Entry) error {
	switch e.Mode {
	case object.Dir:
		return m.tree(e.ID)
	case object.Submodule:
	default:
		m.Mark(e.ID)
	}
	return nil
}

// diff marks what a tree has that another one, which is marked whole, has not.
func (m *Marker) diff(old, now object.ID) error {
	if old == now || !m.Mark(now) {
		return nil
	}
	a, err := m.node(old)
	if err != nil {
		return err
	}
	b, err := m.node(now)
	if err != nil {
		return err
	}
	_, _, from, to := a.Window(b)
	for i := from; i < to; i++ {
		e := b.At(i)
		if e.Mode == object.Dir {
			if was, ok := a.Find(e.Name); ok && was.Mode == object.Dir {
				err = m.diff(was.ID, e.ID)
			} else {
				err = m.tree(e.ID)
			}
		} else {
			err = m.entry(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Roots marks what other objects reach: our tags, and users' refs.
// What is nowhere reaches nothing.
func (m *Marker) Roots(ids []object.ID) error {
	todo := slices.Clone(ids)
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := m.Pace.Step(m.ctx); err != nil {
			return err
		}
		kind, data, ok, err := m.their.Meta(id)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		switch kind {
		case object.Tree:
			err = m.tree(id)
		case object.Tag:
			m.Mark(id)
			if tag, terr := object.ParseTag(data); terr == nil {
				todo = append(todo, tag.Object)
			}
		case object.Commit:
			if !m.Mark(id) {
				break
			}
			c, cerr := object.ParseCommit(data)
			if cerr != nil {
				break
			}
			if err = m.tree(c.Tree); err == nil && !m.ends[id] {
				todo = append(todo, c.Parents...)
			}
		default:
			m.Mark(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
