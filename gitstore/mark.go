package gitstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"

	"umbra/gitstore/repo"

	"umbra/gitstore/packset"

	"umbra/gitstore/cache"
	"umbra/gitstore/object"
)

// objectTable is all objects of some packs, sorted by id, with a bit for each
// that is marked: 32 bytes an object.
type objectTable struct {
	rows   []tableRow
	marked []uint64
}

type tableRow struct {
	id ID
	// home is the pack of which the object is not taken for a copy, as an index
	// into the packs; -1: superseded packs alone have it.
	home int32
	size int64 // bytes that it takes there, compressed
}

// newTable lists what packs hold. Of two in use that hold an object the one that
// comes first is its home.
func newTable(ctx context.Context, used, superseded []*packset.File, pace *Pace) (*objectTable, error) {
	n := 0
	for _, f := range slices.Concat(used, superseded) {
		n += f.Count
	}
	rows := make([]tableRow, 0, n)
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
			rows = append(rows, tableRow{e.ID, home, e.End - e.Offset})
		}
		if err := pace.Step(ctx); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b tableRow) int {
		// As unsigned numbers, so that -1 comes last.
		return cmp.Or(bytes.Compare(a.id[:], b.id[:]), cmp.Compare(uint32(a.home), uint32(b.home)))
	})
	rows = slices.CompactFunc(rows, func(a, b tableRow) bool { return a.id == b.id })
	return &objectTable{rows: rows, marked: make([]uint64, (len(rows)+63)/64)}, pace.Step(ctx)
}

// find gives an object's row.
func (t *objectTable) find(id ID) (int, bool) {
	return slices.BinarySearchFunc(t.rows, id, func(r tableRow, id ID) int { return bytes.Compare(r.id[:], id[:]) })
}

func (t *objectTable) isMarked(i int) bool { return t.marked[i/64]&(1<<(i%64)) != 0 }

// marker marks what is reached. It reads through the store, with a cache of
// trees of its own: the committer's is not to be swept out by it.
type marker struct {
	s     *Store
	ctx   context.Context
	pace  *Pace
	table *objectTable
	extra map[ID]bool // marked, and in none of the table's packs
	fresh []int       // rows that were marked, if noted
	noted bool
	bytes int64 // of the rows that were marked
	trees repo.TreeCache
	ends  map[ID]bool // commits whose parents are not followed
	their *theirObjects
	// lenient passes over what is missing: a user's partial clone, or damage
	// to what is theirs, is not ours to stop at.
	lenient bool
}

func (s *Store) newMarker(ctx context.Context, table *objectTable, their *theirObjects, pace *Pace) (*marker, error) {
	lines, err := s.r.Refs.Shallow()
	if err != nil {
		return nil, err
	}
	m := &marker{s: s, ctx: ctx, pace: pace, table: table, extra: make(map[ID]bool), trees: repo.NewTreeCache(cache.NewBudget(markTrees)), their: their, ends: make(map[ID]bool)}
	for _, id := range lines {
		m.ends[id] = true
	}
	return m, nil
}

// markTrees bounds a marker's cache of trees, in bytes.
const markTrees = 8 << 20

func (m *marker) mark(id ID) bool {
	if i, ok := m.table.find(id); ok {
		if m.table.isMarked(i) {
			return false
		}
		m.table.marked[i/64] |= 1 << (i % 64)
		m.bytes += m.table.rows[i].size
		if m.noted {
			m.fresh = append(m.fresh, i)
		}
		return true
	}
	if m.extra[id] {
		return false
	}
	m.extra[id] = true
	return true
}

// history marks the commits of some numbers with all that they reach. before is
// the tree of a commit next to the first that is marked already, or zero.
func (m *marker) history(from, through uint64, before ID) error {
	for seq := from; seq <= through; seq++ {
		var err error
		if before, err = m.commit(seq, before); err != nil {
			return err
		}
	}
	return nil
}

// commit marks one of our commits next to the tree of one that is marked, and
// gives its own.
func (m *marker) commit(seq uint64, beside ID) (ID, error) {
	if err := m.pace.Step(m.ctx); err != nil {
		return ID{}, err
	}
	rec, err := m.s.r.Index.At(seq)
	if err != nil {
		return ID{}, err
	}
	_, data, err := m.s.r.ReadObject(rec.Commit, object.MaxMeta)
	if err != nil {
		return ID{}, fmt.Errorf("commit number %d, %s: %w", seq, rec.Commit, err)
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return ID{}, err
	}
	m.mark(rec.Commit)
	if beside.IsZero() {
		return c.Tree, m.tree(c.Tree)
	}
	return c.Tree, m.diff(beside, c.Tree)
}

// node gives a tree; the empty one need not be there.
func (m *marker) node(id ID) (*object.TreeData, error) {
	if t, ok := m.trees.Get(id); ok {
		return t, nil
	}
	kind, data, ok, err := m.their.meta(id)
	if err != nil {
		return nil, err
	}
	if !ok && (id == object.EmptyTree || m.lenient) {
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
func (m *marker) tree(id ID) error {
	if !m.mark(id) {
		return nil
	}
	if err := m.pace.Step(m.ctx); err != nil {
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

func (m *marker) entry(e object.Entry) error {
	switch e.Mode {
	case object.Dir:
		return m.tree(e.ID)
	case object.Submodule:
	default:
		m.mark(e.ID)
	}
	return nil
}

// diff marks what a tree has that another one, which is marked whole, has not.
func (m *marker) diff(old, now ID) error {
	if old == now || !m.mark(now) {
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

// roots marks what other objects reach: our tags, and users' refs.
// What is nowhere reaches nothing.
func (m *marker) roots(ids []ID) error {
	todo := slices.Clone(ids)
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if err := m.pace.Step(m.ctx); err != nil {
			return err
		}
		kind, data, ok, err := m.their.meta(id)
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
			m.mark(id)
			if tag, terr := object.ParseTag(data); terr == nil {
				todo = append(todo, tag.Object)
			}
		case object.Commit:
			if !m.mark(id) {
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
			m.mark(id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
