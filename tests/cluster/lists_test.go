package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// entries are the objects of a list, by id.
func entries(t *testing.T, s *harness.Server, target, list, id string) map[string]map[string]any {
	t.Helper()
	var body map[string]json.RawMessage
	s.Do("GET", target, nil).Expect(http.StatusOK).JSON(&body)
	var all []map[string]any
	if err := json.Unmarshal(body[list], &all); err != nil {
		t.Fatalf("%s: %v", target, err)
	}
	out := map[string]map[string]any{}
	for _, e := range all {
		delete(e, "disk_bytes") // of the moment: indexes are written in the background
		out[e[id].(string)] = e
	}
	return out
}

// TestLists: the lists of all nodes say the same of workspaces that are at several,
// and move none.
func TestLists(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	nodes := []*harness.Server{r.serve("n1"), r.serve("n2"), r.serve("n3")}
	var made []task
	for i := range 5 {
		s := nodes[i%2]
		var m task
		s.Do("POST", "/tasks", map[string]any{"goal": fmt.Sprint("goal ", i), "kind": "virtual", "namespace": []string{"l", fmt.Sprint(i)}}).Expect(http.StatusCreated).JSON(&m)
		for range i + 1 {
			if res := s.Do("PUT", "/tasks/"+m.ID+"/content?path=f.txt", []byte(fmt.Sprint(i, time.Now()))); res.Status/100 != 2 {
				t.Fatalf("a write: %d %s", res.Status, res.Body)
			}
		}
		s.Do("POST", "/toolsets", map[string]any{"mounts": []any{map[string]any{"prefix": "/p", "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{"l", fmt.Sprint(i)}}}}}).
			Expect(http.StatusCreated)
		var call struct {
			ID string `json:"call_id"`
		}
		s.Do("POST", "/calls", map[string]any{"agent": "a", "agent_session": "s", "workspace_id": m.Workspace}).Expect(http.StatusCreated).JSON(&call)
		made = append(made, m)
	}
	owners := func() (list []string) {
		for _, m := range made {
			list = append(list, nodes[2].Do("GET", "/tasks/"+m.ID, nil).Expect(http.StatusOK).Header.Get("Umbra-Owner"))
		}
		return list
	}
	before := owners()
	if !strings.HasPrefix(before[0], `"n1"`) || !strings.HasPrefix(before[1], `"n2"`) {
		t.Fatalf("owners: %v", before)
	}
	for _, x := range []struct{ target, list, id string }{{"/tasks", "tasks", "task_id"}, {"/workspaces", "workspaces", "id"}, {"/calls", "calls", "call_id"},
		{"/api/sessions", "sessions", "id"}, {"/toolsets", "toolsets", "id"}} {
		want := entries(t, nodes[0], x.target, x.list, x.id)
		for i, s := range nodes[1:] {
			if got := entries(t, s, x.target, x.list, x.id); !reflect.DeepEqual(got, want) {
				t.Errorf("%s at n%d: %v\nat n1: %v", x.target, i+2, got, want)
			}
		}
		if x.list != "sessions" && len(want) < len(made) {
			t.Errorf("%s: %d entries", x.target, len(want))
		}
		if x.list == "tasks" {
			for i, m := range made {
				e := want[m.ID]
				if e["goal"] != fmt.Sprint("goal ", i) || e["changes"] != float64(i+1) {
					t.Errorf("task %d: %v", i, e)
				}
			}
		}
		if x.list == "workspaces" {
			for _, m := range made {
				if want[m.Workspace]["head"] == nil {
					t.Errorf("%v has no head", want[m.Workspace])
				}
			}
		}
	}
	if after := owners(); !slices.Equal(after, before) {
		t.Errorf("the lists moved workspaces: %v, then %v", before, after)
	}
	nodes[0].Do("GET", "/tasks?ids="+made[1].ID, nil).Expect(http.StatusOK) // a client's parameter means nothing
	// One node stops, another is killed: the lists are whole, after a moment.
	want := entries(t, nodes[2], "/tasks", "tasks", "task_id")
	nodes[0].Stop()
	nodes[1].Kill()
	err := clustertest.Await(15*time.Second, func() (bool, error) {
		return nodes[2].Do("GET", "/tasks", nil).Status == http.StatusOK, nil
	})
	if err != nil {
		t.Fatal("no list any more")
	}
	got := entries(t, nodes[2], "/tasks", "tasks", "task_id")
	for id, e := range want {
		for _, field := range []string{"head_commit", "head", "changes", "status", "goal", "updated_at"} {
			if !reflect.DeepEqual(got[id][field], e[field]) {
				t.Errorf("%s: %s was %v and is %v", id, field, e[field], got[id][field])
			}
		}
	}
	for id, e := range entries(t, nodes[2], "/workspaces", "workspaces", "id") {
		if e["head"] == nil {
			t.Errorf("workspace %s has no head", id)
		}
	}
}
