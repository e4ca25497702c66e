package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestSessionLifecycle(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	real, err := filepath.EvalSymlinks(p.dir)
	need.NoError(t, err)
	link := filepath.Join(t.TempDir(), "link")
	need.NoError(t, os.Symlink(p.dir, link))
	r := p.post(t, "/api/sessions", map[string]any{"workspaceRoot": link + "/../link/.", "authType": "oauth", "model": "m-1", "org": "acme"}).want(t, 201)
	o := r.obj(t)
	has(t, o, map[string]any{"workspaceRoot": real})
	id := o["sessionId"].(string)
	if !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(id) {
		t.Errorf("%s is no UUID", id)
	}
	if got := r.head("Location"); got != "/api/sessions/"+id {
		t.Errorf("Location %s", got)
	}
	s := &fileSession{p: p, ID: id, At: o}
	got := p.call(t, "GET", s.url(""), nil).want(t, 200).obj(t)
	has(t, got, map[string]any{"sessionId": id, "authType": "oauth", "model": "m-1", "org": "acme", "taskId": o["taskId"]})
	second := p.session(t)
	list := p.call(t, "GET", "/api/sessions", nil).want(t, 200).list(t, "sessions")
	if len(list) != 2 || list[0]["sessionId"] != id || list[1]["sessionId"] != second.ID {
		t.Errorf("%v", list)
	}
	// Its task is a task like any other.
	k := s.task(t)
	has(t, k.At, map[string]any{"status": "executing", "workspace": real})
	s.put(t, "f", "y").want(t, 200)
	sameList(t, "changes", briefs(k.changes(t, "")), "modify f")
	for _, body := range []map[string]any{
		{}, {"workspaceRoot": ""}, {"workspaceRoot": "relative"}, {"workspaceRoot": p.dir + "/none"}, {"workspaceRoot": p.dir + "/f"}, {"workspaceRoot": "/"},
		{"workspaceRoot": p.dir, "taskId": "a/b"}, {"workspaceRoot": p.dir, "taskId": ""}, {"workspaceRoot": 1}, {"workspaceRoot": "/a\x00b"},
	} {
		p.post(t, "/api/sessions", body).refuses(t, 400)
	}
	p.fill(t, map[string]string{"inner/x": "x"})
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir + "/inner"}).refuses(t, 409)
	for _, unknown := range []string{"nope", "00000000-0000-4000-8000-000000000000"} {
		for _, rest := range []string{"", "/fs", "/fs/list", "/fs/stat?path=f", "/fs/download?path=f"} {
			if text := p.call(t, "GET", "/api/sessions/"+unknown+rest, nil).refuses(t, 404); text != "Session not found" {
				t.Errorf("%q", text)
			}
		}
		p.post(t, "/api/sessions/"+unknown+"/fs/write", map[string]any{"path": "x", "content": ""}).refuses(t, 404)
		p.call(t, "DELETE", "/api/sessions/"+unknown, nil).refuses(t, 404)
	}
	// Both stay over a stop and a kill.
	p.restart()
	has(t, p.call(t, "GET", s.url(""), nil).want(t, 200).obj(t), map[string]any{"model": "m-1", "createdAt": got["createdAt"]})
	p.crash()
	s.put(t, "g", "z").want(t, 201)
	second.put(t, "h", "z").want(t, 201)
	p.call(t, "DELETE", s.url(""), nil).want(t, 204)
	p.call(t, "GET", s.url(""), nil).refuses(t, 404)
	s.put(t, "g", "z").refuses(t, 404)
	has(t, s.task(t).At, map[string]any{"status": "completed"})
	has(t, second.task(t).At, map[string]any{"status": "executing"})
	p.crash()
	p.call(t, "GET", s.url(""), nil).refuses(t, 404)
	second.put(t, "h", "zz").want(t, 200)
}

