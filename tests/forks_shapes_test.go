package tests

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A file that takes the place of a directory in a fork, or a directory that of a file, does so
// in the parent, too, whether by requests or by a user, and as replay or squash; not where the
// parent has other files in the directory.
func TestForkMergeDirectoryAndFile(t *testing.T) {
	const long = "g\nlong enough that it is known again\n"
	for _, as := range []string{"replay", "squash"} {
		p := newProject(t, map[string]string{"d/x": "x\n", "d/y": "y\n", "f": "f\n", "g": long, "k/k/k": "k" + long, "l": "l" + long, "m": "m" + long})
		task := p.task(t)
		ws := "/workspaces/" + task.str("workspace_id")
		dir := filepath.Join(t.TempDir(), "copy")
		fork := p.forks(t, ws, map[string]any{"kind": "copy", "path": dir})[0]["id"].(string)
		const list = "find . -name .git -prune -o -type f -print | LC_ALL=C sort | xargs grep -H ''"
		same := func(why string, got mergeAnswer) {
			t.Helper()
			if here, there := sh(t, p.dir, list), sh(t, dir, list); here != there {
				t.Errorf("%s, %s: the parent has\n%s\nand the fork\n%s\n%+v", as, why, here, there, got)
			}
		}
		sh(t, dir, "rm -r d; echo file > d; rm f; mkdir f; echo in > f/in; mv g tmp; mkdir g; mv tmp g/g; mv k/k/k tmp; rm -r k; mv tmp k; mv m n; mv l m")
		same("turned", p.merge(t, fork, map[string]any{"as": as}))
		sh(t, dir, "rm d; mkdir d; echo x > d/x; rm -r f; echo f > f; mv g/g tmp; rmdir g; mv tmp g; mv k tmp; mkdir -p k/k; mv tmp k/k/k; mv m l; mv n m")
		same("turned back", p.merge(t, fork, map[string]any{"as": as}))

		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		do := func(method, rest string, body any) {
			t.Helper()
			if a := p.call(t, method, "/tasks/f/"+rest, body); a.Status/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, rest, a.Status, a.Body)
			}
		}
		do("DELETE", "content?path=d/x", nil)
		sh(t, dir, "rmdir d")
		do("PUT", "content?path=d", []byte("file again\n"))
		do("POST", "move", map[string]any{"from": "g", "to": "tmp"})
		do("POST", "move", map[string]any{"from": "tmp", "to": "g/in/g"})
		same("by requests", p.merge(t, fork, map[string]any{"as": as}))

		do("DELETE", "content?path=d", nil)
		do("PUT", "content?path=d/x", []byte("x\n"))
		same("and back", p.merge(t, fork, map[string]any{"as": as}))
		task.put(t, "d/z", "the parent's\n")
		do("DELETE", "content?path=d/x", nil)
		sh(t, dir, "rmdir d")
		do("PUT", "content?path=d", []byte("file once more\n"))
		conflicts := p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"as": as}).fails(t, 409, "merge_conflict")["conflicts"].([]any)
		if x := conflicts[0].(map[string]any); len(conflicts) != 1 || x["path"] != "d" || x["reason"] != "occupied" {
			t.Errorf("%s: %v", as, conflicts)
		}
		if got := p.read(t, "d/z"); got != "the parent's\n" {
			t.Errorf("%s: d/z has %q", as, got)
		}
		p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
		task.git(t, "fsck", "--strict", "--no-dangling")
		p.Stop()
	}
}

