package plan

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// mkdir plays OpMkdir.
func (p *Plan) mkdir(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	q, n, err := p.target(o, false)
	if err != nil {
		return err
	}
	p.Ops[i].Path = q
	if n.Kind == op.KindDir && o.Recursive {
		p.net.idle = append(p.net.idle, o.Reverts...)
		return nil
	}
	if n.Kind != op.KindNone {
		return &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The target already exists.", Path: string(q)}
	}
	if err := p.checkShape(q); err != nil {
		return err
	}
	missing := []wspath.Path{q}
	for dir := q.Dir(); ; dir = dir.Dir() {
		n, err := p.View.at(dir)
		if err != nil {
			return err
		}
		if n.Kind == op.KindDir {
			break
		}
		if !o.Recursive {
			return &errs.Error{Kind: errs.NotFound, Code: "parent_not_found", Detail: "The directory above does not exist.", Path: string(q)}
		}
		missing = append(missing, dir)
	}
	// A folder that history has as a file, or as one with files in it.
	if err := p.claim(ctx, q, n); err != nil {
		return err
	}
	for j := len(missing) - 1; j >= 0; j-- {
		p.net.mkdir(missing[j], o.Reverts)
	}
	p.Ops[i].Operation, p.Ops[i].Created = message.Mkdir, true
	return p.View.set(q, &Node{Kind: op.KindDir})
}

// delete plays OpDelete.
func (p *Plan) delete(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	q, n, err := p.target(o, false)
	if err != nil {
		if o.Force && errs.CodeOf(err) == "file_not_found" {
			return nil
		}
		return err
	}
	p.Ops[i].Path = q
	switch n.Kind {
	case op.KindNone:
		// What history has and the disk has not is recorded as gone.
		if err := p.claim(ctx, q, n); err != nil {
			return err
		}
		if err := p.Judge(ctx, q, n, o.If); err != nil {
			return err
		}
		if o.Force {
			return nil
		}
		return disk.ErrNotFound(q)
	case op.KindDir:
		return p.deleteDir(ctx, i, q, n)
	case op.KindSpecial:
		if err := p.refuse(o, []op.Skip{{Path: string(q), Reason: "special"}}); err != nil {
			return err
		}
		p.Bare = true
	default:
		if err := p.touch(ctx, q, n); err != nil {
			return err
		}
		if err := p.Judge(ctx, q, n, o.If); err != nil {
			return err
		}
		p.Edits = append(p.Edits, gitstore.Edit{Path: q})
		p.net.remove(q, o.Reverts)
	}
	p.Ops[i].Operation, p.Ops[i].Existed = message.Delete, true
	p.remove(q, n)
	p.View.remove(q)
	return nil
}

// refuse answers what a delete would destroy unrecorded, unless it is forced.
func (p *Plan) refuse(o *op.Op, skipped []op.Skip) error {
	if len(skipped) == 0 {
		return nil
	}
	for _, s := range skipped {
		if s.Reason == "own_folder" {
			return &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "A directory of the server's own is there.", Path: s.Path}
		}
	}
	if !o.Force {
		return errs.New(errs.Conflict, "not_recordable", "Something there cannot be recorded before it is deleted.").With("unrecorded", skipped)
	}
	p.unrecorded = append(p.unrecorded, skipped...)
	return nil
}

// deleteDir plays OpDelete of a folder.
func (p *Plan) deleteDir(ctx context.Context, i int, q wspath.Path, n *Node) error {
	o := &p.req.Ops[i]
	if len(o.If.Match) > 0 || o.If.NoneMatchAny {
		if err := p.Judge(ctx, q, n, o.If); err != nil {
			return err
		}
	}
	kids, err := p.View.children(q, n)
	listed := !unreadable(err)
	if err != nil && listed {
		return err
	}
	if len(kids) > 0 && !o.Recursive {
		return &errs.Error{Kind: errs.Conflict, Code: "directory_not_empty", Detail: "The directory is not empty.", Path: string(q)}
	}
	if err := p.claim(ctx, q, n); err != nil {
		return err
	}
	d := deletion{p: p, op: o, found: make(map[wspath.Path]bool)}
	if !listed {
		d.skip(q, "unreadable")
	} else if err := d.folder(ctx, q, kids); err != nil {
		return err
	}
	if err := p.refuse(o, d.skipped); err != nil {
		return err
	}
	if err := d.missing(q); err != nil {
		return err
	}
	inTree, err := p.inTree(q)
	if err != nil {
		return err
	}
	if inTree || len(d.files) > 0 {
		p.Edits = append(p.Edits, gitstore.Edit{Path: q})
	}
	for _, f := range d.files {
		p.net.remove(f, o.Reverts)
	}
	for _, dir := range d.empty {
		p.net.rmdir(dir, o.Reverts)
	}
	p.Ops[i].Operation, p.Ops[i].Existed = message.Delete, true
	if len(d.files) == 0 {
		p.Ops[i].Operation = message.Rmdir
	}
	p.removeTree(q, n)
	p.View.remove(q)
	return nil
}