func TestSessionExpires(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "sessions: {idle: 2s}\n"}), dir: t.TempDir()}
	// While it is used it stays: one that a busy machine leaves alone for longer says
	// nothing.
	used := func(s *fileSession) bool {
		last := time.Now()
		for end := last.Add(3 * time.Second); last.Before(end); {
			sent := time.Now()
			a := p.call(t, "GET", s.url(""), nil)
			if a.Status == 404 && time.Since(last) > 1500*time.Millisecond {
				return false
			}
			a.want(t, 200)
			last = sent
		}
		return true
	}
	s := p.session(t)
	for !used(s) {
		s = p.session(t)
	}
	k := s.task(t)
	st := p.Stream(k.url("/stream"))
	defer st.Close()
	for {
		e, ok := st.Next()
		if !ok {
			t.Fatal("the stream ended before the task")
		}
		if e.Name == "task" && strings.Contains(e.Data, `"completed"`) {
			break
		}
	}
	p.call(t, "GET", s.url("/fs"), nil).refuses(t, 404)
	if n := len(p.call(t, "GET", "/api/sessions", nil).want(t, 200).list(t, "sessions")); n != 0 {
		t.Errorf("%d sessions", n)
	}
}

func TestSessionTasks(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	s := p.session(t, "taskId", k.ID)
	if s.At["taskId"] != k.ID {
		t.Errorf("%v", s.At)
	}
	by := p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir}, "X-Task-Id", k.ID).want(t, 201).obj(t)
	has(t, by, map[string]any{"taskId": k.ID})
	other := &project{Server: p.Server, dir: t.TempDir()}
	ko := other.task(t)
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir, "taskId": k.ID}, "X-Task-Id", ko.ID).refuses(t, 400)
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir}, "X-Task-Id", "a b").refuses(t, 400)
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir, "taskId": "unknown"}).refuses(t, 404)
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir, "taskId": ko.ID}).refuses(t, 409)
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": t.TempDir(), "taskId": k.ID}).refuses(t, 409)

	// Headers tag a change.
	k2 := p.task(t)
	s.put(t, "f", "1", "X-Subtask-Id", "sub-1", "X-Actor", "claude").want(t, 200)
	s.put(t, "f", "2", "X-Task-Id", k2.ID).want(t, 200)
	has(t, k.changes(t, "")[0], map[string]any{"task_id": k.ID, "subtask_id": "sub-1", "actor": "claude", "source": "api"})
	has(t, k2.changes(t, "")[0], map[string]any{"task_id": k2.ID, "path": "f"})
	s.put(t, "f", "3", "X-Task-Id", "unknown").refuses(t, 404)
	s.put(t, "f", "3", "X-Task-Id", ko.ID).refuses(t, 409)
	s.put(t, "f", "3", "X-Task-Id", "../x").refuses(t, 400)
	s.put(t, "f", "3", "X-Actor", "a <b>").refuses(t, 400)
	p.call(t, "PATCH", k2.url(""), map[string]any{"status": "paused"}).want(t, 200)
	s.put(t, "f", "3", "X-Task-Id", k2.ID).refuses(t, 409)
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "failed"}).want(t, 200)
	s.put(t, "f", "3").refuses(t, 409)
	s.do(t, "mkdir", "path", ".", "recursive", true).refuses(t, 409)
	s.do(t, "write", "path", "scratch://x", "content", "").refuses(t, 409)
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir, "taskId": k.ID}).refuses(t, 409)
	if s.get(t, "read", "path", "f").want(t, 200).str(t, "content") != "2" {
		t.Error("something was written")
	}
	// A task that was given is not the session's to end.
	p.call(t, "PATCH", k2.url(""), map[string]any{"status": "executing"}).want(t, 200)
	s2 := p.session(t, "taskId", k2.ID)
	p.call(t, "DELETE", s2.url(""), nil).want(t, 204)
	has(t, p.call(t, "GET", k2.url(""), nil).obj(t), map[string]any{"status": "executing"})
}

// A session's own task counts for what a person does from its first change on.
func TestSessionAttribution(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	s := p.session(t)
	k := s.task(t)
	p.fill(t, map[string]string{"before": "a person's"})
	k.sync(t)
	s.put(t, "f", "y").want(t, 200)
	p.fill(t, map[string]string{"after": "a person's"})
	k.sync(t)
	sameList(t, "changes", briefs(k.changes(t, "")), "modify f", "create after")
}

