package cluster

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// TestTokens adds tokens before the first node runs, and removes one beside it.
func TestTokens(t *testing.T) {
	r := newRig(t)
	env := append([]string{"UMBRA_HTTP_HOSTS=0.0.0.0", "UMBRA_CLUSTER_URL=" + r.url, "UMBRA_CLUSTER_BLOBS=" + r.blobs}, r.env...)
	none := filepath.Join(t.TempDir(), "none")
	token := func(wantStatus int, args ...string) (stdout, stderr string) {
		t.Helper()
		status, stdout, stderr := harness.Run(t, env, append([]string{"token"}, args...)...)
		if status != wantStatus || strings.Contains(stdout+stderr, "s3cret") {
			t.Fatalf("umbra token %v: exit status %d, not %d\n%s%s", args, status, wantStatus, stdout, stderr)
		}
		return strings.TrimSpace(stdout), stderr
	}
	refused := func() {
		t.Helper()
		status, _, stderr := harness.Run(t, env, "serve", "--listen", "0.0.0.0:0", "--data-dir", t.TempDir(), "--node", "n1")
		if status != 2 || !strings.Contains(stderr, "0.0.0.0:0 is not a loopback address: add a token") {
			t.Errorf("a node without tokens: exit status %d, %s", status, stderr)
		}
	}
	if _, stderr := token(1, "add", "me", "--scope", "write", "--data-dir", none); !strings.Contains(stderr, "umbra: cluster: cluster_missing: ") {
		t.Errorf("without a cluster: %s", stderr)
	}
	refused()
	r.run(nil, 0, "init", "--lease", "1s")
	refused()
	mine, _ := token(0, "add", "me", "--scope", "write", "--data-dir", none)
	theirs, _ := token(0, "add", "them", "--scope", "read", "--data-dir", none)
	if _, stderr := token(1, "add", "me", "--scope", "read", "--data-dir", none); !strings.Contains(stderr, "token_exists") {
		t.Errorf("a second of the name: %s", stderr)
	}
	token(2, "add", "you", "--scope", "read", "--cluster", r.url, "--server", "http://127.0.0.1:1")
	if _, err := os.Stat(none); err == nil {
		t.Error("a data directory was made")
	}
	n1 := harness.Start(t, harness.Options{Env: env, Args: []string{"--node", "n1"}, Listen: "0.0.0.0:0", Token: mine})
	n1.Do("GET", "/workspaces", nil).Expect(http.StatusOK)
	as := func(secret string) int {
		return n1.Do("GET", "/workspaces", nil, "Authorization: Bearer "+secret).Status
	}
	if got := as(theirs); got != http.StatusOK {
		t.Errorf("the other token: %d", got)
	}
	token(0, "remove", "them", "--data-dir", none)
	begun := time.Now()
	err := clustertest.Await(5*time.Second, func() (bool, error) { return as(theirs) == http.StatusUnauthorized, nil })
	if took := time.Since(begun); err != nil || took > 2*time.Second {
		t.Errorf("a removed token holds for %v: %v", took, err)
	}
	// Beside the node, it is asked: what it is told holds there at once.
	late, _ := token(0, "add", "late", "--scope", "read", "--data-dir", n1.DataDir)
	if got := as(late); got != http.StatusOK {
		t.Errorf("a token of the node's own verb: %d", got)
	}
	if list, _ := token(0, "list", "--json", "--data-dir", none); !strings.Contains(list, `"name":"late"`) || !strings.Contains(list, `"name":"me"`) || strings.Contains(list, "them") || !strings.Contains(list, `"on":true`) {
		t.Errorf("list: %s", list)
	}
}

// TestNotImported: a data directory with workspaces of its own is no node's.
func TestNotImported(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	one := harness.Start(t, harness.Options{})
	one.Do("POST", "/tasks", map[string]any{"goal": "one", "kind": "virtual", "namespace": []string{"a"}}).Expect(http.StatusCreated)
	one.Stop()
	status, _, stderr := harness.Run(t, r.env, "serve", "--listen", "127.0.0.1:0", "--data-dir", one.DataDir, "--node", "n1", "--cluster", r.url, "--blobs", r.blobs)
	if status != 1 || !strings.Contains(stderr, "umbra: cluster: data_dir_not_imported: "+one.DataDir+" has ") || !strings.Contains(stderr, " of its own; run umbra cluster import.\n") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	// One that was a node's is a cache.
	n1 := r.serve("n1")
	n1.Do("POST", "/tasks", map[string]any{"goal": "one", "kind": "virtual", "namespace": []string{"a"}}).Expect(http.StatusCreated)
	n1.Stop()
	n1.Restart()
}
