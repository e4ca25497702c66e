package cluster

import (
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/tests/harness"
)

// TestReadURL: a node answers reads by its replica as far as that has what the client
// asks for, else by the primary, also where no replica answers. What was purged it does not
// read from a replica that still has it.
func TestReadURL(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1 := r.serve("n1")
	primary := r.env
	r.env = append(primary[:len(primary):len(primary)], "UMBRA_CLUSTER_READ_URL="+strings.Replace(r.url, r.pair.A.Address(), "127.0.0.1:1", 1))
	n3 := r.serve("n3")
	r.env = append(primary[:len(primary):len(primary)], "UMBRA_CLUSTER_READ_URL="+strings.Replace(r.url, r.pair.A.Address(), r.pair.B.Address(), 1))
	n2 := r.serve("n2")
	var made task
	n1.Do("POST", "/tasks", map[string]any{"goal": "replica", "kind": "virtual"}).Expect(http.StatusCreated).JSON(&made)
	put := func(body []byte) (seq uint64) {
		t.Helper()
		res := n1.Do("PUT", "/tasks/"+made.ID+"/content?path=f", body)
		seq, err := strconv.ParseUint(res.Header.Get("Umbra-Seq"), 10, 64)
		if err != nil || res.Status/100 != 2 {
			t.Fatalf("%d %s %v", res.Status, res.Body, err)
		}
		return seq
	}
	read := func(at *harness.Server, least uint64) uint64 {
		t.Helper()
		res := at.Do("GET", "/workspaces/"+made.Workspace+"/log", nil, "Umbra-Min-Seq: "+strconv.FormatUint(least, 10)).Expect(http.StatusOK)
		seq, err := strconv.ParseUint(res.Header.Get("Umbra-Seq"), 10, 64)
		if err != nil {
			t.Fatalf("no Umbra-Seq: %v", res.Header)
		}
		return seq
	}
	secret := blobtest.Bytes(5, 4000)
	first := put(secret)
	if err := clustertest.Await(20*time.Second, func() (bool, error) { return read(n2, 0) >= first, nil }); err != nil {
		t.Fatal("the replica is not read")
	}
	// The replica stays behind: it writes the log down, and does not apply it.
	r.pair.B.SQL("SELECT pg_wal_replay_pause()")
	second := put([]byte("none\n"))
	// A follower looks for more each second.
	if err := clustertest.Await(1500*time.Millisecond, func() (bool, error) { return read(n2, 0) != first, nil }); err == nil {
		t.Errorf("a read of any state by the replica is not of commit %d", first)
	}
	if r.pair.B.SQL("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'umbra'") == "0" {
		t.Error("the replica is not read")
	}
	if got := read(n3, second); got != second {
		t.Errorf("a node whose replica does not answer reads commit %d, not %d", got, second)
	}
	if got := read(n2, second); got != second {
		t.Errorf("a read of commit %d is of %d", second, got)
	}
	third := put([]byte("none at all\n"))
	dir := filepath.Join(t.TempDir(), "clone")
	harness.Git(t, t.TempDir(), "clone", "-q", n2.URL+"/git/"+made.Workspace+".git", dir)
	if n := harness.Git(t, dir, "rev-list", "--count", "HEAD"); strings.TrimSpace(n) != strconv.FormatUint(third, 10) {
		t.Errorf("a clone has %s commits, not %d", n, third)
	}
	if status, stdout, stderr := harness.Run(t, r.env, "purge", made.Workspace, "f", "--server", n1.URL); status != 0 {
		t.Fatalf("purge: %s%s", stdout, stderr)
	}
	if got := read(n2, 0); got < third {
		t.Errorf("after the purge a read is of commit %d, before it", got)
	}
	if files := diskWith(t, n2.DataDir, needle(secret)); len(files) > 0 {
		t.Errorf("the node has the purged content: %v", files)
	}
	r.pair.B.SQL("SELECT pg_wal_replay_resume()")
	last := put([]byte("the last\n"))
	if err := clustertest.Await(20*time.Second, func() (bool, error) { return read(n2, 0) >= last, nil }); err != nil {
		t.Error("the replica is not read any more")
	}
}
