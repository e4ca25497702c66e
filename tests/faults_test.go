package tests

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A folder that a user replaced by a link which leads out of the workspace: a revert
// and its dry run say the same, whatever it is, and what is outside stays.
func TestRevertBehindALinkThatLeadsOut(t *testing.T) {
	p := newServer(t).on(t, map[string]string{"dir/f": "before\n", "dir/sub/x/f": "before\n", "g": "before\n"})
	k := p.task(t)
	k.step(t, "put dir/f after | put dir/sub/x/f after | mv dir/sub/x dir/sub/y")
	k.step(t, "put dir/new new | put g after")
	out := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(out, "f"), []byte("outside\n"), 0o644))
	p.byHand(t, "ln dir "+out)
	k.sync(t)
	for _, body := range []map[string]any{{}, {"on_conflict": "skip"}, {"on_conflict": "force"}} {
		plan := map[string]any{"dry_run": true}
		maps.Copy(plan, body)
		dry := k.revert(t, "", plan).want(t, 200)
		conflicts := dry.list(t, "conflicts")
		r := k.revert(t, "", body)
		if body["on_conflict"] == nil {
			if len(conflicts) == 0 {
				t.Fatalf("no conflict: %s", dry.Body)
			}
			o := r.fails(t, 409, "revert_conflict")
			if got, want := testJSON(o["conflicts"]), testJSON(conflicts); got != want {
				t.Errorf("conflicts %s, and in the dry run %s", got, want)
			}
			continue
		}
		r.want(t, 200)
		if got, want := testJSON(r.list(t, "files")), testJSON(dry.list(t, "files")); got != want {
			t.Errorf("%v: %s was done, and the dry run said %s", body, got, want)
		}
		if body["on_conflict"] == "skip" && p.read(t, "g") != "before\n" {
			t.Error("the rest was not reverted")
		}
	}
	if data, err := os.ReadFile(filepath.Join(out, "f")); string(data) != "outside\n" {
		t.Errorf("outside is %q, %v", data, err)
	}
	if list, _ := os.ReadDir(out); len(list) != 1 {
		t.Errorf("outside: %v", list)
	}
	// The server goes on.
	k.put(t, "h", "h").want(t, 201)
	k.fsck(t)
}

// Folders are part of what a revert brings back: an empty one that was there stays,
// one that was not goes.
func TestRevertKeepsEmptyFolders(t *testing.T) {
	server := newServer(t)
	for name, steps := range map[string][]string{
		"written into":                {"put empty/f x"},
		"written into below":          {"put empty/n/m/f x"},
		"nested one written into":     {"put deep/er/e/f x"},
		"nested one moved":            {"mv deep/er deep/moved"},
		"nested one renamed, written": {"mv deep gone", "put gone/er/e/f x"},
		"written, then renamed":       {"put deep/er/e/f x", "mv deep gone"},
		"moved out of the nest":       {"mv deep/er/e top"},
		"deleted":                     {"del deep"},
		"deleted, then written":       {"del deep", "put deep/er/e/f x"},
		"swapped with a filled one":   {"mv deep tmp | mv full deep | mv tmp full"},
		"new nested ones":             {"put n/a/b/c x", "mv n/a m", "del m/b/c"},
	} {
		t.Run(name, func(t *testing.T) {
			p := server.on(t, map[string]string{"empty/": "", "deep/er/e/": "", "full/x": "x\n", "a": "a\n"})
			before := lay(t, p.dir)
			k := p.task(t)
			for _, s := range steps {
				k.step(t, s)
			}
			after := lay(t, p.dir)
			undo := func(commit string) string {
				return p.post(t, "/workspaces/"+k.str("workspace_id")+"/commits/"+commit+"/revert", map[string]any{}).want(t, 200).str(t, "commit")
			}
			undone := k.revert(t, "", nil).want(t, 200).str(t, "commit")
			same(t, lay(t, p.dir), before)
			redone := undo(undone)
			same(t, lay(t, p.dir), after)
			undo(redone)
			same(t, lay(t, p.dir), before)
		})
	}
}

// tools/list is that of the mounts as they are, also where many set them at once.
func TestToolsListFollowsTheMounts(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	dir := folder(t, map[string]string{"f": "1"})
	a := newAgent(t, s, physical("/p", "READ_ONLY", dir))
	bothRevisions(t, func(t *testing.T, revision string) {
		c := connect(t, overHTTP(s, "/"+a.id, ""), revision)
		done := make(chan struct{})
		defer close(done)
		go func() { // the client blocks while it is not read
			for {
				select {
				case <-c.tools:
				case <-done:
					return
				}
			}
		}()
		for i := range 20 {
			scope := []string{"READ_WRITE", "READ_ONLY", "WRITE_ONLY"}[i%3]
			a.setMounts(physical("/p", scope, dir)).Expect(200)
			want := strings.Fields(a.toolNames())
			slices.Sort(want)
			if got := toolNames(t, c); got != strings.Join(want, " ") {
				t.Fatalf("after %s: %s, want %s", scope, got, want)
			}
		}
		for range 5 {
			var wg sync.WaitGroup
			for _, scope := range []string{"READ_WRITE", "READ_ONLY", "WRITE_ONLY", "READ_WRITE"} {
				wg.Go(func() {
					s.Do("PUT", "/toolsets/"+a.id+"/mounts", mountsBody(physical("/p", scope, dir)))
				})
			}
			wg.Wait()
			want := strings.Fields(a.toolNames())
			slices.Sort(want)
			if got := toolNames(t, c); got != strings.Join(want, " ") {
				t.Fatalf("after many at once: %s, want %s", got, want)
			}
		}
	})
}

