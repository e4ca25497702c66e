// Package check says which files of a workspace the policy would refuse if a request
// wrote them as they are (contracts/review.md, Policy).
package check

import (
	"context"
	"io"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/policy"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Result is what was found.
type Result struct {
	Checked int // files, and paths at which there is none
	Refused []*policy.Refusal
	More    int // refusals beyond the limit
}

// Paths checks files, everything in directories, and names at which there is nothing
// yet; all files where none is named. A task's own rules count where it is named. Every
// secret in a file counts, also one that was there before.
func Paths(ctx context.Context, w *workspace.Workspace, own policy.Task, paths []wspath.Path, limit int) (*Result, error) {
	if len(paths) == 0 {
		paths = []wspath.Path{wspath.Root}
	}
	rules, snap, out := w.Policy(), w.Store().Snapshot(), &Result{}
	seen := make(map[wspath.Path]bool)
	one := func(c policy.Change) error {
		out.Checked++
		list, err := rules.Judge(own, c)
		for _, x := range list {
			if rules.Only(x) {
				continue
			}
			if len(out.Refused) == limit {
				out.More++
			} else {
				out.Refused = append(out.Refused, x)
			}
		}
		return err
	}
	file := func(e gitstore.Entry) error {
		if e.Mode == object.Dir || seen[e.Path] {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return errs.Wrap(context.Cause(ctx), "")
		}
		seen[e.Path] = true
		c := policy.Change{Path: string(e.Path)}
		if e.Mode != object.Symlink {
			size, err := w.Store().BlobSize(ctx, e.ID)
			if err != nil {
				return err
			}
			c.Size, c.Content = size, func() (io.ReadCloser, error) {
				r, _, err := w.Store().OpenBlob(ctx, e.ID)
				return r, err
			}
		}
		return one(c)
	}
	for _, p := range paths {
		e, ok, err := snap.Lookup(p)
		switch {
		case err != nil:
		case p.IsRoot() || ok && e.Mode == object.Dir:
			err = snap.Walk(p, file)
		case ok:
			err = file(e)
		case !seen[p]:
			seen[p] = true
			err = one(policy.Change{Path: string(p)})
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
