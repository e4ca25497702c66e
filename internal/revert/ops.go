package revert

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// operations turns a plan into operations of one request, in an order in which
// each finds its place free: what goes; then what moves, by way of a waiting
// room where its place is not free yet; then contents; then empty folders.
type operations struct {
	p     *plan
	st    *gitstore.Store
	ops   []workspace.Op
	named map[*target]bool // its entries are named by an operation already
	bare  []message.EntryRef
	bits  map[object.ID]string // permissions that the task found bytes with, the newest
}

func (p *plan) operations(ctx context.Context, st *gitstore.Store) (*operations, error) {
	o := &operations{p: p, st: st, named: make(map[*target]bool), bits: make(map[object.ID]string)}
	for i := range p.history.Entries {
		if e := &p.history.Entries[i]; e.Permissions != "" {
			o.bits[e.Before] = e.Permissions
		}
	}
	seen := make(map[string]bool)
	for _, path := range p.force {
		if !seen[path] {
			seen[path] = true
			o.ops = append(o.ops, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(path), Recursive: true})
		}
	}
	for _, t := range p.targets {
		if t.leaves() && !t.want.Exists() && !seen[t.now.Path] {
			o.add(t, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(t.now.Path), If: match(t.now)})
		}
	}
	if err := o.moves(); err != nil {
		return nil, err
	}
	for _, t := range p.targets {
		if t.applies() && t.want.Exists() {
			if err := o.content(ctx, t); err != nil {
				return nil, err
			}
		}
	}
	o.makeFolders()
	for _, t := range p.targets {
		if t.applies() && !o.named[t] {
			o.bare = append(o.bare, refsOf(t.entries)...)
		}
	}
	o.listPrunes()
	return o, nil
}

func match(s history.State) workspace.Condition {
	return workspace.Condition{Match: []string{s.ID.String()}}
}

func refsOf(entries []*history.Entry) []message.EntryRef {
	out := make([]message.EntryRef, len(entries))
	for i, e := range entries {
		out[i] = e.Ref
	}
	return out
}

// add appends an operation of a target; the first one names its entries.
func (o *operations) add(t *target, op workspace.Op) {
	if !o.named[t] {
		o.named[t] = true
		op.Reverts = refsOf(t.entries)
	}
	o.ops = append(o.ops, op)
}

// mover is a file or a whole folder that goes back to the name it had.
type mover struct {
	from, to string
	target   *target // nil: a folder
	whole    *whole
	room     wspath.Path // where it waits; empty: it does not
}

// moves brings files and folders back to the names they had.
func (o *operations) moves() error {
	files, wholes, err := o.movers()
	if err != nil {
		return err
	}
	// Out, the inner ones first, so that nothing is carried along.
	for _, m := range files {
		if m.room != "" {
			o.move(m, m.from, string(m.room))
		}
	}
	inside := func(dir string) bool {
		return slices.ContainsFunc(wholes, func(m *mover) bool { return under(dir, m.from) })
	}
	type leave struct {
		path string
		do   func()
	}
	var leaves []leave
	for _, r := range o.removals(inside) { // nor a folder that goes
		leaves = append(leaves, leave{r.path, func() { o.clear(r) }})
	}
	for _, m := range wholes {
		leaves = append(leaves, leave{m.from, func() {
			if m.room != "" {
				o.move(m, m.from, string(m.room))
			} else {
				o.move(m, m.from, m.to)
			}
		}})
	}
	slices.SortStableFunc(leaves, func(a, b leave) int { return deeper(a.path, b.path) })
	for _, l := range leaves {
		l.do()
	}
	for _, m := range files {
		if m.room == "" {
			o.move(m, m.from, m.to)
		}
	}
	for _, r := range o.removals(func(dir string) bool { return !inside(dir) }) {
		o.clear(r)
	}
	// In, the outer ones first.
	slices.SortStableFunc(wholes, func(a, b *mover) int { return deeper(b.to, a.to) })
	for _, m := range wholes {
		if m.room != "" {
			o.move(m, string(m.room), m.to)
		}
	}
	for _, m := range files {
		if m.room != "" {
			o.move(m, string(m.room), m.to)
		}
	}
	return nil
}

