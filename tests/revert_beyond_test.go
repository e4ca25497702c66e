package tests

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestRevertStrictBodies: a misspelled or misplaced field is refused on every
// route that reverts, and nothing is changed.
func TestRevertStrictBodies(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, map[string]string{"a": eightLines})
	k := p.task(t)
	k.step(t, "put a mine", "X-Subtask-Id", "s1")
	commit := fmt.Sprint(k.changes(t, "")[0]["commit"])
	before := lay(t, p.dir)
	ws := "/workspaces/" + k.str("workspace_id")
	routes := []string{k.url("/revert"), k.url("/files/a/revert"), k.url("/subtasks/s1/revert"), k.url("/changes/1/revert"),
		ws + "/commits/" + commit + "/revert", ws + "/revert"}
	for _, route := range routes {
		for field, near := range map[string]any{"dryRun": "dry_run", "dry-run": "dry_run", "dry_rum": "dry_run", "includeExternal": "include_external",
			"onConflict": "on_conflict", "subtask": nil, "subtask_id": nil, "nonsense": nil} {
			o := p.post(t, route, map[string]any{field: true, "dry_run": true}).fails(t, 400, "unknown_field")
			if o["field"] != field || near != nil && (o["did_you_mean"] != near || !strings.Contains(fmt.Sprint(o["detail"]), fmt.Sprint(near))) {
				t.Errorf("%s %s: %v", route, field, o)
			}
		}
		if route != routes[0] {
			p.post(t, route, map[string]any{"path": "a"}).fails(t, 400, "unknown_field")
		}
	}
	// What a client's missing value would widen, or make more than a plan.
	for _, x := range []struct {
		route, field string
		body         map[string]any
	}{
		{routes[0], "path", map[string]any{"path": nil}},
		{routes[0], "dry_run", map[string]any{"dry_run": nil}},
		{ws + "/revert", "paths", map[string]any{"actor": "x", "paths": nil}},
		{ws + "/revert", "since", map[string]any{"actor": "x", "since": nil}},
		{ws + "/restore", "paths", map[string]any{"to": commit, "paths": nil, "dry_run": true}},
		{ws + "/merge", "tasks", map[string]any{"tasks": nil}},
	} {
		if o := p.post(t, x.route, x.body).fails(t, 400, "invalid_field"); o["field"] != x.field {
			t.Errorf("%s %v: %v", x.route, x.body, o)
		}
	}
	same(t, lay(t, p.dir), before)
	for route, body := range map[string]map[string]any{
		"/tasks": {"goal": "g", "workspace": p.dir, "taskId": "x"}, k.url("/batch"): {"operations": []any{map[string]any{"op": "write", "pth": "x", "content": "y"}}},
		k.url("/move"): {"from": "a", "to": "b", "overwite": true}, "/workspaces/" + k.str("workspace_id") + "/sync": {"adpot": true},
		"/toolsets": {"mount": map[string]any{}},
	} {
		r := p.post(t, route, body)
		if r.Status != 400 || !strings.Contains(string(r.Body), "unknown_field") || !strings.Contains(string(r.Body), "did you mean") {
			t.Errorf("%s: %d %s", route, r.Status, r.Body)
		}
	}
	same(t, lay(t, p.dir), before)
}

