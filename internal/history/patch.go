package history

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/diff"
)

// patchOf names a patch by all that it depends on: the states identify the bytes.
type patchOf struct {
	old, now State
	max      int64
	opts     diff.Options
}

// patchSize is what a cached patch and its name take besides their texts, in bytes.
const patchSize = 250

// Patch formats the difference of the two states: errs.TooLarge where one has
// more than max bytes, diff.ErrMode. A small patch is kept as long as there is
// room for it. The result is shared: its text must not be changed.
func (p Pair) Patch(ctx context.Context, st *gitstore.Store, max int64, opts diff.Options) (diff.Patch, error) {
	got, err := st.Compute(patchOf{p.Old, p.New, max, opts}, func() (any, int64, error) {
		old, now, err := p.Sides(ctx, st, max)
		if err != nil {
			return diff.Patch{}, 0, err
		}
		patch, err := diff.Format(old, now, opts)
		return patch, int64(cap(patch.Text) + len(p.Old.Path) + len(p.New.Path) + patchSize), err
	})
	patch, _ := got.(diff.Patch)
	return patch, err
}

// Patch formats the difference of the two versions that Sides gives, as
// Pair.Patch does. That of a mixed file is made again each time.
func (f *File) Patch(ctx context.Context, st *gitstore.Store, max int64, opts diff.Options) (diff.Patch, error) {
	if !f.Mixed {
		return Pair{f.Before, f.After}.Patch(ctx, st, max, opts)
	}
	old, now, err := f.Sides(ctx, st, max)
	if err != nil {
		return diff.Patch{}, err
	}
	return diff.Format(old, now, opts)
}
