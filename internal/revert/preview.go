package revert

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
)

// Bounds of a plan's patches, in bytes: of one version of a file, and of all
// patches together.
const (
	maxShown    = 4 << 20
	maxShownAll = 32 << 20
)

// Patch is what a revert would do to one file's content.
type Patch struct {
	Text                 []byte
	Additions, Deletions int
	Binary               bool
	// TooLarge: the file, or the plan, is too large to be shown; Text is empty.
	TooLarge bool
}

// show adds to each file the patch from what it is now to what the revert makes
// of it, merged where another changed it since.
func (p *plan) show(ctx context.Context, st *gitstore.Store, files []File) error {
	shown := 0
	byPath := make(map[string]*target, len(p.targets))
	for _, t := range p.targets {
		if t.applies() {
			_, path := t.action()
			byPath[path] = t
		}
	}
	for i := range files {
		t := byPath[files[i].Path]
		if t == nil {
			continue // a directory
		}
		patch, err := t.patch(ctx, st)
		if errs.Is(err, errs.TooLarge) || err == nil && shown+len(patch.Text) > maxShownAll {
			patch, err = &Patch{TooLarge: true}, nil
		}
		if err != nil {
			return err
		}
		shown += len(patch.Text)
		files[i].Patch = patch
	}
	return nil
}

func (t *target) patch(ctx context.Context, st *gitstore.Store) (*Patch, error) {
	old, want := t.now, t.want
	if old.Mode == object.Dir {
		old = history.State{Path: old.Path}
	}
	if !old.Exists() && !want.Exists() || old == want {
		return &Patch{}, nil
	}
	opts := diff.Options{MaxBinary: maxShown}
	var made diff.Patch
	var err error
	if t.data == nil {
		made, err = history.Pair{Old: old, New: want}.Patch(ctx, st, maxShown, opts)
	} else {
		var a, b diff.File
		if a, _, err = (history.Pair{Old: old, New: history.State{Path: want.Path}}).Sides(ctx, st, maxShown); err == nil {
			b = diff.File{Path: want.Path, Mode: want.Mode, ID: want.ID, Data: t.data}
			made, err = diff.Format(a, b, opts)
		}
	}
	if err != nil {
		return nil, err
	}
	return &Patch{Text: made.Text, Additions: made.Additions, Deletions: made.Deletions, Binary: made.Binary}, nil
}
