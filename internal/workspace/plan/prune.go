package plan

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/record"
	"umbra/internal/wspath"
)

// prune plays OpPrune. What makes a folder stay is no error: files of other
// people, or that are in no history.
func (p *Plan) prune(ctx context.Context, i int) error {
	o := &p.req.Ops[i]
	q, n, err := p.target(o, false)
	if code := errs.CodeOf(err); err != nil && (code == "file_not_found" || code == "not_a_directory") {
		p.net.idle = append(p.net.idle, o.Reverts...)
		return nil
	}
	if err != nil {
		return err
	}
	p.Ops[i].Path = q
	var kids []child
	if n.Kind == op.KindDir {
		if kids, err = p.View.children(q, n); err != nil {
			return err
		}
	}
	if n.Kind != op.KindDir || len(kids) > 0 {
		p.net.idle = append(p.net.idle, o.Reverts...)
		return nil
	}
	// What history still has in it a person deleted: else nothing but a folder
	// could be there in the tree.
	if err := p.View.recorded(q, func(_, then wspath.Path, e gitstore.Entry) error {
		if !p.claimed[then] {
			p.claimed[then] = true
			p.External = append(p.External, record.External{Path: then, Old: e})
		}
		return nil
	}); err != nil {
		return err
	}
	p.removed = append(p.removed, removal{node: n, at: q, prune: true})
	if o.Listed {
		p.net.rmdir(q, o.Reverts)
		p.Ops[i].Operation = message.Rmdir
	}
	p.View.remove(q)
	return nil
}
