package cluster

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// task is what a node says of a task.
type task struct {
	ID        string `json:"task_id"`
	Workspace string `json:"workspace_id"`
	Status    string `json:"status"`
}

// wrote is a node's answer to a write.
type wrote struct {
	Commit string `json:"commit"`
}

// TestShare: a workspace with its task is at one node after the other: where it was
// made, after that one has stopped, and after the next was killed.
func TestShare(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.serve("n1"), r.serve("n2")
	var made task
	n1.Do("POST", "/tasks", map[string]any{"goal": "share", "kind": "virtual", "namespace": []string{"a", "b"}}).Expect(http.StatusCreated).JSON(&made)
	write := func(s *harness.Server, body string) (w wrote) {
		t.Helper()
		s.Do("PUT", "/tasks/"+made.ID+"/content?path=f.txt", []byte(body)).JSON(&w)
		return w
	}
	first := write(n1, "one")
	if first.Commit == "" {
		t.Fatalf("no commit: %+v", first)
	}
	read := func(s *harness.Server) (body string, code int) {
		res := s.Do("GET", "/tasks/"+made.ID+"/content?path=f.txt", nil)
		return string(res.Body), res.Status
	}
	n1.Stop()
	begun := time.Now()
	body, code := read(n2)
	if code != http.StatusOK || body != "one" {
		t.Fatalf("after n1 stopped: %d %s", code, body)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("n2 had it after %v", took)
	}
	second := write(n2, "two")
	changes := n2.Do("GET", "/tasks/"+made.ID+"/changes", nil).Expect(http.StatusOK)
	for _, commit := range []string{first.Commit, second.Commit} {
		if !strings.Contains(string(changes.Body), commit) {
			t.Errorf("%s is not in %s", commit, changes.Body)
		}
	}
	n2.Kill()
	n1.Restart()
	err := clustertest.Await(10*time.Second, func() (bool, error) {
		body, code = read(n1)
		return code == http.StatusOK, nil
	})
	if err != nil || body != "two" {
		t.Fatalf("after n2 was killed: %d %s, %v", code, body, err)
	}
	var again task
	n1.Do("POST", "/tasks", map[string]any{"goal": "share", "kind": "virtual", "namespace": []string{"a", "b"}}).Expect(http.StatusCreated).JSON(&again)
	if again.Workspace != made.Workspace {
		t.Errorf("the namespace leads to %s, not %s", again.Workspace, made.Workspace)
	}
}
