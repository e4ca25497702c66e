package tests

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

func TestTaskCreate(t *testing.T) {
	p := newProject(t, map[string]string{"README.md": "hello\n", "src/app.ts": "let a = 1\n"})
	r := p.post(t, "/tasks", map[string]any{"goal": "Add types\n\nand tests", "workspace": p.dir, "metadata": map[string]any{"model": "m", "n": 1.5}}).want(t, 201)
	o := r.obj(t)
	id := r.str(t, "task_id")
	if got := r.head("Location"); got != "/tasks/"+id {
		t.Errorf("Location is %q", got)
	}
	has(t, o, map[string]any{"status": "executing", "warnings": []any{}, "changes": 0, "goal": "Add types\n\nand tests", "head": o["base"], "pinned": false})
	real, err := filepath.EvalSymlinks(p.dir)
	need.NoError(t, err)
	has(t, o, map[string]any{"workspace": real})
	for _, area := range []string{"scratch", "artifacts"} {
		dir := r.str(t, area)
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			t.Errorf("%s: %v", area, err)
		}
	}
	for _, f := range []string{"created", "updated"} {
		if at, err := time.Parse(time.RFC3339, r.str(t, f)); err != nil || !strings.HasSuffix(r.str(t, f), "Z") || time.Since(at) > time.Hour {
			t.Errorf("%s is %q", f, r.str(t, f))
		}
	}
	has(t, p.call(t, "GET", "/tasks/"+id, nil).want(t, 200).obj(t), map[string]any{"task_id": id, "base": o["base"], "metadata": o["metadata"]})

	k := &taskOf{p: p, ID: id, At: o}
	if got := strings.Fields(k.git(t, "ls-tree", "-r", "--name-only", r.str(t, "base"))); !slices.Equal(got, []string{"README.md", "src/app.ts"}) {
		t.Errorf("the base holds %v", got)
	}
	if got := strings.TrimSpace(k.git(t, "rev-parse", "refs/umbra/tasks/"+id+"/base")); got != r.str(t, "base") {
		t.Errorf("the base's ref is %s", got)
	}
	info := k.git(t, "cat-file", "tag", "refs/umbra/tasks/"+id+"/info")
	for _, want := range []string{"object " + r.str(t, "base"), "Add types", "Status: executing", `Metadata: {"model":"m","n":1.5}`} {
		if !strings.Contains(info, want) {
			t.Errorf("the info tag lacks %q:\n%s", want, info)
		}
	}
	k.fsck(t)
	if entries, err := os.ReadDir(p.dir); err != nil || len(entries) != 2 {
		t.Errorf("the project's folder got something: %v", entries)
	}
}

func TestTaskCreateRefuses(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x", "sub/f": "x"})
	home, err := os.UserHomeDir()
	need.NoError(t, err)
	p.task(t, "task_id", "taken")
	long := strings.Repeat("x", 10<<10)
	for _, c := range []struct {
		name   string
		body   map[string]any
		status int
		code   string
		field  string
	}{
		{"no goal", map[string]any{"workspace": p.dir}, 422, "validation_failed", "goal"},
		{"empty goal", map[string]any{"goal": " \n", "workspace": p.dir}, 422, "validation_failed", "goal"},
		{"no workspace", map[string]any{"goal": "g"}, 422, "validation_failed", "workspace"},
		{"relative", map[string]any{"goal": "g", "workspace": "sub"}, 422, "validation_failed", "workspace"},
		{"missing", map[string]any{"goal": "g", "workspace": p.dir + "/nothing"}, 400, "workspace_not_found", ""},
		{"a file", map[string]any{"goal": "g", "workspace": p.dir + "/f"}, 400, "workspace_not_directory", ""},
		{"the root", map[string]any{"goal": "g", "workspace": "/"}, 400, "workspace_too_wide", ""},
		{"a home", map[string]any{"goal": "g", "workspace": home}, 400, "workspace_too_wide", ""},
		{"inside another", map[string]any{"goal": "g", "workspace": p.dir + "/sub"}, 409, "workspace_overlaps", ""},
		{"around another", map[string]any{"goal": "g", "workspace": filepath.Dir(p.dir)}, 409, "workspace_overlaps", ""},
		{"taken id", map[string]any{"goal": "g", "workspace": p.dir, "task_id": "taken"}, 409, "task_exists", ""},
		{"bad id", map[string]any{"goal": "g", "workspace": p.dir, "task_id": "a..b"}, 400, "invalid_task_id", "task_id"},
		{"id with a newline", map[string]any{"goal": "g", "workspace": p.dir, "task_id": "a\nStatus: completed"}, 400, "invalid_task_id", "task_id"},
		{"id of a lock", map[string]any{"goal": "g", "workspace": p.dir, "task_id": "a.lock"}, 400, "invalid_task_id", "task_id"},
		{"huge id", map[string]any{"goal": "g", "workspace": p.dir, "task_id": long}, 400, "invalid_task_id", "task_id"},
		{"metadata", map[string]any{"goal": "g", "workspace": p.dir, "metadata": []any{1}}, 422, "validation_failed", "metadata"},
		{"virtual with a folder", map[string]any{"goal": "g", "kind": "virtual", "workspace": p.dir}, 422, "validation_failed", "workspace"},
		{"namespace with a folder", map[string]any{"goal": "g", "namespace": []string{"a"}, "workspace": p.dir}, 422, "validation_failed", "namespace"},
		{"empty segment", map[string]any{"goal": "g", "kind": "virtual", "namespace": []string{""}}, 422, "validation_failed", "namespace"},
		{"unknown kind", map[string]any{"goal": "g", "kind": "cloud"}, 422, "validation_failed", "kind"},
		{"goal of a wrong type", map[string]any{"goal": 1, "workspace": p.dir}, 400, "invalid_field", "goal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := p.post(t, "/tasks", c.body).fails(t, c.status, c.code)
			if c.field != "" {
				has(t, o, map[string]any{"field": c.field})
			}
		})
	}
	if got := len(p.call(t, "GET", "/tasks", nil).want(t, 200).list(t, "tasks")); got != 1 {
		t.Errorf("%d tasks after all were refused", got)
	}
}

