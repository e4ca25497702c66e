package cluster

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"umbra/tests/harness"
)

// TestUpkeepElsewhere: what is about one workspace is done by the node that has it, and
// what no node can do is refused.
func TestUpkeepElsewhere(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.physical("n1"), r.serve("n2")
	made := r.open(n2, t.TempDir(), "n1")
	for _, content := range []string{"secret\n", "none\n"} {
		if res := n2.Do("PUT", "/tasks/"+made.ID+"/content?path=f", []byte(content)); res.Status/100 != 2 {
			t.Fatalf("%d %s", res.Status, res.Body)
		}
	}
	verb := func(wantStatus int, args ...string) string {
		t.Helper()
		status, stdout, stderr := harness.Run(t, r.env, append(args, "--server", n2.URL)...)
		if status != wantStatus {
			t.Errorf("umbra %v: exit status %d, not %d: %s%s", args, status, wantStatus, stdout, stderr)
		}
		return stdout + stderr
	}
	verb(0, "purge", made.Workspace, "f")
	verb(0, "gc", made.Workspace)
	for _, act := range []string{"act=purge", "act=retention"} {
		_, logged := n1.Log.Await(func(text string) bool { return strings.Contains(text, act) }, 10*time.Second)
		if !logged || strings.Contains(n2.Log.String(), act) {
			t.Errorf("%s is not in the log of the directory's node alone", act)
		}
	}

	// A task on a directory saves where its status is known.
	tag := "X-Task-Id: " + made.ID
	for _, at := range []*harness.Server{n2, n1, n2} {
		at.Do("PUT", "/workspace", map[string]any{"codeId": "a", "code": at.URL}, tag).Expect(http.StatusOK)
		at.Do("POST", "/workspace/batch", map[string]any{"files": []map[string]any{{"codeId": "b", "code": at.URL}}}, tag).Expect(http.StatusOK)
		at.Do("DELETE", "/workspace/b", nil, tag).Expect(http.StatusOK)
		at.Do("PUT", "/workspace", map[string]any{"codeId": "c", "code": at.URL}).Expect(http.StatusOK)
	}
	n2.Do("PATCH", "/tasks/"+made.ID, map[string]any{"status": "paused"}).Expect(http.StatusOK)
	if res := n2.Do("PUT", "/workspace", map[string]any{"codeId": "a", "code": "3"}, tag); res.Status != http.StatusConflict {
		t.Errorf("a paused task saves: %d %s", res.Status, res.Body)
	}
}
