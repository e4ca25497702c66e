package toolset

import (
	"testing"
	"time"

	"umbra/internal/errs"
)

// A toolset with a lease goes when nobody used it for so long, with its tasks; a
// start begins the lease anew.
func TestLease(t *testing.T) {
	g := newRig(t)
	now := time.Now()
	g.o.Now = func() time.Time { return now }
	leased, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/a", "READ_WRITE", "a")}, Idle: time.Hour})
	g.check(err)
	stays, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/b", "READ_WRITE", "b")}})
	g.check(err)
	var gone []string
	defer g.Watch(func(id string) { gone = append(gone, id) })()

	now = now.Add(50 * time.Minute)
	if _, err := g.Get(leased.ID, nil); err != nil { // a use
		t.Fatal(err)
	}
	now = now.Add(50 * time.Minute)
	g.endLeases(t.Context())
	if _, err := g.Get(leased.ID, nil); err != nil {
		t.Errorf("it went while it was used: %v", err)
	}
	now = now.Add(61 * time.Minute)
	g.endLeases(t.Context())
	if _, err := g.Get(leased.ID, nil); errs.CodeOf(err) != "toolset_not_found" {
		t.Errorf("unused: %v", err)
	}
	if got := g.status(leased.Tasks["/a"]); got != "completed" {
		t.Errorf("its task is %s", got)
	}
	if len(gone) != 1 || gone[0] != leased.ID {
		t.Errorf("reported: %q", gone)
	}
	if _, err := g.Get(stays.ID, nil); err != nil || g.status(stays.Tasks["/b"]) != "executing" {
		t.Errorf("without a lease: %v", err)
	}

	again, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/a", "READ_WRITE", "a")}, Idle: time.Hour})
	g.check(err)
	g.shut()
	g.open()
	start := now.Add(24 * time.Hour) // its lease would have ended
	g.started, g.o.Now = start, func() time.Time { return start }
	if r, ok := g.kept()[again.ID]; !ok || g.over(&r, start.Add(50*time.Minute)) || !g.over(&r, start.Add(2*time.Hour)) {
		t.Error("after a start the lease is not that of a start")
	}
	for _, idle := range []time.Duration{-1, MaxIdle + 1} {
		if _, _, err := g.Create(t.Context(), CreateOptions{Idle: idle}); errs.CodeOf(err) != "invalid_field" {
			t.Errorf("%v: %v", idle, err)
		}
	}
}

// The watch over leases finds it by itself.
func TestLeaseIsWatched(t *testing.T) {
	g := newRig(t)
	gone := make(chan string, 1)
	defer g.Watch(func(id string) { gone <- id })()
	made, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/a", "READ_WRITE", "a")}, Idle: 50 * time.Millisecond})
	g.check(err)
	select {
	case id := <-gone:
		if id != made.ID {
			t.Errorf("%s went", id)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing went")
	}
}