func TestTaskSameFolder(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	a := p.task(t)
	link := filepath.Join(t.TempDir(), "link")
	need.NoError(t, os.Symlink(p.dir, link))
	for _, spelling := range []string{p.dir + "/", p.dir + "/./", p.dir + "/../" + filepath.Base(p.dir), link} {
		b := p.task(t, "workspace", spelling)
		if a.str("workspace_id") != b.str("workspace_id") || a.str("workspace") != b.str("workspace") {
			t.Errorf("%s is another workspace", spelling)
		}
	}
}

func TestTaskStatus(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	patch := func(body map[string]any) *answer { return p.call(t, "PATCH", k.url(""), body) }
	has(t, patch(map[string]any{"status": "paused"}).want(t, 200).obj(t), map[string]any{"status": "paused"})
	k.put(t, "f", "no").fails(t, 409, "task_paused")
	p.call(t, "PUT", k.url("/scratch/x"), []byte("no")).fails(t, 409, "task_paused")
	patch(map[string]any{"status": "sleeping"}).fails(t, 422, "validation_failed")
	patch(map[string]any{"goal": ""}).fails(t, 422, "validation_failed")
	has(t, patch(map[string]any{"status": "executing", "goal": "another", "pinned": true, "metadata": map[string]any{"a": "b"}}).want(t, 200).obj(t),
		map[string]any{"status": "executing", "goal": "another", "pinned": true, "metadata": map[string]any{"a": "b"}})
	k.put(t, "f", "yes").want(t, 200)
	p.call(t, "DELETE", k.url(""), nil).fails(t, 409, "task_executing")
	has(t, patch(map[string]any{"status": "completed"}).want(t, 200).obj(t), map[string]any{"status": "completed", "changes": 1})
	for _, try := range []*answer{
		k.put(t, "f", "no"),
		p.call(t, "DELETE", k.file("f"), nil),
		p.post(t, k.url("/move"), map[string]any{"from": "f", "to": "g"}),
		p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "delete", "path": "f"}}}),
		p.call(t, "PUT", k.url("/artifacts/x"), []byte("no")),
		patch(map[string]any{"status": "executing"}),
	} {
		has(t, try.fails(t, 409, "task_ended"), map[string]any{"task_id": k.ID})
	}
	patch(map[string]any{"status": "completed"}).want(t, 200)
	if got := p.read(t, "f"); got != "yes" {
		t.Errorf("f holds %q", got)
	}
	p.call(t, "DELETE", k.url(""), nil).want(t, 204)
	p.call(t, "GET", k.url(""), nil).fails(t, 404, "task_not_found")
	p.call(t, "DELETE", k.url(""), nil).fails(t, 404, "task_not_found")
	if _, err := os.Stat(k.str("scratch")); !os.IsNotExist(err) {
		t.Errorf("scratch is still there: %v", err)
	}
	p.post(t, "/tasks", map[string]any{"goal": "g", "workspace": p.dir, "task_id": k.ID}).fails(t, 409, "task_exists")
	log := p.call(t, "GET", "/workspaces/"+k.str("workspace_id")+"/log?task_id="+k.ID, nil).want(t, 200).list(t, "entries")
	if len(log) != 1 || log[0]["task_id"] != k.ID {
		t.Errorf("the log forgot the task: %v", log)
	}
	if !strings.Contains(k.git(t, "for-each-ref", "--format=%(refname)"), "refs/umbra/tasks/"+k.ID+"/head") {
		t.Error("the task's refs are gone")
	}
	p.restart()
	p.call(t, "GET", k.url(""), nil).fails(t, 404, "task_not_found")
	p.post(t, "/tasks", map[string]any{"goal": "g", "workspace": p.dir, "task_id": k.ID}).fails(t, 409, "task_exists")
}

