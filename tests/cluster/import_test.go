package cluster

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// imported is the answer of umbra cluster import.
type imported struct {
	Workspaces []struct {
		ID    string `json:"id"`
		Kind  string `json:"kind"`
		Seq   uint64 `json:"seq"`
		Bytes int64  `json:"bytes"`
		State string `json:"state"`
	} `json:"workspaces"`
	Tasks     int   `json:"tasks"`
	Sessions  int   `json:"sessions"`
	Toolsets  int   `json:"toolsets"`
	Tokens    int   `json:"tokens"`
	SentBytes int64 `json:"sent_bytes"`
	Files     int   `json:"task_files"`
	Answers   int   `json:"answers"`
	Left      []struct {
		What string `json:"what"`
		Why  string `json:"why"`
	} `json:"left"`
}

func (m *imported) state(id string) string {
	for _, w := range m.Workspaces {
		if w.ID == id {
			return w.State
		}
	}
	return ""
}

// TestImport takes a single server's data directory into a cluster.
func TestImport(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	one := harness.Start(t, harness.Options{})
	var made, other task
	one.Do("POST", "/tasks", map[string]any{"goal": "one", "kind": "virtual", "namespace": []string{"a", "b"}}).Expect(http.StatusCreated).JSON(&made)
	one.Do("POST", "/tasks", map[string]any{"goal": "two", "kind": "virtual", "namespace": []string{"taken"}}).Expect(http.StatusCreated).JSON(&other)
	large := strings.Repeat("0123456789abcdef", 400<<10)
	for i := range 20 {
		one.Do("PUT", fmt.Sprintf("/tasks/%s/content?path=f%d.txt", made.ID, i%3), []byte(fmt.Sprintf("text %d", i)))
	}
	one.Do("PUT", "/tasks/"+made.ID+"/content?path=large.bin", []byte(large))
	one.Do("PUT", "/tasks/"+other.ID+"/content?path=x.txt", []byte("theirs"))
	var forks struct {
		Forks []struct {
			ID string `json:"id"`
		} `json:"forks"`
	}
	one.Do("POST", "/workspaces/"+made.Workspace+"/forks", map[string]any{"kind": "virtual", "count": 2}).Expect(http.StatusCreated).JSON(&forks)
	var inFork task
	one.Do("POST", "/tasks", map[string]any{"goal": "fork", "workspace": forks.Forks[0].ID}).Expect(http.StatusCreated).JSON(&inFork)
	one.Do("PUT", "/tasks/"+inFork.ID+"/content?path=fork.txt", []byte("in the fork")).Expect(http.StatusCreated)
	toolset := one.Do("POST", "/toolsets", map[string]any{"mounts": []any{
		map[string]any{"prefix": "/a", "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{"a", "b"}}},
		map[string]any{"prefix": "/c", "scope": "READ_WRITE", "store": map[string]any{"type": "virtual", "namespace": []string{"c"}}}}}).Expect(http.StatusCreated).Text("id")
	changes := string(one.Do("GET", "/tasks/"+made.ID+"/changes", nil).Expect(http.StatusOK).Body)
	one.Do("POST", "/calls", map[string]any{"task_id": made.ID, "workspace_id": made.Workspace, "agent": "x", "agent_session": "s", "call_id": "ended", "tool": "t"}).Expect(http.StatusCreated)
	one.Do("POST", "/calls/ended/end", map[string]any{"status": "ok"}).Expect(http.StatusOK)
	one.Do("POST", "/calls", map[string]any{"task_id": made.ID, "workspace_id": made.Workspace, "agent": "x", "agent_session": "s", "call_id": "open", "tool": "t"}).Expect(http.StatusCreated)
	ended := string(one.Do("GET", "/calls/ended", nil).Expect(http.StatusOK).Body)
	folder := t.TempDir()
	var dir task
	one.Do("POST", "/tasks", map[string]any{"goal": "dir", "workspace": folder}).Expect(http.StatusCreated).JSON(&dir)
	one.Kill() // it need not have stopped in order

	before := need.Files(t, one.DataDir)
	n1 := r.serve("n1")
	n1.Do("POST", "/tasks", map[string]any{"goal": "two", "kind": "virtual", "namespace": []string{"taken"}}).Expect(http.StatusCreated)

	var dry, first, second imported
	r.run(&dry, 1, "import", one.DataDir, "--dry-run")
	if dry.state(made.Workspace) != "imported" || dry.state(other.Workspace) != "conflict" || dry.state(dir.Workspace) != "skipped" || dry.SentBytes != 0 || dry.Tasks != 0 {
		t.Errorf("dry run: %+v", dry)
	}
	n1.Do("GET", "/tasks/"+made.ID, nil).Expect(http.StatusNotFound)
	r.run(&first, 1, "import", one.DataDir)
	if first.state(made.Workspace) != "imported" || first.state(other.Workspace) != "conflict" || first.state(dir.Workspace) != "skipped" || first.Tasks < 2 || first.Toolsets != 1 || first.SentBytes == 0 {
		t.Errorf("import: %+v", first)
	}
	read := func(s *harness.Server) {
		t.Helper()
		if got := string(s.Do("GET", "/tasks/"+made.ID+"/content?path=large.bin", nil).Expect(http.StatusOK).Body); got != large {
			t.Errorf("%d bytes of %d", len(got), len(large))
		}
		if got := string(s.Do("GET", "/tasks/"+made.ID+"/content?path=f1.txt", nil).Expect(http.StatusOK).Body); got != "text 19" {
			t.Errorf("f1.txt is %q", got)
		}
		if got := string(s.Do("GET", "/tasks/"+made.ID+"/changes", nil).Expect(http.StatusOK).Body); got != changes {
			t.Errorf("changes\n%s\nbefore\n%s", got, changes)
		}
		var again task
		s.Do("POST", "/tasks", map[string]any{"goal": "more", "kind": "virtual", "namespace": []string{"a", "b"}}).Expect(http.StatusCreated).JSON(&again)
		if again.Workspace != made.Workspace {
			t.Errorf("the namespace leads to %s, not %s", again.Workspace, made.Workspace)
		}
	}
	read(n1)
	for _, f := range forks.Forks {
		if first.state(f.ID) != "imported" {
			t.Errorf("fork %s: %q", f.ID, first.state(f.ID))
		}
		n1.Do("GET", "/workspaces/"+f.ID, nil).Expect(http.StatusOK)
	}
	if got := string(n1.Do("GET", "/tasks/"+inFork.ID+"/content?path=fork.txt", nil).Expect(http.StatusOK).Body); got != "in the fork" {
		t.Errorf("fork.txt is %q", got)
	}
	if got := string(n1.Do("GET", "/calls/ended", nil).Expect(http.StatusOK).Body); got != ended {
		t.Errorf("a call\n%s\nbefore\n%s", got, ended)
	}
	n1.Do("POST", "/calls/open/end", map[string]any{"status": "ok"}).Expect(http.StatusOK)
	n1.Do("PUT", "/tasks/"+inFork.ID+"/content?path=more.txt", []byte("more")).Expect(http.StatusCreated)
	n1.Do("GET", "/toolsets/"+toolset, nil).Expect(http.StatusOK)
	// What is in the cluster is whole: another node has it from there.
	n2 := r.serve("n2")
	n1.Stop()
	read(n2)
	n1 = n2
	n1.Do("PUT", "/tasks/"+made.ID+"/content?path=new.txt", []byte("new")).Expect(http.StatusCreated)
	// Again, while a node goes on with it.
	r.run(&second, 1, "import", one.DataDir)
	if second.state(made.Workspace) != "present" || second.Tasks != 0 || second.SentBytes != 0 {
		t.Errorf("import again: %+v", second)
	}
	after := need.Files(t, one.DataDir)
	delete(before, "lock")
	delete(after, "lock")
	for name, sum := range before {
		if after[name] != sum {
			t.Errorf("%s was changed", name)
		}
	}
	if len(after) != len(before) {
		t.Errorf("%d files, before %d", len(after), len(before))
	}
	// With a server it is refused.
	one.Restart()
	if stderr := r.run(nil, 1, "import", one.DataDir); !strings.Contains(stderr, "is held by process") {
		t.Errorf("beside a server: %s", stderr)
	}
	r.run(nil, 1, "import", t.TempDir())
	r.run(nil, 2, "import")
}

// TestImportKilled cuts imports off at any time: the next run goes on.
func TestImportKilled(t *testing.T) {
	r := newRig(t)
	r.run(nil, 0, "init", "--lease", "1s")
	one := harness.Start(t, harness.Options{})
	const all = 12
	list := make([]task, all)
	for i := range list {
		one.Do("POST", "/tasks", map[string]any{"goal": "one", "kind": "virtual", "namespace": []string{fmt.Sprint(i)}}).Expect(http.StatusCreated).JSON(&list[i])
		one.Do("PUT", "/tasks/"+list[i].ID+"/content?path=f.txt", []byte(fmt.Sprint(i))).Expect(http.StatusCreated)
	}
	one.Stop()
	status, secret, stderr := harness.Run(t, nil, "token", "add", "me", "--scope", "write", "--data-dir", one.DataDir)
	if status != 0 {
		t.Fatal(stderr)
	}
	secret = strings.TrimSpace(secret)
	cut := 0
	for wait := 150 * time.Millisecond; ; wait += 150 * time.Millisecond {
		cmd := harness.Command(t, r.env, "cluster", "import", one.DataDir, "--cluster", r.url, "--blobs", r.blobs)
		need.NoError(t, cmd.Start())
		timer := time.AfterFunc(wait, func() { cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		cut++
	}
	if cut == 0 {
		t.Error("no run was cut off")
	}
	var last imported
	r.run(&last, 0, "import", one.DataDir)
	for _, w := range last.Workspaces {
		if w.State != "present" {
			t.Errorf("%+v", w)
		}
	}
	n1 := harness.Start(t, harness.Options{Env: r.env, Args: []string{"--cluster", r.url, "--blobs", r.blobs, "--node", "n1"}, Token: secret})
	for i, made := range list {
		if got := string(n1.Do("GET", "/tasks/"+made.ID+"/content?path=f.txt", nil).Expect(http.StatusOK).Body); got != fmt.Sprint(i) {
			t.Errorf("task %s has %q", made.ID, got)
		}
	}
	// A workspace that was removed in the cluster stays so.
	n1.Do("PATCH", "/tasks/"+list[0].ID, map[string]any{"status": "completed"}).Expect(http.StatusOK)
	n1.Do("DELETE", "/workspaces/"+list[0].Workspace+"?history=delete", nil).Expect(http.StatusNoContent)
	r.run(&last, 0, "import", one.DataDir)
	if last.state(list[0].Workspace) != "present" || last.SentBytes != 0 {
		t.Errorf("imported after its removal: %+v", last)
	}
	n1.Do("GET", "/workspaces/"+list[0].Workspace, nil).Expect(http.StatusNotFound)
	// A token that was removed stays so.
	n1.Do("GET", "/tasks/"+list[0].ID, nil, "Authorization: Bearer nobody").Expect(http.StatusUnauthorized)
	if status, _, stderr := harness.Run(t, r.env, "token", "remove", "me", "--cluster", r.url, "--blobs", r.blobs); status != 0 {
		t.Fatal(stderr)
	}
	r.run(&last, 0, "import", one.DataDir)
	if last.Tokens != 0 {
		t.Errorf("%d tokens were imported again", last.Tokens)
	}
}
