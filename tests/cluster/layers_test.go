package cluster

import (
	"net/http"
	"testing"

	"umbra/tests/harness"
)

// TestLayers: each node lists the layers of all, also one whose call has ended.
func TestLayers(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	var nodes []*harness.Server
	for _, name := range []string{"n1", "n2", "n3"} {
		nodes = append(nodes, harness.Start(t, harness.Options{Env: append(r.env, "UMBRA_CLUSTER_PHYSICAL=true"), Args: []string{"--cluster", r.url, "--blobs", r.blobs, "--node", name}}))
	}
	dir := t.TempDir()
	var open, ended struct {
		ID string `json:"layer"`
	}
	for _, l := range []any{&open, &ended} {
		nodes[0].Do("POST", "/layers", object("agent", "a", "agent_session", "s", "cwd", dir)).Expect(http.StatusCreated).JSON(l)
	}
	nodes[0].Do("POST", "/calls/"+ended.ID+"/end", object()).Expect(http.StatusOK)
	for i, s := range nodes {
		list := entries(t, s, "/layers", "layers", "layer")
		if len(list) != 2 || list[open.ID]["workspace"] != dir || list[ended.ID]["workspace"] != dir {
			t.Errorf("n%d: %v", i+1, list)
		}
	}
	nodes[1].Do("DELETE", "/layers/"+ended.ID, nil).Expect(http.StatusNoContent)
	for i, s := range nodes {
		if list := entries(t, s, "/layers", "layers", "layer"); len(list) != 1 || list[open.ID] == nil {
			t.Errorf("n%d: %v", i+1, list)
		}
	}
}
