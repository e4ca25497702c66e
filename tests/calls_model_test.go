package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestCallsModel plays random calls of several agents, a person and a task that
// writes through the server, on one directory. The test knows who made each change:
// nothing may be given to the wrong one, shared only what was made while several
// calls were open that could have made it.
func TestCallsModel(t *testing.T) {
	runs, steps := 6, 60
	if soaking() {
		runs, steps = 300, 200
	}
	for run := range runs {
		playCalls(t, rand.New(rand.NewPCG(uint64(run), 11)), steps)
		if t.Failed() {
			t.Fatalf("run %d", run)
		}
	}
}

func playCalls(t *testing.T, r *rand.Rand, steps int) {
	t.Helper()
	files := map[string]string{}
	for i := range 12 {
		files[fmt.Sprintf("d%d/f%d", i%3, i)] = numbered(5)
	}
	p := newProject(t, files)
	writer := p.task(t)
	type open struct {
		callBegun
		declared string // its only path; empty for a shell
	}
	var calls []open
	want := map[string]string{} // by what a change wrote, its owner
	n := 0
	owner := func(path string) string {
		var may []string
		for _, c := range calls {
			if c.declared == "" || c.declared == path {
				may = append(may, c.CallID)
			}
		}
		declared := slices.DeleteFunc(slices.Clone(calls), func(c open) bool { return c.declared != path })
		switch {
		case len(declared) == 1:
			return "call " + declared[0].CallID
		case len(may) == 1:
			return "call " + may[0]
		case len(may) == 0:
			return "nobody"
		}
		return "shared " + strings.Join(may, " ")
	}
	write := func(path string) {
		n++
		text := fmt.Sprintf("change %d\n", n)
		want[text] = owner(path)
		full := filepath.Join(p.dir, path)
		need.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		if r.IntN(2) == 0 { // as an editor saves
			need.NoError(t, os.WriteFile(full+"~", []byte(text), 0o644))
			need.NoError(t, os.Rename(full+"~", full))
		} else if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range steps {
		path := fmt.Sprintf("d%d/f%d", r.IntN(3), r.IntN(12))
		switch r.IntN(6) {
		case 0:
			session := fmt.Sprintf("s%d", r.IntN(4))
			if len(calls) < 3 {
				calls = append(calls, open{callBegun: p.begin(t, session, nil)})
			}
		case 1:
			if len(calls) < 3 {
				calls = append(calls, open{p.begin(t, "editor", map[string]any{"paths": []string{path}, "only_paths": true}), path})
				write(path)
			}
		case 2:
			if len(calls) > 0 {
				i := r.IntN(len(calls))
				p.end(t, calls[i].callBegun, nil)
				calls = slices.Delete(calls, i, i+1)
			}
		case 3:
			n++
			text := fmt.Sprintf("change %d\n", n)
			want[text] = "task"
			p.call(t, "PUT", writer.file(fmt.Sprintf("api/f%d", r.IntN(5))), []byte(text))
		default:
			// While no call is open the change is a person's; a look comes between it
			// and the next begin by itself.
			write(path)
		}
	}
	for _, c := range calls {
		p.end(t, c.callBegun, nil)
	}
	p.post(t, "/workspaces/"+writer.str("workspace_id")+"/sync", map[string]any{}).want(t, 200)
	gitDir := writer.gitDir()
	var log struct {
		Entries []struct {
			callEntry
			After string `json:"after_hash"`
		}
	}
	p.call(t, "GET", "/workspaces/"+writer.str("workspace_id")+"/log?limit=10000", nil).want(t, 200).into(t, &log)
	seen := 0
	for _, e := range log.Entries {
		if e.Operation == "delete" {
			continue
		}
		path := e.Path
		if e.NewPath != nil {
			path = *e.NewPath
		}
		text := strings.TrimSpace(gitShow(t, gitDir, *e.Commit, path)) + "\n"
		who, known := want[text]
		if !known {
			continue // of the baseline
		}
		seen++
		got := "nobody"
		switch {
		case e.CallID != nil:
			got = "call " + *e.CallID
		case e.Source == "shared":
			got = "shared " + strings.Join(e.Claimants, " ")
		case e.TaskID != nil && *e.TaskID == writer.ID && e.Source == "api":
			got = "task"
		case e.TaskID != nil:
			got = "task " + *e.TaskID
		}
		// Whose a change is that came before the first call is the executing task's.
		if got != who && !(who == "nobody" && got == "task "+writer.ID) {
			t.Errorf("%q at %s: %s, want %s", text, path, got, who)
		}
	}
	if seen == 0 {
		t.Error("nothing was seen")
	}
}

func gitShow(t *testing.T, dir, commit, path string) string {
	t.Helper()
	return harness.Git(t, dir, "cat-file", "blob", commit+":"+path)
}
