package tests

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/tests/harness"
)

// unpack puts the files of a testdata archive below a folder.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	need.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	need.NoError(t, err)
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		need.NoError(t, err)
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(name, h.FileInfo().Mode().Perm())
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, name)
		case tar.TypeLink:
			err = os.Link(filepath.Join(dir, h.Linkname), name)
		case tar.TypeReg:
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(name, data, h.FileInfo().Mode().Perm())
			}
		}
		need.NoError(t, err)
	}
}

// TestUpgradeFirstFormat opens a data directory that the first format's program
// left when it was killed: two tasks on a folder, a session, a virtual store.
func TestUpgradeFirstFormat(t *testing.T) {
	dir := t.TempDir()
	unpack(t, "testdata/format-1.tar.gz", dir)
	data, folder := filepath.Join(dir, "data"), filepath.Join(dir, "project")
	s := harness.Start(t, harness.Options{DataDir: data})
	if raw, err := os.ReadFile(filepath.Join(data, "format")); err != nil || string(raw) != fmt.Sprintln(state.Format) {
		t.Errorf("format: %q %v", raw, err)
	}
	if raw, err := os.ReadFile(filepath.Join(data, "upgrade-1", "format")); err != nil || string(raw) != "1\n" {
		t.Errorf("what the upgrade changed: %q %v", raw, err)
	}
	var list struct {
		Workspaces []struct {
			ID, Kind, State string
			Warnings        []string
		} `json:"workspaces"`
	}
	s.Do("GET", "/workspaces", nil).Expect(200).JSON(&list)
	if len(list.Workspaces) != 2 || list.Workspaces[0].Kind != "physical" || list.Workspaces[0].State != "missing" || list.Workspaces[1].Kind != "virtual" {
		t.Fatalf("%+v", list)
	}
	p := &project{Server: s, dir: folder}
	ws := list.Workspaces[0].ID
	// The folder stands elsewhere than when the archive was made.
	p.call(t, "PATCH", "/workspaces/"+ws, map[string]any{"root": folder}).want(t, 200)
	k := &taskOf{p: p, At: map[string]any{"workspace_id": ws, "git_dir": filepath.Join(data, "workspaces", ws, "repo.git")}}
	for _, o := range p.call(t, "GET", "/tasks", nil).want(t, 200).list(t, "tasks") {
		if o["goal"] == "the first format" {
			k.ID, _ = o["task_id"].(string)
		}
	}
	if k.ID == "" {
		t.Fatal("the task is gone")
	}
	if n := len(k.changes(t, "")); n != 6 && n != 7 {
		t.Errorf("%d changes", n)
	}
	// What was acknowledged last, before the kill, is there.
	if r := p.call(t, "GET", k.file("last.txt"), nil).want(t, 200); string(r.Body) != "last\n" {
		t.Errorf("%q", r.Body)
	}
	if r := p.call(t, "GET", k.url("/scratch/notes.md"), nil).want(t, 200); string(r.Body) != "notes" {
		t.Errorf("%q", r.Body)
	}
	// An answer that was kept is given again for 24 hours after the archive was
	// made; later the same bytes are written again, which changes nothing.
	r := p.call(t, "PUT", k.file("last.txt"), []byte("last\n"), "Idempotency-Key", "k9")
	if kept := r.Status == 201 && r.head("Idempotent-Replay") == "true"; !kept && (r.Status != 200 || r.obj(t)["commit"] != nil) {
		t.Error("a kept answer was not given again")
	}
	k.put(t, "new.txt", "new\n").want(t, 201)
	k.fsck(t)
	p.post(t, k.url("/revert"), map[string]any{}).want(t, 200)
	if got := p.read(t, "a.txt"); got != "one\ntwo\nthree\n" {
		t.Errorf("the revert of the task gave %q", got)
	}
	p.restart()
	p.Stop()
	verify(t, 0, "--data-dir", data)
	backup(t, data, filepath.Join(dir, "backup"))
	verify(t, 0, "--data-dir", restore(t, filepath.Join(dir, "backup")))
}

// TestNewerFormat is refused, with both versions named, and nothing is touched.
func TestNewerFormat(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(dir, "format"), []byte("77\n"), 0o600))
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--data-dir", dir}, {"verify", "--data-dir", dir}} {
		status, out, errOut := harness.Run(t, nil, args...)
		if status != 1 || out != "" || !strings.Contains(errOut, "77") || !strings.Contains(errOut, fmt.Sprint("up to ", state.Format)) {
			t.Errorf("%q: status %d, %q, %q", args, status, out, errOut)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "format")); err != nil || string(raw) != "77\n" {
		t.Errorf("%q %v", raw, err)
	}
	if list, _ := filepath.Glob(filepath.Join(dir, "*")); len(list) > 2 { // format, lock
		t.Errorf("made: %q", list)
	}
}

