package cluster

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
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