// What a script saves has the source script, in the commit and in the changelog.
func TestScriptSource(t *testing.T) {
	s := startScripter(t, harness.Options{})
	out := s.value(t, `file.save("a.txt", "x") return 1`, "1")
	task := s.taskOf(t, out.Task)
	s.Do("POST", fmt.Sprintf("/workspaces/%v/sync", task["workspace_id"]), nil).Expect(200)
	if message := harness.Git(t, fmt.Sprint(task["git_dir"]), "log", "-1", "--format=%B", fmt.Sprint(*out.Files[0].Commit)); !strings.Contains(message, "\nSource: script\n") {
		t.Errorf("the commit says %s", message)
	}
	var log struct{ Entries []map[string]any }
	s.Do("GET", "/tasks/"+*out.Task+"/changes", nil).Expect(200).JSON(&log)
	if len(log.Entries) != 1 || log.Entries[0]["source"] != "script" {
		t.Errorf("%v", log.Entries)
	}
}

// execute_script's errors are the JSON of scripts, as its successes are.
func TestScriptErrorsOfTools(t *testing.T) {
	s := startScripter(t, harness.Options{})
	a := newAgent(t, s.Server, physical("/p", "READ_WRITE", folder(t, nil)))
	status, text := a.call("execute_script", "script", `error("no")`)
	var got struct {
		Error struct{ Type, Message string }
	}
	if err := json.Unmarshal([]byte(text), &got); status != "error" || err != nil || got.Error.Type != "runtime_error" {
		t.Errorf("%s %q, %v", status, text, err)
	}
}

// No temporary file is in the workspace when a request is answered, wherever the data
// directory is.
func TestNoTemporaryFileAfterTheAnswer(t *testing.T) {
	dirs := map[string]string{"on the same file system": filepath.Join(t.TempDir(), "data")}
	if os.Geteuid() == 0 {
		dirs["on another file system"] = filepath.Join(smallDisk(t, "64m"), "data")
	}
	for name, data := range dirs {
		t.Run(name, func(t *testing.T) {
			p := &project{Server: harness.Start(t, harness.Options{DataDir: data})}
			p = p.on(t, map[string]string{"a": "a\n", "b": "b\n", "d/x": "x\n", "d/e/y": "y\n", "l": "-> a"})
			k := p.task(t)
			for i, step := range []string{"put a 1", "put a 2 | put b 2", "put d/x 3 | mv d/x d/z | put d/z 4", "mv a b", "put n 5 | mv n a | del d/z", "del d", "put l 6", "put d/q 7 | mv d e | put e/q 8", "mv e/q b | del b"} {
				k.step(t, step)
				err := filepath.WalkDir(p.dir, func(path string, _ fs.DirEntry, err error) error {
					if strings.Contains(path, ".umbra-") {
						t.Errorf("after step %d, %q: %s", i, step, path)
					}
					return err
				})
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			k.revert(t, "", nil).want(t, 200)
			if left, _ := filepath.Glob(filepath.Join(p.dir, ".umbra-*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// An event has the id of the request that made its commit.
func TestEventsHaveTheRequest(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	task, all := p.events(t, k.url("/stream")), p.events(t, "/workspaces/"+k.str("workspace_id")+"/stream")
	k.put(t, "a", "1", "X-Request-Id", "request-1").want(t, 201)
	for _, s := range []*eventStream{task, all} {
		has(t, s.want(t, "change", 2).Data, map[string]any{"request_id": "request-1"})
	}
	made := k.put(t, "b", "1").want(t, 201)
	has(t, task.want(t, "change", 3).Data, map[string]any{"request_id": made.head("X-Request-Id")})
	has(t, p.events(t, k.url("/stream?after=2")).want(t, "change", 3).Data, map[string]any{"request_id": made.head("X-Request-Id")})
	k.revert(t, "", nil, "X-Request-Id", "request-2").want(t, 200)
	has(t, task.want(t, "revert", 4).Data, map[string]any{"request_id": "request-2"})
}

// What was in open journals when the backup was made is in what stock git reads of the
// restored folder, before any verb of the program ran there.
func TestStockGitAfterARestore(t *testing.T) {
	need.Tool(t, "git")
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	var last string
	for i := range 5 {
		last = k.put(t, fmt.Sprint("a", i), "x").want(t, 201).str(t, "commit")
	}
	dir := filepath.Join(t.TempDir(), "backup")
	backup(t, p.DataDir, dir)
	p.Kill()
	data := restore(t, dir)
	repo := filepath.Join(data, "workspaces", k.str("workspace_id"), "repo.git")
	if got := strings.TrimSpace(harness.Git(t, repo, "rev-parse", "refs/umbra/head")); got != last {
		t.Errorf("stock git sees %s, and the last commit is %s", got, last)
	}
	if got := strings.TrimSpace(harness.Git(t, repo, "rev-parse", "refs/umbra/tasks/"+k.ID+"/head")); got != last {
		t.Errorf("the task's head is %s, and the last commit is %s", got, last)
	}
	if out := harness.Git(t, repo, "fsck", "--strict", "--full", "--no-dangling"); out != "" {
		t.Errorf("fsck: %s", out)
	}
}
