package cluster

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestFolders: scratch and artifacts of a task are at each node, and are lost with none.
func TestFolders(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.serve("n1"), r.serve("n2")
	var made task
	n1.Do("POST", "/tasks", map[string]any{"goal": "folders", "kind": "virtual", "namespace": []string{"f"}}).Expect(http.StatusCreated).JSON(&made)
	large := bytes.Repeat([]byte("0123456789abcdef"), 40_000) // an object
	contents := map[string][]byte{"scratch/notes/a.txt": []byte("a"), "scratch/large": large, "artifacts/report.md": []byte("report")}
	base := "/tasks/" + made.ID + "/"
	put := func(s *harness.Server, name string, body []byte) {
		t.Helper()
		if res := s.Do("PUT", base+name, body); res.Status/100 != 2 {
			t.Fatalf("%s: %d %s", name, res.Status, res.Body)
		}
		contents[name] = body
	}
	same := func(s *harness.Server) {
		t.Helper()
		for name, want := range contents {
			if res := s.Do("GET", base+name, nil).Expect(http.StatusOK); !bytes.Equal(res.Body, want) {
				t.Errorf("%s: %d bytes, not %d", name, len(res.Body), len(want))
			}
		}
	}
	put(n1, "scratch/notes/a.txt", contents["scratch/notes/a.txt"])
	put(n2, "scratch/large", large) // forwarded
	put(n1, "artifacts/report.md", contents["artifacts/report.md"])
	same(n1)
	same(n2)
	lists := func(s *harness.Server) string {
		return string(s.Do("GET", base+"scratch", nil).Expect(http.StatusOK).Body) + string(s.Do("GET", base+"artifacts", nil).Expect(http.StatusOK).Body)
	}
	want := lists(n1)
	if got := lists(n2); got != want || !strings.Contains(got, "notes/a.txt") {
		t.Errorf("%s\nnot\n%s", got, want)
	}
	n1.Stop()
	same(n2)
	if got := lists(n2); got != want {
		t.Errorf("after n1 stopped: %s\nnot\n%s", got, want)
	}
	put(n2, "scratch/notes/a.txt", []byte("changed"))
	put(n2, "scratch/b", []byte("b"))
	n2.Do("DELETE", base+"artifacts/report.md", nil).Expect(http.StatusOK)
	delete(contents, "artifacts/report.md")
	want = lists(n2)
	n2.Kill()
	n1.Restart()
	err := clustertest.Await(15*time.Second, func() (bool, error) {
		return n1.Do("GET", base+"scratch", nil).Status == http.StatusOK, nil
	})
	if err != nil {
		t.Fatal("the folders are not there after a node was killed")
	}
	same(n1)
	if got := lists(n1); got != want {
		t.Errorf("after n2 was killed: %s\nnot\n%s", got, want)
	}
	n1.Do("GET", base+"artifacts/report.md", nil).ExpectError(http.StatusNotFound, "file_not_found")
}