// What a fork made in a directory that the parent renamed meanwhile is merged into that, and so
// is what it does to it later.
func TestForkMergeRenamedDirectory(t *testing.T) {
	for _, as := range []string{"replay", "squash"} {
		p := newProject(t, map[string]string{"d/x": "1\n2\n3\n", "d/s/z": "z\n", "o/o": "o\n"})
		task := p.task(t)
		fork := p.forks(t, "/workspaces/"+task.str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		do := func(method, rest string, body any) {
			t.Helper()
			if a := p.call(t, method, "/tasks/f/"+rest, body); a.Status/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, rest, a.Status, a.Body)
			}
		}
		has := func(want string) {
			t.Helper()
			if got := strings.Join(strings.Fields(sh(t, p.dir, "find . -name .git -prune -o -type f -print | LC_ALL=C sort | xargs grep -H ''")), " "); got != want {
				t.Errorf("%s: the parent has\n%s\nnot\n%s", as, got, want)
			}
		}
		do("PUT", "content?path=d/x", []byte("1\ntwo\n3\n"))
		do("PUT", "content?path=d/new", []byte("new\n"))
		do("PUT", "content?path=d/s/n/new", []byte("new\n"))
		do("POST", "move", map[string]any{"from": "d/s/z", "to": "d/t"})
		do("POST", "move", map[string]any{"from": "o/o", "to": "d/o"})
		p.post(t, "/tasks/"+task.ID+"/move", map[string]any{"from": "d", "to": "e/e"}).want(t, 200)
		p.merge(t, fork, map[string]any{"as": as})
		has("./e/e/new:new ./e/e/o:o ./e/e/s/n/new:new ./e/e/t:z ./e/e/x:1 ./e/e/x:two ./e/e/x:3")
		if got := p.merge(t, fork, map[string]any{"dry_run": true}); len(got.Files) != 0 {
			t.Errorf("%s: merged again it would change %+v", as, got.Files)
		}
		do("PUT", "content?path=d/new", []byte("newer\n"))
		do("PUT", "content?path=d/s/n/new", []byte("newer\n"))
		do("DELETE", "content?path=d/t", nil)
		do("POST", "move", map[string]any{"from": "d/o", "to": "d/s/o"})
		p.merge(t, fork, map[string]any{"as": as})
		const want = "./e/e/new:newer ./e/e/s/n/new:newer ./e/e/s/o:o ./e/e/x:1 ./e/e/x:two ./e/e/x:3"
		has(want)
		task.put(t, "d/own", "the parent's\n")
		do("PUT", "content?path=d/more", []byte("more\n"))
		do("PUT", "content?path=d/new", []byte("newest\n"))
		p.merge(t, fork, map[string]any{"as": as})
		has("./d/more:more ./d/own:the parent's " + strings.Replace(want, "newer", "newest", 1))
		task.git(t, "fsck", "--strict", "--no-dangling")
		p.Stop()
	}
}

// What the parent added to a directory that the fork renamed moves along, as the merge's own
// change: one revert of the merge brings it back.
func TestForkMergeMovesAlong(t *testing.T) {
	for _, as := range []string{"replay", "squash"} {
		p := newProject(t, map[string]string{"d/x": "x\n", "d/s/y": "y\n"})
		task := p.task(t)
		fork := p.forks(t, "/workspaces/"+task.str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		p.post(t, "/tasks/f/move", map[string]any{"from": "d", "to": "e"}, "X-Actor", "fork's", "X-Subtask-Id", "s").want(t, 200)
		task.put(t, "d/new", "new\n")
		task.put(t, "d/s/new", "new\n")
		const list = "find . -name .git -prune -o -type f -print | LC_ALL=C sort | xargs grep -H ''"
		has := func(why, want string) {
			t.Helper()
			if got := strings.Join(strings.Fields(sh(t, p.dir, list)), " "); got != want {
				t.Errorf("%s, %s: it has\n%s\nnot\n%s", as, why, got, want)
			}
		}
		const before, after = "./d/new:new ./d/s/new:new ./d/s/y:y ./d/x:x", "./e/new:new ./e/s/new:new ./e/s/y:y ./e/x:x"
		var first mergeAnswer
		p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"as": as}, "X-Actor", "merger").want(t, 200).into(t, &first)
		has("merged", after)
		if len(first.Files) != 8 {
			t.Errorf("%s: %+v", as, first.Files)
		}
		p.post(t, "/workspaces/"+task.str("workspace_id")+"/sync", map[string]any{}).want(t, 200)
		if as == "replay" {
			log := harness.Git(t, task.gitDir(), "log", "-2", "--format=%an", "--name-only", "--no-renames", "refs/heads/shadow")
			if got := strings.Join(strings.Fields(log), " "); got != "merger d/new d/s/new e/new e/s/new fork's d/s/y d/x e/s/y e/x" {
				t.Errorf("the log is %s", got)
			}
		}
		// A subtask's revert takes back what moved along with it, and one of the merge does.
		p.post(t, "/tasks/"+first.Task_ID+"/revert", map[string]any{}).want(t, 200)
		has("taken back", before)
		if got := p.merge(t, fork, map[string]any{}); len(got.Files) != 0 || got.Reverted != 1 {
			t.Errorf("%s: %+v", as, got)
		}
		again := p.merge(t, fork, map[string]any{"as": as, "again": true})
		has("again", after)
		if as == "replay" {
			p.post(t, "/tasks/"+again.Task_ID+"/subtasks/s/revert", map[string]any{}).want(t, 200)
			has("the subtask taken back", before)
			p.merge(t, fork, map[string]any{"as": as, "again": true})
		}
		task.put(t, "d/later", "later\n")
		p.post(t, "/workspaces/"+fork+"/rebase", map[string]any{"as": as}).want(t, 200)
		if got := p.call(t, "GET", "/tasks/f/content?path=e/new", nil).want(t, 200); string(got.Body) != "new\n" {
			t.Errorf("%s: the fork has %q", as, got.Body)
		}
		if got := p.merge(t, fork, map[string]any{"dry_run": true}); len(got.Files) != 0 || len(got.Conflicts) != 0 {
			t.Errorf("%s: merged again it would change %+v, %+v", as, got.Files, got.Conflicts)
		}
		has("at the end", "./d/later:later "+after)
		task.fsck(t)
		p.Stop()
	}
}

