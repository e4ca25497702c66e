package tests

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

func TestChangelog(t *testing.T) {
	p := newProject(t, map[string]string{"package.json": "{}", "src/app.js": "old"})
	k := p.task(t)
	start := time.Now().Add(-2 * time.Second)
	k.put(t, "package.json", "{1}", "X-Subtask-Id", "install-deps", "X-Actor", "claude").want(t, 200)
	k.put(t, "tsconfig.json", "{}", "X-Subtask-Id", "add-tsconfig").want(t, 201)
	p.post(t, k.url("/move"), map[string]any{"from": "src/app.js", "to": "src/app.ts"}, "X-Subtask-Id", "rename").want(t, 200)
	last := k.put(t, "src/app.ts", "new", "X-Subtask-Id", "add-types").want(t, 200)

	r := p.call(t, "GET", k.url("/changes"), nil).want(t, 200)
	o := r.obj(t)
	has(t, o, map[string]any{"task_id": k.ID, "workspace": k.str("workspace"), "next": nil})
	list := r.list(t, "entries")
	old := strings.TrimSpace(k.git(t, "rev-parse", k.str("base")+":src/app.js"))
	sum := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("new")))
	wants := []map[string]any{
		{"id": 1, "seq": 2, "operation": "modify", "path": "package.json", "new_path": nil, "subtask_id": "install-deps", "actor": "claude", "mode": "100644"},
		{"id": 2, "seq": 3, "operation": "create", "path": "tsconfig.json", "before_snapshot": nil},
		{"id": 3, "seq": 4, "operation": "rename", "path": "src/app.js", "new_path": "src/app.ts"},
		{"id": 4, "seq": 5, "operation": "modify", "path": "src/app.ts", "before_snapshot": "git:" + old, "after_hash": sum,
			"commit": last.str(t, "commit"), "reverts": nil, "source": "api", "task_id": k.ID, "subtask_id": "add-types"},
	}
	if len(list) != len(wants) {
		t.Fatalf("%d entries: %s", len(list), r.Body)
	}
	for i, w := range wants {
		has(t, list[i], w)
		at, err := time.Parse(time.RFC3339, list[i]["timestamp"].(string))
		if err != nil || !strings.HasSuffix(list[i]["timestamp"].(string), "Z") || at.Before(start) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("timestamp %v", list[i]["timestamp"])
		}
	}
	if b := p.call(t, "GET", k.url("/changes/4/before"), nil).want(t, 200); string(b.Body) != "old" {
		t.Errorf("before is %q", b.Body)
	}
	p.call(t, "GET", k.url("/changes/2/before"), nil).fails(t, 404, "no_snapshot")
	for _, n := range []string{"0", "5", "x", "-1", "18446744073709551616"} {
		p.call(t, "GET", k.url("/changes/"+n+"/before"), nil).fails(t, 404, "change_not_found")
	}
	for query, want := range map[string][]string{
		"?subtask_id=rename":         {"rename src/app.js -> src/app.ts"},
		"?path=src/app.ts":           {"rename src/app.js -> src/app.ts", "modify src/app.ts"},
		"?path=src":                  {"rename src/app.js -> src/app.ts", "modify src/app.ts"},
		"?path=src/app.js":           {"rename src/app.js -> src/app.ts"},
		"?path=nothing":              {},
		"?after=3":                   {"modify src/app.ts"},
		"?after=4":                   {},
		"?subtask_id=none":           {},
		"?path=src&subtask_id=reame": {},
	} {
		if got := briefs(k.changes(t, query)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, q := range []string{"?limit=0", "?limit=10001", "?after=-1", "?after=x"} {
		p.call(t, "GET", k.url("/changes")+q, nil).fails(t, 400, "invalid_parameter")
	}
	p.call(t, "GET", k.url("/changes?path=../x"), nil).fails(t, 400, "bad_path")

	// The same after a kill: everything comes from history.
	p.crash()
	if again := p.call(t, "GET", k.url("/changes"), nil).want(t, 200); string(again.Body) != string(r.Body) {
		t.Errorf("after a kill the changelog is\n%s\nand was\n%s", again.Body, r.Body)
	}
	o = p.call(t, "GET", k.url(""), nil).want(t, 200).obj(t)
	if got, want := testJSON(o["subtasks"]), `[{"changes":1,"first":1,"id":"install-deps","last":1},{"changes":1,"first":2,"id":"add-tsconfig","last":2},{"changes":1,"first":3,"id":"rename","last":3},{"changes":1,"first":4,"id":"add-types","last":4}]`; got != want {
		t.Errorf("subtasks are %s", got)
	}
	has(t, o, map[string]any{"changes": 4, "head": last.str(t, "commit")})
}

func TestChangelogPages(t *testing.T) {
	p := newProject(t, nil)
	k := p.task(t)
	other := p.task(t)
	var want []string
	for i := range 12 {
		name := fmt.Sprintf("f%02d", i)
		switch i % 3 {
		case 0, 1:
			k.put(t, name, "x").want(t, 201)
			want = append(want, "create "+name)
		case 2:
			other.put(t, name, "x").want(t, 201)
			p.post(t, k.url("/batch"), map[string]any{"operations": []any{
				map[string]any{"op": "write", "path": name + "a", "content": ""}, map[string]any{"op": "write", "path": name + "b", "content": ""}}}).want(t, 200)
			want = append(want, "create "+name+"a", "create "+name+"b")
		}
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		after, pages := "0", 0
		for after != "" {
			r := p.call(t, "GET", k.url(fmt.Sprintf("/changes?limit=%d&after=%s", limit, after)), nil).want(t, 200)
			list := r.list(t, "entries")
			got = append(got, briefs(list)...)
			after = ""
			if next := r.obj(t)["next"]; next != nil {
				after = fmt.Sprint(next)
				if len(list) != limit {
					t.Errorf("a page that is not the last has %d of %d", len(list), limit)
				}
			}
			if pages++; pages > 20 {
				t.Fatal("pages without end")
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("limit %d: %v, want %v", limit, got, want)
		}
	}
	// The workspace's log, newest first, holds both tasks' entries.
	var log []map[string]any
	next := ""
	for {
		r := p.call(t, "GET", "/workspaces/"+k.str("workspace_id")+"/log?limit=3"+next, nil).want(t, 200)
		log = append(log, r.list(t, "entries")...)
		n, _ := r.obj(t)["next"].(string)
		if n == "" {
			break
		}
		next = "&after=" + n
	}
	if len(log) != len(want)+4 {
		t.Errorf("the log has %d entries", len(log))
	}
	var mine []string
	for _, e := range slices.Backward(log) {
		if e["task_id"] == k.ID {
			mine = append(mine, describe(e))
		}
	}
	if !slices.Equal(mine, want) {
		t.Errorf("the log has %v, want %v", mine, want)
	}
}

// What a person changed belongs to the one task that executes, or to none.
func TestExternalChanges(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0", "g": "0"})
	k := p.task(t)
	write := func(name, data string) {
		t.Helper()
		need.NoError(t, os.WriteFile(filepath.Join(p.dir, name), []byte(data), 0o644))
	}
	write("f", "mine alone")
	if got := k.sync(t).obj(t); fmt.Sprint(got["changed"]) != "1" || got["commit"] == nil {
		t.Errorf("sync tells %v", got)
	}
	list := k.changes(t, "")
	if len(list) != 1 {
		t.Fatalf("the task has %v", list)
	}
	has(t, list[0], map[string]any{"source": "external", "path": "f", "operation": "modify", "task_id": k.ID})
	if got := k.sync(t).obj(t); fmt.Sprint(got["changed"]) != "0" || got["commit"] != nil {
		t.Errorf("a second sync tells %v", got)
	}

	two := p.task(t)
	write("f", "of two")
	k.sync(t)
	p.call(t, "PATCH", two.url(""), map[string]any{"status": "paused"}).want(t, 200)
	write("g", "of one again")
	k.sync(t)
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	write("g", "of nobody")
	k.sync(t)
	if got, want := briefs(k.changes(t, "")), []string{"modify f", "modify g"}; !slices.Equal(got, want) {
		t.Errorf("the first task has %v", got)
	}
	if got := two.changes(t, ""); len(got) != 0 {
		t.Errorf("the second task has %v", got)
	}
	log := p.call(t, "GET", "/workspaces/"+k.str("workspace_id")+"/log", nil).want(t, 200).list(t, "entries")
	var owners []any
	for _, e := range log {
		owners = append(owners, e["task_id"])
	}
	if want := []any{nil, k.ID, nil, k.ID}; !slices.Equal(owners, want) {
		t.Errorf("the log's owners are %v, want %v", owners, want)
	}
	if out := k.git(t, "log", "--format=%s", "-1", "refs/umbra/head"); out != "external change (1 files)" {
		t.Errorf("git reads %q", out)
	}
}

// The base is the folder as it is when the task begins.
func TestBaseHoldsWhatWasThere(t *testing.T) {
	p := newProject(t, map[string]string{"f": "0"})
	first := p.task(t)
	p.fill(t, map[string]string{"f": "while the first runs"})
	second := p.task(t)
	if got, want := briefs(first.changes(t, "")), []string{"modify f"}; !slices.Equal(got, want) {
		t.Errorf("the first task has %v", got)
	}
	for _, k := range []*taskOf{first, second} {
		p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	}
	p.fill(t, map[string]string{"f": "while nobody runs"})
	third := p.task(t)
	if got := fmt.Sprint(third.sync(t).obj(t)["changed"]); got != "0" {
		t.Errorf("%s changes came after the task began", got)
	}
	if got := third.changes(t, ""); len(got) != 0 {
		t.Errorf("the third task has %v", got)
	}
	if got := third.git(t, "show", third.str("base")+":f"); got != "while nobody runs" {
		t.Errorf("its base has %q", got)
	}
	need.NoError(t, os.RemoveAll(p.dir))
	p.post(t, "/tasks", map[string]any{"goal": "g", "workspace": p.dir}).fails(t, 400, "workspace_not_found")
	p.fill(t, map[string]string{"other": "1"})
	p.post(t, "/tasks", map[string]any{"goal": "g", "workspace": p.dir}).fails(t, 409, "workspace_missing")
}

// A person's save that is not in history yet is recorded before it is replaced.
func TestReplacedSaveIsKept(t *testing.T) {
	p := newProject(t, map[string]string{"f": "zero"})
	k := p.task(t)
	need.NoError(t, os.WriteFile(filepath.Join(p.dir, "f"), []byte("the person's"), 0o644))
	k.put(t, "f", "the agent's").want(t, 200)
	var found bool
	for line := range strings.FieldsSeq(k.git(t, "rev-list", "refs/umbra/head")) {
		found = found || k.git(t, "cat-file", "blob", line+":f") == "the person's"
	}
	if !found {
		t.Error("the person's bytes are in no commit")
	}
	if p.read(t, "f") != "the agent's" {
		t.Errorf("f holds %q", p.read(t, "f"))
	}
}
