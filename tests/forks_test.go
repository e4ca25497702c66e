package tests

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// forks asks for forks and gives their descriptions.
func (p *project) forks(t *testing.T, ws string, body map[string]any) []map[string]any {
	t.Helper()
	return p.post(t, ws+"/forks", body).want(t, 201).list(t, "forks")
}

// A fork begins as its parent is, shares its history, and changes alone.
func TestForkVirtual(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "two\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	task.put(t, "a", "1\n")
	p.shell(t, "echo person > c")
	made := p.forks(t, ws, map[string]any{"kind": "virtual", "name": "try", "count": 3})
	if len(made) != 3 || made[1]["name"] != "try-2" || made[0]["kind"] != "virtual" || made[0]["fork_of"] != task.str("workspace_id") || made[0]["fork_at"] != made[0]["head"] {
		t.Fatalf("%v", made)
	}
	first := made[0]["id"].(string)
	in := p.post(t, "/tasks", map[string]any{"task_id": "in-fork", "workspace": first, "goal": "try"}).want(t, 201).obj(t)
	if in["workspace_id"] != first {
		t.Fatalf("%v", in)
	}
	p.call(t, "PUT", "/tasks/in-fork/content?path=a", []byte("fork\n")).want(t, 200)
	if got := string(p.call(t, "GET", "/tasks/in-fork/content?path=c", nil).want(t, 200).Body); got != "person\n" {
		t.Errorf("the fork has %q", got)
	}
	if got := p.read(t, "a"); got != "1\n" {
		t.Errorf("the parent has %q", got)
	}
	task.put(t, "d/b", "parent\n")
	if got := string(p.call(t, "GET", "/tasks/in-fork/content?path=d/b", nil).want(t, 200).Body); got != "two\n" {
		t.Errorf("the fork has %q", got)
	}

	// Blame and log go back into the parent's history, and stock git sees where the
	// two part.
	if out := p.call(t, "GET", "/workspaces/"+first+"/blame?path=c", nil).want(t, 200).list(t, "ranges"); len(out) != 1 || out[0]["source"] != "external" {
		t.Errorf("%v", out)
	}
	log := p.call(t, "GET", "/workspaces/"+first+"/log", nil).want(t, 200).list(t, "entries")
	if len(log) != 3 || log[0]["task_id"] != "in-fork" || log[2]["path"] != "a" {
		t.Errorf("%v", log)
	}
	p.post(t, "/workspaces/"+first+"/sync", map[string]any{}).want(t, 200)
	p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
	gitDir := made[0]["git_dir"].(string)
	if got := harness.Git(t, gitDir, "merge-base", "refs/heads/shadow", made[0]["fork_at"].(string)); got != made[0]["fork_at"] {
		t.Errorf("git's merge base is %q", got)
	}
	harness.Git(t, gitDir, "fsck", "--strict", "--no-dangling")
	clone := filepath.Join(t.TempDir(), "clone")
	harness.Git(t, gitDir, "-c", "protocol.allow=always", "clone", "-q", p.URL+"/git/"+first+".git", clone)
	if data, err := os.ReadFile(filepath.Join(clone, "a")); err != nil || string(data) != "fork\n" {
		t.Errorf("the clone has %q, %v", data, err)
	}

	// It outlives a restart, and so does a fork of it.
	deep := p.forks(t, "/workspaces/"+first, map[string]any{})[0]
	p.restart()
	if list := p.call(t, "GET", ws+"/forks", nil).want(t, 200).list(t, "forks"); len(list) != 3 || list[0]["id"] != first {
		t.Errorf("%v", list)
	}
	if got := p.call(t, "GET", "/workspaces/"+deep["id"].(string), nil).want(t, 200).obj(t); got["fork_of"] != first || got["head"] != deep["head"] {
		t.Errorf("%v", got)
	}

	// Nothing that a fork needs goes.
	p.call(t, "DELETE", "/workspaces/"+made[1]["id"].(string), nil).want(t, 204)
	p.call(t, "PATCH", "/tasks/in-fork", map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+first, nil).fails(t, 409, "unmerged")
	p.call(t, "DELETE", "/workspaces/"+first+"?force=true", nil).want(t, 204)
	if got := p.call(t, "GET", "/workspaces/"+deep["id"].(string)+"/log", nil).want(t, 200).list(t, "entries"); len(got) != 3 {
		t.Errorf("%v", got)
	}
	harness.Git(t, deep["git_dir"].(string), "fsck", "--strict", "--no-dangling")
	task.end(t)
	p.call(t, "DELETE", ws, nil).fails(t, 409, "has_forks")
}