// A file is merged as the one that it is in the common history, also where the target has
// another one at its name by now.
func TestForkMergeNameReused(t *testing.T) {
	swap := [][2]string{{"a", "t"}, {"b", "a"}, {"t", "b"}}
	for name, x := range map[string]struct {
		parent, fork [][2]string // renames; to "": the file is written
		merged       string
		rebase       bool
	}{
		"a file of a swap is edited":      {swap, [][2]string{{"a", ""}}, "./a:b ./b:changed ./c:c", false},
		"both swap":                       {swap, swap, "./a:b ./b:a ./c:c", false},
		"the other one gets a new name":   {[][2]string{{"a", "d"}, {"a", ""}}, [][2]string{{"a", "d"}}, "./a:changed ./b:b ./c:c ./d:a", false},
		"a rebase renames what it was of": {[][2]string{{"a", "d"}}, [][2]string{{"a", "d"}, {"a", ""}}, "./a:changed ./b:b ./c:c ./d:a", true},
	} {
		p := newProject(t, map[string]string{"a": "a\n", "b": "b\n", "c": "c\n"})
		task := p.task(t)
		ws := "/workspaces/" + task.str("workspace_id")
		dir := filepath.Join(t.TempDir(), "fork")
		fork := p.forks(t, ws, map[string]any{"kind": "copy", "path": dir})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		for _, side := range []struct {
			task string
			do   [][2]string
		}{{task.ID, x.parent}, {"f", x.fork}} {
			for _, do := range side.do {
				if do[1] != "" {
					p.post(t, "/tasks/"+side.task+"/move", map[string]any{"from": do[0], "to": do[1]}).want(t, 200)
				} else if a := p.call(t, "PUT", "/tasks/"+side.task+"/content?path="+do[0], []byte("changed\n")); a.Status/100 != 2 {
					t.Fatalf("%s: %d %s", name, a.Status, a.Body)
				}
			}
		}
		at := p.dir
		if x.rebase {
			at = dir
			p.post(t, "/workspaces/"+fork+"/rebase", map[string]any{}).want(t, 200)
		} else {
			p.merge(t, fork, map[string]any{})
		}
		if got := strings.Join(strings.Fields(sh(t, at, "find . -name .git -prune -o -type f -print | LC_ALL=C sort | xargs grep -H ''")), " "); got != x.merged {
			t.Errorf("%s: it has %s, not %s", name, got, x.merged)
		}
		p.Stop()
	}
}

