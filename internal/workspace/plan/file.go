package plan

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// write plays OpWrite.
func (p *Plan) write(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	q, n, err := p.target(o, !o.NoFollow)
	if err != nil {
		return err
	}
	return p.replace(ctx, i, q, n, p.Contents.Ops[i])
}

// replace puts content at a path, in place of the file or link that is
// there or of nothing.
func (p *Plan) replace(ctx context.Context, i int, q wspath.Path, n *Node, x *content.Content) error {
	o := &p.req.Ops[i]
	p.Ops[i].Path = q
	switch n.Kind {
	case op.KindDir:
		return &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case op.KindSpecial:
		return disk.ErrSpecial(q)
	}
	// The precondition is judged against what the disk holds; that is recorded
	// whichever way it goes.
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.Judge(ctx, q, n, o.If); err != nil {
		return err
	}
	mode := object.Regular
	if o.Mode != nil {
		mode = *o.Mode
	} else if n.Kind == op.KindFile {
		mode = n.Mode
	}
	p.Ops[i].Blob, p.Ops[i].Mode, p.Ops[i].Size = x.Blob.ID(), mode, x.Blob.Size()
	if n.Kind == op.KindFile && n.ID == x.Blob.ID() {
		if n.Mode == mode {
			return nil // the same bytes, the same mode
		}
		p.setMode(q, n, mode, o)
		p.Ops[i].Operation = message.Chmod
		return nil
	}
	if n.Kind == op.KindNone {
		if err := p.checkShape(q); err != nil {
			return err
		}
		p.Ops[i].Created = true
	}
	p.Ops[i].Operation = message.Modify
	if n.Kind == op.KindNone {
		p.Ops[i].Operation = message.Create
	}
	return p.put(q, n, &Node{Kind: op.KindFile, Mode: mode, ID: x.Blob.ID(), size: x.Blob.Size(), content: x,
		perm: p.View.permFor(n, mode, o.Permissions)}, o.Reverts)
}

// put is the edit and record of new content at a path.
func (p *Plan) put(q wspath.Path, old, n *Node, reverts []message.EntryRef) error {
	n.disk = &OnDisk{}
	if old.content != nil {
		n.attrs = old.attrs
	} else if p.remove(q, old); old.Kind == op.KindFile {
		n.attrs = old.origin
	}
	if n.Kind != op.KindFile {
		n.attrs = ""
	}
	p.Edits = append(p.Edits, gitstore.Edit{Path: q, Mode: n.Mode, Blob: n.content.Blob})
	p.net.write(q, n.Mode, n.ID, n.content, reverts)
	return p.View.set(q, n)
}

// existing resolves the path of an operation on a file or link that must exist.
func (p *Plan) existing(ctx context.Context, i int) (wspath.Path, *Node, error) {
	o := &p.req.Ops[i]
	q, n, err := p.target(o, true)
	if err != nil {
		return q, n, err
	}
	p.Ops[i].Path = q
	switch n.Kind {
	case op.KindNone:
		if err := p.Judge(ctx, q, n, o.If); err != nil {
			return q, n, err
		}
		err = disk.ErrNotFound(q)
	case op.KindDir:
		err = &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(q)}
	case op.KindSpecial:
		err = disk.ErrSpecial(q)
	}
	return q, n, err
}

// edit plays OpEdit: the bytes on disk, changed by the caller.
func (p *Plan) edit(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	q, n, err := p.existing(ctx, i)
	if err != nil {
		return err
	}
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.Judge(ctx, q, n, o.If); err != nil {
		return err
	}
	limit := o.MaxEdit
	if limit == 0 {
		limit = p.limits.EditBytes
	}
	if n.size > limit {
		return &errs.Error{Kind: errs.TooLarge, Code: "file_too_large", Detail: "The file is too large to be edited.", Path: string(q)}
	}
	old, err := p.bytesOf(ctx, q, n)
	if err != nil {
		return err
	}
	data, err := o.Edit(old)
	if err != nil {
		return err
	}
	x, err := p.Contents.FromBytes(q, data)
	if err != nil {
		return err
	}
	return p.replace(ctx, i, q, n, x)
}

