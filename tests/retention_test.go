package tests

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// retained is a project whose history is dropped as soon as nothing keeps it,
// when it is asked for.
func retained(t *testing.T, settings string) *project {
	t.Helper()
	p := &project{Server: harness.Start(t, harness.Options{Config: "retention:\n" + settings}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "base\n", "dir/b": strings.Repeat("of the base\n", 40), "run.sh": "#!/bin/sh\n"})
	return p
}

// atOnce lets everything go that is a second old.
const atOnce = "  age: 1ns\n  interval: 24h\n"

type gcReport struct {
	Workspaces []struct {
		Workspace string `json:"workspace"`
		Commits   int    `json:"commits_dropped"`
		Tasks     int    `json:"tasks_dropped"`
		Cut       int    `json:"tasks_cut"`
		Boundary  *struct {
			Commit string `json:"commit"`
			Seq    int    `json:"seq"`
		} `json:"boundary"`
		Freed   int64   `json:"freed_bytes"`
		Waiting int64   `json:"waiting_bytes"`
		Disk    int64   `json:"disk_bytes"`
		Error   *string `json:"error"`
	} `json:"workspaces"`
	Freed   int64 `json:"freed_bytes"`
	Waiting int64 `json:"waiting_bytes"`
	DryRun  bool  `json:"dry_run"`
}

// gc runs umbra gc against the project's server.
func (p *project) gc(t *testing.T, args ...string) *gcReport {
	t.Helper()
	status, out, errOut := harness.Run(t, nil, append([]string{"gc", "--json", "--data-dir", p.DataDir}, args...)...)
	r := &gcReport{}
	if err := json.Unmarshal([]byte(out), r); err != nil || status != 0 {
		t.Fatalf("gc %q: status %d, %v\n%s\n%s", args, status, err, out, errOut)
	}
	return r
}

// cutAt drops history until it begins at a commit: it has to be a second old.
func (p *project) cutAt(t *testing.T, commit string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		r := p.gc(t, "--now")
		if b := r.Workspaces[0].Boundary; b != nil && b.Commit == commit {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("history begins at %+v, not at %s", r.Workspaces[0].Boundary, commit)
		}
	}
}

func (k *taskOf) get(t *testing.T) map[string]any {
	t.Helper()
	return k.p.call(t, "GET", k.url(""), nil).want(t, 200).obj(t)
}

func (k *taskOf) patch(t *testing.T, body map[string]any) *answer {
	t.Helper()
	return k.p.call(t, "PATCH", k.url(""), body)
}

func (k *taskOf) end(t *testing.T) { k.patch(t, map[string]any{"status": "completed"}).want(t, 200) }

func (k *taskOf) refs(t *testing.T) string {
	t.Helper()
	return k.git(t, "for-each-ref", "--format=%(refname)", "refs/umbra/tasks/"+k.ID)
}

