package workspace

import (
	"maps"
	"slices"

	"umbra/internal/errs"
	"umbra/internal/rearrange"
	"umbra/internal/wspath"
)

// removal is what an operation removed or replaced of what was on disk before the
// change set.
type removal struct {
	node  *vnode
	at    wspath.Path // where it was in the view
	prune bool        // only if it is empty
}

// remove notes that a file or directory is removed or replaced.
func (p *plan) remove(at wspath.Path, n *vnode) {
	if n.origin != "" && n.content == nil && n.kind != KindNone {
		old := *n // the caller may change it
		p.removed = append(p.removed, removal{node: &old, at: at})
	}
}

// removeTree is remove for a directory with all in it, also what operations
// before moved there.
func (p *plan) removeTree(at wspath.Path, n *vnode) {
	p.remove(at, n)
	for q, k := range p.view.nodes {
		if q.IsUnder(at) {
			p.remove(q, k)
		}
	}
}

// arrange makes the steps: from what is on disk to the view, without what was
// there in between.
func (p *plan) arrange() error {
	paths := slices.Sorted(maps.Keys(p.view.nodes))
	removed := slices.DeleteFunc(p.removed, func(r removal) bool {
		if r.node.origin == "" {
			return true // a directory of this change set
		}
		n := p.view.nodes[r.node.origin]
		if n == nil || n.content == nil || n.kind != r.node.kind || n.id != r.node.id || n.mode != r.node.mode {
			return false
		}
		same := *r.node // what was replaced is there again
		same.perm, same.chmod = n.perm, n.perm != r.node.perm
		p.view.nodes[r.node.origin] = &same
		return true
	})
	p.removed = removed
	var objects []rearrange.Object
	var news []rearrange.New
	nodes := make([]*vnode, 0, len(paths)+len(removed))
	for _, q := range paths {
		n := p.view.nodes[q]
		switch {
		case n.kind == KindNone:
			continue
		case n.content != nil || n.origin == "":
			news = append(news, rearrange.New{Path: q, Dir: n.kind == KindDir, Ref: len(nodes)})
		default:
			objects = append(objects, rearrange.Object{From: n.origin, To: q, Dir: n.kind == KindDir, Ref: len(nodes)})
		}
		nodes = append(nodes, n)
	}
	kept := len(nodes)
	for _, r := range removed {
		objects = append(objects, rearrange.Object{From: r.node.origin, Dir: r.node.kind == KindDir, Prune: r.prune, Ref: len(nodes)})
		nodes = append(nodes, r.node)
	}
	order, ok := rearrange.Order(objects, news, p.w.disk.Root.TempIn)
	if !ok {
		return errs.New(errs.Internal, "not_arranged", "The changes cannot be put onto the disk.")
	}
	for _, s := range order {
		st := step{path: s.From, to: s.To, dir: s.Dir}
		if s.Over != rearrange.None {
			st.target = nodes[s.Over].disk
		}
		n := nodes[s.Ref]
		switch s.Kind {
		case rearrange.Put:
			st = step{kind: stepPut, path: s.To, content: n.content, perm: n.perm, mode: n.mode, expect: st.target, result: n.disk, attrs: n.attrs}
			if st.early = n.attrs != ""; st.early && s.Over != rearrange.None && nodes[s.Over].origin == n.attrs {
				st.attrs, st.early = s.To, false
			}
		case rearrange.Make:
			st = step{kind: stepMkdir, path: s.To}
		case rearrange.Prune:
			st.kind = stepPrune
		case rearrange.Take:
			if st.kind = stepTake; !st.dir {
				st.expect = n.disk
				break
			}
			for _, x := range p.unrecorded { // by their paths on disk
				if rel, ok := wspath.Path(x.Path).Rel(removed[s.Ref-kept].at); ok {
					st.skipped = append(st.skipped, Skip{Path: string(s.From.Join(string(rel))), Reason: x.Reason})
				}
			}
		case rearrange.Exchange:
			st.kind, st.expect = stepSwap, n.disk
		default:
			st.kind, st.expect, st.result = stepMove, n.disk, n.disk
		}
		p.steps = append(p.steps, st)
	}
	for _, q := range paths {
		if n := p.view.nodes[q]; n.chmod && n.content == nil && n.kind == KindFile && n.perm != n.seen.Info.Mode.Perm() {
			p.steps = append(p.steps, step{kind: stepChmod, path: q, perm: n.perm, mode: n.mode, expect: n.disk, result: n.disk})
		}
	}
	return nil
}
