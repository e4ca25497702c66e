package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestAdoptTwice: two runs at once, and one more once the directory is in use, change nothing
// of what one run does.
func TestAdoptTwice(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.physical("n1"), r.physical("n2")
	root, up := t.TempDir(), t.TempDir()
	const files = 1000
	for i := range files {
		need.NoError(t, os.WriteFile(filepath.Join(root, fmt.Sprint("f", i)), []byte(fmt.Sprint("content ", i)), 0o600))
	}
	made := r.open(n1, root, "n1")
	res := n1.Do("PUT", "/tasks/"+made.ID+"/content?path=last", []byte("last"))
	seq := res.Header.Get("Umbra-Seq")
	r.copied(made.Workspace, seq)
	n1.Kill()
	into := filepath.Join(up, "new")
	adopt := func() (int, string) {
		status, stdout, stderr := harness.Run(t, r.env, "cluster", "adopt", made.Workspace, "--into", into, "--node", "n2", "--json", "--cluster", r.url, "--blobs", r.blobs)
		return status, stdout + stderr
	}
	var both sync.WaitGroup
	for range 3 {
		both.Go(func() {
			status, out := adopt()
			if status != 0 {
				t.Errorf("exit status %d: %s", status, out)
			}
		})
	}
	both.Wait()
	tip := func() string {
		return n2.Do("GET", "/workspaces/"+made.Workspace+"/log?limit=1", nil).Expect(http.StatusOK).Header.Get("Umbra-Seq")
	}
	list, err := os.ReadDir(into)
	if err != nil || len(list) != files+1 {
		t.Errorf("%d files, %v", len(list), err)
	}
	n2.Do("POST", "/workspaces/"+made.Workspace+"/sync", map[string]any{})
	if got := tip(); got != seq {
		t.Errorf("commit %s, not %s: %s", got, seq, n2.Do("GET", "/workspaces/"+made.Workspace+"/log?limit=3", nil).Body)
	}
	if left, err := filepath.Glob(filepath.Join(up, ".*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	// Once it is in use, it is as its user leaves it.
	for _, e := range list {
		need.NoError(t, os.RemoveAll(filepath.Join(into, e.Name())))
	}
	before, err := os.Stat(into)
	need.NoError(t, err)
	if status, out := adopt(); status != 0 {
		t.Errorf("exit status %d: %s", status, out)
	}
	after, err := os.Stat(into)
	need.NoError(t, err)
	if !os.SameFile(before, after) {
		t.Error("the directory was replaced")
	}
	if list, err := os.ReadDir(into); err != nil || len(list) > 0 {
		t.Errorf("%d removed files are back, %v", len(list), err)
	}
	need.NoError(t, os.WriteFile(filepath.Join(into, "d"), []byte("by hand"), 0o600))
	if err := clustertest.Await(10*time.Second, func() (bool, error) {
		res := n2.Do("GET", "/tasks/"+made.ID+"/content?path=d", nil)
		return res.Status == http.StatusOK && string(res.Body) == "by hand", nil
	}); err != nil {
		t.Error("what was written to the directory is not there")
	}
}