// TestRevertCommit: one request undoes one commit, whatever its source, and the
// revert of it, with or without a task.
func TestRevertCommit(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, map[string]string{"a": eightLines, "key": "0600 secret\n", "dir/x": "x\n"})
	k := p.task(t)
	base := lay(t, p.dir)
	ws := "/workspaces/" + k.str("workspace_id")
	head := func() string {
		t.Helper()
		return fmt.Sprint(p.call(t, "GET", ws, nil).want(t, 200).obj(t)["head"])
	}
	baseline := head()
	refused(t, p.post(t, ws+"/commits/"+baseline+"/revert", map[string]any{}), 409, "not_revertible")
	refused(t, p.post(t, ws+"/commits/"+strings.Repeat("0", 40)+"/revert", map[string]any{}), 404, "commit_not_found")
	refused(t, p.post(t, ws+"/revert", map[string]any{"source": "baseline"}), 409, "not_revertible")
	refused(t, p.post(t, ws+"/revert", map[string]any{}), 422, "validation_failed")

	// 300 files by a task, undone by one commit, which is undone by another.
	var ops []map[string]any
	for i := range 300 {
		ops = append(ops, map[string]any{"op": "write", "path": fmt.Sprintf("many/%03d", i), "content": fmt.Sprint(i)})
	}
	p.post(t, k.url("/batch"), map[string]any{"operations": append(ops, map[string]any{"op": "delete", "path": "key"})}).want(t, 200)
	worked := lay(t, p.dir)
	made := head()
	undo := func(commit string, entries int, body map[string]any, want laid, header ...string) string {
		t.Helper()
		dry := map[string]any{"dry_run": true}
		maps.Copy(dry, body)
		plan := p.post(t, ws+"/commits/"+commit+"/revert", dry, header...).want(t, 200).obj(t)
		o := p.post(t, ws+"/commits/"+commit+"/revert", map[string]any{"plan": plan["plan"]}, header...).want(t, 200).obj(t)
		if fmt.Sprint(o["entries_reverted"]) != fmt.Sprint(entries) || fmt.Sprint(o["files"]) != fmt.Sprint(plan["files"]) || o["commit"] != head() {
			t.Fatalf("undone: %.300v, plan %.300v", o, plan)
		}
		same(t, lay(t, p.dir), want)
		if again := p.post(t, ws+"/commits/"+commit+"/revert", map[string]any{}).want(t, 200).obj(t); again["commit"] != nil {
			t.Fatalf("undone twice: %v", again)
		}
		return fmt.Sprint(o["commit"])
	}
	first := undo(made, 301, nil, base)
	log := p.call(t, "GET", ws+"/commits/"+first, nil).want(t, 200).obj(t)
	has(t, log, map[string]any{"source": "revert", "task_id": nil})
	if sum := p.call(t, "GET", k.url("/files"), nil).want(t, 200).list(t, "files"); len(sum) != 0 {
		t.Errorf("the task comes to %d files though all is undone", len(sum))
	}
	second := undo(first, 301, nil, worked)
	if sum := p.call(t, "GET", k.url("/files"), nil).want(t, 200).list(t, "files"); len(sum) != 301 {
		t.Errorf("the task comes to %d files after the undo of the undo", len(sum))
	}
	entries := p.call(t, "GET", ws+"/commits/"+second, nil).want(t, 200).list(t, "entries")
	for _, e := range entries {
		if fmt.Sprint(e["reverts"]) != "[<nil>]" || e["id"] != nil {
			t.Fatalf("an entry that undoes one without a task: %v", e)
		}
	}
	undo(second, 301, nil, base)
	// All of it is undone: the task's own revert finds nothing.
	if o := k.revert(t, "", nil).want(t, 200).obj(t); o["commit"] != nil {
		t.Errorf("the task's revert did %.300v", o)
	}

	// A user's change, which belongs to no task.
	other := p.task(t)
	p.byHand(t, "put a by hand")
	p.byHand(t, "mv dir/x dir/y")
	k.sync(t)
	byHand := head()
	third := undo(byHand, 2, nil, base, "X-Task-Id", other.ID)
	has(t, p.call(t, "GET", ws+"/commits/"+third, nil).want(t, 200).obj(t), map[string]any{"source": "revert", "task_id": other.ID})
	for _, e := range other.changes(t, "") {
		if fmt.Sprint(e["reverts"]) != "[<nil>]" {
			t.Errorf("reverts: %v", e)
		}
	}
	refused(t, p.post(t, ws+"/commits/"+byHand+"/revert", map[string]any{"task_id": "nobody"}), 404, "task_not_found")
	refused(t, p.post(t, ws+"/commits/"+byHand+"/revert", map[string]any{"task_id": "no body"}), 400, "invalid_task_id")
	p.call(t, "PATCH", "/tasks/"+other.ID, map[string]any{"status": "completed"}).want(t, 200)
	// An ended task takes no changes, but its own revert can be undone as its own.
	if o := p.post(t, ws+"/commits/"+third+"/revert", map[string]any{"task_id": other.ID}).want(t, 200).obj(t); o["commit"] == nil {
		t.Errorf("the revert of an ended task was not undone: %v", o)
	}
	refused(t, p.post(t, ws+"/commits/"+byHand+"/revert", map[string]any{"task_id": other.ID}), 409, "task_ended")
	if o := p.post(t, ws+"/commits/"+byHand+"/revert", map[string]any{}).want(t, 200).obj(t); o["commit"] == nil {
		t.Errorf("the user's change was not undone: %v", o)
	}
	k.fsck(t)
	p.restart()
	if o := p.post(t, ws+"/commits/"+byHand+"/revert", map[string]any{}).want(t, 200).obj(t); o["commit"] != nil {
		t.Errorf("undone twice after a restart: %v", o)
	}
}

