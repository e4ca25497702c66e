package toolset

import (
	"context"
	"testing"
	"time"

	"umbra/internal/errs"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
)

// A call whose workspace is moving to another server is made again, but for one that has
// begun what must not run twice.
func TestCallWaits(t *testing.T) {
	calls := 0
	g := newRig(t, Extra{Tool: tool.Tool{Name: "moves", Scopes: []mount.Scope{mount.ReadWrite}}, Run: func(_ context.Context, c Call, _ tool.Args) (string, bool, error) {
		if calls++; c.Begin != nil {
			if err := c.Begin(); err != nil {
				return "", false, err
			}
		}
		if calls < 3 {
			return "", false, errs.New(errs.Unavailable, "owner_moving", "It moves.")
		}
		return "done", false, nil
	}})
	g.o.Wait = time.Minute
	set, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/", "READ_WRITE", "a")}})
	g.check(err)
	a, err := g.Call(t.Context(), set.ID, Call{Name: "moves"})
	if g.check(err); a.Text != "done" || calls != 3 {
		t.Errorf("%+v after %d calls", a, calls)
	}
	calls = 0
	a, err = g.Call(t.Context(), set.ID, Call{Name: "moves", Begin: func() error { return nil }})
	if g.check(err); !a.Failed || calls != 1 {
		t.Errorf("what has begun: %+v after %d calls", a, calls)
	}
	g.o.Wait, calls = 0, 0
	if a, err = g.Call(t.Context(), set.ID, Call{Name: "moves"}); err != nil || !a.Failed || calls != 1 {
		t.Errorf("without a wait: %+v, %v after %d calls", a, err, calls)
	}
}
