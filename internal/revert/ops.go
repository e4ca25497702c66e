package revert

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/history"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// operations turns a plan into operations of one request, in an order in which
// each finds its place free: what goes; then what moves; then contents.
type operations struct {
	p    *plan
	st   *gitstore.Store
	ops  []workspace.Op
	told map[*target]bool // its entries are named by an operation already
	bare []message.EntryRef
}

func (p *plan) operations(ctx context.Context, st *gitstore.Store) (*operations, error) {
	o := &operations{p: p, st: st, told: make(map[*target]bool)}
	for _, path := range p.force {
		o.ops = append(o.ops, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(path), Recursive: true})
	}
	for _, t := range p.targets {
		if t.leaves() && !t.want.Exists() && !slices.Contains(p.force, t.now.Path) {
			o.add(t, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(t.now.Path), If: match(t.now)})
		}
	}
	if err := o.moves(); err != nil {
		return nil, err
	}
	for _, t := range p.targets {
		if t.stands() && t.want.Exists() {
			if err := o.content(ctx, t); err != nil {
				return nil, err
			}
		}
	}
	o.folders()
	for _, t := range p.targets {
		if t.stands() && !o.told[t] {
			o.bare = append(o.bare, refsOf(p.task, t.chain.Entries())...)
		}
	}
	return o, nil
}

func match(s history.State) workspace.Condition {
	return workspace.Condition{Match: []string{s.ID.String()}}
}

func refsOf(task string, entries []*history.Entry) []message.EntryRef {
	out := make([]message.EntryRef, len(entries))
	for i, e := range entries {
		out[i] = message.EntryRef{Task: task, ID: e.ID}
	}
	return out
}

// add appends an operation of a target; the first one names its entries.
func (o *operations) add(t *target, op workspace.Op) {
	if !o.told[t] {
		o.told[t] = true
		op.Reverts = refsOf(o.p.task, t.chain.Entries())
	}
	o.ops = append(o.ops, op)
}

func (o *operations) pruneAll() {
	for _, dir := range o.p.prune {
		o.ops = append(o.ops, workspace.Op{Kind: workspace.OpPrune, Path: wspath.Path(dir)})
	}
}

// moves brings files back to the names they had. One whose place is still
// taken by another that moves waits under a name of its own until all have
// left, which also unties swaps.
func (o *operations) moves() error {
	var moving []*target
	for _, t := range o.p.targets {
		if t.leaves() && t.want.Exists() {
			moving = append(moving, t)
		}
	}
	whole, err := o.wholeFolders(moving)
	if err != nil {
		return err
	}
	leaving := make(map[string]bool)
	for _, t := range moving {
		leaving[t.now.Path] = true
	}
	var direct, waiting []*target
	for _, t := range moving {
		if whole[t] {
			continue
		}
		taken, err := o.taken(t.want.Path, leaving)
		if err != nil {
			return err
		}
		if taken {
			waiting = append(waiting, t)
		} else {
			direct = append(direct, t)
		}
	}
	for i, t := range waiting {
		o.add(t, workspace.Op{Kind: workspace.OpRename, Path: wspath.Path(t.now.Path), To: waitingRoom(o.p, i), If: match(t.now)})
	}
	for _, t := range direct {
		o.add(t, workspace.Op{Kind: workspace.OpRename, Path: wspath.Path(t.now.Path), To: wspath.Path(t.want.Path), If: match(t.now)})
	}
	o.pruneAll()
	for i, t := range waiting {
		o.add(t, workspace.Op{Kind: workspace.OpRename, Path: waitingRoom(o.p, i), To: wspath.Path(t.want.Path)})
	}
	return nil
}

// waitingRoom names a place for a file between two names.
func waitingRoom(p *plan, i int) wspath.Path {
	return wspath.Path(".umbra-revert-" + p.snap.Tree().String()[:16] + "-" + strconv.Itoa(i))
}

