package plan

import (
	"maps"
	"slices"

	"umbra/internal/errs"
	"umbra/internal/rearrange"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// removal is what an operation removed or replaced of what was on disk before the
// change set.
type removal struct {
	node  *Node
	at    wspath.Path // where it was in the view
	prune bool        // only if it is empty
}

// remove notes that a file or directory is removed or replaced.
func (p *Plan) remove(at wspath.Path, n *Node) {
	if n.origin != "" && n.content == nil && n.Kind != op.KindNone {
		old := *n // the caller may change it
		p.removed = append(p.removed, removal{node: &old, at: at})
	}
}

// removeTree is remove for a directory with all in it, also what operations
// before moved there.
func (p *Plan) removeTree(at wspath.Path, n *Node) {
	p.remove(at, n)
	for _, q := range p.View.nodes.under(at) {
		p.remove(q, p.View.nodes.at[q])
	}
}

// Arrange makes the steps: from what is on disk to the view, without what was
// there in between.
func (p *Plan) Arrange() error {
	paths := slices.Sorted(maps.Keys(p.View.nodes.at))
	removed := slices.DeleteFunc(p.removed, func(r removal) bool {
		if r.node.origin == "" {
			return true // a directory of this change set
		}
		n := p.View.nodes.at[r.node.origin]
		if n == nil || n.content == nil || n.Kind != r.node.Kind || n.ID != r.node.ID || n.Mode != r.node.Mode {
			return false
		}
		same := *r.node                      // what was replaced is there again
		same.perm, same.chmod = n.perm, true // its bits may be another's by now
		p.View.nodes.put(r.node.origin, &same)
		return true
	})
	p.removed = removed
	var objects []rearrange.Object
	var news []rearrange.New
	nodes := make([]*Node, 0, len(paths)+len(removed))
	for _, q := range paths {
		n := p.View.nodes.at[q]
		switch {
		case n.Kind == op.KindNone:
			continue
		case n.content != nil || n.origin == "":
			news = append(news, rearrange.New{Path: q, Dir: n.Kind == op.KindDir, Ref: len(nodes)})
		default:
			objects = append(objects, rearrange.Object{From: n.origin, To: q, Dir: n.Kind == op.KindDir, Ref: len(nodes)})
		}
		nodes = append(nodes, n)
	}
	kept := len(nodes)
	for _, r := range removed {
		objects = append(objects, rearrange.Object{From: r.node.origin, Dir: r.node.Kind == op.KindDir, Prune: r.prune, Ref: len(nodes)})
		nodes = append(nodes, r.node)
	}
	order, ok := rearrange.Order(objects, news, p.disk.Root.TempIn)
	if !ok {
		return errs.New(errs.Internal, "not_arranged", "The changes cannot be put onto the disk.")
	}
	for _, s := range order {
		st := Step{Path: s.From, To: s.To, Dir: s.Dir}
		if s.Over != rearrange.None {
			st.Target = nodes[s.Over].disk
		}
		n := nodes[s.Ref]
		switch s.Kind {
		case rearrange.Put:
			st = Step{Kind: StepPut, Path: s.To, Content: n.content, Perm: n.perm, Mode: n.Mode, Expect: st.Target, Result: n.disk, Attrs: n.attrs}
			if st.Early = n.attrs != ""; st.Early && s.Over != rearrange.None && nodes[s.Over].origin == n.attrs {
				st.Attrs, st.Early = s.To, false
			}
		case rearrange.Make:
			st = Step{Kind: StepMkdir, Path: s.To}
		case rearrange.Prune:
			st.Kind = StepPrune
		case rearrange.Take:
			if st.Kind = StepTake; !st.Dir {
				st.Expect = n.disk
				break
			}
			for _, x := range p.unrecorded { // by their paths on disk
				if rel, ok := wspath.Path(x.Path).Rel(removed[s.Ref-kept].at); ok {
					st.Skipped = append(st.Skipped, op.Skip{Path: string(s.From.Join(string(rel))), Reason: x.Reason})
				}
			}
		case rearrange.Exchange:
			st.Kind, st.Expect = StepSwap, n.disk
		default:
			st.Kind, st.Expect, st.Result = StepMove, n.disk, n.disk
		}
		p.Steps = append(p.Steps, st)
	}
	for _, q := range paths {
		if n := p.View.nodes.at[q]; n.chmod && n.content == nil && n.Kind == op.KindFile && n.perm != n.seen.Info.Mode.Perm() {
			p.Steps = append(p.Steps, Step{Kind: StepChmod, Path: q, Perm: n.perm, Mode: n.Mode, Expect: n.disk, Result: n.disk})
		}
	}
	return nil
}
