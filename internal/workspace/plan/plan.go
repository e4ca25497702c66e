package plan

import (
	"context"
	"io/fs"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// Plan is what a request comes to, played on a view: what has to be recorded
// first, the steps on disk, the edits of the tree, and the entries. Making it
// changes nothing.
type Plan struct {
	rec      *record.Recorder
	disk     *disk.Disk
	limits   op.Limits
	req      *op.Request
	View     *View
	Contents *content.Prepared
	dry      bool

	External []record.External
	claimed  map[wspath.Path]bool

	Steps      []Step // of the materialiser, from the view and removed
	removed    []removal
	Edits      []gitstore.Edit
	net        *netChanges
	Ops        []op.OpResult
	unrecorded []op.Skip
	Named      []message.Trailer // what the policy names of the change set
	folders    []wspath.Move     // in order
	filled     bool              // one of them had files in it
	// Bare is set where a step acts on what cannot be recorded, so that it has
	// to be done although there is no entry.
	Bare bool
}

// stepKind is what one step does to the disk.
type stepKind uint8

const (
	StepPut   stepKind = iota + 1 // content at path, in place of what is expected there
	StepTake                      // removes what is at path, a directory recursively
	StepMove                      // path goes to to, in place of the file expected there
	StepSwap                      // path and to take each other's places
	StepMkdir                     // a folder
	StepChmod                     // permission bits
	StepPrune                     // a folder goes if it is empty
)

// Step is one action on disk. Steps are done in order, and undone backwards.
type Step struct {
	Kind     stepKind
	Path, To wspath.Path
	Content  *content.Content
	Perm     fs.FileMode
	Mode     object.Mode
	Expect   *OnDisk // what is at path; nil: nothing
	Target   *OnDisk // stepMove, stepSwap: what is at to; nil: nothing
	Result   *OnDisk // what the step makes or leaves of a file; filled in by it
	Dir      bool    // stepTake, stepMove: a directory; stepSwap: one of them at least is
	// Attrs is where the file is whose owner, ACL and extended attributes the
	// content of a stepPut takes over; empty: of none. early: that is where it is
	// before all steps.
	Attrs   wspath.Path
	Early   bool
	Skipped []op.Skip // stepTake: what is removed unrecorded, by the paths on disk
}

// Make plays the request's operations. If it fails, what it has so far is
// returned too.
func Make(ctx context.Context, rec *record.Recorder, limits op.Limits, req *op.Request, lock *pathlock.Lock, c *content.Prepared) (*Plan, error) {
	p := &Plan{rec: rec, disk: rec.Disk, limits: limits, req: req, View: NewView(rec.Disk, rec.Disk.Store.Snapshot(), lock), Contents: c, dry: req.DryRun,
		claimed: make(map[wspath.Path]bool), net: newNet(), Ops: make([]op.OpResult, len(req.Ops))}
	for i := range req.Ops {
		if err := p.play(ctx, i); err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p *Plan) play(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	p.Ops[i] = op.OpResult{Path: o.Path, To: o.To}
	switch o.Kind {
	case op.OpWrite:
		return p.write(ctx, i)
	case op.OpEdit:
		return p.edit(ctx, i)
	case op.OpDelete:
		return p.delete(ctx, i)
	case op.OpRename:
		return p.rename(ctx, i)
	case op.OpCopy:
		return p.copy(ctx, i)
	case op.OpChmod:
		return p.chmod(ctx, i)
	case op.OpMkdir:
		return p.mkdir(ctx, i)
	case op.OpSymlink:
		return p.symlink(ctx, i)
	case op.OpPrune:
		return p.prune(ctx, i)
	}
	return errs.New(errs.Invalid, "invalid_operation", "The operation does not exist.")
}

// resolve gives the path that an operation acts on, locked.
func (p *Plan) resolve(path wspath.Path, follow bool) (wspath.Path, error) {
	if err := p.View.covered(path); err != nil {
		return "", err
	}
	q, err := p.View.Resolve(path, follow)
	if err != nil {
		return "", err
	}
	if p.disk.IsOwn(q) {
		return "", &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "The path is in a directory of the server's own.", Path: string(path)}
	}
	return q, p.View.covered(q)
}

// target finds what an operation on a file acts on: not the root, of the kind
// that was asked for.
func (p *Plan) target(o *op.Op, follow bool) (wspath.Path, *Node, error) {
	q, err := p.resolve(o.Path, follow)
	if err != nil {
		return "", nil, err
	}
	if q.IsRoot() {
		return "", nil, errs.New(errs.Invalid, "is_root", "That is the workspace's root.")
	}
	n, err := p.View.at(q)
	if err != nil {
		return "", nil, err
	}
	if o.MustBe != op.KindNone && n.Kind != op.KindNone {
		switch {
		case o.MustBe == op.KindDir && n.Kind != op.KindDir:
			return "", nil, &errs.Error{Kind: errs.Invalid, Code: "not_a_directory", Detail: "The path is not a directory.", Path: string(q)}
		case o.MustBe != op.KindDir && n.Kind == op.KindDir:
			return "", nil, &errs.Error{Kind: errs.Invalid, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
		}
	}
	return q, n, nil
}

// Judge checks a precondition against the state of a path.
func (p *Plan) Judge(ctx context.Context, q wspath.Path, n *Node, c op.Condition) error {
	if len(c.Match) == 0 && !c.NoneMatchAny {
		return nil
	}
	var have object.ID
	switch {
	case n.Kind == op.KindFile || n.Kind == op.KindSymlink:
		if err := p.View.identify(ctx, n); err != nil {
			return err
		}
		have = n.ID
	case n.Kind == op.KindDir && !c.NoneMatchAny:
		return &errs.Error{Kind: errs.Invalid, Code: "is_a_directory", Detail: "A directory has no tag to match.", Path: string(q)}
	case n.Kind == op.KindSpecial: // no tag is its
		c.NoneMatchAny = true
	}
	return c.Check(string(q), n.Kind != op.KindNone, have)
}

// claim sees to it that what an operation touches at a path is in history: what
// the disk holds otherwise than the tip is noted to be recorded first.
func (p *Plan) claim(ctx context.Context, q wspath.Path, n *Node) error {
	then := n.origin
	switch {
	case n.content != nil:
		return nil
	case n.Kind == op.KindNone || then == "":
		// Nothing there. If it was not there before the change set either,
		// the tip may still have something.
		if _, changed := p.View.nodes.at[q]; changed || p.newFolder(q) {
			return nil
		}
		then = q
	}
	if p.claimed[then] {
		return nil
	}
	p.claimed[then] = true
	tip, inTip, err := p.View.tip.Lookup(then)
	if err != nil {
		return err
	}
	if !inTip {
		if err := p.claimFolders(then); err != nil {
			return err
		}
	}
	switch n.Kind {
	case op.KindFile, op.KindSymlink:
		return p.claimFile(ctx, then, n, tip)
	case op.KindDir:
		if tip.Mode != 0 && tip.Mode != object.Dir {
			p.External = append(p.External, record.External{Path: then, Old: tip})
		}
	default:
		return p.claimGone(tip)
	}
	return nil
}

// newFolder reports whether a path lies in a folder that the change set made or
// moved there.
func (p *Plan) newFolder(q wspath.Path) bool {
	for dir := range q.Ancestors() {
		if _, ok := p.View.nodes.at[dir]; ok {
			return true
		}
	}
	return false
}

// claimFolders finds a folder on the way that history has as a file.
func (p *Plan) claimFolders(q wspath.Path) error {
	dir := q.Dir()
	if e, ok, err := p.View.tip.Lookup(dir); err != nil || (ok && e.Mode == object.Dir) {
		return err
	}
	for ; !dir.IsRoot(); dir = dir.Dir() {
		e, ok, err := p.View.tip.Lookup(dir)
		if err != nil {
			return err
		}
		if !ok || p.claimed[dir] {
			continue
		}
		if e.Mode == object.Dir {
			return nil
		}
		if err := p.View.covered(dir); err != nil {
			return err
		}
		p.claimed[dir] = true
		p.External = append(p.External, record.External{Path: dir, Old: e})
		return nil
	}
	return nil
}

func (p *Plan) claimFile(ctx context.Context, then wspath.Path, n *Node, tip gitstore.Entry) error {
	if err := p.View.identify(ctx, n); err != nil {
		return err
	}
	if tip.Mode == object.Dir {
		if err := p.claimGone(tip); err != nil {
			return err
		}
		tip = gitstore.Entry{}
	}
	if tip.ID == n.ID && tip.Mode == n.Mode {
		return nil
	}
	if p.dry {
		p.External = append(p.External, record.External{Path: then, Old: tip, Mode: n.Mode})
		return nil
	}
	if tip.ID == n.ID && tip.Mode != object.Symlink && n.Mode != object.Symlink {
		p.External = append(p.External, record.External{Path: then, Old: tip, Mode: n.Mode})
		return nil
	}
	b, err := p.disk.Capture(ctx, then, n.seen)
	if err != nil {
		return err
	}
	p.Contents.All = append(p.Contents.All, &content.Content{Blob: b})
	p.View.settle(n)
	if tip.ID != n.ID || tip.Mode != n.Mode {
		p.External = append(p.External, record.External{Path: then, Old: tip, Mode: n.Mode, Blob: b, HasBlob: true})
	}
	return nil
}

// claimGone notes what history has at a path and the disk has not.
func (p *Plan) claimGone(tip gitstore.Entry) error {
	if tip.Mode == 0 {
		return nil
	}
	if tip.Mode != object.Dir {
		p.External = append(p.External, record.External{Path: tip.Path, Old: tip})
		return nil
	}
	return p.View.tip.Walk(tip.Path, func(e gitstore.Entry) error {
		p.External = append(p.External, record.External{Path: e.Path, Old: e})
		return nil
	})
}

// touch claims a file and gives its record in the net changes.
func (p *Plan) touch(ctx context.Context, q wspath.Path, n *Node) error {
	if err := p.claim(ctx, q, n); err != nil {
		return err
	}
	if n.content == nil && (n.Kind == op.KindFile || n.Kind == op.KindSymlink) {
		f := p.net.known(q, n.origin, gitstore.Entry{Path: n.origin, Mode: n.Mode, ID: n.ID})
		if n.Kind == op.KindFile && !f.hasPerm { // as it was before the first operation
			f.perm, f.hasPerm = n.perm, true
		}
	}
	return nil
}

// checkShape refuses a name that would make a folder a repository in git's
// eyes, for it and the folders that would be made on the way.
func (p *Plan) checkShape(q wspath.Path) error {
	if p.req.AllowRepoShape {
		return nil
	}
	for ; !q.IsRoot(); q = q.Dir() {
		if wspath.IsRepoName(q.Base()) {
			if err := p.checkShapeIn(q.Dir(), q.Base()); err != nil {
				return err
			}
		}
		if n, err := p.View.at(q.Dir()); err != nil || n.Kind == op.KindDir {
			return err
		}
	}
	return nil
}

func (p *Plan) checkShapeIn(dir wspath.Path, adding string) error {
	// The other names must not appear meanwhile.
	if err := p.View.covered(dir.Join("HEAD"), dir.Join("config"), dir.Join("objects"), dir.Join("refs")); err != nil {
		return err
	}
	var failed error
	exists := func(name string) bool {
		n, err := p.View.at(dir.Join(name))
		if err != nil {
			failed = err
		}
		return err == nil && n.Kind != op.KindNone
	}
	if wspath.CompletesRepo(exists, adding) {
		return &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "With this the directory would be a repository that git runs.", Path: string(dir.Join(adding))}
	}
	return failed
}

// Entries gives what the commit's changelog will say.
func (p *Plan) Entries() []record.Entry {
	return p.net.entries(func(m object.Mode) fs.FileMode { return p.disk.Root.FilePerm(m == object.Executable) })
}

// result notes what an operation did.
func (p *Plan) result(i int, what message.Operation, n *Node) {
	r := &p.Ops[i]
	r.Operation = what
	if n != nil && (n.Kind == op.KindFile || n.Kind == op.KindSymlink) {
		r.Blob, r.Mode, r.Size = n.ID, n.Mode, n.size
	}
}
