package witness

import (
	"context"
	"testing"
)

func TestNote(t *testing.T) {
	ctx, n := Into(t.Context())
	a, b := new(int), new(int)
	if _, _, _, ok := n.Of("a"); ok || n.Wrote() {
		t.Error("an empty note has seen something")
	}
	Opened(ctx, "a", a, 5)
	Opened(ctx, "a", a, 7) // what was read before may reflect 5 only
	if name, seq, wrote, ok := n.Of(""); name != "a" || seq != 5 || wrote || !ok {
		t.Errorf("read: %q %d %v %v", name, seq, wrote, ok)
	}
	Committed(ctx, a, 9)
	Committed(ctx, a, 8)
	if _, seq, wrote, _ := n.Of("a"); seq != 9 || !wrote || !n.Wrote() {
		t.Errorf("wrote: %d %v", seq, wrote)
	}
	Opened(ctx, "b", b, 1)
	if _, _, _, ok := n.Of(""); ok {
		t.Error("one of two workspaces")
	}
	if _, seq, _, ok := n.Of("b"); seq != 1 || !ok {
		t.Errorf("b: %d %v", seq, ok)
	}
	if _, _, _, ok := n.Of("c"); ok {
		t.Error("c was never opened")
	}
	// Without a note nothing is kept.
	Opened(context.Background(), "a", a, 1)
	Committed(context.Background(), a, 1)
}
