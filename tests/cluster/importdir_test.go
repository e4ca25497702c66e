package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestImportDirectories: directories of a single server become a node's, with their history,
// private files and kept answers; what is left behind is named.
func TestImportDirectories(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	one := harness.Start(t, harness.Options{})
	root, lost := t.TempDir(), t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(root, "before"), []byte("before"), 0o600))
	var dir, virtual, gone, clash task
	one.Do("POST", "/tasks", map[string]any{"goal": "dir", "workspace": root}).Expect(http.StatusCreated).JSON(&dir)
	one.Do("POST", "/tasks", map[string]any{"goal": "v", "kind": "virtual", "namespace": []string{"v"}}).Expect(http.StatusCreated).JSON(&virtual)
	one.Do("POST", "/tasks", map[string]any{"goal": "gone", "kind": "virtual", "namespace": []string{"gone"}}).Expect(http.StatusCreated).JSON(&gone)
	one.Do("POST", "/tasks", map[string]any{"goal": "clash", "workspace": lost}, "Idempotency-Key: clash").Expect(http.StatusCreated).JSON(&clash)
	const large = 300 << 10
	put := func(id, path, body, key string) *harness.Response {
		t.Helper()
		res := one.Do("PUT", "/tasks/"+id+"/content?path="+path, []byte(body), "Idempotency-Key: "+key)
		if res.Status/100 != 2 {
			t.Fatalf("%s: %d %s", path, res.Status, res.Body)
		}
		return res
	}
	for i := range 5 {
		put(dir.ID, "f", fmt.Sprint("version ", i), fmt.Sprint("dir-", i))
		put(clash.ID, "f", fmt.Sprint("version ", i), fmt.Sprint("clash-", i))
	}
	answered := put(virtual.ID, "x", "kept answer", "kept")
	for _, id := range []string{dir.ID, virtual.ID} {
		put(id, "scratch://note", "private "+id, "s-"+id)
		put(id, "artifacts://out/large", strings.Repeat("x", large), "a-"+id)
	}
	var made struct {
		Forks []struct {
			ID string `json:"id"`
		} `json:"forks"`
	}
	one.Do("POST", "/workspaces/"+dir.Workspace+"/forks", map[string]any{"kind": "virtual", "count": 1}).Expect(http.StatusCreated).JSON(&made)
	changes := string(one.Do("GET", "/tasks/"+dir.ID+"/changes", nil).Expect(http.StatusOK).Body)
	one.Do("PATCH", "/tasks/"+gone.ID, map[string]any{"status": "completed"}).Expect(http.StatusOK)
	one.Do("DELETE", "/workspaces/"+gone.Workspace, nil).Expect(http.StatusNoContent)
	one.Kill()
	before := need.Files(t, one.DataDir)

	// Without a node that opens directories they are left, and it says so.
	n2 := r.serve("n2")
	var dry imported
	r.run(&dry, 1, "import", one.DataDir, "--dry-run")
	if dry.state(dir.Workspace) != "skipped" || dry.state(made.Forks[0].ID) != "skipped" || dry.state(virtual.Workspace) != "imported" {
		t.Errorf("without a node: %+v", dry)
	}
	if stderr := r.run(nil, 1, "import", one.DataDir, "--node", "n2"); !strings.Contains(stderr, "physical_off") {
		t.Errorf("a node without directories: %s", stderr)
	}
	n2.Stop()

	n1 := r.physical("n1") // the only one that is live on this machine
	var other task
	n1.Do("POST", "/tasks", map[string]any{"goal": "other", "workspace": lost}).Expect(http.StatusCreated).JSON(&other)
	need.NoError(t, os.WriteFile(filepath.Join(root, "since"), []byte("since the stop"), 0o600))
	dry = imported{}
	r.run(&dry, 1, "import", one.DataDir, "--dry-run")
	left := fmt.Sprint(dry.Left)
	if dry.state(dir.Workspace) != "imported" || dry.state(made.Forks[0].ID) != "imported" || dry.state(clash.Workspace) != "conflict" || !strings.Contains(left, gone.Workspace) {
		t.Errorf("dry run: %+v", dry)
	}
	var first, second imported
	r.run(&first, 1, "import", one.DataDir)
	if first.state(dir.Workspace) != "imported" || first.state(clash.Workspace) != "conflict" || first.Files != 4 || first.Answers == 0 {
		t.Errorf("import: %+v", first)
	}
	r.run(&second, 1, "import", one.DataDir)
	if second.state(dir.Workspace) != "present" || second.Files != 0 || second.Answers != 0 || second.SentBytes != 0 {
		t.Errorf("again: %+v", second)
	}
	for name, sum := range need.Files(t, one.DataDir) {
		if name != "lock" && before[name] != sum {
			t.Errorf("%s was changed", name)
		}
	}

	content := func(id, path string) string { return "/tasks/" + id + "/content?path=" + path }
	check := func(s *harness.Server) {
		t.Helper()
		if got := string(s.Do("GET", "/tasks/"+dir.ID+"/changes", nil).Expect(http.StatusOK).Body); got != changes {
			t.Errorf("changes\n%s\nbefore\n%s", got, changes)
		}
		for path, want := range map[string]string{"f": "version 4", "before": "before", "since": "since the stop"} {
			if got := string(s.Do("GET", content(dir.ID, path), nil).Expect(http.StatusOK).Body); got != want {
				t.Errorf("%s is %q", path, got)
			}
		}
		for _, id := range []string{dir.ID, virtual.ID} {
			if got := string(s.Do("GET", content(id, "scratch://note"), nil).Expect(http.StatusOK).Body); got != "private "+id {
				t.Errorf("scratch of %s: %q", id, got)
			}
			if got := s.Do("GET", content(id, "artifacts://out/large"), nil).Expect(http.StatusOK).Body; len(got) != large {
				t.Errorf("artifacts of %s: %d bytes", id, len(got))
			}
		}
	}
	check(n1)
	// The key that was used at the single server is known.
	res := n1.Do("PUT", content(virtual.ID, "x"), []byte("kept answer"), "Idempotency-Key: kept")
	if res.Header.Get("Idempotent-Replay") != "true" || string(res.Body) != string(answered.Body) {
		t.Errorf("%d %v %s, not %s", res.Status, res.Header, res.Body, answered.Body)
	}
	n1.Do("GET", "/workspaces/"+made.Forks[0].ID, nil).Expect(http.StatusOK)
	res = n1.Do("PUT", content(dir.ID, "g"), []byte("goes on"))
	if b, err := os.ReadFile(filepath.Join(root, "g")); err != nil || string(b) != "goes on" {
		t.Errorf("%d: %q, %v", res.Status, b, err)
	}
	n1.Do("PUT", content(dir.ID, "scratch://note"), []byte("private "+dir.ID)).Expect(http.StatusOK)
	var again task
	n1.Do("POST", "/tasks", map[string]any{"goal": "again", "workspace": root}).Expect(http.StatusCreated).JSON(&again)
	if again.Workspace != dir.Workspace {
		t.Errorf("the directory is %s, not %s", again.Workspace, dir.Workspace)
	}
	n1.Kill()
	n1.Restart()
	changes = string(n1.Do("GET", "/tasks/"+dir.ID+"/changes", nil).Expect(http.StatusOK).Body)
	check(n1)
	n3 := r.serve("n3")
	check(n3)
}