// TestRevertWhere: by actor, source, time and path, over several tasks.
func TestRevertWhere(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, map[string]string{"a": eightLines, "b": "b\n", "src/x": "x\n"})
	one, two := p.task(t), p.task(t)
	ws := "/workspaces/" + one.str("workspace_id")
	lines := strings.Split(eightLines, "\n")
	with := func(n int, text string) { lines[n-1] = text }
	edit := func(k *taskOf, actor string) {
		k.step(t, "put a "+strings.Join(lines, "\n"), "X-Actor", actor)
	}
	with(1, "bob")
	edit(one, "bob")
	with(8, "eve")
	edit(two, "eve")
	two.step(t, "put src/x bob", "X-Actor", "bob")
	two.step(t, "put b eve", "X-Actor", "eve")
	p.byHand(t, "put hand by hand")
	one.sync(t)
	revert := func(body map[string]any) map[string]any {
		t.Helper()
		return p.post(t, ws+"/revert", body).want(t, 200).obj(t)
	}
	for _, c := range []struct {
		body    map[string]any
		entries int
	}{
		{map[string]any{"actor": "nobody"}, 0},
		{map[string]any{"actor": "bob"}, 2},
		{map[string]any{"actor": "bob", "paths": []string{"src"}}, 1},
		{map[string]any{"actor": "bob", "paths": []string{"sr"}}, 0},
		{map[string]any{"source": "external"}, 1},
		{map[string]any{"since": "2000-01-01T00:00:00Z"}, 4},
		{map[string]any{"since": "2000-01-01T00:00:00Z", "include_external": true}, 5},
		{map[string]any{"until": "2000-01-01T00:00:00Z"}, 0},
		{map[string]any{"paths": []string{"a", "b"}}, 3},
	} {
		c.body["dry_run"] = true
		if o := revert(c.body); fmt.Sprint(o["entries_reverted"]) != fmt.Sprint(c.entries) {
			t.Errorf("%v: %v, want %d entries", c.body, o, c.entries)
		}
	}
	for field, value := range map[string]any{"since": "yesterday", "until": "1h", "source": "nothing", "actor": ""} {
		refused(t, p.post(t, ws+"/revert", map[string]any{field: value}), 400, "invalid_field")
	}
	refused(t, p.post(t, ws+"/revert", map[string]any{"paths": []string{"../x"}}), 400, "bad_path")
	// Bob's work is undone in both tasks, by one commit; Eve's stays.
	o := revert(map[string]any{"actor": "bob"})
	with(1, "1")
	if got := p.read(t, "a"); got != strings.Join(lines, "\n") || p.read(t, "src/x") != "x\n" || p.read(t, "b") != "eve" || p.read(t, "hand") != "by hand" {
		t.Errorf("after bob's revert: a %q", got)
	}
	if again := revert(map[string]any{"actor": "bob"}); again["commit"] != nil {
		t.Errorf("bob's work is undone twice: %v", again)
	}
	// A revert is taken back as one, too.
	p.post(t, ws+"/commits/"+fmt.Sprint(o["commit"])+"/revert", nil).want(t, 200)
	if p.read(t, "src/x") != "bob" {
		t.Error("bob's work is not back")
	}
	revert(map[string]any{"source": "external"})
	if _, err := os.Lstat(p.dir + "/hand"); err == nil {
		t.Error("the external change is not undone")
	}
	one.fsck(t)
}

// refused checks an error of a workspaces route.
func refused(t *testing.T, r *answer, status int, code string) {
	t.Helper()
	var o struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(r.Body, &o); err != nil || r.Status != status || o.Error != code {
		t.Errorf("%s: %d %s, want %d %s", r.what, r.Status, r.Body, status, code)
	}
}

