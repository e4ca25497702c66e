package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// physical starts a node that opens directories.
func (r *rig) physical(name string) *harness.Server {
	r.t.Helper()
	return harness.Start(r.t, harness.Options{Env: append(r.env[:len(r.env):len(r.env)], "UMBRA_CLUSTER_PHYSICAL=true"), Args: []string{"--cluster", r.url, "--blobs", r.blobs, "--node", name}})
}

type workspaceStatus struct {
	Workspaces []struct {
		ID            string   `json:"id"`
		Kind          string   `json:"kind"`
		Owner         *string  `json:"owner"`
		Epoch         int64    `json:"epoch"`
		Seq           uint64   `json:"seq"`
		State         string   `json:"state"`
		UnsealedBytes int      `json:"unsealed_bytes"`
		Packs         int      `json:"packs"`
		Orphaned      []string `json:"orphaned"`
	} `json:"workspaces"`
}

// open begins a task on a directory, at the node that a request to another one names.
func (r *rig) open(by *harness.Server, root, node string) (made task) {
	r.t.Helper()
	by.Do("POST", "/tasks", map[string]any{"goal": "pinned", "workspace": root}, "Umbra-Node: "+node).Expect(http.StatusCreated).JSON(&made)
	return made
}

// TestPinned: a directory's workspace is its node's, and the cluster's log has a copy of it
// two seconds after a commit.
func TestPinned(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.physical("n1"), r.serve("n2")
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "first"), []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n2.Do("POST", "/tasks", map[string]any{"goal": "pinned", "workspace": root}).ExpectError(http.StatusForbidden, "physical_off")
	// The node that is named opens it.
	made := r.open(n2, root, "n1")
	state := func(exit int) (s workspaceStatus) {
		t.Helper()
		r.run(&s, exit, "status", made.Workspace)
		return s
	}
	seq := ""
	for i := range 20 {
		s := []*harness.Server{n1, n2}[i%2]
		res := s.Do("PUT", fmt.Sprintf("/tasks/%s/content?path=d/f%d", made.ID, i), []byte(fmt.Sprint(i)))
		if res.Status/100 != 2 {
			t.Fatalf("%d %s", res.Status, res.Body)
		}
		seq = res.Header.Get("Umbra-Seq")
	}
	if b, err := os.ReadFile(filepath.Join(root, "d/f19")); err != nil || string(b) != "19" {
		t.Errorf("%q, %v", b, err)
	}
	began := time.Now()
	err := clustertest.Await(5*time.Second, func() (bool, error) {
		s := state(0).Workspaces[0]
		return fmt.Sprint(s.Seq) == seq && s.State == "pinned" && s.Owner != nil && *s.Owner == "n1" && s.Kind == "physical", nil
	})
	if err != nil {
		t.Fatalf("after %v: %+v, the newest commit is %s", time.Since(began), state(0).Workspaces[0], seq)
	}
	res := n2.Do("GET", "/tasks/"+made.ID+"/content?path=d/f3", nil).Expect(http.StatusOK)
	if string(res.Body) != "3" || res.Header.Get("Umbra-Seq") != seq {
		t.Errorf("%s, %v", res.Body, res.Header)
	}
	if got := res.Header.Get("Umbra-Owner"); got[:4] != `"n1"` {
		t.Errorf("Umbra-Owner: %s", got)
	}
	// Stopped and started again it goes on, sealed and with the same node.
	n1.Stop()
	if s := state(1); s.Workspaces[0].State != "node_down" || s.Workspaces[0].UnsealedBytes != 0 || fmt.Sprint(s.Workspaces[0].Seq) != seq {
		t.Errorf("after a stop: %+v", s)
	}
	n1.Restart()
	n2.Do("PUT", "/tasks/"+made.ID+"/content?path=again", []byte("again")).Expect(http.StatusCreated)
	n2.Do("PATCH", "/tasks/"+made.ID, map[string]any{"status": "completed"}).Expect(http.StatusOK)
	n2.Do("DELETE", "/workspaces/"+made.Workspace+"?delete_history=true", nil).Expect(http.StatusOK)
	r.run(nil, 1, "status", made.Workspace)
}
