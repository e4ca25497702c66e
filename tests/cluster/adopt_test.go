package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// adopted is the answer of umbra cluster adopt.
type adopted struct {
	ID       string    `json:"id"`
	Kind     string    `json:"kind"`
	Owner    *string   `json:"owner"`
	Seq      uint64    `json:"seq"`
	CopiedAt time.Time `json:"copied_at"`
}

// copied waits until the log has a copy up to a commit.
func (r *rig) copied(ws, seq string) {
	r.t.Helper()
	err := clustertest.Await(10*time.Second, func() (bool, error) {
		var s workspaceStatus
		r.run(&s, 0, "status", ws)
		return fmt.Sprint(s.Workspaces[0].Seq) == seq, nil
	})
	if err != nil {
		r.t.Fatalf("no copy of commit %s: %v", seq, err)
	}
}

// TestAdoptVirtual: the workspace of a directory goes on as a virtual one when its node is
// gone. The node, when it is back, puts what it has beyond the copy aside.
func TestAdoptVirtual(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.physical("n1"), r.serve("n2")
	root := t.TempDir()
	made := r.open(n1, root, "n1")
	content := func(path string) string { return "/tasks/" + made.ID + "/content?path=" + path }
	put := func(s *harness.Server, path, body string) string {
		t.Helper()
		res := s.Do("PUT", content(path), []byte(body))
		if res.Status/100 != 2 {
			t.Fatalf("%d %s", res.Status, res.Body)
		}
		return res.Header.Get("Umbra-Seq")
	}
	seq := put(n1, "a", "copied")
	r.copied(made.Workspace, seq)
	if stderr := r.run(nil, 1, "adopt", made.Workspace, "--virtual"); !strings.Contains(stderr, "node_alive") {
		t.Errorf("while the node is live: %s", stderr)
	}
	r.run(nil, 2, "adopt", made.Workspace)
	r.run(nil, 1, "adopt", "nothing-00000000", "--virtual")
	// What is written now is not copied: the log is out of reach.
	late := ""
	for i := range 3 {
		late = put(n1, "b", fmt.Sprint("late ", i))
	}
	n1.Kill()
	var got, again adopted
	r.run(&got, 0, "adopt", made.Workspace, "--virtual")
	if got.Kind != "virtual" || got.Owner != nil || fmt.Sprint(got.Seq) < seq || time.Since(got.CopiedAt) > time.Minute || got.ID != made.Workspace {
		t.Errorf("%+v, after commit %s", got, seq)
	}
	r.run(&again, 0, "adopt", made.Workspace, "--virtual")
	if again.Seq != got.Seq || !again.CopiedAt.Equal(got.CopiedAt) {
		t.Errorf("again: %+v, not %+v", again, got)
	}
	if res := n2.Do("GET", content("a"), nil).Expect(http.StatusOK); string(res.Body) != "copied" {
		t.Errorf("%s", res.Body)
	}
	next := put(n2, "c", "goes on")
	if next != fmt.Sprint(got.Seq+1) {
		t.Errorf("the next commit is %s, after %d", next, got.Seq)
	}
	lost := fmt.Sprint(got.Seq) != late

	n1.Restart()
	var s workspaceStatus
	r.run(&s, 0, "status", made.Workspace)
	if w := s.Workspaces[0]; w.State != "adopted" || w.Kind != "virtual" || lost != (len(w.Orphaned) == 1) {
		t.Errorf("after the node is back: %+v; commit %s was late, %d went on", w, late, got.Seq)
	}
	for _, dir := range s.Workspaces[0].Orphaned {
		if base := filepath.Base(dir); base != fmt.Sprintf("orphaned-%d-%s", got.Seq+1, late) || filepath.Base(filepath.Dir(dir)) != "journal" {
			t.Errorf("put aside in %s", dir)
		}
		if body := harness.Git(t, dir, "--git-dir", "repo.git", "show", "refs/heads/shadow:b"); body != "late 2" {
			t.Errorf("the orphaned commits have %q", body)
		}
	}
	// The node that had the directory owns the workspace as any other, and keeps what was put aside.
	n2.Kill()
	err := clustertest.Await(10*time.Second, func() (bool, error) {
		return n1.Do("PUT", content("d"), []byte("by n1")).Status/100 == 2, nil
	})
	need.NoError(t, err)
	if res := n1.Do("GET", content("c"), nil).Expect(http.StatusOK); string(res.Body) != "goes on" {
		t.Errorf("%s", res.Body)
	}
	for _, dir := range s.Workspaces[0].Orphaned {
		if _, err := os.Stat(filepath.Join(dir, "repo.git")); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "d")); err == nil {
		t.Error("the former directory was written")
	}
}