func TestSessionIdempotency(t *testing.T) {
	p := newProject(t, map[string]string{"f": "foo foo"})
	body := map[string]any{"workspaceRoot": p.dir}
	first := p.post(t, "/api/sessions", body, "Idempotency-Key", "k").want(t, 201)
	same := func(a, b *answer) {
		t.Helper()
		if string(a.Body) != string(b.Body) || b.head("Idempotent-Replay") != "true" || a.Status != b.Status {
			t.Errorf("%s: %d %s\nwant %d %s", b.what, b.Status, b.Body, a.Status, a.Body)
		}
	}
	same(first, p.post(t, "/api/sessions", body, "Idempotency-Key", "k"))
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": p.dir, "model": "x"}, "Idempotency-Key", "k").refuses(t, 422)
	s := &fileSession{p: p, ID: first.str(t, "sessionId"), At: first.obj(t)}
	edit := map[string]any{"path": "f", "old_string": "foo", "new_string": "foo2", "allowMultiple": true}
	a := p.post(t, s.fs("replace"), edit, "Idempotency-Key", "e").want(t, 200)
	up := p.call(t, "PUT", s.fs("upload", "path", "u"), []byte("raw"), "Idempotency-Key", "u").want(t, 201)
	del := p.call(t, "DELETE", s.fs("file", "path", "none", "force", "true"), nil, "Idempotency-Key", "d").want(t, 200)
	p.crash()
	same(first, p.post(t, "/api/sessions", body, "Idempotency-Key", "k"))
	same(a, p.post(t, s.fs("replace"), edit, "Idempotency-Key", "e"))
	same(up, p.call(t, "PUT", s.fs("upload", "path", "u"), []byte("raw"), "Idempotency-Key", "u"))
	same(del, p.call(t, "DELETE", s.fs("file", "path", "none", "force", "true"), nil, "Idempotency-Key", "d"))
	p.call(t, "PUT", s.fs("upload", "path", "u"), []byte("other"), "Idempotency-Key", "u").refuses(t, 422)
	if p.read(t, "f") != "foo2 foo2" {
		t.Errorf("%q", p.read(t, "f"))
	}
	// Where the kept answers are lost, what history and records hold is told.
	p.Stop()
	need.NoError(t, os.Remove(filepath.Join(p.DataDir, "answers.log")))
	p.Restart()
	again := p.post(t, s.fs("replace"), edit, "Idempotency-Key", "e").want(t, 200)
	has(t, again.obj(t), map[string]any{"replacements": 2, "commit": a.obj(t)["commit"], "etag": a.obj(t)["etag"]})
	has(t, p.post(t, "/api/sessions", body, "Idempotency-Key", "k").want(t, 201).obj(t), map[string]any{"sessionId": s.ID})
	if n := len(p.call(t, "GET", "/api/sessions", nil).want(t, 200).list(t, "sessions")); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestSessionTokens(t *testing.T) {
	p, dir, as := rooted(t)
	open := func(who, folder string) *answer {
		t.Helper()
		return as(who, "POST", "/api/sessions", map[string]any{"workspaceRoot": dir + "/" + folder})
	}
	open("nobody", "a").refuses(t, 401)
	open("reader", "a").refuses(t, 403) // not known yet
	open("all", "a").refuses(t, 403)
	open("alice", "b").refuses(t, 403)
	s := &fileSession{p: p, ID: open("alice", "a").want(t, 201).str(t, "sessionId")}
	r := &fileSession{p: p, ID: open("reader", "a").want(t, 201).str(t, "sessionId")}
	open("all", "a").want(t, 201)
	open("bob", "a").refuses(t, 403)
	write := map[string]any{"path": "f", "content": "x"}
	as("alice", "POST", s.fs("write"), write).want(t, 201)
	as("reader", "GET", r.fs("read", "path", "f"), nil).want(t, 200)
	as("reader", "POST", r.fs("write"), write).refuses(t, 403)
	as("reader", "DELETE", s.url(""), nil).refuses(t, 403)
	for _, rest := range []string{"", "/fs", "/fs/list", "/fs/read?path=f"} {
		as("bob", "GET", s.url(rest), nil).refuses(t, 404)
	}
	as("bob", "POST", s.fs("write"), write).refuses(t, 404)
	as("bob", "DELETE", s.url(""), nil).refuses(t, 404)
	for who, want := range map[string]int{"alice": 3, "bob": 0, "reader": 3, "all": 3} {
		if got := len(as(who, "GET", "/api/sessions", nil).want(t, 200).list(t, "sessions")); got != want {
			t.Errorf("%s sees %d sessions", who, got)
		}
	}
}

func TestSessionRootsAndLimits(t *testing.T) {
	allowed := t.TempDir()
	p := &project{Server: harness.Start(t, harness.Options{Config: fmt.Sprintf("workspaces: {roots: ['%s']}\nlimits: {write_bytes: 1000, upload_bytes: 2000}\n", allowed)}), dir: allowed}
	p.post(t, "/api/sessions", map[string]any{"workspaceRoot": t.TempDir()}).refuses(t, 403)
	s := p.session(t)
	s.do(t, "write", "path", "x", "content", strings.Repeat("x", 1000)).refuses(t, 413)
	s.do(t, "write", "path", "x", "content", strings.Repeat("x", 900)).want(t, 201)
	p.call(t, "PUT", s.fs("upload", "path", "y"), []byte(strings.Repeat("x", 2000))).want(t, 201)
	p.call(t, "PUT", s.fs("upload", "path", "y"), []byte(strings.Repeat("x", 2001))).refuses(t, 413)
	// Without a length too.
	res := p.Do("PUT", s.fs("upload", "path", "y"), struct{ *strings.Reader }{strings.NewReader(strings.Repeat("x", 2001))})
	if res.Status != 413 {
		t.Errorf("%d %s", res.Status, res.Body)
	}
	res = p.Do("PUT", s.fs("upload", "path", "z"), struct{ *strings.Reader }{strings.NewReader(strings.Repeat("z", 1999))})
	if res.Status != 201 || len(p.read(t, "z")) != 1999 || len(p.read(t, "y")) != 2000 {
		t.Errorf("%d %s", res.Status, res.Body)
	}
	s.diskIsTip(t)
}

func TestSessionAreas(t *testing.T) {
	p := newProject(t, map[string]string{"f": "file"})
	s := p.session(t)
	o := s.do(t, "write", "path", "scratch://notes/a.txt", "content", "one two").want(t, 201).obj(t)
	if has(t, o, map[string]any{"path": "scratch://notes/a.txt", "bytesWritten": 7, "etag": tagOf("one two"), "created": true}); o["commit"] != nil {
		t.Errorf("%v", o)
	}
	s.do(t, "write", "path", "scratch://notes/a.txt", "content", "x", "ifMatchEtag", tagOf("other")).refuses(t, 409)
	p.call(t, "PUT", s.fs("upload", "path", "artifacts://b.bin"), []byte("\xff")).want(t, 201)
	has(t, s.get(t, "read", "path", "scratch://notes/a.txt").want(t, 200).obj(t), map[string]any{"content": "one two", "etag": tagOf("one two")})
	if r := s.get(t, "download", "path", "artifacts://b.bin").want(t, 200); string(r.Body) != "\xff" {
		t.Errorf("%q", r.Body)
	}
	has(t, s.get(t, "stat", "path", "scratch://notes/a.txt").want(t, 200).obj(t), map[string]any{"path": "scratch://notes/a.txt", "size": 7, "isDir": false, "etag": tagOf("one two")})
	has(t, s.get(t, "stat", "path", "scratch://notes").want(t, 200).obj(t), map[string]any{"isDir": true})
	has(t, s.get(t, "stat", "path", "scratch://").want(t, 200).obj(t), map[string]any{"path": "scratch://", "isDir": true})
	s.get(t, "stat", "path", "scratch://none").refuses(t, 404)
	s.get(t, "read", "path", "scratch://notes").refuses(t, 400)
	s.get(t, "read", "path", "scratch://../artifacts/b.bin").refuses(t, 404)
	s.do(t, "mkdir", "path", "scratch://deep/er").refuses(t, 404)
	has(t, s.do(t, "mkdir", "path", "scratch://deep/er", "recursive", true).want(t, 201).obj(t), map[string]any{"created": true})
	s.do(t, "mkdir", "path", "scratch://deep").refuses(t, 409)
	r := s.get(t, "list", "path", "scratch://", "recursive", "true").want(t, 200)
	sameList(t, "list", r.names(t), "scratch://deep", "scratch://deep/er", "scratch://notes", "scratch://notes/a.txt")
	has(t, r.list(t, "entries")[3], map[string]any{"name": "a.txt", "size": 7})
	if got := testJSON(s.get(t, "tree", "path", "scratch://", "depth", "2").want(t, 200).obj(t)); !strings.Contains(got, `"path":"scratch://notes/a.txt"`) {
		t.Error(got)
	}
	has(t, s.do(t, "replace", "path", "scratch://notes/a.txt", "old_string", "two", "new_string", "2").want(t, 200).obj(t), map[string]any{"replacements": 1, "etag": tagOf("one 2")})
	s.do(t, "move", "from", "scratch://notes/a.txt", "to", "scratch://b").want(t, 200)
	s.do(t, "move", "from", "scratch://b", "to", "artifacts://b").want(t, 200)
	s.do(t, "move", "from", "artifacts://b", "to", "f").refuses(t, 422)
	s.do(t, "copy", "from", "artifacts://b", "to", "f").refuses(t, 409)
	o = s.do(t, "copy", "from", "artifacts://b", "to", "copied").want(t, 200).obj(t)
	if o["commit"] == nil || p.read(t, "copied") != "one 2" {
		t.Errorf("%v", o)
	}
	s.do(t, "copy", "from", "f", "to", "scratch://f").want(t, 200)
	s.do(t, "symlink", "path", "scratch://l", "target", "f").refuses(t, 400)
	s.delete(t, "file", "scratch://deep").refuses(t, 400)
	s.delete(t, "dir", "scratch://deep").refuses(t, 400)
	s.delete(t, "dir", "scratch://deep", "recursive", "true").want(t, 200)
	s.delete(t, "file", "scratch://f").want(t, 200)
	s.delete(t, "file", "scratch://f").refuses(t, 404)
	has(t, s.delete(t, "file", "scratch://f", "force", "true").want(t, 200).obj(t), map[string]any{"deleted": false})
	// The tasks dialect sees the same, and another session nothing of it.
	k := s.task(t)
	if r := p.call(t, "GET", k.url("/artifacts/b"), nil).want(t, 200); string(r.Body) != "one 2" {
		t.Errorf("%q", r.Body)
	}
	p.session(t).get(t, "read", "path", "artifacts://b").refuses(t, 404)
	sameList(t, "changes", briefs(k.changes(t, "")), "create copied")
}

func TestSessionWorkspaceGone(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	s := p.session(t)
	k := s.task(t)
	moved := p.dir + "-moved"
	need.NoError(t, os.Rename(p.dir, moved))
	s.put(t, "f", "y").refuses(t, 409)
	s.get(t, "read", "path", "f").refuses(t, 409)
	s.get(t, "list").refuses(t, 409)
	s.get(t, "stat", "path", "f").refuses(t, 409)
	need.NoError(t, os.Rename(moved, p.dir))
	s.put(t, "f", "y").want(t, 200)
	p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", "/workspaces/"+k.str("workspace_id"), nil).want(t, 204)
	p.call(t, "GET", s.url(""), nil).refuses(t, 404)
	if n := len(p.call(t, "GET", "/api/sessions", nil).want(t, 200).list(t, "sessions")); n != 0 {
		t.Errorf("%d sessions", n)
	}
}
