package plan

import (
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// inTree reports whether the tree has a file at or under a path when the edits
// so far are made.
func (p *Plan) inTree(q wspath.Path) (bool, error) {
	for _, at := range append(p.View.nodes.under(q), q) {
		if n := p.View.nodes.at[at]; n != nil && (n.Kind == op.KindFile || n.Kind == op.KindSymlink) {
			return true, nil
		}
	}
	gone := make(map[wspath.Path]bool)
	for _, x := range p.External {
		if x.Mode == 0 {
			gone[x.Path] = true
		} else if x.Path.Within(q) {
			if n, err := p.View.at(x.Path); err != nil || n.origin == x.Path {
				return true, err
			}
		}
	}
	found := false
	err := p.View.recorded(q, func(_, then wspath.Path, _ gitstore.Entry) error {
		if gone[then] {
			return nil
		}
		found = true
		return ErrStop
	})
	if found {
		return true, nil
	}
	return false, err
}

// ErrStop ends a walk that has found what it looked for.
var ErrStop = errs.New(errs.Internal, "stop", "")

// ends resolves both paths of a rename or copy; old is what is at the target.
func (p *Plan) ends(i int) (from, to wspath.Path, n, old *Node, err error) {
	o := &p.req.Ops[i]
	if from, n, err = p.target(o, false); err != nil {
		return from, to, n, nil, err
	}
	if to, err = p.resolve(o.To, false); err != nil {
		return from, to, n, nil, err
	}
	p.Ops[i].Path, p.Ops[i].To = from, to
	old, err = p.toPlace(from, n, to, o.Overwrite)
	return from, to, n, old, err
}

// rename plays OpRename.
func (p *Plan) rename(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	from, to, n, old, err := p.ends(i)
	if err != nil {
		return err
	}
	if err := p.touch(ctx, from, n); err != nil {
		return err
	}
	if err := p.Judge(ctx, from, n, o.If); err != nil {
		return err
	}
	if n.Kind == op.KindNone {
		return disk.ErrNotFound(from)
	}
	if err := p.checkShape(to); err != nil {
		return err
	}
	if err := p.vacate(ctx, to, old); err != nil {
		return err
	}
	inTree := n.Kind == op.KindFile || n.Kind == op.KindSymlink
	if n.Kind == op.KindDir {
		if inTree, err = p.moveRecorded(from); err != nil {
			return err
		}
		// Not one that the request itself made: where its files come to says it all.
		if n.origin != "" || slices.ContainsFunc(p.folders, func(m wspath.Move) bool { return m.To.Within(from) }) {
			p.folders = append(p.folders, wspath.Move{From: from, To: to})
			p.filled = p.filled || inTree
		}
	} else if n.Kind == op.KindSpecial {
		p.Bare = true
	}
	if inTree {
		p.Edits = append(p.Edits, gitstore.Edit{Path: from, MoveTo: to})
	}
	p.net.move(from, to, o.Reverts)
	p.net.undo(o.RevertsOf)
	if n.Kind == op.KindDir && !inTree {
		p.net.moveDir(from, to, o.Reverts)
	}
	m := *n
	p.Ops[i].Operation = message.Rename
	p.Ops[i].Created = old.Kind == op.KindNone
	p.result(i, message.Rename, n)
	return p.View.move(from, to, &m)
}

// toPlace judges where a rename or copy leads.
func (p *Plan) toPlace(from wspath.Path, n *Node, to wspath.Path, overwrite bool) (*Node, error) {
	switch {
	case to.IsRoot():
		return nil, errs.New(errs.Invalid, "is_root", "That is the workspace's root.")
	case from == to:
		return nil, &errs.Error{Kind: errs.Invalid, Code: "same_path", Detail: "Source and target are the same.", Path: string(to)}
	case to.IsUnder(from):
		return nil, &errs.Error{Kind: errs.Invalid, Code: "move_into_itself", Detail: "The target lies inside of the source.", Path: string(to)}
	}
	old, err := p.View.at(to)
	if err != nil || n.Kind == op.KindNone || old.Kind == op.KindNone {
		return old, err
	}
	exists := func(code, why string) error {
		return &errs.Error{Kind: errs.Conflict, Code: code, Detail: why, Path: string(to)}
	}
	switch {
	case !overwrite:
		return nil, exists("target_exists", "The target exists already.")
	case old.Kind == op.KindSpecial:
		return nil, disk.ErrSpecial(to)
	case old.Kind == op.KindDir && n.Kind != op.KindDir:
		return nil, exists("is_a_directory", "The target is a directory.")
	case old.Kind != op.KindDir && n.Kind == op.KindDir:
		return nil, exists("not_a_directory", "The target is a file.")
	case old.Kind == op.KindDir:
		kids, err := p.View.children(to, old)
		if err != nil {
			return nil, err
		}
		if len(kids) > 0 {
			return nil, exists("directory_not_empty", "The directory at the target is not empty.")
		}
	}
	return old, nil
}

// vacate records what is at a target that is replaced.
func (p *Plan) vacate(ctx context.Context, to wspath.Path, old *Node) error {
	if err := p.touch(ctx, to, old); err != nil {
		return err
	}
	switch old.Kind {
	case op.KindDir:
		// Empty on disk; what history still has there is removed by a user.
		err := p.View.recorded(to, func(_, then wspath.Path, e gitstore.Entry) error {
			if !p.claimed[then] {
				p.claimed[then] = true
				p.External = append(p.External, record.External{Path: then, Old: e})
			}
			return nil
		})
		if err != nil {
			return err
		}
		p.remove(to, old)
		p.net.rmdir(to, nil)
		old.disk = nil
		old.Kind = op.KindNone
	case op.KindFile, op.KindSymlink:
		p.remove(to, old)
		p.net.remove(to, nil)
	}
	return nil
}

// moveRecorded moves the record of every recorded file of a folder, and reports
// whether there is one.
func (p *Plan) moveRecorded(from wspath.Path) (bool, error) {
	gone := make(map[wspath.Path]bool)
	for _, x := range p.External {
		if x.Mode == 0 {
			gone[x.Path] = true
		}
	}
	err := p.View.recorded(from, func(now, then wspath.Path, e gitstore.Entry) error {
		if !gone[then] {
			p.net.known(now, then, e)
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	return p.inTree(from)
}

// copy plays OpCopy.
func (p *Plan) copy(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	from, to, n, old, err := p.ends(i)
	if err != nil {
		return err
	}
	if err := p.Judge(ctx, from, n, o.If); err != nil {
		return err
	}
	if n.Kind == op.KindNone {
		return disk.ErrNotFound(from)
	}
	p.Ops[i].Created = old.Kind == op.KindNone
	if err := p.copyOne(ctx, i, from, n, to, old); err != nil {
		return err
	}
	made, err := p.View.at(to)
	if err != nil {
		return err
	}
	what := message.Create
	if old.Kind == op.KindFile || old.Kind == op.KindSymlink {
		what = message.Modify
	}
	p.result(i, what, made)
	return nil
}

func (p *Plan) copyOne(ctx context.Context, i int, from wspath.Path, n *Node, to wspath.Path, old *Node) error {
	o := &p.req.Ops[i]
	switch n.Kind {
	case op.KindSpecial:
		return disk.ErrSpecial(from)
	case op.KindDir:
		return p.copyDir(ctx, i, from, n, to, old)
	}
	if err := p.touch(ctx, to, old); err != nil {
		return err
	}
	x, mode, err := p.copyContent(ctx, n, to)
	if err != nil {
		return err
	}
	if old.Kind == n.Kind && old.ID == x.Blob.ID() && old.Mode == mode {
		return nil
	}
	if old.Kind == op.KindNone {
		if err := p.checkShape(to); err != nil {
			return err
		}
	}
	kind := op.KindFile
	if mode == object.Symlink {
		kind = op.KindSymlink
	}
	m := &Node{Kind: kind, Mode: mode, ID: x.Blob.ID(), size: x.Blob.Size(), content: x, perm: p.View.permFor(old, mode, o.Permissions)}
	if kind == op.KindFile && n.Kind == op.KindFile && old.Kind == op.KindNone {
		m.perm &= n.perm | 0o200 // a copy is not readable by more than its source
	}
	return p.put(to, old, m, o.Reverts)
}

func (p *Plan) copyContent(ctx context.Context, n *Node, to wspath.Path) (*content.Content, object.Mode, error) {
	switch {
	case n.content != nil:
		x, err := p.Contents.FromContent(n.content, to)
		return x, n.Mode, err
	case n.Kind == op.KindSymlink:
		target, err := p.View.readlink(n)
		if err != nil {
			return nil, 0, err
		}
		if strings.HasPrefix(target, "/") || !p.View.linkStays(to, target) {
			return nil, 0, &errs.Error{Kind: errs.Invalid, Code: "link_leads_out", Detail: "The link's target lies outside of the workspace.", Path: string(to)}
		}
		return p.Contents.FromLink(target), object.Symlink, nil
	}
	x, mode, err := p.Contents.FromDisk(ctx, n.origin, to)
	if n.chmod {
		mode = n.Mode
	}
	return x, mode, err
}

// copyDir copies a folder with what is on disk under it: no git folder, no
// special file.
func (p *Plan) copyDir(ctx context.Context, i int, from wspath.Path, n *Node, to wspath.Path, old *Node) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(err, string(from))
	}
	if p.disk.IsOwn(from) {
		return nil
	}
	kids, err := p.View.children(from, n)
	if err != nil {
		return err
	}
	if old.Kind == op.KindNone {
		if err := p.checkShape(to); err != nil {
			return err
		}
		p.net.mkdir(to, p.req.Ops[i].Reverts)
		if err := p.View.set(to, &Node{Kind: op.KindDir}); err != nil {
			return err
		}
	}
	for _, k := range kids {
		if wspath.IsGitName(k.name) || k.node.Kind == op.KindSpecial || (k.node.Kind == op.KindSymlink && wspath.IsModulesName(k.name)) {
			continue
		}
		at := to.Join(k.name)
		there, err := p.View.at(at)
		if err != nil {
			return err
		}
		if err := p.copyOne(ctx, i, from.Join(k.name), k.node, at, there); err != nil {
			return err
		}
	}
	return nil
}