// bytesOf reads a file of the view, which is identified: the bytes are those of
// its id.
func (p *Plan) bytesOf(ctx context.Context, q wspath.Path, n *Node) ([]byte, error) {
	if n.content != nil {
		return disk.ReadAll(n.content.Staged, n.content.Staged.Size())
	}
	var data []byte
	_, err := p.disk.Stable(ctx, n.origin, func(f vfs.File, size int64) (err error) {
		data, err = disk.ReadAll(f, size)
		return err
	})
	if err != nil {
		return nil, err
	}
	if object.Hash(object.Blob, data) != n.ID {
		return nil, disk.ErrChanging(q)
	}
	return data, nil
}

// setMode is the edit and record of a change of mode alone.
func (p *Plan) setMode(q wspath.Path, n *Node, mode object.Mode, o *op.Op) {
	perm := rootfs.ExecBits(n.perm, mode == object.Executable)
	e := gitstore.Edit{Path: q, Mode: mode}
	if n.content != nil {
		e.Blob = n.content.Blob
	} else {
		e.Blob = gitstore.KnownBlob(n.ID) // in the tip, or in the external change before
	}
	p.Edits = append(p.Edits, e)
	p.net.write(q, mode, n.ID, n.content, o.Reverts)
	m := *n
	m.Mode, m.perm, m.chmod = mode, perm, true
	p.View.nodes.put(q, &m)
}

// chmod plays OpChmod.
func (p *Plan) chmod(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	q, n, err := p.existing(ctx, i)
	if err != nil {
		return err
	}
	if n.Kind == op.KindSymlink {
		return disk.ErrNotFound(q)
	}
	if o.Mode == nil {
		return errs.New(errs.Invalid, "invalid_mode", "The mode is missing.")
	}
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.Judge(ctx, q, n, o.If); err != nil {
		return err
	}
	if n.Mode != *o.Mode {
		p.setMode(q, n, *o.Mode, o)
		p.Ops[i].Operation = message.Chmod
	}
	p.Ops[i].Blob, p.Ops[i].Mode, p.Ops[i].Size = n.ID, *o.Mode, n.size
	return nil
}

// symlink plays OpSymlink.
func (p *Plan) symlink(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	q, n, err := p.target(o, false)
	if err != nil {
		return err
	}
	p.Ops[i].Path = q
	// A link that a revert brings back is a user's, wherever it leads.
	back := p.req.AllowRepoShape
	if err := wspath.CheckTarget(q, o.Target); err != nil && !back {
		return err
	}
	if !back && !p.View.linkStays(q, o.Target) {
		return &errs.Error{Kind: errs.Invalid, Code: "link_leads_out", Detail: "The link's target lies outside of the workspace.", Path: string(q)}
	}
	switch {
	case n.Kind == op.KindDir:
		return &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The path is a directory.", Path: string(q)}
	case n.Kind == op.KindSpecial:
		return disk.ErrSpecial(q)
	case n.Kind != op.KindNone && !o.Overwrite:
		return &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The target already exists.", Path: string(q)}
	}
	if err := p.touch(ctx, q, n); err != nil {
		return err
	}
	if err := p.Judge(ctx, q, n, o.If); err != nil {
		return err
	}
	x := p.Contents.FromLink(o.Target)
	p.Ops[i].Blob, p.Ops[i].Mode, p.Ops[i].Size = x.Blob.ID(), object.Symlink, x.Blob.Size()
	if n.Kind == op.KindSymlink && n.ID == x.Blob.ID() {
		return nil
	}
	p.Ops[i].Operation = message.Symlink
	if n.Kind == op.KindNone {
		p.Ops[i].Created = true
		if err := p.checkShape(q); err != nil {
			return err
		}
	}
	return p.put(q, n, &Node{Kind: op.KindSymlink, Mode: object.Symlink, ID: x.Blob.ID(), size: x.Blob.Size(), content: x}, o.Reverts)
}