func (k *taskOf) shallow(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(k.gitDir(), "shallow"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

// TestRetention drops the history before a task's base, and holds every sentence
// of the contract about what lies before it, across it and after it.
func TestRetention(t *testing.T) {
	p := retained(t, atOnce)
	before, across := p.task(t), p.task(t)
	first := before.save(t, "a", "one\n")
	before.save(t, "dir/b", "two\n")
	across.save(t, "c", "three\n")
	before.end(t)
	across.save(t, "c", "four\n")
	keeper := p.task(t)
	base := keeper.str("base")
	later := across.save(t, "c", "five\n")
	across.save(t, "run.sh", "#!/bin/sh\ntrue\n")
	across.end(t)
	keeper.save(t, "k", "kept\n")
	entries := across.changes(t, "")
	third := entries[2]["id"]
	acrossHead := across.get(t)["head"]
	bundle := across.url("/bundle")

	if r := p.gc(t, "--dry-run", "--now"); !r.DryRun || len(across.shallow(t)) != 0 {
		t.Errorf("a dry run: %+v", r)
	}
	if n := across.git(t, "rev-list", "--count", "shadow"); strings.TrimSpace(n) != "8" {
		t.Fatalf("%s commits", n)
	}
	p.cutAt(t, base)
	for range 2 { // also after a start
		across.fsck(t)
		if got := across.shallow(t); len(got) != 1 || got[0] != base {
			t.Errorf("shallow: %v", got)
		}
		if n := across.git(t, "rev-list", "--count", "shadow"); strings.TrimSpace(n) != "4" {
			t.Errorf("git sees %s commits", n)
		}
		ws := "/workspaces/" + across.str("workspace_id")

		// Before it: commits, versions, streams.
		p.call(t, "GET", ws+"/commits/"+first, nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", ws+"/commits/"+first[:12], nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", ws+"/commits/"+first+"/diff", nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", ws+"/commits/"+strings.Repeat("1", 40), nil).fails(t, 404, "commit_not_found")
		p.call(t, "GET", ws+"/commits/"+base, nil).want(t, 200)
		p.call(t, "GET", keeper.file("a")+"&at="+first, nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", keeper.file("a")+"&at=base", nil).want(t, 200)
		p.call(t, "GET", across.file("c")+"&at=1", nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", ws+"/stream?after=2", nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", ws+"/stream?after=0", nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", across.url("/stream?after=1"), nil).fails(t, 410, "history_dropped")
		log := p.call(t, "GET", ws+"/log", nil).want(t, 200).list(t, "entries")
		if len(log) != 3 || log[2]["commit"] != later {
			t.Errorf("the log: %v", briefs(log))
		}

		// A task wholly before it.
		if refs := before.refs(t); refs != "" {
			t.Errorf("refs of the task before: %s", refs)
		}
		has(t, before.get(t), map[string]any{"goal": "test", "status": "completed", "base_dropped": true, "changes": 2})
		for _, rest := range []string{"/changes", "/diff", "/files", "/bundle", "/patches", "/changes/1/before", "/stream?after=0"} {
			p.call(t, "GET", before.url(rest), nil).fails(t, 410, "history_dropped")
		}
		p.post(t, before.url("/revert"), map[string]any{}).fails(t, 410, "history_dropped")
		p.call(t, "GET", before.file("a")+"&at=base", nil).fails(t, 410, "history_dropped")
		found := false
		for _, o := range p.call(t, "GET", "/tasks", nil).want(t, 200).list(t, "tasks") {
			found = found || o["task_id"] == before.ID
		}
		if !found {
			t.Error("the task before is not listed")
		}
		p.post(t, "/tasks", map[string]any{"goal": "again", "workspace": p.dir, "task_id": before.ID}).fails(t, 409, "task_exists")

		// One across it.
		has(t, across.get(t), map[string]any{"base": base, "head": acrossHead, "base_dropped": true, "changes": 4})
		for _, ref := range []string{"base", "info^{commit}"} {
			if id := strings.TrimSpace(across.git(t, "rev-parse", "refs/umbra/tasks/"+across.ID+"/"+ref)); id != base {
				t.Errorf("%s is %s", ref, id)
			}
		}
		p.call(t, "GET", across.url("/diff"), nil).fails(t, 410, "history_dropped")
		p.call(t, "GET", bundle, nil).fails(t, 410, "history_dropped")
		p.post(t, across.url("/revert"), map[string]any{}).fails(t, 410, "history_dropped")
		p.post(t, across.url("/changes/1/revert"), map[string]any{}).fails(t, 410, "history_dropped")
		if list := across.changes(t, ""); len(list) != 2 || list[0]["id"] != third {
			t.Errorf("changes across: %v", list)
		}

		// And after it.
		has(t, keeper.get(t), map[string]any{"base": base, "base_dropped": false})
		p.call(t, "GET", keeper.url("/diff"), nil).want(t, 200)
		if status, out, errOut := harness.Run(t, nil, "verify", "--data-dir", p.DataDir); status != 0 {
			t.Errorf("verify: %s %s", out, errOut)
		}
		p.restart()
	}
	got := p.post(t, across.url(fmt.Sprintf("/changes/%v/revert", third)), map[string]any{}).want(t, 200)
	if p.read(t, "c") != "four\n" {
		t.Errorf("a later change reverted: %q, %s", p.read(t, "c"), got.Body)
	}
	p.post(t, keeper.url("/revert"), map[string]any{}).want(t, 200)
	p.absent(t, "k")
	across.fsck(t)
}

// TestRetentionAndGit: what stock git does with a repository whose older history
// was dropped.
func TestRetentionAndGit(t *testing.T) {
	p := retained(t, atOnce)
	k := p.task(t)
	for i := range 5 {
		k.save(t, "a", fmt.Sprintf("old %d\n", i))
	}
	k.end(t)
	keeper := p.task(t)
	keeper.save(t, "a", "new\n")
	keeper.save(t, "dir/n", "new too\n")
	old := filepath.Join(t.TempDir(), "old")
	remote := p.URL + "/git/" + k.str("workspace_id") + ".git"
	keeper.git(t, "clone", "-q", remote, old)
	p.cutAt(t, keeper.str("base"))

	// A clone is shallow there; one of before goes on.
	clone := filepath.Join(t.TempDir(), "clone")
	keeper.git(t, "clone", "-q", remote, clone)
	if n := strings.TrimSpace(harness.Git(t, clone, "rev-list", "--count", "HEAD")); n != "3" {
		t.Errorf("the clone has %s commits", n)
	}
	harness.Git(t, clone, "fsck", "--strict", "--full")
	keeper.save(t, "a", "newer\n")
	keeper.sync(t)
	for _, dir := range []string{old, clone} {
		harness.Git(t, dir, "pull", "-q", "--ff-only")
		if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != "newer\n" {
			t.Errorf("%s: %q, %v", dir, data, err)
		}
	}
	// The task's refs into an empty repository want --update-shallow.
	empty := filepath.Join(t.TempDir(), "empty")
	harness.Git(t, t.TempDir(), "init", "-q", "--bare", empty)
	harness.Git(t, empty, "fetch", "-q", "--update-shallow", remote, "refs/umbra/*:refs/umbra/*")
	harness.Git(t, empty, "fsck", "--strict", "--full")

	// Its bundle is base..head, for who has the base.
	res := p.call(t, "GET", keeper.url("/bundle"), nil).want(t, 200)
	bundle := filepath.Join(t.TempDir(), "task.bundle")
	need.NoError(t, os.WriteFile(bundle, res.Body, 0o600))
	harness.Git(t, old, "bundle", "verify", "-q", bundle)
	harness.Git(t, old, "fetch", "-q", bundle, "refs/umbra/tasks/*:refs/umbra/tasks/*")

	for _, from := range []string{p.URL + "/git/" + k.str("workspace_id") + ".git", k.gitDir()} {
		status, out, errOut := harness.Run(t, nil, "replay", "--from", from, "--task", keeper.ID)
		if status != 0 {
			t.Errorf("replay from %s: %d\n%s\n%s", from, status, out, errOut)
		}
	}
}

// TestRetentionKeeps: what the boundary never passes.
func TestRetentionKeeps(t *testing.T) {
	for name, keep := range map[string]func(t *testing.T, k *taskOf, mid string) (release func()){
		"a paused task": func(t *testing.T, k *taskOf, _ string) func() {
			other := k.p.task(t)
			other.patch(t, map[string]any{"status": "paused"}).want(t, 200)
			return func() { other.end(t) }
		},
		"a pinned task": func(t *testing.T, k *taskOf, _ string) func() {
			other := k.p.task(t)
			other.end(t)
			has(t, other.patch(t, map[string]any{"pinned": true}).want(t, 200).obj(t), map[string]any{"pinned": true})
			return func() { other.patch(t, map[string]any{"pinned": false}).want(t, 200) }
		},
		"a session": func(t *testing.T, k *taskOf, _ string) func() {
			s := k.p.post(t, "/api/sessions", map[string]any{"workspaceRoot": k.p.dir}).obj(t)
			id, _ := s["sessionId"].(string)
			if id == "" {
				t.Fatalf("session: %v", s)
			}
			return func() { k.p.call(t, "DELETE", "/api/sessions/"+id, nil) }
		},
		"a branch": func(t *testing.T, k *taskOf, mid string) func() {
			k.git(t, "branch", "mine", mid)
			return func() { k.git(t, "branch", "-D", "mine") }
		},
		"a tag object": func(t *testing.T, k *taskOf, mid string) func() {
			k.git(t, "-c", "user.name=me", "-c", "user.email=me@example.org", "tag", "-a", "-m", "mine", "mine", mid)
			return func() { k.git(t, "tag", "-d", "mine") }
		},
		"a foreign ref": func(t *testing.T, k *taskOf, mid string) func() {
			k.git(t, "update-ref", "refs/foreign/7", mid)
			return func() { k.git(t, "update-ref", "-d", "refs/foreign/7") }
		},
		"a worktree": func(t *testing.T, k *taskOf, mid string) func() {
			dir := filepath.Join(t.TempDir(), "w")
			k.git(t, "worktree", "add", "-q", "--detach", dir, mid)
			return func() {
				k.git(t, "worktree", "remove", "--force", dir)
				k.git(t, "worktree", "prune")
			}
		},
		"a reflog": func(t *testing.T, k *taskOf, mid string) func() {
			k.git(t, "branch", "--create-reflog", "mine", mid)
			k.git(t, "update-ref", "refs/heads/mine", "refs/heads/shadow")
			return func() { k.git(t, "branch", "-D", "mine") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := retained(t, atOnce)
			k := p.task(t)
			k.save(t, "a", "1\n")
			mid := k.save(t, "a", "2\n")
			release := keep(t, k, mid)
			if name == "a session" || strings.HasSuffix(name, "task") {
				mid = strings.TrimSpace(k.git(t, "rev-parse", "shadow"))
			}
			for i := range 4 {
				k.save(t, "a", fmt.Sprintf("3 %d\n", i))
			}
			last := k.save(t, "a", "last\n")
			k.end(t)
			p.cutAt(t, mid)
			k.git(t, "cat-file", "-e", mid+"^{tree}")
			k.git(t, "fsck", "--strict", "--full", "--no-dangling")
			p.call(t, "GET", k.file("a")+"&at="+mid, nil).want(t, 200)
			release()
			p.cutAt(t, last)
			// A tag object that lost its name stays a while, and is a person's.
			k.git(t, "fsck", "--strict", "--full", "--no-dangling")
		})
	}
}

// TestRetentionByItself: the server looks every retention.interval, and frees the
// room when nobody is at work there.
func TestRetentionByItself(t *testing.T) {
	p := retained(t, "  age: 1ns\n  interval: 200ms\n")
	k := p.task(t)
	for i := range 5 {
		k.save(t, "a", fmt.Sprintf("%d\n", i))
	}
	k.end(t)
	head := k.get(t)["head"].(string)
	for deadline := time.Now().Add(20 * time.Second); ; {
		// Commits of two seconds may go in two looks, and the first boundary's line stays a while.
		if slices.Contains(k.shallow(t), head) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was dropped")
		}
	}
	k.git(t, "fsck", "--strict", "--full", "--no-dangling")
}

// TestRetentionByBytes drops as much of the oldest as makes history too large,
// and no more.
func TestRetentionByBytes(t *testing.T) {
	p := retained(t, "  bytes: 300KiB\n  interval: 24h\n")
	k := p.task(t)
	noise := func(i int) string {
		var b strings.Builder
		x := uint64(i)*7919 + 1
		for b.Len() < 20_000 {
			x = x*6364136223846793005 + 1442695040888963407
			fmt.Fprintf(&b, "%016x\n", x)
		}
		return b.String()
	}
	for i := range 60 {
		k.save(t, "a", noise(i))
	}
	if r := p.gc(t, "--now"); r.Workspaces[0].Commits != 0 {
		t.Errorf("an executing task lost its history: %+v", r)
	}
	before := p.call(t, "GET", "/workspaces/"+k.str("workspace_id"), nil).want(t, 200).obj(t)["disk_bytes"]
	k.end(t)
	r := p.gc(t, "--now")
	w := r.Workspaces[0]
	if w.Commits < 20 || w.Commits > 55 || r.Freed < 100<<10 {
		t.Errorf("of %v bytes: %+v", before, w)
	}
	if after := p.call(t, "GET", "/workspaces/"+k.str("workspace_id"), nil).want(t, 200).obj(t)["disk_bytes"]; fmt.Sprint(after) != fmt.Sprint(w.Disk) || w.Disk > 420<<10 {
		t.Errorf("disk_bytes is %v, gc told %d", after, w.Disk)
	}
	k.fsck(t)
}

// TestGCWithoutSettings drops nothing, and works where no server runs.
func TestGCWithoutSettings(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	for i := range 5 {
		k.save(t, "a", fmt.Sprintf("%d\n", i))
	}
	k.end(t)
	p.gc(t, "--now")
	count := k.git(t, "rev-list", "--count", "shadow")
	if strings.TrimSpace(count) != "6" || len(k.shallow(t)) != 0 {
		t.Errorf("%s commits, shallow %v", count, k.shallow(t))
	}
	if harness.Nodes() > 0 {
		return // a node's data directory is a cluster's
	}
	p.Stop()
	p.gc(t, "--now")
	if status, out, errOut := harness.Run(t, nil, "gc", "--data-dir", p.DataDir, "no-such-workspace"); status == 0 {
		t.Errorf("gc of what is not there: %s%s", out, errOut)
	}
	if status, out, errOut := harness.Run(t, nil, "gc", "--data-dir", p.DataDir, p.dir); status != 0 || !strings.Contains(out, "freed") {
		t.Errorf("gc for people: %d %s%s", status, out, errOut)
	}
	if status, out, errOut := harness.Run(t, nil, "verify", "--data-dir", p.DataDir); status != 0 {
		t.Errorf("verify: %s%s", out, errOut)
	}
}

// TestDiskUse tells by workspace and by task.
func TestDiskUse(t *testing.T) {
	p := newProject(t, map[string]string{"a": strings.Repeat("a line of the baseline\n", 200)})
	small, large := p.task(t), p.task(t)
	small.save(t, "s", "little\n")
	large.save(t, "l", testNoise(30_000))
	p.call(t, "PUT", large.url("/scratch/notes"), []byte("12345")).want(t, 201)
	var result struct {
		Workspaces []struct {
			Workspace string `json:"workspace"`
			DiskBytes int64  `json:"disk_bytes"`
			TaskBytes int64  `json:"task_files_bytes"`
			Other     int64  `json:"other_bytes"`
			Tasks     []struct {
				TaskID  string `json:"task_id"`
				Bytes   int64  `json:"bytes"`
				Scratch int64  `json:"scratch_bytes"`
			} `json:"tasks"`
		} `json:"workspaces"`
		DiskBytes int64 `json:"disk_bytes"`
	}
	status, out, errOut := harness.Run(t, nil, "du", "--by", "task", "--json", "--data-dir", p.DataDir)
	if err := json.Unmarshal([]byte(out), &result); err != nil || status != 0 {
		t.Fatalf("du: %d, %v: %s%s", status, err, out, errOut)
	}
	w := result.Workspaces[0]
	if len(w.Tasks) != 2 || w.Tasks[0].TaskID != large.ID || w.Tasks[0].Bytes < 10_000 || w.Tasks[0].Scratch != 5 || w.Tasks[1].Bytes == 0 ||
		w.Other == 0 || w.TaskBytes != 5 || w.DiskBytes < w.Tasks[0].Bytes+w.Tasks[1].Bytes+w.Other || result.DiskBytes != w.DiskBytes {
		t.Errorf("du tells %s", out)
	}
	if status, out, errOut := harness.Run(t, nil, "du", "--data-dir", p.DataDir, p.dir); status != 0 || !strings.Contains(out, w.Workspace) {
		t.Errorf("du for people: %d %s%s", status, out, errOut)
	}
	p.call(t, "GET", "/upkeep/du?by="+url.QueryEscape("nothing"), nil).want(t, 400)
}

// testNoise gives text that does not compress well.
func testNoise(n int) string {
	var b strings.Builder
	for x := uint64(88172645463325252); b.Len() < n; {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		fmt.Fprintf(&b, "%016x\n", x)
	}
	return b.String()
}
