package workspace

import (
	"context"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// inTree reports whether the tree has a file at or under a path when the edits
// so far are made.
func (p *plan) inTree(q wspath.Path) (bool, error) {
	for at, n := range p.view.nodes {
		if at.Within(q) && (n.kind == KindFile || n.kind == KindSymlink) {
			return true, nil
		}
	}
	gone := make(map[wspath.Path]bool)
	for _, x := range p.external {
		if x.mode == 0 {
			gone[x.path] = true
		} else if x.path.Within(q) {
			if n, err := p.view.at(x.path); err != nil || n.origin == x.path {
				return true, err
			}
		}
	}
	found := false
	err := p.view.recorded(q, func(_, then wspath.Path, _ gitstore.Entry) error {
		if gone[then] {
			return nil
		}
		found = true
		return errStop
	})
	if found {
		return true, nil
	}
	return false, err
}

// errStop ends a walk that has found what it looked for.
var errStop = errs.New(errs.Internal, "stop", "")

// rename plays OpRename.
func (p *plan) rename(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	from, n, err := p.target(op, false)
	if err != nil {
		return err
	}
	to, err := p.resolve(op.To, false)
	if err != nil {
		return err
	}
	p.ops[i].Path, p.ops[i].To = from, to
	old, err := p.toPlace(from, n, to, op.Overwrite)
	if err != nil {
		return err
	}
	if err := p.touch(ctx, from, n); err != nil {
		return err
	}
	if err := p.judge(ctx, from, n, op.If); err != nil {
		return err
	}
	if n.kind == KindNone {
		return disk.ErrNotFound(from)
	}
	if err := p.checkShape(to); err != nil {
		return err
	}
	if err := p.vacate(ctx, to, old); err != nil {
		return err
	}
	inTree := n.kind == KindFile || n.kind == KindSymlink
	if n.kind == KindDir {
		if inTree, err = p.moveRecorded(from, to, op); err != nil {
			return err
		}
		// Not one that the request itself made: where its files come to says it all.
		if n.origin != "" || slices.ContainsFunc(p.folders, func(m FolderMove) bool { return m.To.Within(from) }) {
			p.folders = append(p.folders, FolderMove{From: from, To: to})
			p.filled = p.filled || inTree
		}
	} else if n.kind == KindSpecial {
		p.bare = true
	}
	if inTree {
		p.edits = append(p.edits, gitstore.Edit{Path: from, MoveTo: to})
	}
	p.net.move(from, to, op.Reverts)
	p.net.undo(op.RevertsOf)
	if n.kind == KindDir && !inTree {
		p.net.moveDir(from, to, op.Reverts)
	}
	m := *n
	p.ops[i].Operation = message.Rename
	p.ops[i].Created = old.kind == KindNone
	p.result(i, message.Rename, to, n)
	return p.view.move(from, to, &m)
}

// toPlace judges where a rename or copy leads.
func (p *plan) toPlace(from wspath.Path, n *vnode, to wspath.Path, overwrite bool) (*vnode, error) {
	switch {
	case to.IsRoot():
		return nil, errs.New(errs.Invalid, "is_root", "That is the workspace's root.")
	case from == to:
		return nil, &errs.Error{Kind: errs.Invalid, Code: "same_path", Detail: "Source and target are the same.", Path: string(to)}
	case to.IsUnder(from):
		return nil, &errs.Error{Kind: errs.Invalid, Code: "move_into_itself", Detail: "The target lies inside of the source.", Path: string(to)}
	}
	old, err := p.view.at(to)
	if err != nil || n.kind == KindNone || old.kind == KindNone {
		return old, err
	}
	exists := func(code, why string) error {
		return &errs.Error{Kind: errs.Conflict, Code: code, Detail: why, Path: string(to)}
	}
	switch {
	case !overwrite:
		return nil, exists("target_exists", "Something stands at the target already.")
	case old.kind == KindSpecial:
		return nil, disk.ErrSpecial(to)
	case old.kind == KindDir && n.kind != KindDir:
		return nil, exists("is_a_directory", "A folder stands at the target.")
	case old.kind != KindDir && n.kind == KindDir:
		return nil, exists("not_a_directory", "A file stands at the target.")
	case old.kind == KindDir:
		kids, err := p.view.children(to, old)
		if err != nil {
			return nil, err
		}
		if len(kids) > 0 {
			return nil, exists("directory_not_empty", "The directory at the target is not empty.")
		}
	}
	return old, nil
}

// vacate records what stands at a target that is replaced.
func (p *plan) vacate(ctx context.Context, to wspath.Path, old *vnode) error {
	if err := p.touch(ctx, to, old); err != nil {
		return err
	}
	switch old.kind {
	case KindDir:
		// Empty on disk; what history still has there is gone by a person's hand.
		err := p.view.recorded(to, func(_, then wspath.Path, e gitstore.Entry) error {
			if !p.claimed[then] {
				p.claimed[then] = true
				p.external = append(p.external, external{path: then, old: e})
			}
			return nil
		})
		if err != nil {
			return err
		}
		p.remove(to, old)
		p.net.rmdir(to, nil)
		old.disk = nil
		old.kind = KindNone
	case KindFile, KindSymlink:
		p.remove(to, old)
		p.net.remove(to, nil)
	}
	return nil
}

// moveRecorded gives every recorded file of a folder its record, and tells
// whether there is one.
func (p *plan) moveRecorded(from, to wspath.Path, op *Op) (bool, error) {
	gone := make(map[wspath.Path]bool)
	for _, x := range p.external {
		if x.mode == 0 {
			gone[x.path] = true
		}
	}
	err := p.view.recorded(from, func(now, then wspath.Path, e gitstore.Entry) error {
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
func (p *plan) copy(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	from, n, err := p.target(op, false)
	if err != nil {
		return err
	}
	to, err := p.resolve(op.To, false)
	if err != nil {
		return err
	}
	p.ops[i].Path, p.ops[i].To = from, to
	old, err := p.toPlace(from, n, to, op.Overwrite)
	if err != nil {
		return err
	}
	if err := p.judge(ctx, from, n, op.If); err != nil {
		return err
	}
	if n.kind == KindNone {
		return disk.ErrNotFound(from)
	}
	p.ops[i].Created = old.kind == KindNone
	if err := p.copyOne(ctx, i, from, n, to, old); err != nil {
		return err
	}
	made, err := p.view.at(to)
	if err != nil {
		return err
	}
	what := message.Create
	if old.kind == KindFile || old.kind == KindSymlink {
		what = message.Modify
	}
	p.result(i, what, to, made)
	return nil
}

func (p *plan) copyOne(ctx context.Context, i int, from wspath.Path, n *vnode, to wspath.Path, old *vnode) error {
	op := &p.req.Ops[i]
	switch n.kind {
	case KindSpecial:
		return disk.ErrSpecial(from)
	case KindDir:
		return p.copyDir(ctx, i, from, n, to, old)
	}
	if err := p.touch(ctx, to, old); err != nil {
		return err
	}
	x, mode, err := p.copyContent(ctx, from, n, to)
	if err != nil {
		return err
	}
	if old.kind == n.kind && old.id == x.blob.ID() && old.mode == mode {
		return nil
	}
	if old.kind == KindNone {
		if err := p.checkShape(to); err != nil {
			return err
		}
	}
	kind := KindFile
	if mode == object.Symlink {
		kind = KindSymlink
	}
	m := &vnode{kind: kind, mode: mode, id: x.blob.ID(), size: x.blob.Size(), content: x, perm: p.view.permFor(old, mode, op.Permissions)}
	if kind == KindFile && n.perm != 0 && old.kind == KindNone {
		m.perm &= n.perm | 0o200 // a copy is not readable by more than its source
	}
	return p.put(to, old, m, op.Reverts)
}

func (p *plan) copyContent(ctx context.Context, from wspath.Path, n *vnode, to wspath.Path) (*content, object.Mode, error) {
	switch {
	case n.content != nil:
		x, err := p.contents.fromContent(n.content, to)
		return x, n.mode, err
	case n.kind == KindSymlink:
		target, err := p.view.readlink(n)
		if err != nil {
			return nil, 0, err
		}
		if strings.HasPrefix(target, "/") || !p.view.linkStays(to, target) {
			return nil, 0, &errs.Error{Kind: errs.Invalid, Code: "link_leads_out", Detail: "The link's target lies outside of the workspace.", Path: string(to)}
		}
		return p.contents.fromLink(target), object.Symlink, nil
	}
	x, mode, err := p.contents.fromDisk(ctx, n.origin, to)
	if n.chmod {
		mode = n.mode
	}
	return x, mode, err
}

// copyDir copies a folder with what is on disk under it: no git folder, no
// special file.
func (p *plan) copyDir(ctx context.Context, i int, from wspath.Path, n *vnode, to wspath.Path, old *vnode) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(err, string(from))
	}
	if p.w.disk.IsOwn(from) {
		return nil
	}
	kids, err := p.view.children(from, n)
	if err != nil {
		return err
	}
	if old.kind == KindNone {
		if err := p.checkShape(to); err != nil {
			return err
		}
		p.net.mkdir(to, p.req.Ops[i].Reverts)
		if err := p.view.set(to, &vnode{kind: KindDir}); err != nil {
			return err
		}
	}
	for _, k := range kids {
		if wspath.IsGitName(k.name) || k.node.kind == KindSpecial || (k.node.kind == KindSymlink && wspath.IsModulesName(k.name)) {
			continue
		}
		at := to.Join(k.name)
		there, err := p.view.at(at)
		if err != nil {
			return err
		}
		if err := p.copyOne(ctx, i, from.Join(k.name), k.node, at, there); err != nil {
			return err
		}
	}
	return nil
}
