package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// While POST /tasks takes a baseline the workspace is listed, and its stream
// tells how far that has come; then the baseline's own event follows.
func TestBaselineProgress(t *testing.T) {
	t.Parallel()
	p := newProject(t, map[string]string{"a": "1", "d/b": "2"})
	// Holes cost no room, and time enough to be hashed and compressed.
	const large = 10
	for i := range large {
		f, err := os.Create(filepath.Join(p.dir, fmt.Sprintf("large%d", i)))
		need.NoError(t, err)
		need.NoError(t, f.Truncate(48<<20+int64(i)))
		f.Close()
	}
	answered := make(chan *harness.Response, 1)
	go func() {
		answered <- p.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": p.dir})
	}()
	ws := ""
	for deadline := time.Now().Add(10 * time.Second); ws == ""; {
		for _, raw := range p.call(t, "GET", "/workspaces", nil).want(t, 200).obj(t)["workspaces"].([]any) {
			w := raw.(map[string]any)
			has(t, w, map[string]any{"root": p.dir, "state": "reconciling", "head": nil, "tasks": 0})
			if _, ok := w["baseline"].(map[string]any)["files"]; !ok {
				t.Errorf("listed as %v", w)
			}
			ws = w["id"].(string)
		}
		select {
		case r := <-answered:
			t.Fatalf("answered before it was listed: %d %s", r.Status, r.Body)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("never listed")
		}
	}
	has(t, p.call(t, "GET", "/workspaces/"+ws, nil).want(t, 200).obj(t), map[string]any{"state": "reconciling", "id": ws})
	s := p.events(t, "/workspaces/"+ws+"/stream")
	var files json.Number
	reported := 0
	for {
		e, ok := s.next(t)
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.Name != "progress" {
			has(t, e.Data, map[string]any{"seq": 1, "source": "baseline", "task_id": nil})
			if e.Name != "change" || e.ID != "1" {
				t.Errorf("after the progress: %s %q", e.Name, e.ID)
			}
			break
		}
		reported++
		has(t, e.Data, map[string]any{"workspace_id": ws})
		files = e.Data["baseline"].(map[string]any)["files"].(json.Number)
		if e.ID != "" {
			t.Errorf("progress has the id %q", e.ID)
		}
	}
	if reported == 0 || files.String() != fmt.Sprint(large+2) {
		t.Errorf("reported %d times, at last %s files", reported, files)
	}
	r := <-answered
	r.Expect(201)
	if got := r.Text("workspace_id"); got != ws {
		t.Errorf("%s was listed, %s made", ws, got)
	}
	w := p.call(t, "GET", "/workspaces/"+ws, nil).want(t, 200).obj(t)
	has(t, w, map[string]any{"state": "clean", "tasks": 1})
	if _, still := w["baseline"]; still || w["head"] == nil {
		t.Errorf("afterwards: %v", w)
	}
	// The stream goes on with what comes.
	(&taskOf{p: p, ID: r.Text("task_id")}).put(t, "x", "1").want(t, 201)
	for {
		e, ok := s.next(t)
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.Name == "change" {
			has(t, e.Data, map[string]any{"seq": 2, "source": "api"})
			break
		}
	}
}