// TestMoveNames: a move and a batch's rename take both pairs of names, and a
// message is shown with the entry.
func TestMoveNames(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, map[string]string{"a": "a\n"})
	k := p.task(t)
	p.post(t, k.url("/move"), map[string]any{"path": "a", "new_path": "b"}, "X-Message", "why: because é").want(t, 200)
	p.post(t, k.url("/move"), map[string]any{"from": "b", "to": "c"}).want(t, 200)
	p.post(t, k.url("/batch"), map[string]any{"message": "two\nlines", "operations": []any{map[string]any{"op": "rename", "from": "c", "to": "d"}}}).want(t, 200)
	p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "rename", "path": "d", "new_path": "e"}}}).want(t, 200)
	k.put(t, "e", "new\n", "X-Message", "new text").want(t, 200)
	var messages []any
	for _, e := range k.changes(t, "") {
		messages = append(messages, e["message"])
	}
	if got := fmt.Sprintf("%q", fmt.Sprint(messages)); got != `"[why: because é <nil> two\n\nlines <nil> new text]"` {
		t.Errorf("messages: %s", got)
	}
	before := lay(t, p.dir)
	for _, body := range []map[string]any{{"from": "e"}, {"to": "x"}, {"from": "e", "path": "f", "to": "x"}, {"from": "e", "to": "x", "new_path": "y"}} {
		o := p.post(t, k.url("/move"), body).fails(t, 422, "validation_failed")
		if d := fmt.Sprint(o["detail"]); !strings.Contains(d, "path") {
			t.Errorf("%v: %s", body, d)
		}
	}
	for _, op := range []map[string]any{{"op": "rename", "from": "e"}, {"op": "write", "from": "e", "content": ""}, {"op": "delete", "to": "e"}, {"op": "copy", "path": "e"}} {
		p.post(t, k.url("/batch"), map[string]any{"operations": []any{op}}).fails(t, 422, "validation_failed")
	}
	for _, bad := range []string{"", "a\tb", strings.Repeat("x", 1001)} {
		k.put(t, "e", "no\n", "X-Message", bad).want(t, 400)
	}
	same(t, lay(t, p.dir), before)
	if out := k.git(t, "log", "-1", "--format=%s", "refs/umbra/head"); strings.TrimSpace(out) != "new text" {
		t.Errorf("the commit's subject is %q", out)
	}
}

// TestRevertDiff: a dry run with diff shows each file as the revert would leave
// it, merged with what others did since.
func TestRevertDiff(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, map[string]string{"a": eightLines, "gone": "gone\n"})
	k, other := p.task(t), p.task(t)
	line := func(n int, text, in string) string {
		list := strings.SplitAfter(in, "\n")
		list[n-1] = text + "\n"
		return strings.Join(list, "")
	}
	mine := line(1, "mine", eightLines)
	k.step(t, "put a "+mine)
	k.step(t, "put made x\n")
	k.step(t, "del gone")
	other.step(t, "put a "+line(8, "theirs", mine))
	k.revert(t, "", map[string]any{"diff": true}).fails(t, 400, "unknown_field")
	o := k.revert(t, "", map[string]any{"dry_run": true, "diff": true}).want(t, 200)
	var patch strings.Builder
	for _, f := range o.list(t, "files") {
		fmt.Fprintf(&patch, "%s", f["diff"])
		if f["path"] == "a" && (f["action"] != "merged" || !strings.Contains(fmt.Sprint(f["diff"]), "-mine\n+1\n") || !strings.Contains(fmt.Sprint(f["diff"]), "additions") && fmt.Sprint(f["additions"]) != "1") {
			t.Errorf("the merged file: %v", f)
		}
	}
	before := lay(t, p.dir)
	k.revert(t, "", map[string]any{"plan": o.obj(t)["plan"]}).want(t, 200)
	after := lay(t, p.dir)
	// The patch leads from the one to the other.
	q := p.on(t, nil)
	for name, what := range before {
		_, data, _ := strings.Cut(what, " ")
		q.lay(t, map[string]string{name: data})
	}
	need.NoError(t, os.WriteFile(q.dir+"/.patch", []byte(patch.String()), 0o600))
	apply := exec.Command("git", "apply", ".patch")
	apply.Dir = q.dir
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v: %s\n%s", err, out, patch.String())
	}
	need.NoError(t, os.Remove(q.dir+"/.patch"))
	same(t, lay(t, q.dir), after)
}