// A copy is a directory of its own, with what no history has, and goes with its fork.
func TestForkCopy(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n", "run.sh": "#!/bin/sh\n"})
	p.shell(t, "mkdir out; echo built > out/x; ln -s a link; chmod 755 run.sh")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	dir := filepath.Join(t.TempDir(), "copy")
	p.post(t, ws+"/forks", map[string]any{"path": p.dir}).fails(t, 409, "path_exists")
	p.post(t, ws+"/forks", map[string]any{"path": filepath.Join(p.dir, "inside")}).fails(t, 409, "workspace_overlaps")
	p.absent(t, "inside")
	p.post(t, ws+"/forks", map[string]any{"path": "relative"}).fails(t, 400, "invalid_path")
	p.post(t, ws+"/forks", map[string]any{"kind": "virtual", "count": 0}).fails(t, 400, "invalid_count")
	for _, life := range []any{"36h", 3600} {
		f := p.forks(t, ws, map[string]any{"kind": "virtual", "expires_in": life})[0]
		if at, err := time.Parse(time.RFC3339, fmt.Sprint(f["expires_at"])); err != nil || time.Until(at) < time.Minute {
			t.Errorf("%v", f)
		}
	}
	for _, life := range []any{"soon", -1, 0, 1e12, []int{1}} {
		p.post(t, ws+"/forks", map[string]any{"kind": "virtual", "expires_in": life}).fails(t, 400, "invalid_expires_in")
	}
	short := p.forks(t, ws, map[string]any{"kind": "virtual", "expires_in": 0.01})[0]["id"].(string)
	eventually(t, func() bool { return p.call(t, "GET", "/workspaces/"+short, nil).Status == 404 })
	p.post(t, ws+"/forks", map[string]any{"kinds": "virtual"}).fails(t, 400, "unknown_field")
	made := p.forks(t, ws, map[string]any{"path": dir})[0]
	if made["kind"] != "copy" || made["root"] != dir || made["head"] != made["fork_at"] {
		t.Fatalf("%v", made)
	}
	for name, want := range map[string]string{"a": "one\n", "out/x": "built\n", "link": "one\n"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(data) != want {
			t.Errorf("%s has %q, %v", name, data, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "run.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("run.sh: %v, %v", info, err)
	}
	need.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("fork\n"), 0o644))
	id := "/workspaces/" + made["id"].(string)
	p.post(t, id+"/sync", map[string]any{}).want(t, 200)
	if diff := p.call(t, "GET", id+"/compare", nil).want(t, 200).obj(t); !strings.Contains(diff["diff"].(string), "-one\n+fork\n") {
		t.Errorf("%v", diff)
	}
	if p.read(t, "a") != "one\n" {
		t.Error("the parent changed")
	}
	p.call(t, "DELETE", id, nil).fails(t, 409, "unmerged")
	p.call(t, "DELETE", id+"?force=true", nil).want(t, 204)
	if _, err := os.Stat(dir); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("the directory is there: %v", err)
	}
	// A directory that the fork was bound to later is not its own.
	bound := p.forks(t, ws, map[string]any{"path": dir})[0]["id"].(string)
	other := t.TempDir()
	p.call(t, "PATCH", "/workspaces/"+bound, map[string]any{"root": other}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+bound+"?force=true", nil).want(t, 204)
	for _, kept := range []string{other, dir} {
		if _, err := os.Stat(kept); err != nil {
			t.Errorf("a directory went with the fork: %v", err)
		}
	}
	none := filepath.Join(t.TempDir(), "none")
	made = p.forks(t, ws, map[string]any{"path": none, "ignored": "none", "kind": "copy"})[0]
	if _, err := os.Stat(filepath.Join(none, "out")); err == nil {
		t.Error("what is ignored was copied")
	}
	p.call(t, "DELETE", "/workspaces/"+made["id"].(string), nil).want(t, 204)
}

