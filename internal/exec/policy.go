package exec

import (
	"context"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// obeys refuses a layer whose parts that no commit of the task holds are against the
// policy: ignored files, by their paths alone, and what is kept of conflicts. The rest
// is judged by workspace.Apply.
func (n *planner) obeys(ctx context.Context, w *workspace.Workspace, task string) error {
	var own policy.Task
	if t, ok := w.Store().Task(task); ok {
		own = policy.TaskOf(t.Info.Extra)
	}
	rules := w.Policy()
	if rules.None(own) {
		return nil
	}
	judge := func(c policy.Change) error {
		list, err := rules.Judge(own, c)
		for _, x := range list {
			if !rules.Only(x) {
				return x.Err()
			}
		}
		return err
	}
	for _, m := range n.p.moves {
		dir := n.upper
		switch m.Op {
		case opKeep:
			continue
		case opChmod:
			if c, ok := n.bitsOf(w.Root(), m); ok {
				if err := judge(c); err != nil {
					return err
				}
			}
			continue
		case opClear:
			dir = w.Root()
		}
		err := filepath.WalkDir(filepath.Join(dir, m.Path), func(name string, e fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			if err != nil {
				return errs.Wrap(err, m.Path)
			}
			if ctx.Err() != nil {
				return errs.Wrap(context.Cause(ctx), "")
			}
			rel, err := filepath.Rel(dir, name)
			if err != nil || e.IsDir() && rel != m.Path {
				return err
			}
			return judge(policy.Change{Path: filepath.ToSlash(rel)})
		})
		if err != nil {
			return err
		}
	}
	for _, c := range n.p.conflicts {
		if c.Theirs.Mode == 0 || c.Theirs.Mode == object.Symlink {
			continue
		}
		name := filepath.Join(n.upper, c.Path)
		info, err := os.Lstat(name)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		x := policy.Change{Path: c.Path, Size: info.Size(), Content: func() (io.ReadCloser, error) { return os.Open(name) }}
		if e, ok, err := n.tip.Lookup(wspath.Path(c.Path)); err == nil && ok && e.Mode != object.Dir {
			x.Before = func() (io.ReadCloser, error) {
				r, _, err := w.Store().OpenBlob(ctx, e.ID)
				return r, err
			}
		}
		if err := judge(x); err != nil {
			return err
		}
	}
	return nil
}

// bitsOf describes a change of permissions, if it is one: every directory in which a
// command wrote is in the layer, with the bits that it had. A directory that is not in the
// workspace comes with what is in it, which is judged.
func (n *planner) bitsOf(root string, m move) (policy.Change, bool) {
	above, err := os.Lstat(filepath.Join(n.upper, m.Path))
	if err != nil {
		return policy.Change{}, false
	}
	c := policy.Change{Path: m.Path, Dir: above.IsDir()}
	is, err := os.Lstat(filepath.Join(root, m.Path))
	if err != nil {
		return c, !c.Dir
	}
	perm, ok := n.opened.Root[m.Path]
	if !ok {
		perm = uint32(is.Mode().Perm())
	}
	return c, is.IsDir() != c.Dir || perm != m.Perm
}