// TestUpgradeSecondFormat opens a data directory that a program of format 2 left
// when it was killed: an ended, a deleted and an executing task, the last one with
// a commit that no ref had yet.
func TestUpgradeSecondFormat(t *testing.T) {
	dir := t.TempDir()
	unpack(t, "testdata/format-2.tar.gz", dir)
	data, folder := filepath.Join(dir, "data"), filepath.Join(dir, "project")
	s := harness.Start(t, harness.Options{DataDir: data})
	if raw, err := os.ReadFile(filepath.Join(data, "upgrade-2", "format")); err != nil || string(raw) != "2\n" {
		t.Errorf("what the upgrade changed: %q %v", raw, err)
	}
	p := &project{Server: s, dir: folder}
	list := p.call(t, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces")
	if len(list) != 1 || fmt.Sprint(list[0]["tasks"]) != "2" {
		t.Fatalf("%v", list)
	}
	ws := fmt.Sprint(list[0]["id"])
	p.call(t, "PATCH", "/workspaces/"+ws, map[string]any{"root": folder}).want(t, 200)
	for query, want := range map[string][]string{"": {"works", "ended"}, "?status=completed": {"ended"}, "?status=failed": nil, "?workspace=" + ws + "&limit=1": {"works"}} {
		var got []string
		for _, o := range p.call(t, "GET", "/tasks"+query, nil).want(t, 200).list(t, "tasks") {
			got = append(got, fmt.Sprint(o["task_id"]))
		}
		if !slices.Equal(got, want) {
			t.Errorf("/tasks%s lists %v, want %v", query, got, want)
		}
	}
	p.call(t, "POST", "/tasks", map[string]any{"goal": "g", "workspace": folder, "task_id": "deleted"}).fails(t, 409, "task_exists")
	if r := p.call(t, "GET", "/tasks/works/content?path=b.txt", nil).want(t, 200); string(r.Body) != "three\n" {
		t.Errorf("%q", r.Body)
	}
	p.call(t, "PUT", "/tasks/works/content?path=b.txt", []byte("four\n")).want(t, 200)
	p.call(t, "POST", "/workspaces/"+ws+"/sync", nil).want(t, 200)
	k := &taskOf{p: p, ID: "works", At: map[string]any{"workspace_id": ws, "git_dir": filepath.Join(data, "workspaces", ws, "repo.git")}}
	k.fsck(t)
	p.post(t, "/tasks/ended/revert", map[string]any{}).want(t, 200)
	if got := p.read(t, "a.txt"); got != "one\n" {
		t.Errorf("%q", got)
	}
	p.restart()
	p.call(t, "GET", "/tasks/ended", nil).want(t, 200)
}

// TestUpgradeThirdFormat opens a data directory that a program of format 3 left when it
// was killed: a folder with a task and two sessions, a virtual store with a task, a
// toolset and a fork.
func TestUpgradeThirdFormat(t *testing.T) {
	dir := t.TempDir()
	unpack(t, "testdata/format-3.tar.gz", dir)
	data, folder := filepath.Join(dir, "data"), filepath.Join(dir, "project")
	s := harness.Start(t, harness.Options{DataDir: data, Config: "sessions:\n  idle: 1m\n"})
	if raw, err := os.ReadFile(filepath.Join(data, "upgrade-3", "format")); err != nil || string(raw) != "3\n" {
		t.Errorf("what the upgrade changed: %q %v", raw, err)
	}
	p := &project{Server: s, dir: folder}
	var kinds []string
	var ids []string
	for _, o := range p.call(t, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces") {
		kinds, ids = append(kinds, fmt.Sprint(o["kind"])), append(ids, fmt.Sprint(o["id"]))
	}
	if len(ids) != 3 || !slices.Equal(kinds, []string{"physical", "virtual", "virtual"}) {
		t.Fatal(kinds, ids)
	}
	p.call(t, "PATCH", "/workspaces/"+ids[0], map[string]any{"root": folder}).want(t, 200)
	// The namespace leads to the store of before.
	virtual := p.call(t, "POST", "/tasks", map[string]any{"goal": "g", "kind": "virtual", "namespace": []string{"team", "one"}}).want(t, 201).obj(t)
	if virtual["workspace_id"] != ids[1] {
		t.Errorf("%v, want %s", virtual["workspace_id"], ids[1])
	}
	if r := p.call(t, "GET", fmt.Sprintf("/tasks/%s/content?path=v.txt", virtual["task_id"]), nil).want(t, 200); string(r.Body) != "virtual" {
		t.Errorf("%q", r.Body)
	}
	forks := p.call(t, "GET", "/workspaces/"+ids[1]+"/forks", nil).want(t, 200).list(t, "forks")
	if len(forks) != 1 || forks[0]["id"] != ids[2] {
		t.Errorf("%v", forks)
	}
	p.call(t, "DELETE", "/workspaces/"+ids[1], nil).fails(t, 409, "has_forks")
	p.call(t, "GET", "/toolsets/56f49eb5c92b1bceea98", nil).want(t, 200)
	if n := len(p.call(t, "GET", "/toolsets", nil).want(t, 200).list(t, "toolsets")); n != 1 {
		t.Errorf("%d toolsets", n)
	}
	// The sessions were not used for hours: they end, and the task that one of them made.
	eventually(t, func() bool {
		return p.call(t, "GET", "/tasks/session-37f4928b8609", nil).want(t, 200).obj(t)["status"] == "completed"
	})
	if n := len(p.call(t, "GET", "/api/sessions", nil).want(t, 200).list(t, "sessions")); n != 0 {
		t.Errorf("%d sessions", n)
	}
	if o := p.call(t, "GET", "/tasks/third", nil).want(t, 200).obj(t); o["status"] != "executing" {
		t.Errorf("%v", o["status"])
	}
	p.restart()
	if n := len(p.call(t, "GET", "/workspaces", nil).want(t, 200).list(t, "workspaces")); n != 3 {
		t.Errorf("%d workspaces", n)
	}
	p.Stop()
	verify(t, 0, "--data-dir", data)
}