// A backup has forks whole, a purge would leave the bytes in them, and retention
// waits for them.
func TestForkUpkeep(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	task.put(t, "a", "secret\n")
	made := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]
	deep := p.forks(t, "/workspaces/"+made["id"].(string), nil)[0]
	p.post(t, "/tasks", map[string]any{"task_id": "in-deep", "workspace": deep["id"], "goal": "try"}).want(t, 201)
	p.call(t, "PUT", "/tasks/in-deep/content?path=b", []byte("deep\n")).want(t, 201)
	for _, id := range []string{task.str("workspace_id"), deep["id"].(string)} {
		if _, said := p.purge(t, 1, id, "a"); !strings.Contains(said, "fork") {
			t.Errorf("purge of %s says %q", id, said)
		}
	}
	dir := filepath.Join(t.TempDir(), "backup")
	backup(t, p.DataDir, dir)
	p.Stop()
	verify(t, 0, "--data-dir", p.DataDir)
	data := restore(t, dir)
	if got := harness.Git(t, filepath.Join(data, "workspaces", deep["id"].(string), "repo.git"), "show", "refs/umbra/head:b"); got != "deep" {
		t.Errorf("git reads %q of the fork's fork before a server starts", got)
	}
	verify(t, 0, "--data-dir", data)
	again := harness.Start(t, harness.Options{DataDir: data})
	if got := string(again.Do("GET", "/tasks/in-deep/content?path=b", nil).Expect(200).Body); got != "deep\n" {
		t.Errorf("the fork's fork has %q", got)
	}
	if got := string(again.Do("GET", "/tasks/in-deep/content?path=a", nil).Expect(200).Body); got != "secret\n" {
		t.Errorf("the fork's fork has %q of the parent", got)
	}
	again.Do("POST", "/workspaces/"+deep["id"].(string)+"/sync", map[string]any{}).Expect(200)
	harness.Git(t, filepath.Join(data, "workspaces", deep["id"].(string), "repo.git"), "fsck", "--strict", "--no-dangling")
}

type mergeAnswer struct {
	Commits   []string
	Merged    int
	Skipped   []struct{ Path string }
	Conflicts []struct {
		Path, Here, Reason string
		Ours, Theirs       *struct{ Task_ID, Subtask_ID, Actor, Source string }
	}
	Files    []struct{ Path, Action string }
	Plan     string
	Reverted int
	Task_ID  string

	History_Dropped bool
}

func (p *project) merge(t *testing.T, fork string, body map[string]any) (m mergeAnswer) {
	t.Helper()
	p.post(t, "/workspaces/"+fork+"/merge", body).want(t, 200).into(t, &m)
	return m
}