// TestDirectories: a directory of the nodes' machine is one workspace, whichever node is
// asked for it, and what mounts it works at each.
func TestDirectories(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	r.env = append(r.env, "UMBRA_CLUSTER_PHYSICAL=true")
	nodes := []*harness.Server{r.serve("n1"), r.serve("n2"), r.serve("n3")}
	top, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	dir, other := filepath.Join(top, "a"), filepath.Join(top, "b")
	for _, d := range []string{filepath.Join(dir, "inside"), other} {
		need.NoError(t, os.MkdirAll(d, 0o755))
	}
	// All at once: one of them makes it.
	found := make([]task, 2*len(nodes))
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			nodes[i%3].Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": dir}).Expect(http.StatusCreated).JSON(&found[i])
		})
	}
	all.Wait()
	for _, f := range found {
		if f.Workspace != found[0].Workspace {
			t.Fatalf("one directory is %+v", found)
		}
	}
	mounts := map[string]any{"mounts": []any{
		map[string]any{"prefix": "/a", "scope": "READ_WRITE", "store": map[string]any{"type": "physical", "root": dir}},
		map[string]any{"prefix": "/v", "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{"v"}}},
	}}
	for i, s := range nodes {
		target := "/tasks/" + found[i].ID + "/content?path=f" + strconv.Itoa(i)
		if res := s.Do("PUT", target, []byte("x")); res.Status/100 != 2 || !strings.HasPrefix(res.Header.Get("Umbra-Owner"), `"n`) {
			t.Errorf("%d %s %v", res.Status, res.Body, res.Header)
		}
		var session struct {
			Workspace string `json:"workspaceId"`
		}
		if s.Do("POST", "/api/sessions", map[string]any{"workspaceRoot": dir}).Expect(http.StatusCreated).JSON(&session); session.Workspace != found[0].Workspace {
			t.Errorf("a session of %s", session.Workspace)
		}
		var set struct {
			ID string `json:"id"`
		}
		s.Do("POST", "/toolsets", mounts).Expect(http.StatusCreated).JSON(&set)
		for _, at := range nodes {
			for _, path := range []string{"/a/x", "/v/x"} {
				call := map[string]any{"name": "write_file", "arguments": map[string]any{"path": path, "content": "x"}}
				if res := at.Do("POST", "/toolsets/"+set.ID+"/call", call).Expect(http.StatusOK); res.Text("status") != "success" {
					t.Errorf("%s", res.Body)
				}
			}
			at.Do("PUT", "/toolsets/"+set.ID+"/mounts", mounts).Expect(http.StatusOK)
		}
		for _, d := range []string{filepath.Join(dir, "inside"), top} {
			s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": d}).ExpectError(http.StatusConflict, "workspace_overlaps")
		}
		var list struct {
			Tasks []task `json:"tasks"`
		}
		if s.Do("GET", "/tasks?limit=1000&workspace="+dir, nil).Expect(http.StatusOK).JSON(&list); len(list.Tasks) < len(found) {
			t.Errorf("%d tasks in the list", len(list.Tasks))
		}
	}
	// Where the client says so, and where it is new.
	var there task
	res := nodes[0].Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": other}, "Umbra-Node: n3").Expect(http.StatusCreated)
	if res.JSON(&there); !strings.HasPrefix(res.Header.Get("Umbra-Owner"), `"n3"`) {
		t.Errorf("the owner is %s", res.Header.Get("Umbra-Owner"))
	}
	nodes[0].Do("GET", "/tasks/"+there.ID, nil, "Umbra-Direct: 1").ExpectError(http.StatusMisdirectedRequest, "not_owner")
	nodes[2].Kill()
	var gone *harness.Response
	if err := clustertest.Await(10*time.Second, func() (bool, error) {
		gone = nodes[0].Do("PUT", "/tasks/"+there.ID+"/content?path=x", []byte("x"))
		return gone.Status == http.StatusServiceUnavailable && gone.Text("error") == "node_down", nil
	}); err != nil {
		t.Fatalf("once the directory's node is gone: %d %s", gone.Status, gone.Body)
	}
	nodes[1].Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": other}).ExpectError(http.StatusServiceUnavailable, "node_down")
	nodes[2].Restart()
	nodes[1].Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": other}).Expect(http.StatusCreated)
}

// TestTools: what a node has cached of a toolset is no reason to wait for itself when
// another node has changed it; scripts of any node save into one output directory.
func TestTools(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	nodes := []*harness.Server{r.serve("n1"), r.serve("n2")}
	mounts := func(names ...string) map[string]any {
		var list []any
		for _, n := range names {
			list = append(list, map[string]any{"prefix": "/" + n, "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{n}}})
		}
		return map[string]any{"mounts": list}
	}
	var set struct {
		ID string `json:"id"`
	}
	nodes[0].Do("POST", "/toolsets", mounts("a", "b")).Expect(http.StatusCreated).JSON(&set)
	for i, names := range [][]string{{"a"}, {"b"}, {"a", "c"}, {"d"}, {"a", "b", "c"}} {
		for _, s := range nodes {
			s.Do("GET", "/toolsets/"+set.ID, nil).Expect(http.StatusOK)
		}
		nodes[i%2].Do("PUT", "/toolsets/"+set.ID+"/mounts", mounts(names...)).Expect(http.StatusOK)
	}
	for i, s := range []*harness.Server{nodes[0], nodes[1], nodes[0]} {
		script := fmt.Sprintf(`return file.save("s%d.txt", "x")`, i)
		if res := s.Do("POST", "/scripts/execute", map[string]any{"script": script}).Expect(http.StatusOK); res.Field("error") != nil {
			t.Errorf("%s", res.Body)
		}
	}
}
