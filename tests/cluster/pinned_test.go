package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
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
	need.NoError(t, os.WriteFile(filepath.Join(root, "first"), []byte("first\n"), 0o600))
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
	err = clustertest.Await(5*time.Second, func() (bool, error) { // n2 learns of it by a beat
		return n2.Do("PUT", "/tasks/"+made.ID+"/content?path=again", []byte("again")).Status == http.StatusCreated, nil
	})
	if err != nil {
		t.Fatal("no write after the node is back")
	}
	n2.Do("PATCH", "/tasks/"+made.ID, map[string]any{"status": "completed"}).Expect(http.StatusOK)
	n2.Do("DELETE", "/workspaces/"+made.Workspace+"?history=delete", nil).Expect(http.StatusNoContent)
	r.run(nil, 1, "status", made.Workspace)
}

// TestFollow: a read that says how new it has to be is answered by the node asked, from
// the log; so are clones; and of a directory whose node is gone the history is there, but
// neither its files nor writes.
func TestFollow(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.physical("n1"), r.serve("n2")
	root := t.TempDir()
	made := r.open(n1, root, "n1")
	var shared task
	n1.Do("POST", "/tasks", map[string]any{"goal": "follow", "kind": "virtual", "namespace": []string{"f"}}).Expect(http.StatusCreated).JSON(&shared)
	write := func(id, path, body string) (seq string, commit wrote) {
		t.Helper()
		res := n1.Do("PUT", "/tasks/"+id+"/content?path="+path, []byte(body))
		if res.Status/100 != 2 {
			t.Fatalf("%d %s", res.Status, res.Body)
		}
		res.JSON(&commit)
		return res.Header.Get("Umbra-Seq"), commit
	}
	content := func(id, path string) string { return "/tasks/" + id + "/content?path=" + path }
	for i := range 5 {
		body := fmt.Sprint("version ", i)
		seq, _ := write(shared.ID, "a", body)
		res := n2.Do("GET", content(shared.ID, "a"), nil, "Umbra-Min-Seq: "+seq).Expect(http.StatusOK)
		if string(res.Body) != body || res.Header.Get("Umbra-Seq") != seq {
			t.Errorf("%s at %s, not %s at %s", res.Body, res.Header.Get("Umbra-Seq"), body, seq)
		}
	}
	for _, line := range strings.Split(n1.Log.String(), "\n") {
		if strings.Contains(line, "method=GET") && strings.Contains(line, "forwarded_by=n2") {
			t.Errorf("a read was forwarded: %s", line)
		}
	}
	n2.Do("GET", content(shared.ID, "a"), nil, "Umbra-Min-Seq: 1000").ExpectError(http.StatusServiceUnavailable, "seq_not_reached")
	clone := func(id string) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "clone")
		harness.Git(t, t.TempDir(), "clone", "-q", n2.URL+"/git/"+id+".git", dir)
		return dir
	}
	write(shared.ID, "a", "cloned")
	if b, err := os.ReadFile(filepath.Join(clone(shared.Workspace), "a")); err != nil || string(b) != "cloned" {
		t.Errorf("a clone by another node has %q, %v", b, err)
	}

	seq, first := write(made.ID, "b", "first")
	_ = seq
	last, _ := write(made.ID, "b", "last")
	if res := n2.Do("GET", content(made.ID, "b"), nil, "Umbra-Min-Seq: "+last).Expect(http.StatusOK); string(res.Body) != "last" {
		t.Errorf("a file of a directory: %s", res.Body)
	}
	err := clustertest.Await(5*time.Second, func() (bool, error) {
		var s workspaceStatus
		r.run(&s, 0, "status", made.Workspace)
		return fmt.Sprint(s.Workspaces[0].Seq) == last, nil
	})
	need.NoError(t, err)
	var late task // the copy is behind it, unless it was made just now
	n1.Do("POST", "/tasks", map[string]any{"goal": "late", "workspace_id": made.Workspace}).Expect(http.StatusCreated).JSON(&late)
	n1.Kill()
	err = clustertest.Await(10*time.Second, func() (bool, error) {
		return n2.Do("GET", content(made.ID, "b"), nil).Status == http.StatusServiceUnavailable, nil
	})
	need.NoError(t, err)
	down := func(res *harness.Response) {
		t.Helper()
		res.ExpectError(http.StatusServiceUnavailable, "node_down")
		if got := res.Text("node") + " " + res.Header.Get("Retry-After"); got != "n1 30" {
			t.Errorf("node_down: %s", got)
		}
		var body struct {
			Copied uint64 `json:"copied_seq"`
		}
		if res.JSON(&body); fmt.Sprint(body.Copied) != last {
			t.Errorf("copied_seq is %d, not %s", body.Copied, last)
		}
	}
	down(n2.Do("GET", content(made.ID, "b"), nil))
	down(n2.Do("PUT", content(made.ID, "b"), []byte("more")))
	res := n2.Do("GET", content(made.ID, "b")+"&at="+first.Commit, nil).Expect(http.StatusOK)
	if string(res.Body) != "first" || res.Header.Get("Umbra-Seq") != last {
		t.Errorf("%s at %s", res.Body, res.Header.Get("Umbra-Seq"))
	}
	n2.Do("GET", "/workspaces/"+made.Workspace+"/log", nil).Expect(http.StatusOK)
	n2.Do("GET", "/tasks/"+made.ID+"/diff", nil).Expect(http.StatusOK)
	for _, path := range []string{"", "/diff", "/changes"} {
		if res := n2.Do("GET", "/tasks/"+late.ID+path, nil); res.Status != http.StatusOK {
			down(res)
		}
	}
	if lag := n2.Do("GET", "/metrics", nil).Expect(http.StatusOK); !regexp.MustCompile(`(?m)^umbra_cluster_follower_lag_seconds [0-9.e-]*[1-9]`).Match(lag.Body) {
		t.Error("the followers' lag is 0, or not there")
	}
	if b, err := os.ReadFile(filepath.Join(clone(made.Workspace), "b")); err != nil || string(b) != "last" {
		t.Errorf("a clone of a directory whose node is gone has %q, %v", b, err)
	}
}