func TestTaskList(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	other := t.TempDir()
	var newestFirst []string
	for i := range 7 {
		dir := p.dir
		if i%3 == 2 {
			dir = other
		}
		k := p.task(t, "task_id", fmt.Sprintf("t%d", i), "workspace", dir)
		newestFirst = append([]string{k.ID}, newestFirst...)
	}
	p.call(t, "PATCH", "/tasks/t4", map[string]any{"status": "failed"}).want(t, 200)
	pages := func(query string) (got []string) {
		after := ""
		for {
			r := p.call(t, "GET", "/tasks?limit=2"+query+after, nil).want(t, 200)
			list := r.list(t, "tasks")
			for _, o := range list {
				got = append(got, o["task_id"].(string))
			}
			next, _ := r.obj(t)["next"].(string)
			if next == "" {
				return got
			}
			if len(list) != 2 {
				t.Fatalf("a page that is not the last has %d", len(list))
			}
			after = "&after=" + url.QueryEscape(next)
		}
	}
	for _, when := range []string{"now", "after a restart"} {
		if got := pages(""); !slices.Equal(got, newestFirst) {
			t.Errorf("%s: %v, want %v", when, got, newestFirst)
		}
		if got := pages("&status=failed"); !slices.Equal(got, []string{"t4"}) {
			t.Errorf("%s: failed are %v", when, got)
		}
		if got := pages("&workspace=" + url.QueryEscape(other)); !slices.Equal(got, []string{"t5", "t2"}) {
			t.Errorf("%s: on the other folder are %v", when, got)
		}
		ws := p.call(t, "GET", "/tasks/t5", nil).want(t, 200).str(t, "workspace_id")
		if got := pages("&status=executing&workspace=" + ws); !slices.Equal(got, []string{"t5", "t2"}) {
			t.Errorf("%s: by id %v", when, got)
		}
		if got := pages("&workspace=nothing"); len(got) != 0 {
			t.Errorf("%s: on nothing are %v", when, got)
		}
		p.restart()
	}
	for _, q := range []string{"?status=sleeping", "?limit=0", "?limit=x", "?after=!", "?limit=1&limit=2", "?status=%zz"} {
		p.call(t, "GET", "/tasks"+q, nil).fails(t, 400, "invalid_parameter")
	}
}

func TestTaskCreateIsIdempotent(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	body := map[string]any{"goal": "once", "workspace": p.dir}
	a := p.post(t, "/tasks", body, "Idempotency-Key", "k-1").want(t, 201)
	b := p.post(t, "/tasks", body, "Idempotency-Key", "k-1").want(t, 201)
	if string(a.Body) != string(b.Body) || b.head("Idempotent-Replay") != "true" || a.head("Idempotent-Replay") != "" {
		t.Errorf("not the same answer:\n%s\n%s", a.Body, b.Body)
	}
	p.crash()
	c := p.post(t, "/tasks", body, "Idempotency-Key", "k-1").want(t, 201)
	if c.str(t, "task_id") != a.str(t, "task_id") || c.head("Idempotent-Replay") != "true" {
		t.Errorf("another task after a kill: %s", c.Body)
	}
	body["goal"] = "twice"
	p.post(t, "/tasks", body, "Idempotency-Key", "k-1").fails(t, 422, "idempotency_key_reused")
	if got := len(p.call(t, "GET", "/tasks", nil).want(t, 200).list(t, "tasks")); got != 1 {
		t.Errorf("%d tasks", got)
	}
}

func TestTaskUnknown(t *testing.T) {
	p := newProject(t, nil)
	for _, id := range []string{"nothing", "%2e%2e", "a%0ab", "a%2Fb", strings.Repeat("x", 200), "%ff"} {
		for _, rest := range []string{"", "/content?path=f", "/changes", "/stream", "/scratch", "/artifacts/x"} {
			p.call(t, "GET", "/tasks/"+id+rest, nil).fails(t, 404, "task_not_found")
		}
		p.call(t, "PUT", "/tasks/"+id+"/content?path=f", []byte("x")).fails(t, 404, "task_not_found")
	}
	p.call(t, "POST", "/tasks/x", nil).want(t, 405)
}
