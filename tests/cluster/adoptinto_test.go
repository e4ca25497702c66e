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

// TestAdoptInto: the workspace of a directory goes on in another node's directory when its
// own node is gone.
func TestAdoptInto(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2, n3 := r.physical("n1"), r.physical("n2"), r.serve("n3")
	root := t.TempDir()
	for name, content := range map[string]string{"a": "first", "sub/b": "below"} {
		need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700))
		need.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(content), 0o600))
	}
	need.NoError(t, os.Symlink("a", filepath.Join(root, "link")))
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
	put(n1, "a", "second")
	seq := put(n1, "sub/c", strings.Repeat("large ", 100_000))
	r.copied(made.Workspace, seq)

	up := t.TempDir()
	into := filepath.Join(up, "new")
	adopt := func(wantStatus int, code string, args ...string) {
		t.Helper()
		stderr := r.run(nil, wantStatus, append([]string{"adopt", made.Workspace}, args...)...)
		if !strings.Contains(stderr, code) {
			t.Errorf("adopt %v: %s", args, stderr)
		}
		if list, err := os.ReadDir(up); err != nil || len(list) > 0 {
			t.Errorf("adopt %v left %v, %v", args, list, err)
		}
	}
	adopt(2, "one of --virtual and --into", "--virtual", "--into", into)
	adopt(1, "node_alive", "--into", into, "--node", "n2")
	late := ""
	for i := range 3 {
		late = put(n1, "late", fmt.Sprint("late ", i))
	}
	n1.Kill()
	adopt(1, "node_not_found", "--into", into, "--node", "n9")
	adopt(1, "physical_off", "--into", into, "--node", "n3")
	adopt(1, "not_empty", "--into", root, "--node", "n2")
	adopt(1, "workspace_not_allowed", "--into", filepath.Join(n2.DataDir, "new"), "--node", "n2")
	adopt(1, "workspace_not_found", "--into", filepath.Join(up, "no", "new"), "--node", "n2")

	var got, again adopted
	r.run(&got, 0, "adopt", made.Workspace, "--into", into, "--node", "n2")
	if got.ID != made.Workspace || got.Kind != "physical" || got.Owner == nil || *got.Owner != "n2" || fmt.Sprint(got.Seq) < seq {
		t.Fatalf("%+v, after commit %s", got, seq)
	}
	r.run(&again, 0, "adopt", made.Workspace, "--into", into, "--node", "n2")
	if again.Seq != got.Seq || !again.CopiedAt.Equal(got.CopiedAt) {
		t.Errorf("again: %+v, not %+v", again, got)
	}
	for name, want := range map[string]string{"a": "second", "sub/b": "below", "sub/c": strings.Repeat("large ", 100_000), "link": "second"} {
		if b, err := os.ReadFile(filepath.Join(into, name)); err != nil || string(b) != want {
			t.Errorf("%s has %d bytes, %v", name, len(b), err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(up, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// It goes on with the next number, and what is written to the directory is recorded.
	next := put(n3, "c", "goes on")
	if next != fmt.Sprint(got.Seq+1) {
		t.Errorf("the next commit is %s, after %d", next, got.Seq)
	}
	if b, err := os.ReadFile(filepath.Join(into, "c")); err != nil || string(b) != "goes on" {
		t.Errorf("%q, %v", b, err)
	}
	need.NoError(t, os.WriteFile(filepath.Join(into, "d"), []byte("by hand"), 0o600))
	err := clustertest.Await(10*time.Second, func() (bool, error) {
		res := n3.Do("GET", content("d"), nil)
		return res.Status == http.StatusOK && string(res.Body) == "by hand", nil
	})
	if err != nil {
		t.Error("what was written to the directory is not there")
	}
	var s workspaceStatus
	r.run(&s, 0, "status", made.Workspace)
	if w := s.Workspaces[0]; w.State != "adopted" || w.Kind != "physical" || w.Owner == nil || *w.Owner != "n2" {
		t.Errorf("%+v", w)
	}
	// Its history is n2's, and is there after a restart.
	n2.Kill()
	n2.Restart()
	err = clustertest.Await(10*time.Second, func() (bool, error) {
		res := n3.Do("GET", content("sub/b"), nil)
		return res.Status == http.StatusOK && string(res.Body) == "below", nil
	})
	if err != nil {
		t.Fatal("not there after a restart")
	}
	if seq := put(n2, "e", "after the restart"); seq <= next {
		t.Errorf("commit %s after %s", seq, next)
	}
	// The former node puts what it has beyond the copy aside, and leaves its directory.
	n1.Restart()
	r.run(&s, 0, "status", made.Workspace)
	if w := s.Workspaces[0]; *w.Owner != "n2" || (fmt.Sprint(got.Seq) != late) != (len(w.Orphaned) == 1) {
		t.Errorf("after the node is back: %+v; commit %s was late, %d went on", w, late, got.Seq)
	}
	put(n1, "f", "by n1's way")
	if _, err := os.Stat(filepath.Join(root, "f")); err == nil {
		t.Error("the former directory was written")
	}
	dir := filepath.Join(t.TempDir(), "clone")
	harness.Git(t, "", "clone", "-q", n3.URL+"/git/"+made.Workspace+".git", dir)
	if out, err := harness.TryGit(t, dir, "fsck", "--strict", "--full", "--no-progress"); err != nil || strings.TrimSpace(out) != "" {
		t.Errorf("fsck: %v %s", err, out)
	}
}

// TestFolderHistoryLost: a node that lost its data directory goes on with its directories
// from the copy of their history.
func TestFolderHistoryLost(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1 := r.physical("n1")
	root := t.TempDir()
	made := r.open(n1, root, "n1")
	seq := ""
	for i := range 3 {
		res := n1.Do("PUT", "/tasks/"+made.ID+"/content?path=f", []byte(fmt.Sprint(i)))
		seq = res.Header.Get("Umbra-Seq")
	}
	r.copied(made.Workspace, seq)
	n1.Stop()
	need.NoError(t, os.RemoveAll(filepath.Join(n1.DataDir, "workspaces", made.Workspace)))
	n1.Restart()
	var log struct {
		Entries []entry `json:"entries"`
	}
	n1.Do("GET", "/workspaces/"+made.Workspace+"/log", nil).Expect(http.StatusOK).JSON(&log)
	if len(log.Entries) < 3 || fmt.Sprint(log.Entries[0].Seq) != seq {
		t.Errorf("%d entries, the newest %+v, not %s", len(log.Entries), log.Entries, seq)
	}
	res := n1.Do("PUT", "/tasks/"+made.ID+"/content?path=f", []byte("more"))
	if got := res.Header.Get("Umbra-Seq"); res.Status/100 != 2 || len(got) < len(seq) || got <= seq {
		t.Errorf("%d, commit %s after %s", res.Status, got, seq)
	}
}