// A merge brings a fork's commits into the parent with their authors, and what it
// brought is taken back as a whole or by subtask.
func TestForkMerge(t *testing.T) {
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	p := newProject(t, map[string]string{"a": lines, "d/b": "two\n", "gone": "x\n", "run": "#!\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
	in := func(method, rest string, body any, header ...string) { // a request in the fork
		t.Helper()
		if a := p.call(t, method, "/tasks/f/"+rest, body, header...); a.Status/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, rest, a.Status, a.Body)
		}
	}
	in("PUT", "content?path=a", []byte(strings.Replace(lines, "2\n", "two\n", 1)), "X-Subtask-Id", "s1", "X-Actor", "ann")
	in("PUT", "content?path=n/new", []byte("new\n"), "X-Subtask-Id", "s2", "X-Actor", "bob")
	in("DELETE", "content?path=gone", nil, "X-Subtask-Id", "s2", "X-Actor", "bob")
	in("POST", "move", map[string]any{"from": "d/b", "to": "e/c"}, "X-Subtask-Id", "s1", "X-Actor", "ann")

	// The parent goes on in the same file, and in the one that the fork moved.
	task.put(t, "a", strings.Replace(lines, "8\n", "eight\n", 1))
	p.shell(t, "printf 'two\\nthree\\n' > d/b; chmod +x run")
	dry := p.merge(t, fork, map[string]any{"dry_run": true})
	if dry.Merged != 4 || len(dry.Commits) != 0 || len(dry.Conflicts) != 0 || len(dry.Files) != 5 {
		t.Fatalf("%+v", dry)
	}
	p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"plan": "another"}).fails(t, 409, "plan_stale")

	// By subtask, then what is left.
	first := p.merge(t, fork, map[string]any{"subtasks": []string{"s2"}, "task_id": task.ID})
	if len(first.Commits) != 2 || p.read(t, "n/new") != "new\n" || first.Task_ID != task.ID {
		t.Fatalf("%+v", first)
	}
	p.absent(t, "gone")
	if p.read(t, "a") != strings.Replace(lines, "8\n", "eight\n", 1) {
		t.Error("a was merged too")
	}
	p.call(t, "DELETE", "/workspaces/"+fork, nil).fails(t, 409, "unmerged")
	rest := p.merge(t, fork, map[string]any{})
	if len(rest.Commits) != 2 || rest.Task_ID == "" {
		t.Fatalf("%+v", rest)
	}
	if got := p.read(t, "a"); got != "1\ntwo\n3\n4\n5\n6\n7\neight\n9\n" {
		t.Errorf("a has %q", got)
	}
	if got := p.read(t, "e/c"); got != "two\nthree\n" {
		t.Errorf("e/c has %q", got)
	}
	p.absent(t, "d/b")
	if again := p.merge(t, fork, map[string]any{}); len(again.Commits) != 0 || again.Merged != 0 {
		t.Errorf("%+v", again)
	}
	log := p.log(t, task.str("workspace_id"))
	if len(log) < 4 || log[0].SubtaskID == nil || *log[0].SubtaskID != "s1" || log[0].Source != "merge" {
		t.Errorf("%+v", log)
	}
	p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
	body := harness.Git(t, task.gitDir(), "log", "-4", "--format=%an|%(trailers:key=Merged-From,valueonly,separator=;)|%(trailers:key=Merged-Task,valueonly,separator=;)", "refs/heads/shadow")
	if n := strings.Count(body, "|"+fork+" "); n != 4 || strings.Count(body, "|f") != 4 {
		t.Errorf("git sees %s", body)
	}
	task.fsck(t)

	// One revert takes a subtask of the merge back, one the rest.
	p.post(t, "/tasks/"+task.ID+"/subtasks/s2/revert", map[string]any{}).want(t, 200)
	p.absent(t, "n/new")
	if got := p.read(t, "gone"); got != "x\n" {
		t.Errorf("gone has %q", got)
	}
	if again := p.call(t, "POST", "/tasks/"+rest.Task_ID+"/revert", map[string]any{}); again.Status != 200 {
		t.Fatalf("%d %s", again.Status, again.Body)
	}
	if got := p.read(t, "a"); got != strings.Replace(lines, "8\n", "eight\n", 1) {
		t.Errorf("a has %q", got)
	}
	if got := p.read(t, "d/b"); got != "two\nthree\n" {
		t.Errorf("d/b has %q", got)
	}
	p.call(t, "PATCH", "/tasks/f", map[string]any{"status": "completed"}).want(t, 200)
}

