package revert

import (
	"context"

	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// ground finds what exists on disk where history has nothing: empty directories,
// and ignored files. Each path is read once a plan.
type ground struct {
	ctx   context.Context
	w     *workspace.Workspace
	kinds map[string]workspace.Kind
}

func newGround(ctx context.Context, w *workspace.Workspace) *ground {
	return &ground{ctx: ctx, w: w, kinds: make(map[string]workspace.Kind)}
}

func (g *ground) at(path string) (workspace.Kind, error) {
	if k, ok := g.kinds[path]; ok {
		return k, nil
	}
	if up := parents(path); len(up) > 0 { // one look for all in a folder that is gone
		if k, err := g.at(up[0]); err != nil || k == workspace.KindNone {
			return k, err
		}
	}
	k, err := g.w.Standing(wspath.Path(path))
	if err == nil {
		g.kinds[path] = k
	}
	return k, err
}

// under returns everything below a directory.
func (g *ground) under(dir string) (folders, others []string, err error) {
	f, o, err := g.w.Under(g.ctx, wspath.Path(dir))
	for _, p := range f {
		folders = append(folders, string(p))
	}
	for _, p := range o {
		others = append(others, string(p))
	}
	return folders, others, err
}
