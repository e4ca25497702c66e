package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// TestUpkeepOfAll: gc of all workspaces reaches those of other nodes, and moves none; what
// no node has open is looked at by one.
func TestUpkeepOfAll(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	plain := r.env
	n1, n2 := r.physical("n1"), r.serve("n2")
	dir := r.open(n1, t.TempDir(), "n1")
	var tasks [2]task
	for i, s := range []*harness.Server{n1, n2} {
		s.Do("POST", "/tasks", map[string]any{"goal": "gc", "kind": "virtual", "namespace": []string{fmt.Sprint(i)}}).Expect(http.StatusCreated).JSON(&tasks[i])
	}
	put := func(s *harness.Server, id, path, body string) {
		t.Helper()
		if res := s.Do("PUT", "/tasks/"+id+"/content?path="+path, []byte(body)); res.Status/100 != 2 {
			t.Fatalf("%d %s", res.Status, res.Body)
		}
	}
	for i, s := range []*harness.Server{n1, n2} {
		for _, body := range []string{"one", "two", "three"} {
			put(s, tasks[i].ID, "f", body)
		}
	}
	for _, body := range []string{"one", "two"} {
		put(n1, dir.ID, "f", body)
	}
	owners := func() string {
		var s workspaceStatus
		r.run(&s, 0, "status", tasks[0].Workspace, tasks[1].Workspace, dir.Workspace)
		out := ""
		for _, w := range s.Workspaces {
			out += fmt.Sprint(*w.Owner, w.Epoch, " ")
		}
		return out
	}
	before := owners()
	verb := func(into any, args ...string) {
		t.Helper()
		status, stdout, stderr := harness.Run(t, r.env, append(args, "--json", "--server", n2.URL)...)
		if status != 0 {
			t.Fatalf("umbra %v: exit status %d: %s%s", args, status, stdout, stderr)
		}
		if err := json.Unmarshal([]byte(stdout), into); err != nil {
			t.Fatalf("umbra %v: %v in %s", args, err, stdout)
		}
	}
	var done struct {
		Workspaces []struct {
			Workspace string  `json:"workspace"`
			DiskBytes int64   `json:"disk_bytes"`
			Error     *string `json:"error"`
		} `json:"workspaces"`
		Elsewhere []string `json:"elsewhere"`
	}
	verb(&done, "gc")
	if len(done.Workspaces) != 3 || len(done.Elsewhere) > 0 {
		t.Errorf("%+v", done)
	}
	for _, w := range done.Workspaces {
		if w.Error != nil || w.DiskBytes == 0 {
			t.Errorf("%+v", w)
		}
	}
	if now := owners(); now != before {
		t.Errorf("the owners were %s, and are %s", before, now)
	}
	for _, made := range tasks { // else nothing of them may go
		n1.Do("PATCH", "/tasks/"+made.ID, map[string]any{"status": "completed"}).Expect(http.StatusOK)
	}
	n1.Stop()
	n2.Stop()

	// One node alone looks at what rests.
	r.env = append(slices.Clone(plain), "UMBRA_RETENTION_AGE=2s", "UMBRA_RETENTION_INTERVAL=1s")
	n3, n4 := r.serve("n3"), r.serve("n4")
	err := clustertest.Await(30*time.Second, func() (bool, error) {
		return strings.Contains(n3.Log.String()+n4.Log.String(), "act=retention"), nil
	})
	if err != nil {
		t.Error("no node has dropped the history of a workspace that none had open")
	}
	if both := n3.Log.String() + n4.Log.String(); strings.Contains(both, "not dropped") {
		t.Errorf("a look failed: %s", both)
	}
}
