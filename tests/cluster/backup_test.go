package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// TestBackup: a cluster is backed up by any node while others write; the backup restores
// into a single server's data directory, which is verified, served, and imported into
// another cluster.
func TestBackup(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	n1, n2 := r.physical("n1"), r.serve("n2")
	root := t.TempDir()
	dir := r.open(n1, root, "n1")
	var virtual, inFork task
	n1.Do("POST", "/tasks", map[string]any{"goal": "v", "kind": "virtual", "namespace": []string{"v"}}).Expect(http.StatusCreated).JSON(&virtual)
	put := func(s *harness.Server, id, path, body string, header ...string) *harness.Response {
		t.Helper()
		res := s.Do("PUT", "/tasks/"+id+"/content?path="+path, []byte(body), header...)
		if res.Status/100 != 2 {
			t.Fatalf("%s: %d %s", path, res.Status, res.Body)
		}
		return res
	}
	large := strings.Repeat("0123456789abcdef", 400<<10)
	put(n1, virtual.ID, "large", large)
	var made struct {
		Forks []struct {
			ID string `json:"id"`
		} `json:"forks"`
	}
	n1.Do("POST", "/workspaces/"+virtual.Workspace+"/forks", map[string]any{"kind": "virtual", "count": 2}).Expect(http.StatusCreated).JSON(&made)
	n2.Do("POST", "/tasks", map[string]any{"goal": "fork", "workspace": made.Forks[0].ID}).Expect(http.StatusCreated).JSON(&inFork)
	put(n2, inFork.ID, "fork", "in the fork")
	for _, id := range []string{virtual.ID, dir.ID} {
		put(n1, id, "scratch://note", "private")
	}
	put(n1, virtual.ID, "artifacts://big", large)
	answered := put(n1, virtual.ID, "kept", "kept", "Idempotency-Key: kept")
	seq := ""
	for i := range 5 {
		put(n2, virtual.ID, "f", fmt.Sprint("version ", i))
		seq = put(n2, dir.ID, "f", fmt.Sprint("version ", i)).Header.Get("Umbra-Seq")
	}
	r.copied(dir.Workspace, seq)
	changes := string(n1.Do("GET", "/tasks/"+virtual.ID+"/changes", nil).Expect(http.StatusOK).Body)

	verb := func(wantStatus int, into any, args ...string) {
		t.Helper()
		status, stdout, stderr := harness.Run(t, r.env, append(args, "--json")...)
		if status != wantStatus {
			t.Fatalf("umbra %v: exit status %d, not %d: %s%s", args, status, wantStatus, stdout, stderr)
		}
		if into != nil {
			if err := json.Unmarshal([]byte(stdout), into); err != nil {
				t.Fatalf("umbra %v: %v in %s", args, err, stdout)
			}
		}
	}
	verb(0, nil, "verify", "--server", n2.URL)
	to, data := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "data")
	var first, second struct {
		Workspaces  int      `json:"workspaces"`
		CopiedBytes int64    `json:"copied_bytes"`
		ReusedBytes int64    `json:"reused_bytes"`
		Warnings    []string `json:"warnings"`
	}
	owner := n1.Do("GET", "/workspaces/"+virtual.Workspace, nil).Header.Get("Umbra-Owner")
	verb(0, &first, "backup", to, "--server", n2.URL)
	if first.Workspaces < 3 || len(first.Warnings) > 0 {
		t.Errorf("%+v", first)
	}
	if now := n1.Do("GET", "/workspaces/"+virtual.Workspace, nil).Header.Get("Umbra-Owner"); now != owner {
		t.Errorf("the owner was %s, and is %s", owner, now)
	}
	put(n2, virtual.ID, "f", "newest")
	changes = string(n1.Do("GET", "/tasks/"+virtual.ID+"/changes", nil).Expect(http.StatusOK).Body)
	verb(0, &second, "backup", to, "--server", n1.URL)
	if second.CopiedBytes >= first.CopiedBytes/2 || second.ReusedBytes == 0 {
		t.Errorf("%+v, at first %+v", second, first)
	}
	n1.Stop()
	n2.Stop()
	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "umbra-backup-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	verb(0, nil, "restore", to, "--data-dir", data)
	verb(0, nil, "verify", "--data-dir", data)
	check := func(s *harness.Server) {
		t.Helper()
		for path, want := range map[string]string{"f": "newest", "large": large, "scratch://note": "private", "artifacts://big": large} {
			if got := string(s.Do("GET", "/tasks/"+virtual.ID+"/content?path="+path, nil).Expect(http.StatusOK).Body); got != want {
				t.Errorf("%s has %d bytes", path, len(got))
			}
		}
		for path, want := range map[string]string{"f": "version 4"} {
			if got := string(s.Do("GET", "/tasks/"+dir.ID+"/content?path="+path, nil).Expect(http.StatusOK).Body); got != want {
				t.Errorf("%s of the directory is %q", path, got)
			}
		}
		if got := string(s.Do("GET", "/tasks/"+inFork.ID+"/content?path=fork", nil).Expect(http.StatusOK).Body); got != "in the fork" {
			t.Errorf("in the fork: %q", got)
		}
		s.Do("GET", "/workspaces/"+made.Forks[1].ID, nil).Expect(http.StatusOK)
		if got := string(s.Do("GET", "/tasks/"+virtual.ID+"/changes", nil).Expect(http.StatusOK).Body); got != changes {
			t.Errorf("changes\n%s\nbefore\n%s", got, changes)
		}
		res := s.Do("PUT", "/tasks/"+virtual.ID+"/content?path=kept", []byte("kept"), "Idempotency-Key: kept")
		if res.Header.Get("Idempotent-Replay") != "true" || string(res.Body) != string(answered.Body) {
			t.Errorf("%d %s, not %s", res.Status, res.Body, answered.Body)
		}
		same := virtual
		s.Do("POST", "/tasks", map[string]any{"goal": "v", "kind": "virtual", "namespace": []string{"v"}}).Expect(http.StatusCreated).JSON(&same)
		if same.Workspace != virtual.Workspace {
			t.Errorf("the namespace leads to %s, not %s", same.Workspace, virtual.Workspace)
		}
	}
	one := harness.Start(t, harness.Options{DataDir: data})
	check(one)
	one.Stop()

	other := newRig(t)
	other.run(nil, 0, "init", "--lease", "1s")
	n3 := other.physical("n3")
	var in imported
	other.run(&in, 0, "import", data)
	if in.state(virtual.Workspace) != "imported" || in.state(dir.Workspace) != "imported" {
		t.Errorf("%+v", in)
	}
	check(n3)
}
