package workspace

import (
	"context"
	"io/fs"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/claims"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// plan is what a request comes to, played on a view: what has to be recorded
// first, the steps on disk, the edits of the tree, and the entries. Making it
// changes nothing.
type plan struct {
	w        *Workspace
	req      *Request
	view     *view
	contents *contents
	dry      bool

	external []external
	claimed  map[wspath.Path]bool

	steps      []step // of the materialiser, from the view and removed
	removed    []removal
	edits      []gitstore.Edit
	net        *netChanges
	ops        []OpResult
	unrecorded []Skip
	named      []message.Trailer // what the policy names of the change set
	folders    []FolderMove      // in order
	filled     bool              // one of them had files in it
	// bare is set where a step acts on what cannot be recorded, so that it has
	// to be done although there is no entry.
	bare bool
}

// stepKind is what one step does to the disk.
type stepKind uint8

const (
	stepPut   stepKind = iota + 1 // content at path, in place of what is expected there
	stepTake                      // what stands at path goes, a folder with all in it
	stepMove                      // path goes to to, in place of the file expected there
	stepSwap                      // path and to take each other's places
	stepMkdir                     // a folder
	stepChmod                     // permission bits
	stepPrune                     // a folder goes if it is empty
)

// step is one action on disk. Steps are done in order, and undone backwards.
type step struct {
	kind     stepKind
	path, to wspath.Path
	content  *content
	perm     fs.FileMode
	mode     object.Mode
	expect   *onDisk // what stands at path; nil: nothing
	target   *onDisk // stepMove, stepSwap: what is at to; nil: nothing
	result   *onDisk // what the step makes or leaves of a file; filled in by it
	dir      bool    // stepTake, stepMove: a directory; stepSwap: one of them at least is
	// attrs is where the file is whose owner, ACL and extended attributes the
	// content of a stepPut takes over; empty: of none. early: that is where it is
	// before all steps.
	attrs   wspath.Path
	early   bool
	skipped []Skip // stepTake: what is removed unrecorded, by the paths on disk
}

// external is a path that the disk holds otherwise than history.
type external struct {
	path    wspath.Path
	old     gitstore.Entry // in the tip; Mode 0: not there
	mode    object.Mode    // on disk; 0: not there
	blob    gitstore.Blob
	hasBlob bool // blob is new; else the content is old's
	// certainty says how its owner is known; "" without a call.
	certainty claims.Certainty
}

// makePlan plays the request's operations.
func (w *Workspace) makePlan(ctx context.Context, req *Request, lock *pathLock, c *contents) (*plan, error) {
	p := &plan{w: w, req: req, view: newView(w, w.store.Snapshot(), lock), contents: c, dry: req.DryRun,
		claimed: make(map[wspath.Path]bool), net: newNet(), ops: make([]OpResult, len(req.Ops))}
	for i := range req.Ops {
		if err := p.play(ctx, i); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *plan) play(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	p.ops[i] = OpResult{Path: op.Path, To: op.To}
	switch op.Kind {
	case OpWrite:
		return p.write(ctx, i)
	case OpEdit:
		return p.edit(ctx, i)
	case OpDelete:
		return p.delete(ctx, i)
	case OpRename:
		return p.rename(ctx, i)
	case OpCopy:
		return p.copy(ctx, i)
	case OpChmod:
		return p.chmod(ctx, i)
	case OpMkdir:
		return p.mkdir(ctx, i)
	case OpSymlink:
		return p.symlink(ctx, i)
	case OpPrune:
		return p.prune(ctx, i)
	}
	return errs.New(errs.Invalid, "invalid_operation", "The operation does not exist.")
}

// resolve gives the path that an operation acts on, locked.
func (p *plan) resolve(path wspath.Path, follow bool) (wspath.Path, error) {
	if err := p.view.covered(path); err != nil {
		return "", err
	}
	q, err := p.view.resolve(path, follow)
	if err != nil {
		return "", err
	}
	if p.w.disk.IsOwn(q) {
		return "", &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "The path lies in a folder of the server's own.", Path: string(path)}
	}
	return q, p.view.covered(q)
}

// target finds what an operation on a file acts on: not the root, of the kind
// that was asked for.
func (p *plan) target(op *Op, follow bool) (wspath.Path, *vnode, error) {
	q, err := p.resolve(op.Path, follow)
	if err != nil {
		return "", nil, err
	}
	if q.IsRoot() {
		return "", nil, errs.New(errs.Invalid, "is_root", "That is the workspace's root.")
	}
	n, err := p.view.at(q)
	if err != nil {
		return "", nil, err
	}
	if op.MustBe != KindNone && n.kind != KindNone {
		switch {
		case op.MustBe == KindDir && n.kind != KindDir:
			return "", nil, &errs.Error{Kind: errs.Invalid, Code: "not_a_directory", Detail: "That is no folder.", Path: string(q)}
		case op.MustBe != KindDir && n.kind == KindDir:
			return "", nil, &errs.Error{Kind: errs.Invalid, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
		}
	}
	return q, n, nil
}

// judge checks a precondition against what stands at a path.
func (p *plan) judge(ctx context.Context, q wspath.Path, n *vnode, c Condition) error {
	if len(c.Match) == 0 && !c.NoneMatchAny {
		return nil
	}
	fail := func() error {
		e := &errs.Error{Kind: errs.Precondition, Code: "precondition_failed", Detail: "The file is not in the state that the condition names.", Path: string(q)}
		if n.kind == KindFile || n.kind == KindSymlink {
			return e.With("etag", n.id.String())
		}
		return e
	}
	if n.kind == KindFile || n.kind == KindSymlink {
		if err := p.view.identify(ctx, n); err != nil {
			return err
		}
	}
	if c.NoneMatchAny && n.kind != KindNone {
		return fail()
	}
	if len(c.Match) == 0 {
		return nil
	}
	if n.kind == KindDir {
		return &errs.Error{Kind: errs.Invalid, Code: "is_a_directory", Detail: "A folder has no tag to match.", Path: string(q)}
	}
	if n.kind != KindFile && n.kind != KindSymlink {
		return fail()
	}
	for _, m := range c.Match {
		if m == "*" || m == n.id.String() {
			return nil
		}
	}
	return fail()
}

// claim sees to it that what an operation touches at a path is in history: what
// the disk holds otherwise than the tip is noted to be recorded first.
func (p *plan) claim(ctx context.Context, q wspath.Path, n *vnode) error {
	then := n.origin
	switch {
	case n.content != nil:
		return nil
	case n.kind == KindNone || then == "":
		// Nothing there. If it was not there before the change set either,
		// the tip may still have something.
		if _, changed := p.view.nodes[q]; changed || p.newFolder(q) {
			return nil
		}
		then = q
	}
	if p.claimed[then] {
		return nil
	}
	p.claimed[then] = true
	tip, inTip, err := p.view.tip.Lookup(then)
	if err != nil {
		return err
	}
	if !inTip {
		if err := p.claimFolders(then); err != nil {
			return err
		}
	}
	switch n.kind {
	case KindFile, KindSymlink:
		return p.claimFile(ctx, then, n, tip)
	case KindDir:
		if tip.Mode != 0 && tip.Mode != object.Dir {
			p.external = append(p.external, external{path: then, old: tip})
		}
	default:
		return p.claimGone(tip)
	}
	return nil
}

// newFolder reports whether a path lies in a folder that the change set made or
// moved there.
func (p *plan) newFolder(q wspath.Path) bool {
	for dir := range q.Ancestors() {
		if _, ok := p.view.nodes[dir]; ok {
			return true
		}
	}
	return false
}

// claimFolders finds a folder on the way that history has as a file.
func (p *plan) claimFolders(q wspath.Path) error {
	dir := q.Dir()
	if e, ok, err := p.view.tip.Lookup(dir); err != nil || (ok && e.Mode == object.Dir) {
		return err
	}
	for ; !dir.IsRoot(); dir = dir.Dir() {
		e, ok, err := p.view.tip.Lookup(dir)
		if err != nil {
			return err
		}
		if !ok || p.claimed[dir] {
			continue
		}
		if e.Mode == object.Dir {
			return nil
		}
		if err := p.view.covered(dir); err != nil {
			return err
		}
		p.claimed[dir] = true
		p.external = append(p.external, external{path: dir, old: e})
		return nil
	}
	return nil
}

func (p *plan) claimFile(ctx context.Context, then wspath.Path, n *vnode, tip gitstore.Entry) error {
	if err := p.view.identify(ctx, n); err != nil {
		return err
	}
	if tip.Mode == object.Dir {
		if err := p.claimGone(tip); err != nil {
			return err
		}
		tip = gitstore.Entry{}
	}
	if tip.ID == n.id && tip.Mode == n.mode {
		return nil
	}
	if p.dry {
		p.external = append(p.external, external{path: then, old: tip, mode: n.mode})
		return nil
	}
	if tip.ID == n.id && tip.Mode != object.Symlink && n.mode != object.Symlink {
		p.external = append(p.external, external{path: then, old: tip, mode: n.mode})
		return nil
	}
	b, err := p.w.disk.Capture(ctx, then, n.seen)
	if err != nil {
		return err
	}
	p.contents.all = append(p.contents.all, &content{blob: b})
	p.view.settle(n)
	if tip.ID != n.id || tip.Mode != n.mode {
		p.external = append(p.external, external{path: then, old: tip, mode: n.mode, blob: b, hasBlob: true})
	}
	return nil
}

// claimGone notes what history has at a path and the disk has not.
func (p *plan) claimGone(tip gitstore.Entry) error {
	if tip.Mode == 0 {
		return nil
	}
	if tip.Mode != object.Dir {
		p.external = append(p.external, external{path: tip.Path, old: tip})
		return nil
	}
	return p.view.tip.Walk(tip.Path, func(e gitstore.Entry) error {
		p.external = append(p.external, external{path: e.Path, old: e})
		return nil
	})
}

// touch claims a file and gives its record in the net changes.
func (p *plan) touch(ctx context.Context, q wspath.Path, n *vnode) error {
	if err := p.claim(ctx, q, n); err != nil {
		return err
	}
	if n.content == nil && (n.kind == KindFile || n.kind == KindSymlink) {
		f := p.net.known(q, n.origin, gitstore.Entry{Path: n.origin, Mode: n.mode, ID: n.id})
		if n.kind == KindFile && !f.hasPerm { // as it was before the first operation
			f.perm, f.hasPerm = n.perm, true
		}
	}
	return nil
}

// checkShape refuses a name that would make a folder a repository in git's
// eyes, for it and the folders that would be made on the way.
func (p *plan) checkShape(q wspath.Path) error {
	if p.req.AllowRepoShape {
		return nil
	}
	for ; !q.IsRoot(); q = q.Dir() {
		if wspath.IsRepoName(q.Base()) {
			if err := p.checkShapeIn(q.Dir(), q.Base()); err != nil {
				return err
			}
		}
		if n, err := p.view.at(q.Dir()); err != nil || n.kind == KindDir {
			return err
		}
	}
	return nil
}

func (p *plan) checkShapeIn(dir wspath.Path, adding string) error {
	// The other names must not appear meanwhile.
	if err := p.view.covered(dir.Join("HEAD"), dir.Join("config"), dir.Join("objects"), dir.Join("refs")); err != nil {
		return err
	}
	var failed error
	exists := func(name string) bool {
		n, err := p.view.at(dir.Join(name))
		if err != nil {
			failed = err
		}
		return err == nil && n.kind != KindNone
	}
	if wspath.CompletesRepo(exists, adding) {
		return &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "With this the folder would be a repository that git runs.", Path: string(dir.Join(adding))}
	}
	return failed
}

// entries gives what the commit's changelog will say.
func (p *plan) entries() []netEntry {
	return p.net.entries(func(m object.Mode) fs.FileMode { return p.w.disk.Root.FilePerm(m == object.Executable) })
}

// result notes what an operation did.
func (p *plan) result(i int, what message.Operation, q wspath.Path, n *vnode) {
	r := &p.ops[i]
	r.Operation = what
	if n != nil && (n.kind == KindFile || n.kind == KindSymlink) {
		r.Blob, r.Mode, r.Size = n.id, n.mode, n.size
	}
}
