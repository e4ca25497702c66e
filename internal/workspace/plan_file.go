package workspace

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// write plays OpWrite.
func (p *plan) write(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	q, n, err := p.target(op, !op.NoFollow)
	if err != nil {
		return err
	}
	return p.replace(ctx, i, q, n, p.contents.ops[i])
}

// replace puts content at a path, in place of the file or link that stands
// there or of nothing.
func (p *plan) replace(ctx context.Context, i int, q wspath.Path, n *vnode, x *content) error {
	op := &p.req.Ops[i]
	p.ops[i].Path = q
	switch n.kind {
	case KindDir:
		return &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case KindSpecial:
		return disk.ErrSpecial(q)
	}
	// The precondition is judged against what the disk holds; that is recorded
	// whichever way it goes.
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.judge(ctx, q, n, op.If); err != nil {
		return err
	}
	mode := object.Regular
	if op.Mode != nil {
		mode = *op.Mode
	} else if n.kind == KindFile {
		mode = n.mode
	}
	p.ops[i].Blob, p.ops[i].Mode, p.ops[i].Size = x.blob.ID(), mode, x.blob.Size()
	if n.kind == KindFile && n.id == x.blob.ID() {
		if n.mode == mode {
			return nil // the same bytes, the same mode
		}
		p.setMode(q, n, mode, op)
		p.ops[i].Operation = message.Chmod
		return nil
	}
	if n.kind == KindNone {
		if err := p.checkShape(q); err != nil {
			return err
		}
		p.ops[i].Created = true
	}
	p.ops[i].Operation = message.Modify
	if n.kind == KindNone {
		p.ops[i].Operation = message.Create
	}
	return p.put(q, n, &vnode{kind: KindFile, mode: mode, id: x.blob.ID(), size: x.blob.Size(), content: x,
		perm: p.view.permFor(n, mode, op.Permissions)}, op.Reverts)
}

// put is the edit and record of new content at a path.
func (p *plan) put(q wspath.Path, old, n *vnode, reverts []message.EntryRef) error {
	n.disk = &onDisk{}
	if old.content != nil {
		n.attrs = old.attrs
	} else if p.remove(q, old); old.kind == KindFile {
		n.attrs = old.origin
	}
	if n.kind != KindFile {
		n.attrs = ""
	}
	p.edits = append(p.edits, gitstore.Edit{Path: q, Mode: n.mode, Blob: n.content.blob})
	p.net.write(q, n.mode, n.id, n.content, reverts)
	return p.view.set(q, n)
}

// edit plays OpEdit: the bytes on disk, changed by the caller.
func (p *plan) edit(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	q, n, err := p.target(op, true)
	if err != nil {
		return err
	}
	p.ops[i].Path = q
	switch n.kind {
	case KindNone:
		if err := p.judge(ctx, q, n, op.If); err != nil {
			return err
		}
		return disk.ErrNotFound(q)
	case KindDir:
		return &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case KindSpecial:
		return disk.ErrSpecial(q)
	}
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.judge(ctx, q, n, op.If); err != nil {
		return err
	}
	limit := op.MaxEdit
	if limit == 0 {
		limit = p.w.limits.EditBytes
	}
	if n.size > limit {
		return &errs.Error{Kind: errs.TooLarge, Code: "file_too_large", Detail: "The file is too large to be edited.", Path: string(q)}
	}
	old, err := p.bytesOf(ctx, q, n)
	if err != nil {
		return err
	}
	data, err := op.Edit(old)
	if err != nil {
		return err
	}
	x, err := p.contents.fromBytes(q, data)
	if err != nil {
		return err
	}
	return p.replace(ctx, i, q, n, x)
}

// bytesOf reads a file of the view, which is identified: the bytes are those of
// its id.
func (p *plan) bytesOf(ctx context.Context, q wspath.Path, n *vnode) ([]byte, error) {
	if n.content != nil {
		return disk.ReadAll(n.content.staged, n.content.staged.Size())
	}
	var data []byte
	_, err := p.w.disk.Stable(ctx, n.origin, func(f vfs.File, size int64) (err error) {
		data, err = disk.ReadAll(f, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	if object.Hash(object.Blob, data) != n.id {
		return nil, disk.ErrChanging(q)
	}
	return data, nil
}

// setMode is the edit and record of a change of mode alone.
func (p *plan) setMode(q wspath.Path, n *vnode, mode object.Mode, op *Op) {
	perm := rootfs.ExecBits(n.perm, mode == object.Executable)
	e := gitstore.Edit{Path: q, Mode: mode}
	if n.content != nil {
		e.Blob = n.content.blob
	} else {
		e.Blob = gitstore.KnownBlob(n.id) // in the tip, or in the external change before
	}
	p.edits = append(p.edits, e)
	p.net.write(q, mode, n.id, n.content, op.Reverts)
	m := *n
	m.mode, m.perm, m.chmod = mode, perm, true
	p.view.nodes[q] = &m
}

// chmod plays OpChmod.
func (p *plan) chmod(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	q, n, err := p.target(op, true)
	if err != nil {
		return err
	}
	p.ops[i].Path = q
	switch n.kind {
	case KindNone:
		if err := p.judge(ctx, q, n, op.If); err != nil {
			return err
		}
		return disk.ErrNotFound(q)
	case KindDir:
		return &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case KindSpecial:
		return disk.ErrSpecial(q)
	case KindSymlink:
		return disk.ErrNotFound(q)
	}
	if op.Mode == nil {
		return errs.New(errs.Invalid, "invalid_mode", "The mode is missing.")
	}
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.judge(ctx, q, n, op.If); err != nil {
		return err
	}
	if n.mode != *op.Mode {
		p.setMode(q, n, *op.Mode, op)
		p.ops[i].Operation = message.Chmod
	}
	p.ops[i].Blob, p.ops[i].Mode, p.ops[i].Size = n.id, *op.Mode, n.size
	return nil
}

// symlink plays OpSymlink.
func (p *plan) symlink(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	q, n, err := p.target(op, false)
	if err != nil {
		return err
	}
	p.ops[i].Path = q
	// A link that a revert brings back is a person's, wherever it leads.
	back := p.req.AllowRepoShape
	if err := wspath.CheckTarget(q, op.Target); err != nil && !back {
		return err
	}
	if !back && !p.view.linkStays(q, op.Target) {
		return &errs.Error{Kind: errs.Invalid, Code: "link_leads_out", Detail: "The link's target lies outside of the workspace.", Path: string(q)}
	}
	switch {
	case n.kind == KindDir:
		return &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The path is a directory.", Path: string(q)}
	case n.kind == KindSpecial:
		return disk.ErrSpecial(q)
	case n.kind != KindNone && !op.Overwrite:
		return &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The target already exists.", Path: string(q)}
	}
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.judge(ctx, q, n, op.If); err != nil {
		return err
	}
	x := p.contents.fromLink(op.Target)
	p.ops[i].Blob, p.ops[i].Mode, p.ops[i].Size = x.blob.ID(), object.Symlink, x.blob.Size()
	if n.kind == KindSymlink && n.id == x.blob.ID() {
		return nil
	}
	p.ops[i].Operation = message.Symlink
	if n.kind == KindNone {
		p.ops[i].Created = true
		if err := p.checkShape(q); err != nil {
			return err
		}
	}
	return p.put(q, n, &vnode{kind: KindSymlink, mode: object.Symlink, id: x.blob.ID(), size: x.blob.Size(), content: x}, op.Reverts)
}