// A conflict changes nothing, is told with who made both sides, and may be skipped;
// a rebase brings the parent's news.
func TestForkConflict(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n", "b": "1\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
	for _, v := range []string{"x\n", "y\n", "theirs\n"} {
		p.call(t, "PUT", "/tasks/f/content?path=a", []byte(v), "X-Actor", "ann", "X-Subtask-Id", "s1").want(t, 200)
	}
	p.call(t, "PUT", "/tasks/f/content?path=b", []byte("2\n"), "X-Actor", "ann").want(t, 200)
	task.put(t, "a", "ours\n", "X-Actor", "bob")
	head := p.call(t, "GET", ws, nil).want(t, 200).obj(t)["head"]
	refused := p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"task_id": task.ID}).want(t, 409)
	var m mergeAnswer
	refused.into(t, &m)
	if len(m.Conflicts) != 1 || m.Conflicts[0].Path != "a" || m.Conflicts[0].Ours.Actor != "bob" || m.Conflicts[0].Theirs.Actor != "ann" || m.Conflicts[0].Theirs.Subtask_ID != "s1" {
		t.Fatalf("%s", refused.Body)
	}
	if now := p.call(t, "GET", ws, nil).want(t, 200).obj(t)["head"]; now != head {
		t.Error("a merge that was refused made a commit")
	}
	if p.read(t, "b") != "1\n" {
		t.Error("b was merged")
	}
	some := p.merge(t, fork, map[string]any{"task_id": task.ID, "on_conflict": "skip"})
	if len(some.Skipped) != 1 || p.read(t, "b") != "2\n" || p.read(t, "a") != "ours\n" {
		t.Fatalf("%+v", some)
	}
	// The fork takes the parent's line, and then there is nothing left to merge.
	p.call(t, "PUT", "/tasks/f/content?path=a", []byte("ours\n")).want(t, 200)
	if all := p.merge(t, fork, map[string]any{}); len(all.Conflicts) != 0 || len(all.Files) != 0 {
		t.Errorf("%+v", all)
	}
	task.put(t, "c", "news\n", "X-Actor", "bob")
	var rebased mergeAnswer
	p.post(t, "/workspaces/"+fork+"/rebase", map[string]any{}).want(t, 200).into(t, &rebased)
	if got := string(p.call(t, "GET", "/tasks/f/content?path=c", nil).want(t, 200).Body); got != "news\n" {
		t.Errorf("c has %q: %+v", got, rebased)
	}
	if all := p.merge(t, fork, map[string]any{}); len(all.Commits) != 0 {
		t.Errorf("the parent's own work came back: %+v", all)
	}
	p.call(t, "PUT", "/tasks/f/content?path=c", []byte("more\n")).want(t, 200)
	diff := p.call(t, "GET", "/workspaces/"+fork+"/compare", nil).want(t, 200).obj(t)
	if !strings.Contains(diff["diff"].(string), "-news\n+more\n") || fmt.Sprint(diff["summary"]) != "map[additions:1 deletions:1 files:1]" {
		t.Errorf("%v", diff)
	}
	all := p.merge(t, fork, map[string]any{"as": "squash"})
	if len(all.Commits) != 1 || p.read(t, "c") != "more\n" {
		t.Errorf("%+v", all)
	}
	p.call(t, "PATCH", "/tasks/f", map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+fork, nil).want(t, 204)
}

