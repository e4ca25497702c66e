package review

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"umbra/gitstore/message"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// replace puts a text in a file in the place of another.
func (g *rig) replace(task, name, old, text string) error {
	_, err := g.w.Apply(g.t.Context(), workspace.Request{By: workspace.By{TaskID: task, Source: message.API}, Ops: []workspace.Op{
		{Kind: workspace.OpEdit, Path: wspath.Path(name), Edit: func(was []byte) ([]byte, error) {
			if !bytes.Contains(was, []byte(old)) {
				return nil, fmt.Errorf("%s has no %q", name, old)
			}
			return bytes.Replace(was, []byte(old), []byte(text), 1), nil
		}}}})
	return err
}

// TestRejectBesideWriters holds that a rejection gets through while others write the
// same files without a pause, and that theirs stays.
func TestRejectBesideWriters(t *testing.T) {
	g := newRig(t)
	g.open = 0
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	const writers = 3
	var last [writers]int
	var faults [writers]error
	for i := range writers {
		all.Go(func() {
			for ctx.Err() == nil && faults[i] == nil {
				line := func(n int) string {
					if n == 0 {
						return fmt.Sprintf("line %d\n", 20+8*i)
					}
					return fmt.Sprintf("writer %d: %d\n", i, n)
				}
				for _, name := range []string{"a", "b"} {
					if faults[i] = g.replace("", name, line(last[i]), line(last[i]+1)); faults[i] != nil {
						return
					}
				}
				last[i]++
			}
		})
	}
	for round := range 30 {
		for _, name := range []string{"a", "b"} {
			need.NoError(t, g.replace("t", name, "line 5\n", "five\n"))
		}
		if _, _, err := g.h.Decide(t.Context(), g.w, Decision{Task: "t", RejectRest: true}); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	stop()
	all.Wait()
	for i, err := range faults {
		if err != nil {
			t.Error(err)
		}
		for _, name := range []string{"a", "b"} {
			if !strings.Contains(g.text(name), fmt.Sprintf("writer %d: %d\n", i, last[i])) {
				t.Errorf("what writer %d wrote is not in %s: %q", i, name, g.text(name))
			}
		}
	}
	if strings.Contains(g.text("a")+g.text("b"), "five") {
		t.Errorf("rejected, and still there: %q", g.text("a"))
	}
}
