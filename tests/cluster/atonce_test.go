package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"umbra/tests/harness"
)

// TestKeysAtOnce: a request with an Idempotency-Key that comes to two nodes at the same
// moment is done once, and both answer the same.
func TestKeysAtOnce(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	nodes := []*harness.Server{r.serve("n1"), r.serve("n2")}
	var base task
	nodes[0].Do("POST", "/tasks", map[string]any{"goal": "g", "kind": "virtual", "namespace": []string{"base"}}).Expect(http.StatusCreated).JSON(&base)
	count := func(path, list string) int {
		t.Helper()
		var lists map[string]json.RawMessage
		nodes[0].Do("GET", path, nil).Expect(http.StatusOK).JSON(&lists)
		var all []any
		if err := json.Unmarshal(lists[list], &all); err != nil {
			t.Fatal(path, err)
		}
		return len(all)
	}
	made := func() [3]int {
		return [3]int{count("/tasks?limit=500", "tasks"), count("/workspaces?limit=500", "workspaces"), count("/toolsets", "toolsets")}
	}
	virtual := func(more ...any) map[string]any {
		body := map[string]any{"goal": "new", "kind": "virtual"}
		for i := 0; i < len(more); i += 2 {
			body[more[i].(string)] = more[i+1]
		}
		return body
	}
	for i := range 3 {
		for _, c := range []struct {
			path, id string
			body     map[string]any
			made     [3]int
		}{
			{"/tasks", "task_id", virtual(), [3]int{1, 1, 0}},
			{"/tasks", "task_id", virtual("task_id", fmt.Sprint("t", i)), [3]int{1, 1, 0}},
			{"/tasks", "task_id", virtual("namespace", []string{"n", fmt.Sprint(i)}), [3]int{1, 1, 0}},
			{"/tasks", "task_id", map[string]any{"goal": "new", "workspace_id": base.Workspace}, [3]int{1, 0, 0}},
			{"/workspaces/" + base.Workspace + "/forks", "forks", map[string]any{"count": 1}, [3]int{0, 1, 0}},
			{"/toolsets", "id", map[string]any{"mounts": []any{map[string]any{"prefix": "/m/", "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{"m", fmt.Sprint(i)}}}}}, [3]int{1, 1, 1}},
		} {
			before, key := made(), "Idempotency-Key: "+fmt.Sprint(i, c.path, c.body)
			var answers [2]map[string]any
			var both sync.WaitGroup
			for i, s := range nodes {
				both.Go(func() {
					if res := s.Do("POST", c.path, c.body, key); res.Status/100 != 2 {
						t.Errorf("%s %v: %d %s", c.path, c.body, res.Status, res.Body)
					} else {
						res.JSON(&answers[i])
					}
				})
			}
			both.Wait()
			after := made()
			for i := range after {
				after[i] -= before[i]
			}
			if after != c.made || fmt.Sprint(answers[0][c.id]) != fmt.Sprint(answers[1][c.id]) {
				t.Errorf("%s %v: %v tasks, workspaces and toolsets, not %v: %v, %v", c.path, c.body, after, c.made, answers[0][c.id], answers[1][c.id])
			}
		}
	}
}
