package workspace

import (
	"context"
	"errors"
	"testing"

	"umbra/internal/need"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/wspath"
)

// TestHold: under a hold its context writes at once, another writer waits, and
// paths outside are refused.
func TestHold(t *testing.T) {
	table := pathlock.New()
	w := &Workspace{locks: table}
	ctx := t.Context()
	held, release, err := w.Hold(ctx, []wspath.Path{"a", "dir"})
	need.NoError(t, err)
	l, err := table.Acquire(held, []wspath.Path{"a", "dir/x"})
	if err != nil || !l.Covers("dir/y") {
		t.Fatalf("under the hold: %v", err)
	}
	l.Release()
	_, err = table.Acquire(held, []wspath.Path{"a", "b"})
	if e, ok := errors.AsType[*pathlock.NotHeld](err); !ok || len(e.Paths) != 1 || e.Paths[0] != "b" {
		t.Errorf("outside of the hold: %v", err)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if _, err := table.Acquire(stopped, []wspath.Path{"dir/x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("another writer did not wait: %v", err)
	}
	other, err := table.Acquire(ctx, []wspath.Path{"b"})
	need.NoError(t, err)
	other.Release()
	done := make(chan error)
	go func() {
		l, err := table.Acquire(ctx, []wspath.Path{"dir"})
		if err == nil {
			l.Release()
		}
		done <- err
	}()
	release()
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(table.At) != 0 || len(table.Under) != 0 {
		t.Errorf("left in the table: %v %v", table.At, table.Under)
	}
	// Of another workspace's hold a table knows nothing.
	l, err = pathlock.New().Acquire(held, []wspath.Path{"b"})
	need.NoError(t, err)
	l.Release()
}
