package workspace

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// prune plays OpPrune. What makes a folder stay is no error: files of other
// people, or that are in no history.
func (p *plan) prune(ctx context.Context, i int) error {
	op := &p.req.Ops[i]
	q, n, err := p.target(op, false)
	if code := errs.CodeOf(err); err != nil && (code == "file_not_found" || code == "not_a_directory") {
		p.net.idle = append(p.net.idle, op.Reverts...)
		return nil
	}
	if err != nil {
		return err
	}
	p.ops[i].Path = q
	var kids []child
	if n.kind == KindDir {
		if kids, err = p.view.children(q, n); err != nil {
			return err
		}
	}
	if n.kind != KindDir || len(kids) > 0 {
		p.net.idle = append(p.net.idle, op.Reverts...)
		return nil
	}
	// What history still has in it a person deleted: else nothing but a folder
	// could stand there in the tree.
	if err := p.view.recorded(q, func(_, then wspath.Path, e gitstore.Entry) error {
		if !p.claimed[then] {
			p.claimed[then] = true
			p.external = append(p.external, external{path: then, old: e})
		}
		return nil
	}); err != nil {
		return err
	}
	p.removed = append(p.removed, removal{node: n, at: q, prune: true})
	if op.Tell {
		p.net.rmdir(q, op.Reverts)
		p.ops[i].Operation = message.Rmdir
	}
	p.view.remove(q)
	return nil
}

// prune removes a folder if it is still empty. What this request displaced in
// it moves up first: it is kept until all is done.
func (m *materialiser) prune(s *step) error {
	for i := range m.log {
		out := m.log[i].out
		if out == nil || wspath.Path(out.Temp).Dir() != s.path {
			continue
		}
		if err := m.w.disk.Root.MoveUp(out); err != nil {
			return err
		}
	}
	// Remove takes a file too, which a person may have put there.
	if now, err := m.w.disk.Lstat(s.path); err != nil || now.Kind != KindDir {
		return err
	}
	err := m.w.disk.FS.Remove(string(s.path))
	switch {
	case err == nil:
		m.log = append(m.log, done{act: actPruned, path: s.path})
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EBUSY):
		return nil
	}
	return err
}