// taken reports whether a path, or a folder above it, is held by a file that
// only moves away, or is a folder now.
func (o *operations) taken(path string, leaving map[string]bool) (bool, error) {
	if leaving[path] {
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

// wholeFolders moves folders back as one where one change moved them as one
// and nothing else has come into them or into their old place: what is in no
// history goes along, as it did on the way there.
func (o *operations) wholeFolders(moving []*target) (map[*target]bool, error) {
	type pair struct{ from, to, commit string }
	groups := make(map[pair][]*target)
	for _, t := range moving {
		e := renamedBy(t)
		if e == nil {
			continue
		}
		if from, to := folderPair(t.now.Path, t.want.Path); from != "" {
			k := pair{from, to, e.Commit.String()}
			groups[k] = append(groups[k], t)
		}
	}
	done := make(map[*target]bool)
	keys := make([]pair, 0, len(groups))
	for k := range groups {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b pair) int { return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to)) })
	for _, k := range keys {
		ok, err := o.wholeFolder(k.from, k.to, groups[k])
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		reverts := make(map[wspath.Path][]message.EntryRef)
		for _, t := range groups[k] {
			done[t], o.told[t] = true, true
			reverts[wspath.Path(t.want.Path)] = refsOf(o.p.task, t.chain.Entries())
		}
		o.ops = append(o.ops, workspace.Op{Kind: workspace.OpRename, Path: wspath.Path(k.from), To: wspath.Path(k.to), RevertsOf: reverts})
	}
	return done, nil
}

// renamedBy gives the one entry that gave a target's file the name that it
// loses, if that was from the name which it gets.
func renamedBy(t *target) *history.Entry {
	for _, e := range slices.Backward(t.chain.Entries()) {
		if e.Operation == message.Rename {
			if e.Path == t.want.Path && e.NewPath == t.now.Path {
				return e
			}
			return nil
		}
	}
	return nil
}

// folderPair strips the common end of two paths: the folders that differ.
func folderPair(now, want string) (from, to string) {
	a, b := strings.Split(now, "/"), strings.Split(want, "/")
	n := 0
	for n < len(a)-1 && n < len(b)-1 && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	if n == 0 {
		return "", ""
	}
	return strings.Join(a[:len(a)-n], "/"), strings.Join(b[:len(b)-n], "/")
}

func (o *operations) wholeFolder(from, to string, group []*target) (bool, error) {
	if under(from, to) || under(to, from) {
		return false, nil
	}
	here := make(map[string]bool, len(group))
	for _, t := range group {
		here[t.now.Path] = true
	}
	whole := true
	err := o.p.snap.Walk(wspath.Path(from), func(e gitstore.Entry) error {
		whole = whole && here[string(e.Path)]
		return nil
	})
	if err != nil || !whole {
		return false, err
	}
	s, err := at(o.p.snap, to)
	return !s.Exists(), err
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
	op := workspace.Op{Kind: workspace.OpWrite, Path: path, Mode: &t.want.Mode, NoFollow: true, If: cond, Permissions: permissions(t)}
	if t.data != nil {
		op.Data = t.data
	} else {
		op.Blob = &t.want.ID
	}
	o.add(t, op)
	return nil
}

// permissions gives the bits of the file as the task found it, where the
// commit tells them.
func permissions(t *target) uint32 {
	for _, e := range t.chain.Entries() {
		if e.Permissions == "" {
			continue
		}
		if n, err := strconv.ParseUint(e.Permissions, 8, 32); err == nil {
			return uint32(n)
		}
	}
	return 0
}

// folders undoes what was done to empty folders by name, and prunes.
func (o *operations) folders() {
	o.pruneAll()
	for _, f := range o.p.folders {
		refs := refsOf(o.p.task, []*history.Entry{f.entry})
		if f.remove != "" {
			o.ops = append(o.ops, workspace.Op{Kind: workspace.OpPrune, Path: wspath.Path(f.remove), Tell: true, Reverts: refs})
		}
		if f.make != "" {
			o.ops = append(o.ops, workspace.Op{Kind: workspace.OpMkdir, Path: wspath.Path(f.make), Recursive: true, Reverts: refs})
		}
	}
}
