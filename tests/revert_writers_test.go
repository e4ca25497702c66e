package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestRevertBesideWriters: reverts of a subtask get through while other clients
// write the same files without a pause, and both keep their lines.
func TestRevertBesideWriters(t *testing.T) {
	writers, files, rounds := 4, 12, 3
	if soaking() {
		writers, files, rounds = 64, 100, 100
	}
	var text strings.Builder
	text.WriteString("top: old\n\n\n\n")
	for i := range writers {
		fmt.Fprintf(&text, "writer %d: 0\n", i)
	}
	laidOut := make(map[string]string, files)
	for i := range files {
		laidOut[fmt.Sprintf("dir%d/f%d", i%7, i)] = text.String()
	}
	p := newProject(t, laidOut)
	names := make([]string, 0, files)
	for name := range laidOut {
		names = append(names, name)
	}
	slices.Sort(names)
	undone, busy := p.task(t), p.task(t)

	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	last := make([][]int, writers) // by file
	faults := make([]string, writers)
	for w := range writers {
		last[w] = make([]int, files)
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f := (i + w*files/writers) % files
				n := last[w][f]
				r := p.post(t, busy.url("/edit"), map[string]any{"path": names[f],
					"old_string": fmt.Sprintf("writer %d: %d\n", w, n), "new_string": fmt.Sprintf("writer %d: %d\n", w, n+1)})
				if r.Status != 200 {
					faults[w] = fmt.Sprintf("writer %d: %d %.300s", w, r.Status, r.Body)
					return
				}
				last[w][f]++
			}
		})
	}
	var took []time.Duration
	for round := range rounds {
		sub := fmt.Sprintf("s%d", round)
		edits := make([]*answer, files)
		var edit sync.WaitGroup
		for f, name := range names { // at once: one after the other waits for the writers each time
			edit.Go(func() {
				edits[f] = p.post(t, undone.url("/edit"), map[string]any{"path": name, "old_string": "top: old\n", "new_string": "top: new\n"},
					"X-Subtask-Id", sub)
			})
		}
		edit.Wait()
		for _, r := range edits {
			r.want(t, 200)
		}
		began := time.Now()
		o := undone.revert(t, "/subtasks/"+sub, nil).want(t, 200).obj(t)
		took = append(took, time.Since(began))
		if fmt.Sprint(o["entries_reverted"]) != fmt.Sprint(files) || o["commit"] == nil {
			t.Fatalf("round %d: %.500v", round, o)
		}
	}
	stop()
	wg.Wait()
	for _, fault := range faults {
		if fault != "" {
			t.Error(fault)
		}
	}
	writes := 0
	for f, name := range names {
		var want strings.Builder
		want.WriteString("top: old\n\n\n\n")
		for w := range writers {
			writes += last[w][f]
			fmt.Fprintf(&want, "writer %d: %d\n", w, last[w][f])
		}
		if got, err := os.ReadFile(filepath.Join(p.dir, name)); err != nil || string(got) != want.String() {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want.String())
		}
	}
	slices.Sort(took)
	t.Logf("%d writers made %d writes; %d reverts of %d files: p50 %v, p99 %v, most %v", writers, writes, rounds, files,
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	if v := os.Getenv("UMBRA_UNDO_P99"); v != "" { // for a quiet machine
		bound, err := time.ParseDuration(v)
		need.NoError(t, err)
		if p99 := took[len(took)*99/100]; p99 > bound {
			t.Errorf("p99 is %v, and may be %v", p99, bound)
		}
	}
	undone.fsck(t)
}