// move appends a rename. The first one of a mover is the one that has a
// condition; its entries are named by the last, when the files have their
// names.
func (o *operations) move(m *mover, from, to string) {
	op := workspace.Op{Kind: workspace.OpRename, Path: wspath.Path(from), To: wspath.Path(to)}
	if m.target != nil {
		if from == m.from {
			op.If = match(m.target.now)
		}
		if m.from == m.to {
			o.ops = append(o.ops, op) // its entries are named by what gives it its bytes
		} else {
			o.add(m.target, op)
		}
		return
	}
	if to == m.to {
		op.RevertsOf = make(map[wspath.Path][]message.EntryRef)
		for _, t := range m.whole.targets {
			o.named[t] = true
			op.RevertsOf[wspath.Path(t.want.Path)] = refsOf(t.entries)
		}
	}
	if f := m.whole.folder; f != nil && from == m.from {
		op.Reverts = refsOf(f.entries)
	}
	o.ops = append(o.ops, op)
}

// movers returns everything that moves, with a temporary place for what cannot move
// directly: its target is still occupied by something that leaves, or it is in or
// moves to a directory that moves itself.
func (o *operations) movers() (files, wholes []*mover, err error) {
	along := make(map[*target]bool)
	for _, x := range o.p.wholes {
		for _, t := range x.targets {
			along[t] = true
		}
		wholes = append(wholes, &mover{from: x.from, to: x.to, whole: x})
	}
	leaving := make(map[string]bool)
	for _, t := range o.p.targets {
		if t.leaves() && t.want.Exists() {
			leaving[t.now.Path] = true
			if !along[t] {
				files = append(files, &mover{from: t.now.Path, to: t.want.Path, target: t})
			}
		} else if t.stays() && slices.ContainsFunc(wholes, func(m *mover) bool { return under(t.now.Path, m.to) }) {
			files = append(files, &mover{from: t.now.Path, to: t.want.Path, target: t}) // steps aside
		}
	}
	rooms := 0
	wait := func(m *mover) {
		m.room = waitingRoom(o.p, rooms)
		rooms++
	}
	for _, m := range files {
		taken, err := o.taken(m.to, leaving)
		if err != nil {
			return nil, nil, err
		}
		if taken || slices.ContainsFunc(wholes, func(w *mover) bool {
			return meet(m.from, w.from) || meet(m.from, w.to) || meet(m.to, w.from) || meet(m.to, w.to)
		}) {
			wait(m)
		}
	}
	if len(wholes) == 0 {
		return files, nil, nil
	}
	// Two directories that block each other wait too, and one whose target is still
	// occupied by a directory that leaves. That is rare.
	for i, a := range wholes {
		cross := slices.ContainsFunc(o.p.vacate, func(dir string) bool { return meet(dir, a.from) || meet(dir, a.to) })
		for j, b := range wholes {
			cross = cross || i != j && (meet(a.from, b.from) || meet(a.from, b.to) || meet(a.to, b.from) || meet(a.to, b.to))
		}
		if cross {
			wait(a)
		}
	}
	return files, wholes, nil
}

// waitingRoom names a place for a file between two names.
func waitingRoom(p *plan, i int) wspath.Path {
	return wspath.Path(".umbra-revert-" + p.rooms + "-" + strconv.Itoa(i))
}

// taken reports whether a path, or a folder above it, is held by a file that
// only moves away, or the path by a folder that only goes.
func (o *operations) taken(path string, leaving map[string]bool) (bool, error) {
	if leaving[path] || slices.Contains(o.p.vacate, path) {
		return true, nil
	}
	for _, dir := range parents(path) {
		if leaving[dir] {
			return true, nil
		}
	}
	s, err := at(o.p.snap, path)
	return s.Mode == object.Dir, err
}

// removal is a folder that goes if it is empty by then.
type removal struct {
	path    string
	reverts []message.EntryRef
	listed  bool
}

