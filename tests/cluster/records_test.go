package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// TestRecords: tasks, toolsets and answers that one node gave are at the other at once,
// and after the first was killed.
func TestRecords(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.serve("n1"), r.serve("n2")
	var made task
	n1.Do("POST", "/tasks", map[string]any{"task_id": "a", "goal": "records", "kind": "virtual", "namespace": []string{"a"}}).Expect(http.StatusCreated).JSON(&made)
	status := func(s *harness.Server) string {
		var got task
		res := s.Do("GET", "/tasks/a", nil)
		if res.Status != http.StatusOK {
			return fmt.Sprint(res.Status, " ", string(res.Body))
		}
		res.JSON(&got)
		return got.Status
	}
	if got := status(n2); got != "executing" {
		t.Errorf("the task at the other node: %s", got)
	}
	n2.Do("POST", "/tasks", map[string]any{"task_id": "a", "goal": "again", "kind": "virtual", "namespace": []string{"other"}}).Expect(http.StatusConflict)
	n2.Do("PATCH", "/tasks/a", map[string]any{"status": "paused"}).Expect(http.StatusOK)
	if got := status(n1); got != "paused" {
		t.Errorf("the task at the first node: %s", got)
	}
	n1.Do("PATCH", "/tasks/a", map[string]any{"status": "executing"}).Expect(http.StatusOK)
	var list struct {
		Tasks []task `json:"tasks"`
	}
	n2.Do("GET", "/tasks?status=executing", nil).Expect(http.StatusOK).JSON(&list)
	if !slices.ContainsFunc(list.Tasks, func(x task) bool { return x.ID == "a" }) {
		t.Errorf("the other node lists %+v", list.Tasks)
	}

	var set struct {
		ID string `json:"toolset_id"`
	}
	mounts := map[string]any{"mounts": []any{map[string]any{"prefix": "/p", "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{"tools"}}}}}
	res := n1.Do("POST", "/toolsets", mounts).Expect(http.StatusCreated)
	set.ID = strings.TrimPrefix(res.Header.Get("Location"), "/toolsets/")
	n2.Do("GET", "/toolsets/"+set.ID, nil).Expect(http.StatusOK)
	n2.Do("PUT", "/toolsets/"+set.ID+"/mounts", mounts).Expect(http.StatusOK)

	// A request that is repeated at the other node gets the answer of the first.
	const key = "Idempotency-Key: write"
	first := n1.Do("PUT", "/tasks/a/content?path=f", []byte("one"), key).Expect(http.StatusCreated)
	again := n2.Do("PUT", "/tasks/a/content?path=f", []byte("one"), key).Expect(http.StatusCreated)
	replayed := func(when string, r *harness.Response) {
		t.Helper()
		if r.Header.Get("Idempotent-Replay") != "true" || string(r.Body) != string(first.Body) {
			t.Errorf("%s: %v %s, first %s", when, r.Header, r.Body, first.Body)
		}
	}
	replayed("at the other node", again)

	n1.Kill()
	for _, path := range []string{"/tasks/a", "/toolsets/" + set.ID} {
		code := 0
		if err := clustertest.Await(10*time.Second, func() (bool, error) {
			code = n2.Do("GET", path, nil).Status
			return code == http.StatusOK, nil
		}); err != nil {
			t.Errorf("%s after its node was killed: %d", path, code)
		}
	}
	replayed("after the first was killed", n2.Do("PUT", "/tasks/a/content?path=f", []byte("one"), key).Expect(http.StatusCreated))
	var changes struct {
		Changes []struct {
			Path string `json:"path"`
		} `json:"entries"`
	}
	n2.Do("GET", "/tasks/a/changes", nil).Expect(http.StatusOK).JSON(&changes)
	if len(changes.Changes) != 1 {
		t.Errorf("the write was done %d times", len(changes.Changes))
	}
}