// Single hunks are merged with their authors, and a later merge brings the rest.
func TestForkMergeHunks(t *testing.T) {
	lines := func(change map[int]string) string {
		var b strings.Builder
		for i := 1; i <= 40; i++ {
			text, changed := change[i]
			if !changed {
				text = fmt.Sprint(i)
			}
			b.WriteString(text + "\n")
		}
		return b.String()
	}
	p := newProject(t, map[string]string{"a": lines(nil), "b": "b\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
	write := func(path, data, actor, subtask string) {
		t.Helper()
		if a := p.call(t, "PUT", "/tasks/f/content?path="+path, []byte(data), "X-Actor", actor, "X-Subtask-Id", subtask); a.Status/100 != 2 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	write("a", lines(map[int]string{3: "three"}), "ann", "s1")
	write("a", lines(map[int]string{3: "three", 20: "twenty", 38: "last"}), "bob", "s2")
	write("new", "new\n", "bob", "s2")
	hunk := map[string]string{}
	for _, h := range p.call(t, "GET", "/tasks/f/hunks", nil).want(t, 200).list(t, "hunks") {
		hunk[fmt.Sprint(h["path"], h["new_start"])] = h["id"].(string)
	}
	if len(hunk) != 4 {
		t.Fatalf("%v", hunk)
	}
	task.put(t, "a", lines(map[int]string{10: "parent"}))
	p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"hunks": []string{hunk["a17"], "none"}}).fails(t, 409, "hunk_changed")
	p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"hunks": []string{hunk["a17"]}, "paths": []string{"a"}}).fails(t, 422, "validation_failed")
	p.post(t, "/workspaces/"+fork+"/rebase", map[string]any{"hunks": []string{hunk["a17"]}}).fails(t, 422, "validation_failed")
	some := p.merge(t, fork, map[string]any{"hunks": []string{hunk["a17"]}})
	if got := p.read(t, "a"); len(some.Commits) != 1 || got != lines(map[int]string{10: "parent", 20: "twenty"}) {
		t.Fatalf("%+v: a has %q", some, got)
	}
	if log := p.log(t, task.str("workspace_id")); *log[0].SubtaskID != "s2" || log[0].Source != "merge" {
		t.Errorf("%+v", log[0])
	}
	p.absent(t, "new")
	p.call(t, "PATCH", "/tasks/f", map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+fork, nil).fails(t, 409, "unmerged")
	if all := p.merge(t, fork, map[string]any{}); p.read(t, "a") != lines(map[int]string{3: "three", 10: "parent", 20: "twenty", 38: "last"}) || p.read(t, "new") != "new\n" {
		t.Errorf("%+v: a has %q", all, p.read(t, "a"))
	}
	if again := p.merge(t, fork, map[string]any{}); len(again.Files) != 0 {
		t.Errorf("%+v", again)
	}
	p.post(t, "/tasks/"+some.Task_ID+"/revert", map[string]any{}).want(t, 200)
	if got := p.read(t, "a"); got != lines(map[int]string{3: "three", 10: "parent", 38: "last"}) {
		t.Errorf("a has %q", got)
	}
	p.call(t, "DELETE", "/workspaces/"+fork, nil).want(t, 204)
}

// A merge that a kill interrupts comes to nothing or is whole, and can be done again.
func TestForkMergeKilled(t *testing.T) {
	const n = 40
	p := newProject(t, map[string]string{"a": "0\n", "old": "old\n"})
	task := p.task(t)
	ws := task.str("workspace_id")
	fork := p.forks(t, "/workspaces/"+ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
	for i := range n {
		p.call(t, "PUT", "/tasks/f/content?path=a", fmt.Appendf(nil, "%d\n", i+1)).want(t, 200)
	}
	p.post(t, "/tasks/f/move", map[string]any{"from": "old", "to": "d/new"}).want(t, 200)
	partly := 0
	for _, after := range []int{2, 9, 25} {
		before := len(p.log(t, ws))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if res, err := http.Post(p.URL+"/workspaces/"+fork+"/merge", "application/json", strings.NewReader("{}")); err == nil {
				res.Body.Close()
			}
		}()
		eventually(t, func() bool { // some of its commits are there
			got := strings.TrimSpace(p.read(t, "a"))
			v, err := strconv.Atoi(got)
			return err == nil && v >= after
		})
		p.Kill()
		<-ended
		p.Restart()
		p.post(t, "/workspaces/"+ws+"/sync", map[string]any{}).want(t, 200)
		switch got := p.read(t, "a"); got {
		case "0\n":
			p.absent(t, "d")
			if p.read(t, "old") != "old\n" {
				t.Error("old is not back")
			}
			if len(p.log(t, ws)) > before {
				partly++
			}
		case fmt.Sprintf("%d\n", n):
			t.Log("it was done before the kill")
			p.post(t, "/workspaces/"+ws+"/restore", map[string]any{"to": task.str("base"), "paths": []string{"."}})
		default:
			t.Fatalf("after the kill a has %q", got)
		}
		task.fsck(t, "--no-dangling")
		if t.Failed() {
			return
		}
	}
	t.Logf("%d merges were taken back", partly)
	if p.read(t, "a") == "0\n" {
		if m := p.merge(t, fork, map[string]any{}); len(m.Commits) != n+1 || p.read(t, "a") != fmt.Sprintf("%d\n", n) || p.read(t, "d/new") != "old\n" {
			t.Errorf("%+v", m)
		}
	}
	task.fsck(t, "--no-dangling")
}