// deletion gathers what goes with a folder.
type deletion struct {
	p       *Plan
	op      *op.Op
	files   []wspath.Path // that are in history now
	empty   []wspath.Path // folders without a file below
	skipped []op.Skip
	found   map[wspath.Path]bool // on disk, by their place before the change set
}

func (d *deletion) skip(p wspath.Path, why string) {
	d.skipped = append(d.skipped, op.Skip{Path: string(p), Reason: why})
}

// folder claims all that is under a folder.
func (d *deletion) folder(ctx context.Context, q wspath.Path, kids []child) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(err, string(q))
	}
	if d.p.disk.IsOwn(q) {
		d.skip(q, "own_folder")
		return nil
	}
	before := len(d.files) + len(d.skipped)
	for _, k := range kids {
		at := q.Join(k.name)
		var err error
		switch {
		case k.name == ".git":
			d.skip(at, "nested_git")
		case wspath.IsGitName(k.name), k.node.Kind == op.KindSymlink && wspath.IsModulesName(k.name):
			d.skip(at, "name_refused")
		case k.node.Kind == op.KindDir:
			var below []child
			if below, err = d.p.View.children(at, k.node); err == nil {
				err = d.folder(ctx, at, below)
			} else if unreadable(err) {
				d.skip(at, "unreadable")
				err = nil
			}
		case k.node.Kind == op.KindSpecial:
			d.skip(at, "special")
		default:
			err = d.file(ctx, at, k.node)
		}
		if err != nil {
			return err
		}
	}
	if len(d.files)+len(d.skipped) == before {
		d.empty = append(d.empty, q)
	}
	return nil
}

// file claims one file under the folder.
func (d *deletion) file(ctx context.Context, at wspath.Path, n *Node) error {
	if n.origin != "" {
		d.found[n.origin] = true
		_, tracked, err := d.p.View.tip.Lookup(n.origin)
		if err != nil {
			return err
		}
		if !tracked && n.size > d.p.limits.CaptureBytes {
			d.skip(at, "too_large")
			return nil
		}
	}
	err := d.p.touch(ctx, at, n)
	switch {
	case unreadable(err):
		d.skip(at, "unreadable")
		return nil
	case errs.CodeOf(err) == "sha1_collision":
		d.skip(at, "sha1_collision")
		return nil
	case errs.CodeOf(err) == "file_changing" && err != nil:
		d.skip(at, "changing")
		return nil
	case err != nil:
		return err
	}
	d.files = append(d.files, at)
	return nil
}

func unreadable(err error) bool {
	return err != nil && (errs.Is(err, errs.Forbidden) || errs.CodeOf(err) == "io_error")
}

// missing finds what history has under the folder and the disk has not: a
// person deleted that.
func (d *deletion) missing(q wspath.Path) error {
	unknown := make(map[string]bool, len(d.skipped))
	for _, s := range d.skipped {
		unknown[s.Path] = true
	}
	return d.p.View.recorded(q, func(now, then wspath.Path, e gitstore.Entry) error {
		if d.found[then] || d.p.claimed[then] {
			return nil
		}
		if unknown[string(now)] {
			// Unreadable, and tracked: it goes as what history knows of it.
			d.p.net.known(now, then, e)
			d.files = append(d.files, now)
			return nil
		}
		for dir := range now.Ancestors() {
			if unknown[string(dir)] {
				d.p.net.known(now, then, e)
				d.files = append(d.files, now)
				return nil
			}
		}
		d.p.claimed[then] = true
		d.p.External = append(d.p.External, record.External{Path: then, Old: e})
		return nil
	})
}

// ForgetFolders takes out of a plan what only a disk could hold: directories
// without a file.
func (p *Plan) ForgetFolders() {
	p.net.dirs, p.Bare = nil, false
	for i := range p.Ops {
		if p.req.Ops[i].Kind == op.OpMkdir {
			p.Ops[i].Operation, p.Ops[i].Created = "", false
		}
	}
}
