package pathlock

import (
	"context"

	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// NotHeld reports paths that a call under a hold needs and that the hold does
// not cover. The caller must release it, and hold these too.
type NotHeld struct{ Paths []wspath.Path }

func (e *NotHeld) Error() string { return "workspace: paths outside of the hold" }

type heldKey struct{}

// Hold locks paths until release is called; calls of the table with the context
// that it returns are within the hold.
func (t *Table) Hold(ctx context.Context, paths []wspath.Path) (held context.Context, release func(), err error) {
	lock, err := t.Acquire(ctx, paths)
	if err != nil {
		return nil, nil, errs.Wrap(err, "")
	}
	once := false
	return context.WithValue(ctx, heldKey{}, lock), func() {
		if !once {
			once = true
			lock.Release()
		}
	}, nil
}

// within returns a lock on paths under the hold that a context carries, nil if
// it carries none of this table's. Releasing it does nothing.
func (t *Table) within(ctx context.Context, paths []wspath.Path) (*Lock, error) {
	h, _ := ctx.Value(heldKey{}).(*Lock)
	if h == nil || h.table != t {
		return nil, nil
	}
	var missing []wspath.Path
	for _, p := range paths {
		if !h.Covers(p) {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return nil, &NotHeld{Paths: missing}
	}
	return &Lock{table: t, paths: h.paths, set: h.set, lent: true}, nil
}