// removals gives those of the folders that go which are asked for, those inside
// first.
func (o *operations) removals(which func(dir string) bool) (list []removal) {
	named := make(map[string]bool)
	for _, x := range o.p.wholes {
		named[x.from] = true // that moves
	}
	for _, f := range o.p.folders {
		if f.goes && which(f.last) {
			named[f.last] = true
			list = append(list, removal{path: f.last, reverts: refsOf(f.entries), listed: true})
		}
	}
	for _, dir := range slices.Concat(o.p.prune, o.p.vacate) {
		if !named[dir] && which(dir) {
			named[dir] = true
			list = append(list, removal{path: dir})
		}
	}
	slices.SortStableFunc(list, func(a, b removal) int { return deeper(a.path, b.path) })
	return list
}

func (o *operations) clear(r removal) {
	o.ops = append(o.ops, workspace.Op{Kind: workspace.OpPrune, Path: wspath.Path(r.path), Listed: r.listed, Reverts: r.reverts})
}

// listPrunes gives removed directories an entry where nothing else happens: the
// commit must have one.
func (o *operations) listPrunes() {
	for i := range o.ops {
		if o.ops[i].Kind != workspace.OpPrune || o.ops[i].Listed {
			return
		}
	}
	for i := range o.ops {
		o.ops[i].Listed = true
	}
}

// makeFolders brings empty directories back. Entries that no operation names are
// named by the commit: a directory that exists, or is gone, already, or that files
// come back into.
func (o *operations) makeFolders() {
	// The outer ones first, each by an operation of its own.
	list := slices.Clone(o.p.folders)
	slices.SortStableFunc(list, func(a, b *folder) int { return deeper(b.name, a.name) })
	for _, f := range list {
		if !f.applies() || o.p.isWhole(f) {
			continue
		}
		refs := refsOf(f.entries)
		if f.comes {
			o.ops = append(o.ops, workspace.Op{Kind: workspace.OpMkdir, Path: wspath.Path(f.name), Recursive: true, Reverts: refs})
		}
		if !f.comes && !f.goes {
			o.bare = append(o.bare, refs...)
		}
	}
}

// content gives a target its bytes and mode where they differ from what is
// there by then.
func (o *operations) content(ctx context.Context, t *target) error {
	path := wspath.Path(t.want.Path)
	cond := workspace.Condition{NoneMatchAny: true}
	if t.now.Exists() && t.now.Mode != object.Dir {
		cond = match(t.now)
	}
	switch {
	case t.now.Exists() && t.want.Same(t.now):
		return nil
	case t.want.Mode == object.Symlink:
		to, err := o.st.ReadBlob(ctx, t.want.ID, wspath.MaxTarget)
		if err != nil {
			return err
		}
		o.add(t, workspace.Op{Kind: workspace.OpSymlink, Path: path, Target: string(to), Overwrite: true, If: cond})
		return nil
	case t.now.Exists() && t.want.ID == t.now.ID && t.now.Mode != object.Symlink:
		o.add(t, workspace.Op{Kind: workspace.OpChmod, Path: path, Mode: &t.want.Mode, If: cond})
		return nil
	}
	op := workspace.Op{Kind: workspace.OpWrite, Path: path, Mode: &t.want.Mode, NoFollow: true, If: cond, Permissions: o.permissions(t)}
	if t.data != nil {
		op.Data = t.data
	} else {
		op.Blob = &t.want.ID
	}
	o.add(t, op)
	return nil
}

// permissions returns the bits of the file as the task found it, where the commit
// has them, else nil.
func (o *operations) permissions(t *target) *uint32 {
	bits := t.permissions
	for _, e := range t.chain.Entries() {
		if e.Permissions != "" {
			bits = e.Permissions
			break
		}
	}
	// Better the entry that these very bytes went with, in whatever file.
	bits = cmp.Or(o.bits[t.want.ID], bits)
	n, err := strconv.ParseUint(bits, 8, 32)
	switch {
	case err != nil:
		return nil
	case t.want.Mode == object.Executable: // others' change of mode stays
		return new(uint32(n | n&0o444>>2))
	}
	return new(uint32(n &^ 0o111))
}
