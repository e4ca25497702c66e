package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestBaseline: a directory whose baseline one node takes is listed and described by each, and
// its stream goes on with the baseline's commit.
func TestBaseline(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	var nodes []*harness.Server
	for _, name := range []string{"n1", "n2"} {
		nodes = append(nodes, harness.Start(t, harness.Options{Env: append(r.env, "UMBRA_CLUSTER_PHYSICAL=true"), Args: []string{"--cluster", r.url, "--blobs", r.blobs, "--node", name}}))
	}
	dir := t.TempDir()
	for i := range 10 { // holes take no room, and time to be hashed and compressed
		f, err := os.Create(filepath.Join(dir, fmt.Sprint("large", i)))
		need.NoError(t, err)
		need.NoError(t, f.Truncate(48<<20+int64(i)))
		need.NoError(t, f.Close())
	}
	answered := make(chan *harness.Response, 1)
	go func() { answered <- nodes[0].Do("POST", "/tasks", object("goal", "g", "workspace", dir)) }()
	ws := ""
	err := clustertest.Await(10*time.Second, func() (bool, error) {
		for id, w := range entries(t, nodes[1], "/workspaces", "workspaces", "id") {
			if ws = id; w["root"] != dir || w["state"] != "reconciling" || w["baseline"] == nil {
				t.Errorf("listed as %v", w)
			}
		}
		return ws != "", nil
	})
	need.NoError(t, err)
	var one map[string]any
	nodes[1].Do("GET", "/workspaces/"+ws, nil).Expect(http.StatusOK).JSON(&one)
	if one["state"] != "reconciling" || one["baseline"] == nil {
		t.Errorf("described as %v", one)
	}
	nodes[1].Do("GET", "/workspaces/"+ws, nil, "Umbra-Direct: 1").ExpectError(http.StatusMisdirectedRequest, "not_owner")
	stream := nodes[1].Stream("/workspaces/" + ws + "/stream")
	defer stream.Close()
	for reported := 0; ; reported++ {
		e, ok := stream.Next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.Name == "progress" {
			continue
		}
		if e.Name != "change" || e.ID != "1" || reported == 0 {
			t.Errorf("after %d reports of progress: %s %q", reported, e.Name, e.ID)
		}
		break
	}
	(<-answered).Expect(http.StatusCreated)
	nodes[1].Do("GET", "/workspaces/"+ws, nil).Expect(http.StatusOK).JSON(&one)
	if one["state"] != "clean" {
		t.Errorf("afterwards: %v", one)
	}
	if list := entries(t, nodes[1], "/workspaces", "workspaces", "id"); len(list) != 1 {
		t.Errorf("listed afterwards: %v", list)
	}
}