// A fork that expires soon is in its parent's events.
func TestForkExpiryEvent(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	p.forks(t, ws, map[string]any{"kind": "virtual", "expires_in": "25h"})
	soon := p.forks(t, ws, map[string]any{"kind": "virtual", "expires_in": "23h"})[0]
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", p.URL+ws+"/stream", nil)
	need.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	need.NoError(t, err)
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	next := func() string {
		for lines.Scan() {
			if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
				lines.Scan()
				return name + " " + lines.Text()
			}
		}
		t.Fatal(lines.Err())
		return ""
	}
	if got := next(); !strings.HasPrefix(got, "fork_expires ") || !strings.Contains(got, soon["id"].(string)) || !strings.Contains(got, soon["expires_at"].(string)) {
		t.Errorf("%s", got)
	}
	late := p.forks(t, ws, map[string]any{"kind": "virtual", "expires_in": "1h"})[0]
	if got := next(); !strings.HasPrefix(got, "fork_expires ") || !strings.Contains(got, late["id"].(string)) {
		t.Errorf("%s", got)
	}
}

// A judgment is of a fork, survives a restart, and is checked; a comparison may be of
// one path, and of the counts alone; checkpoints have the number of their commit.
func TestForkJudgedAndCompared(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "two\n"})
	task := p.task(t)
	id := task.str("workspace_id")
	ws := "/workspaces/" + id
	task.put(t, "a", "1\n")
	cp := p.post(t, ws+"/checkpoints", map[string]any{"name": "here"}).want(t, 201).obj(t)
	log := p.call(t, "GET", ws+"/log", nil).want(t, 200).list(t, "entries")
	if cp["seq"] != log[0]["seq"] {
		t.Errorf("the checkpoint has %v, its commit %v", cp["seq"], log[0]["seq"])
	}
	fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "in", "workspace": fork, "goal": "try"}).want(t, 201)
	p.call(t, "PUT", "/tasks/in/content?path=a", []byte("fork\n")).want(t, 200)
	p.call(t, "PUT", "/tasks/in/content?path=d/b", []byte("fork\n")).want(t, 200)

	patch := func(target string, judged any) *answer {
		return p.call(t, "PATCH", target, map[string]any{"judged": judged})
	}
	for _, bad := range []any{map[string]any{}, map[string]any{"passed": true, "seconds": -1}, map[string]any{"passed": true, "at": "2026-01-01T00:00:00Z"}} {
		patch("/workspaces/"+fork, bad).want(t, 422)
	}
	patch(ws, map[string]any{"passed": true}).want(t, 422)
	patch("/workspaces/"+fork, map[string]any{"passed": true, "score": 1.5, "exit_code": 0, "seconds": 2, "command": "make"}).want(t, 200)
	p.restart()
	j, _ := p.call(t, "GET", "/workspaces/"+fork, nil).want(t, 200).obj(t)["judged"].(map[string]any)
	if j["passed"] != true || fmt.Sprint(j["score"]) != "1.5" || j["command"] != "make" {
		t.Errorf("after a restart: %v", j)
	}

	all := p.call(t, "GET", "/workspaces/"+fork+"/compare?summary=true", nil).want(t, 200).obj(t)
	if files := all["files"].([]any); len(files) != 2 || all["diff"] != nil {
		t.Errorf("%v", all)
	}
	one := p.call(t, "GET", "/workspaces/"+fork+"/compare?path=d&context=0&with="+cp["commit"].(string), nil).want(t, 200).obj(t)
	if files := one["files"].([]any); len(files) != 1 || !strings.Contains(one["diff"].(string), "+fork") || strings.Contains(one["diff"].(string), "a/a") {
		t.Errorf("%v", one)
	}
}

