package toolset

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/textsearch"
)

// A pattern or a line costs a bounded time, and a caller who has left costs none.
func TestGrepIsBounded(t *testing.T) {
	g := newRig(t)
	made, _, err := g.Create(t.Context(), CreateOptions{Mounts: []Spec{virtualSpec("/p", "READ_WRITE", "a")}})
	g.check(err)
	call := func(ctx context.Context, name string, args map[string]any) (Answer, error) {
		raw, err := json.Marshal(args)
		need.NoError(t, err)
		return g.Call(ctx, made.ID, Call{Name: name, Args: raw})
	}
	if a, err := call(t.Context(), "write_file", map[string]any{"path": "/p/long", "content": strings.Repeat("a", 5<<20) + "needle\nneedle two\n"}); err != nil || a.Failed {
		t.Fatal(a, err)
	}
	for name, pattern := range map[string]string{"many steps": strings.Repeat("(a*)*", 1000), "many bytes": strings.Repeat("x", textsearch.MaxPattern+1), "repeated": strings.Repeat("[a-f]{300}x", 10)} {
		a, err := call(t.Context(), "grep_files", map[string]any{"pattern": pattern})
		if err != nil || !a.Failed || !strings.Contains(a.Text, "too large") {
			t.Errorf("%s: %.80q, %v", name, a.Text, err)
		}
	}
	a, err := call(t.Context(), "grep_files", map[string]any{"pattern": strings.Repeat("(a*)*", 10) + "needle"})
	if err != nil || a.Failed || !strings.Contains(a.Text, "/p/long:2: needle two") || !strings.Contains(a.Text, "first 64 KiB") {
		t.Errorf("%.200q, %v", a.Text, err)
	}
	// With all slots taken a search waits, and leaves with its caller.
	for range cap(g.searching) {
		release, err := g.searching.Take(t.Context())
		g.check(err)
		defer release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if a, err := call(ctx, "grep_files", map[string]any{"pattern": "needle"}); err == nil {
		t.Errorf("a search without a slot: %+v", a)
	}
}