// A merge knows what the target has of a workspace also after a purge there gave its commits
// other ids.
func TestForkMergeAfterPurge(t *testing.T) {
	p := newProject(t, map[string]string{"log": "start\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	middle := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	var ids []string
	for _, task := range []string{"x", "y"} {
		id := p.forks(t, "/workspaces/"+middle, map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": task, "workspace": id, "goal": "try"}).want(t, 201)
		ids = append(ids, id)
	}
	x, y := ids[0], ids[1]
	put := func(task, path, data string) {
		t.Helper()
		if a := p.call(t, "PUT", "/tasks/"+task+"/content?path="+path, []byte(data)); a.Status/100 != 2 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	put("x", "key", "secret-5530\n")
	put("x", "log", "start\nx1\n")
	p.call(t, "DELETE", "/tasks/x/content?path=key", nil).want(t, 200)
	put("x", "part", "p\n")
	p.merge(t, x, map[string]any{"into": y, "paths": []string{"key", "log"}})
	put("y", "log", "y0\nstart\nX1\n")
	p.call(t, "DELETE", "/workspaces/"+middle+"?force=true", nil).want(t, 204)
	for _, purged := range []string{x, y} {
		p.purge(t, 0, purged, "key")
		if got := p.merge(t, x, map[string]any{"into": y, "dry_run": true}); len(got.Conflicts) != 0 || len(got.Files) != 1 || got.Files[0].Path != "part" {
			t.Errorf("%s was purged: %+v", purged, got)
		}
	}
	if got := p.merge(t, x, map[string]any{"into": y}); got.Merged != 1 {
		t.Errorf("%+v", got)
	}
}

// Forks are made while what they are to be forks of is deleted: each is whole, or the answer
// says that the workspace does not exist.
func TestForkMadeWhileDeleted(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	for range 8 {
		of := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
		dir := t.TempDir()
		answers, deleted := make(chan *answer), make(chan *answer)
		for i := range 6 {
			body := map[string]any{"kind": "virtual"}
			if i%2 == 0 {
				body = map[string]any{"kind": "copy", "path": filepath.Join(dir, strconv.Itoa(i))}
			}
			if i == 2 {
				go func() { deleted <- p.call(t, "DELETE", "/workspaces/"+of+"?force=true", nil) }()
			}
			go func() { answers <- p.post(t, "/workspaces/"+of+"/forks", body) }()
		}
		if a := <-deleted; a.Status != 204 {
			a.fails(t, 409, "has_forks")
		}
		var ids []string
		for range 6 {
			if a := <-answers; a.Status == 201 {
				ids = append(ids, a.list(t, "forks")[0]["id"].(string))
			} else {
				a.fails(t, 404, "workspace_not_found")
			}
		}
		p.call(t, "DELETE", "/workspaces/"+of+"?force=true", nil)
		for _, id := range ids {
			task := p.post(t, "/tasks", map[string]any{"workspace": id, "goal": "look"}).want(t, 201).str(t, "task_id")
			if a := p.call(t, "GET", "/tasks/"+task+"/content?path=a", nil).want(t, 200); string(a.Body) != "one\n" {
				t.Errorf("%s has %q", id, a.Body)
			}
		}
		if left := strings.Fields(sh(t, dir, "ls")); len(left) > len(ids) {
			t.Errorf("left is %v", left)
		}
	}
}

// A merge of a workspace of which retention dropped what is to be merged says so.
func TestForkMergeOfDroppedHistory(t *testing.T) {
	p := retained(t, atOnce)
	first := p.task(t).str("workspace_id")
	middle := p.forks(t, "/workspaces/"+first, map[string]any{"kind": "virtual"})[0]["id"].(string)
	made := p.forks(t, "/workspaces/"+middle, map[string]any{"kind": "virtual", "count": 2})
	x, y := made[0]["id"].(string), made[1]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "x", "workspace": x, "goal": "try"}).want(t, 201)
	for _, name := range []string{"early", "late"} {
		p.call(t, "PUT", "/tasks/x/content?path="+name, []byte(name)).want(t, 201)
	}
	p.call(t, "PATCH", "/tasks/x", map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+middle+"?force=true", nil).want(t, 204)
	eventually(t, func() bool {
		for _, w := range p.gc(t, "--now").Workspaces {
			if w.Workspace == x && w.Boundary != nil {
				return true
			}
		}
		return false
	})
	p.post(t, "/workspaces/"+x+"/merge", map[string]any{"into": y}).fails(t, 410, "history_dropped")
	p.post(t, "/workspaces/"+y+"/merge", map[string]any{"into": x}).want(t, 200)
	for from, into := range map[string]string{x: first, first: x} { // what they share was dropped
		p.post(t, "/workspaces/"+from+"/merge", map[string]any{"into": into}).fails(t, 410, "history_dropped")
	}
}

// Where retention dropped what the target made of a fork's commits, a merge that would bring
// them again is done only with the plan of a dry run, which says so.
func TestForkMergeIntoDroppedHistory(t *testing.T) {
	p := retained(t, atOnce)
	middle := p.forks(t, "/workspaces/"+p.task(t).str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
	made := p.forks(t, "/workspaces/"+middle, map[string]any{"kind": "virtual", "count": 2})
	x, y := made[0]["id"].(string), made[1]["id"].(string)
	for task, ws := range map[string]string{"x": x, "y": y} {
		p.post(t, "/tasks", map[string]any{"task_id": task, "workspace": ws, "goal": "try"}).want(t, 201)
	}
	p.call(t, "PUT", "/tasks/y/content?path=new", []byte("of the fork\n")).want(t, 201)
	body := map[string]any{"into": x}
	if got := p.merge(t, y, body); got.Merged != 1 || got.History_Dropped {
		t.Fatalf("%+v", got)
	}
	p.call(t, "PUT", "/tasks/x/content?path=new", []byte("of the target\n")).want(t, 200)
	p.call(t, "PUT", "/tasks/x/content?path=late", []byte("late\n")).want(t, 201)
	p.call(t, "PATCH", "/tasks/x", map[string]any{"status": "completed"}).want(t, 200)
	plan := p.merge(t, y, map[string]any{"into": x, "dry_run": true}).Plan
	p.call(t, "DELETE", "/workspaces/"+middle+"?force=true", nil).want(t, 204)
	eventually(t, func() bool {
		for _, w := range p.gc(t, "--now").Workspaces {
			if w.Workspace == x && w.Boundary != nil {
				return true
			}
		}
		return false
	})
	head := func() any { return p.call(t, "GET", "/workspaces/"+x, nil).want(t, 200).obj(t)["head"] }
	before := head()
	dry := p.merge(t, y, map[string]any{"into": x, "dry_run": true})
	if !dry.History_Dropped || len(dry.Conflicts) != 1 {
		t.Errorf("the dry run reports %+v", dry)
	}
	for _, how := range []map[string]any{{}, {"task_id": "z"}, {"on_conflict": "skip"}, {"as": "squash"}} {
		if how["task_id"] != nil {
			p.post(t, "/tasks", map[string]any{"task_id": "z", "workspace": x, "goal": "merge"}).want(t, 201)
		}
		how["into"] = x
		p.post(t, "/workspaces/"+y+"/merge", how).fails(t, 410, "history_dropped")
	}
	p.post(t, "/workspaces/"+y+"/merge", map[string]any{"into": x, "plan": plan}).fails(t, 409, "plan_stale")
	if now := head(); now != before {
		t.Errorf("the refused merges moved the target from %v to %v", before, now)
	}
	status, out, errOut := harness.Run(t, nil, "merge", y, "--into", x, "--data-dir", p.DataDir)
	if status == 0 || !strings.Contains(errOut, "dry run") {
		t.Errorf("umbra merge: status %d\n%s\n%s", status, out, errOut)
	}
	p.call(t, "PUT", "/tasks/y/content?path=more", []byte("more\n")).want(t, 201)
	skip := []string{"merge", y, "--into", x, "--on-conflict", "skip", "--data-dir", p.DataDir}
	_, out, errOut = harness.Run(t, nil, append(skip, "--dry-run")...)
	_, token, _ := strings.Cut(out, "\nplan: ")
	token, _, _ = strings.Cut(token, "\n")
	if !strings.Contains(out, "retention dropped commits") {
		t.Errorf("the dry run prints\n%s\n%s", out, errOut)
	}
	if status, out, errOut = harness.Run(t, nil, append(skip, "--plan", token)...); status != 0 {
		t.Errorf("with its plan: status %d\n%s\n%s", status, out, errOut)
	}
	for path, want := range map[string]string{"new": "of the target\n", "more": "more\n"} {
		if got := string(p.call(t, "GET", "/tasks/x/content?path="+path, nil).want(t, 200).Body); got != want {
			t.Errorf("%s has %q, not %q", path, got, want)
		}
	}
}

// A merge that the target's quota ends in the middle is taken back whole; what takes no room is
// merged afterwards.
func TestForkMergeOverQuota(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "limits: {workspace_bytes: 400KiB}\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "a\n", "b": "b\n"})
	task := p.task(t)
	fork := p.forks(t, "/workspaces/"+task.str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
	noise := testNoise(150 << 10)
	p.call(t, "PUT", "/tasks/f/content?path=a", []byte("changed\n")).want(t, 200)
	p.call(t, "DELETE", "/tasks/f/content?path=b", nil).want(t, 200)
	p.call(t, "PUT", "/tasks/f/content?path=n1", []byte(noise)).want(t, 201)
	p.call(t, "PUT", "/tasks/f/content?path=n2", []byte(strings.ToUpper(noise))).want(t, 201)
	task.put(t, "own", testNoise(200<<10))
	before := sh(t, p.dir, "ls; cat a b")
	p.post(t, "/workspaces/"+fork+"/merge", map[string]any{}).fails(t, 507, "quota_exceeded")
	if got := sh(t, p.dir, "ls; cat a b"); got != before {
		t.Errorf("the parent has\n%s\nnot\n%s", got, before)
	}
	p.merge(t, fork, map[string]any{"paths": []string{"a", "b"}})
	if got := p.read(t, "a"); got != "changed\n" {
		t.Errorf("a has %q", got)
	}
	p.absent(t, "b")
	task.git(t, "fsck", "--strict", "--no-dangling")
}

// Of forks that are asked for at one path at the same time one is made; its place is free when
// it is deleted, and so is that of one that could not be made.
func TestForksAtOnePath(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	dir := filepath.Join(t.TempDir(), "copy")
	body := map[string]any{"kind": "copy", "path": dir}
	for range 3 {
		answers := make(chan *answer)
		for range 6 {
			go func() { answers <- p.post(t, ws+"/forks", body) }()
		}
		var ids []string
		for range 6 {
			if a := <-answers; a.Status == 201 {
				ids = append(ids, a.list(t, "forks")[0]["id"].(string))
			} else {
				a.fails(t, 409, "path_exists")
			}
		}
		if len(ids) != 1 {
			t.Fatalf("%v were made", ids)
		}
		if got := sh(t, dir, "cat a"); got != "one\n" {
			t.Errorf("%q", got)
		}
		p.call(t, "DELETE", "/workspaces/"+ids[0], nil).want(t, 204)
		sh(t, filepath.Dir(dir), "echo user > copy")
		p.post(t, ws+"/forks", body).fails(t, 409, "path_exists")
		sh(t, filepath.Dir(dir), "rm copy")
	}
	if left := p.call(t, "GET", ws+"/forks", nil).want(t, 200).list(t, "forks"); len(left) != 0 {
		t.Errorf("%v", left)
	}
	var dirs []string
	for _, dir := range p.DataDirs() {
		found, err := filepath.Glob(filepath.Join(dir, "workspaces", "*"))
		need.NoError(t, err)
		dirs = append(dirs, found...)
	}
	if len(dirs) != 1 {
		t.Errorf("%v", dirs)
	}
}

// Virtual workspaces that are made in one second begin with the same commit, and are related
// no more than others.
func TestForkMergeOfUnrelated(t *testing.T) {
	p := newProject(t, nil)
	var ids []string
	for _, id := range []string{"v1", "v2", "v3", "v4"} {
		r := p.post(t, "/tasks", map[string]any{"task_id": id, "goal": "g", "kind": "virtual", "namespace": []string{id}}).want(t, 201)
		ids = append(ids, r.str(t, "workspace_id"))
	}
	for _, id := range []string{"v1", "v2", "v3", "v4"} {
		p.call(t, "PUT", "/tasks/"+id+"/content?path="+id, []byte("mine\n")).want(t, 201)
	}
	for i, id := range ids[1:] {
		p.post(t, "/workspaces/"+ids[i]+"/merge", map[string]any{"into": id}).fails(t, 422, "unrelated")
	}
}