// Paths at which no copy may be made: bytes that no path has, git's own names; and a
// token learns nothing of directories outside its roots, where nothing is made.
func TestForkCopyPlaces(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	top := t.TempDir()
	for _, name := range []string{"nul\x00", ".git", ".GIT", "git~1", ".git/"} {
		p.post(t, ws+"/forks", map[string]any{"kind": "copy", "path": top + "/" + name}).fails(t, 400, "invalid_path")
	}
	if list, err := os.ReadDir(top); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	inside := t.TempDir()
	config := fmt.Sprintf("auth: {tokens: [{name: some, scope: write, roots: [%q], sha256: '%x'}]}\n", inside, sha256.Sum256([]byte("open sesame")))
	s := harness.Start(t, harness.Options{Config: config, Token: "open sesame"})
	need.NoError(t, os.Mkdir(filepath.Join(inside, "ws"), 0o755))
	id := s.Do("POST", "/tasks", map[string]any{"goal": "g", "workspace": filepath.Join(inside, "ws")}).Expect(201).Text("workspace_id")
	need.NoError(t, os.Symlink(top, filepath.Join(inside, "out")))
	for _, path := range []string{top, top + "/new", top + "/none/new", inside + "/out/new", inside + "/../new"} {
		if r := s.Do("POST", "/workspaces/"+id+"/forks", map[string]any{"kind": "copy", "path": path}); r.Status != 403 {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
	s.Do("POST", "/workspaces/"+id+"/forks", map[string]any{"kind": "copy", "path": inside + "/new"}).Expect(201)
}

// A fork of a fork that was deleted is merged into what that was a fork of, with the work of
// both.
func TestForkMiddleDeleted(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	parent := p.task(t).str("workspace_id")
	first := p.forks(t, "/workspaces/"+parent, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "first", "workspace": first, "goal": "try"}).want(t, 201)
	p.call(t, "PUT", "/tasks/first/content?path=merged", []byte("merged\n"), "X-Subtask-Id", "done").want(t, 201)
	p.merge(t, first, map[string]any{"subtasks": []string{"done"}})
	p.call(t, "PUT", "/tasks/first/content?path=first", []byte("first\n"), "X-Actor", "ann").want(t, 201)
	second := p.forks(t, "/workspaces/"+first, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "second", "workspace": second, "goal": "try"}).want(t, 201)
	p.call(t, "PUT", "/tasks/second/content?path=second", []byte("second\n"), "X-Actor", "bob").want(t, 201)
	p.call(t, "PATCH", "/tasks/first", map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+first+"?force=true", nil).want(t, 204)
	if m := p.merge(t, second, map[string]any{"into": parent}); len(m.Files) != 2 {
		t.Errorf("%+v", m)
	}
	if got := p.read(t, "first") + p.read(t, "second") + p.read(t, "merged"); got != "first\nsecond\nmerged\n" {
		t.Errorf("the parent has %q", got)
	}
	if log := p.log(t, parent); len(log) != 3 {
		t.Errorf("%+v", log)
	}
	if harness.Nodes() > 0 {
		return // the directory of another project may be at another node, which is physical_off
	}
	other := newProjectBeside(t, p)
	p.post(t, "/workspaces/"+second+"/merge", map[string]any{"into": other.task(t).str("workspace_id")}).fails(t, 422, "unrelated")
}
