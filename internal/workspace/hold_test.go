package workspace

import (
	"context"
	"errors"
	"testing"

	"umbra/internal/wspath"
)

// TestHold: under a hold its context writes at once, another writer waits, and
// paths outside are refused.
func TestHold(t *testing.T) {
	table := newLockTable()
	w := &Workspace{locks: table}
	ctx := t.Context()
	held, release, err := w.Hold(ctx, []wspath.Path{"a", "dir"})
	if err != nil {
		t.Fatal(err)
	}
	l, err := table.acquire(held, []wspath.Path{"a", "dir/x"})
	if err != nil || !l.covers("dir/y") {
		t.Fatalf("under the hold: %v", err)
	}
	l.release()
	_, err = table.acquire(held, []wspath.Path{"a", "b"})
	if e, ok := errors.AsType[*NotHeld](err); !ok || len(e.Paths) != 1 || e.Paths[0] != "b" {
		t.Errorf("outside of the hold: %v", err)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if _, err := table.acquire(stopped, []wspath.Path{"dir/x"}); !errors.Is(err, context.Canceled) {
		t.Errorf("another writer did not wait: %v", err)
	}
	other, err := table.acquire(ctx, []wspath.Path{"b"})
	if err != nil {
		t.Fatal(err)
	}
	other.release()
	done := make(chan error)
	go func() {
		l, err := table.acquire(ctx, []wspath.Path{"dir"})
		if err == nil {
			l.release()
		}
		done <- err
	}()
	release()
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(table.at) != 0 || len(table.under) != 0 {
		t.Errorf("left in the table: %v %v", table.at, table.under)
	}
	// Of another workspace's hold a table knows nothing.
	l, err = newLockTable().acquire(held, []wspath.Path{"b"})
	if err != nil {
		t.Fatal(err)
	}
	l.release()
}
