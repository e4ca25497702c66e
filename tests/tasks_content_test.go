package tests

import (
	"bytes"
	"encoding/base64"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

func TestContentWriteAndRead(t *testing.T) {
	p := newProject(t, map[string]string{"old.txt": "old\n"})
	k := p.task(t)
	r := k.put(t, "src/new.ts", "let a = 1\n", "X-Subtask-Id", "add-types", "X-Actor", "claude").want(t, 201)
	o := r.obj(t)
	blob := strings.TrimSpace(k.git(t, "rev-parse", "refs/umbra/head:src/new.ts"))
	tag := `W/"` + blob + `"`
	has(t, o, map[string]any{"path": "src/new.ts", "operation": "create", "change_id": 1, "etag": tag, "bytes": 10})
	if r.head("Etag") != tag {
		t.Errorf("the answer's ETag is %q", r.head("Etag"))
	}
	if got := strings.TrimSpace(k.git(t, "rev-parse", "refs/umbra/tasks/"+k.ID+"/head")); got != r.str(t, "commit") {
		t.Errorf("the task's head is %s, answered was %s", got, r.str(t, "commit"))
	}
	if got := p.read(t, "src/new.ts"); got != "let a = 1\n" {
		t.Errorf("the disk holds %q", got)
	}
	has(t, k.put(t, "old.txt", "new\n").want(t, 200).obj(t), map[string]any{"operation": "modify", "change_id": 2})

	same := k.put(t, "old.txt", "new\n").want(t, 200).obj(t)
	has(t, same, map[string]any{"commit": nil, "change_id": nil, "operation": nil, "etag": k.put(t, "old.txt", "new\n").obj(t)["etag"]})

	g := p.call(t, "GET", k.file("src/new.ts"), nil).want(t, 200)
	if string(g.Body) != "let a = 1\n" || g.head("Etag") != tag {
		t.Errorf("read %q with %s", g.Body, g.head("Etag"))
	}
	p.call(t, "GET", k.file("src/new.ts"), nil, "If-None-Match", tag).want(t, 304)
	part := p.call(t, "GET", k.file("src/new.ts"), nil, "Range", "bytes=4-8").want(t, 206)
	if string(part.Body) != "a = 1" || part.head("Content-Range") != "bytes 4-8/10" {
		t.Errorf("the range is %q, %s", part.Body, part.head("Content-Range"))
	}
	p.call(t, "GET", k.file("src/new.ts"), nil, "Range", "bytes=100-").want(t, 416)
	if h := p.call(t, "HEAD", k.file("src/new.ts"), nil).want(t, 200); h.head("Etag") != tag || h.head("Content-Length") != "10" {
		t.Errorf("HEAD tells %v", h.Header)
	}
	p.call(t, "GET", k.file("nothing"), nil).fails(t, 404, "file_not_found")
	p.call(t, "GET", k.url("/content"), nil).fails(t, 400, "invalid_parameter")

	out := k.git(t, "log", "--format=%(trailers:key=Task-Id,valueonly)%(trailers:key=Subtask-Id,valueonly)%(trailers:key=Operation,valueonly)%an <%ae>", "-1", r.str(t, "commit"))
	if want := k.ID + "\nadd-types\ncreate\nclaude <claude@umbra.invalid>"; strings.TrimSpace(out) != want {
		t.Errorf("git reads %q, want %q", out, want)
	}
	if got := k.git(t, "cat-file", "blob", "refs/umbra/head:src/new.ts"); got != "let a = 1" {
		t.Errorf("git reads %q", got)
	}
	if got := k.git(t, "rev-list", "--count", "refs/umbra/head"); strings.TrimSpace(got) != "3" {
		t.Errorf("%s commits, want baseline and two changes", got)
	}
	k.fsck(t)
}

func TestContentHistory(t *testing.T) {
	p := newProject(t, map[string]string{"f": "zero"})
	k := p.task(t)
	var commits []string
	for _, s := range []string{"one", "two", "three"} {
		commits = append(commits, k.put(t, "f", s).want(t, 200).str(t, "commit"))
	}
	for at, want := range map[string]string{"base": "zero", "1": "one", "2": "two", "3": "three", "head": "three", commits[1]: "two", k.str("base"): "zero"} {
		r := p.call(t, "GET", k.file("f")+"&at="+at, nil).want(t, 200)
		if string(r.Body) != want {
			t.Errorf("at %s: %q, want %q", at, r.Body, want)
		}
		p.call(t, "GET", k.file("f")+"&at="+at, nil, "If-None-Match", r.head("Etag")).want(t, 304)
	}
	if r := p.call(t, "GET", k.file("f")+"&at=3", nil, "Range", "bytes=-2").want(t, 206); string(r.Body) != "ee" {
		t.Errorf("the range is %q", r.Body)
	}
	p.call(t, "GET", k.file("f")+"&at=4", nil).fails(t, 404, "change_not_found")
	p.call(t, "GET", k.file("f")+"&at=0", nil).fails(t, 404, "change_not_found")
	p.call(t, "GET", k.file("f")+"&at="+strings.Repeat("0", 39)+"1", nil).fails(t, 404, "commit_not_found")
	p.call(t, "GET", k.file("f")+"&at=HEAD~1", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "GET", k.file("g")+"&at=2", nil).fails(t, 404, "file_not_found")
}

func TestContentPreconditions(t *testing.T) {
	p := newProject(t, map[string]string{"f": "one"})
	k := p.task(t)
	tag := p.call(t, "GET", k.file("f"), nil).want(t, 200).head("Etag")
	bare := strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
	other := `"` + strings.Repeat("1", 40) + `"`
	refused := []struct{ path, name, value string }{
		{"f", "If-Match", other},
		{"f", "If-Match", `"*"`},
		{"f", "If-None-Match", "*"},
		{"new", "If-Match", "*"},
		{"new", "If-Match", tag},
	}
	for _, c := range refused {
		o := k.put(t, c.path, "x", c.name, c.value).fails(t, 412, "precondition_failed")
		if c.path == "f" {
			has(t, o, map[string]any{"etag": tag})
		}
	}
	for _, v := range []string{"garbage", `"open`, `W/`, `"a" "b"`} {
		k.put(t, "f", "x", "If-Match", v).fails(t, 400, "bad_etag")
	}
	p.call(t, "DELETE", k.file("f"), nil, "If-Match", other).fails(t, 412, "precondition_failed")
	if n := len(k.changes(t, "")); n != 0 || p.read(t, "f") != "one" {
		t.Fatalf("refused writes made %d changes", n)
	}
	for i, v := range []string{tag, `"` + bare + `"`, "*", other + ", " + tag} {
		k.put(t, "f", "two", "If-Match", v).want(t, 200)
		k.put(t, "f", "one").want(t, 200)
		_ = i
	}
	k.put(t, "new", "x", "If-None-Match", "*").want(t, 201)
	p.call(t, "DELETE", k.file("new"), nil, "If-Match", "*").want(t, 200)
}

func TestContentModes(t *testing.T) {
	p := newProject(t, map[string]string{"run.sh": "#!/bin/sh\n"})
	k := p.task(t)
	perm := func(name string) os.FileMode {
		st, err := os.Stat(filepath.Join(p.dir, name))
		need.NoError(t, err)
		return st.Mode().Perm()
	}
	has(t, k.put(t, "run.sh", "#!/bin/sh\n", "X-File-Mode", "100755").want(t, 200).obj(t), map[string]any{"operation": "chmod"})
	if perm("run.sh")&0o111 == 0 {
		t.Errorf("run.sh is %v", perm("run.sh"))
	}
	k.put(t, "run.sh", "#!/bin/sh\necho\n").want(t, 200)
	if perm("run.sh")&0o111 == 0 {
		t.Error("a write took x away")
	}
	k.put(t, "new.sh", "x", "X-File-Mode", "100755").want(t, 201)
	for _, bad := range []string{"755", "120000", "100777", "040000", ""} {
		k.put(t, "f", "x", "X-File-Mode", bad).fails(t, 400, "invalid_mode")
	}
	out := k.git(t, "ls-tree", "refs/umbra/head")
	for _, want := range []string{"100755 blob", "new.sh", "run.sh"} {
		if !strings.Contains(out, want) {
			t.Errorf("git lists %s", out)
		}
	}
}

func TestContentDelete(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x", "d/a": "1", "d/b/c": "2"})
	k := p.task(t)
	has(t, p.call(t, "DELETE", k.file("f"), nil).want(t, 200).obj(t), map[string]any{"path": "f", "operation": "delete", "change_id": 1, "etag": nil})
	p.absent(t, "f")
	p.call(t, "DELETE", k.file("f"), nil).fails(t, 404, "file_not_found")
	p.call(t, "DELETE", k.file("d/a/"), nil).fails(t, 400, "not_a_directory")
	p.post(t, k.url("/move"), map[string]any{"from": "d/a/", "to": "e"}).fails(t, 400, "not_a_directory")
	p.call(t, "DELETE", k.file("f")+"&force=true", nil).fails(t, 404, "file_not_found")
	p.call(t, "DELETE", k.file("d"), nil).fails(t, 409, "directory_not_empty")
	p.call(t, "DELETE", k.file("d")+"&recursive=maybe", nil).fails(t, 400, "invalid_parameter")
	r := p.call(t, "DELETE", k.file("d")+"&recursive=true", nil).want(t, 200)
	p.absent(t, "d")
	got := briefs(k.changes(t, ""))
	if want := []string{"delete f", "delete d/a", "delete d/b/c"}; !slices.Equal(got, want) {
		t.Errorf("the changelog has %v, want %v", got, want)
	}
	entries := k.changes(t, "?after=1")
	for _, e := range entries {
		has(t, e, map[string]any{"commit": r.str(t, "commit"), "after_hash": nil})
		if e["before_snapshot"] == nil {
			t.Errorf("%v has no snapshot", e["path"])
		}
	}
	if got := p.call(t, "GET", k.url("/changes/3/before"), nil).want(t, 200); string(got.Body) != "2" {
		t.Errorf("before is %q", got.Body)
	}
	k.fsck(t)
}

func TestContentMove(t *testing.T) {
	p := newProject(t, map[string]string{"a.js": "1", "b.js": "2", "dir/x": "3", "dir/y/z": "4"})
	k := p.task(t)
	r := p.post(t, k.url("/move"), map[string]any{"from": "a.js", "to": "src/a.ts"}).want(t, 200)
	has(t, r.obj(t), map[string]any{"operation": "rename", "path": "a.js", "new_path": "src/a.ts", "change_id": 1})
	p.post(t, k.url("/move"), map[string]any{"from": "src/a.ts", "to": "b.js"}).fails(t, 409, "target_exists")
	p.post(t, k.url("/move"), map[string]any{"from": "gone", "to": "c"}).fails(t, 404, "file_not_found")
	p.post(t, k.url("/move"), map[string]any{"from": "dir", "to": "dir/sub"}).want(t, 400)
	p.post(t, k.url("/move"), map[string]any{"from": "b.js"}).fails(t, 422, "validation_failed")
	p.post(t, k.url("/move"), map[string]any{"from": "b.js", "to": "scratch://b.js"}).fails(t, 422, "move_across")
	p.post(t, k.url("/move"), map[string]any{"from": "src/a.ts", "to": "b.js", "overwrite": true}).want(t, 200)
	if got := p.read(t, "b.js"); got != "1" {
		t.Errorf("b.js holds %q", got)
	}
	d := p.post(t, k.url("/move"), map[string]any{"from": "dir", "to": "moved/dir"}, "X-Subtask-Id", "s").want(t, 200)
	if got := p.read(t, "moved/dir/y/z"); got != "4" {
		t.Errorf("the folder's file holds %q", got)
	}
	p.absent(t, "dir")
	list := k.changes(t, "?subtask_id=s")
	if got, want := briefs(list), []string{"rename dir/x -> moved/dir/x", "rename dir/y/z -> moved/dir/y/z"}; !slices.Equal(got, want) {
		t.Errorf("the changelog has %v, want %v", got, want)
	}
	for _, e := range list {
		has(t, e, map[string]any{"commit": d.str(t, "commit")})
	}
	if out := k.git(t, "log", "--format=%s", "-3", "refs/umbra/head"); !strings.Contains(out, "rename src/a.ts -> b.js") {
		t.Errorf("git log says %s", out)
	}
	k.fsck(t)
}

func TestBatch(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1", "b": "2", "c": "3", "run": "x"})
	k := p.task(t)
	raw := []byte{0, 0xff, 1, '\r', '\n'}
	op := func(kv ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	tag := p.call(t, "GET", k.file("b"), nil).want(t, 200).head("Etag")
	r := p.post(t, k.url("/batch"), map[string]any{"subtask_id": "sub", "message": "do it all", "operations": []any{
		op("op", "write", "path", "a", "content", "one"),
		op("op", "write", "path", "bin", "content", base64.StdEncoding.EncodeToString(raw), "encoding", "base64", "mode", "100755"),
		op("op", "delete", "path", "b", "if_match", tag),
		op("op", "rename", "path", "c", "new_path", "sub/c"),
		op("op", "chmod", "path", "run", "mode", "100755"),
		op("op", "write", "path", "scratch://notes", "content", "n"),
	}}).want(t, 200)
	entries := r.list(t, "entries")
	if got, want := briefs(entries), []string{"modify a", "create bin", "delete b", "rename c -> sub/c", "chmod run", "create scratch://notes"}; !slices.Equal(got, want) {
		t.Errorf("entries are %v, want %v", got, want)
	}
	for i, e := range entries[:5] {
		has(t, e, map[string]any{"id": i + 1, "commit": r.str(t, "commit"), "subtask_id": "sub", "task_id": k.ID})
	}
	has(t, entries[5], map[string]any{"id": nil, "commit": nil})
	if got := p.read(t, "bin"); got != string(raw) {
		t.Errorf("bin holds %q", got)
	}
	if got := p.call(t, "GET", k.url("/scratch/notes"), nil).want(t, 200); string(got.Body) != "n" {
		t.Errorf("scratch holds %q", got.Body)
	}
	if out := k.git(t, "log", "-1", "--format=%s%n%(trailers:key=Path,valueonly)", "refs/umbra/head"); !strings.HasPrefix(out, "do it all\na\nbin\nb\n") {
		t.Errorf("git reads %q", out)
	}
	if n := strings.TrimSpace(k.git(t, "rev-list", "--count", "refs/umbra/head")); n != "2" {
		t.Errorf("%s commits", n)
	}

	before := k.git(t, "rev-parse", "refs/umbra/head")
	ok := op("op", "write", "path", "a", "content", "no")
	area := op("op", "write", "path", "scratch://notes", "content", "no")
	for name, c := range map[string]struct {
		last   map[string]any
		status int
		code   string
	}{
		"missing":      {op("op", "delete", "path", "nothing"), 404, "file_not_found"},
		"precondition": {op("op", "write", "path", "run", "content", "x", "if_match", `"`+strings.Repeat("0", 40)+`"`), 412, "precondition_failed"},
		"bad path":     {op("op", "write", "path", "../x", "content", ""), 400, "bad_path"},
		"git":          {op("op", "write", "path", ".git/config", "content", ""), 400, "bad_path"},
		"no content":   {op("op", "write", "path", "x"), 422, "validation_failed"},
		"base64":       {op("op", "write", "path", "x", "content", "QUI", "encoding", "base64"), 422, "validation_failed"},
		"encoding":     {op("op", "write", "path", "x", "content", "", "encoding", "rot13"), 422, "validation_failed"},
		"op":           {op("op", "explode", "path", "x"), 422, "validation_failed"},
		"mode":         {op("op", "chmod", "path", "run", "mode", "777"), 422, "validation_failed"},
		"no new_path":  {op("op", "rename", "path", "run"), 422, "validation_failed"},
		"across":       {op("op", "rename", "path", "run", "new_path", "artifacts://run"), 422, "move_across"},
		"area":         {op("op", "delete", "path", "artifacts://nothing"), 404, "file_not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			p.post(t, k.url("/batch"), map[string]any{"operations": []any{ok, area, c.last}}).fails(t, c.status, c.code)
		})
	}
	p.post(t, k.url("/batch"), map[string]any{"operations": []any{}}).fails(t, 422, "validation_failed")
	p.post(t, k.url("/batch"), map[string]any{"operations": []any{ok}, "subtask_id": "a b"}).fails(t, 400, "invalid_subtask_id")
	if after := k.git(t, "rev-parse", "refs/umbra/head"); after != before || p.read(t, "a") != "one" {
		t.Error("a refused batch changed something")
	}
	if got := p.call(t, "GET", k.url("/scratch/notes"), nil).want(t, 200); string(got.Body) != "n" {
		t.Errorf("a refused batch changed scratch: %q", got.Body)
	}
	k.fsck(t)
}

func TestContentIdempotency(t *testing.T) {
	p := newProject(t, nil)
	k := p.task(t)
	a := k.put(t, "f", "once", "Idempotency-Key", "w").want(t, 201)
	k.put(t, "f", "between").want(t, 200)
	b := k.put(t, "f", "once", "Idempotency-Key", "w").want(t, 201)
	if !bytes.Equal(a.Body, b.Body) || b.head("Idempotent-Replay") != "true" {
		t.Errorf("another answer: %s", b.Body)
	}
	p.crash()
	c := k.put(t, "f", "once", "Idempotency-Key", "w").want(t, 201)
	if !bytes.Equal(a.Body, c.Body) || c.head("Idempotent-Replay") != "true" {
		t.Errorf("another answer after a kill: %s", c.Body)
	}
	k.put(t, "f", "twice", "Idempotency-Key", "w").fails(t, 422, "idempotency_key_reused")
	k.put(t, "f", "x", "Idempotency-Key", "").want(t, 400)
	if got := p.read(t, "f"); got != "between" {
		t.Errorf("f holds %q", got)
	}
	if n := len(k.changes(t, "")); n != 2 {
		t.Errorf("%d changes", n)
	}
	// Scratch has no commit to carry the key; the answer's record alone knows it.
	s := p.call(t, "PUT", k.url("/scratch/s"), []byte("1"), "Idempotency-Key", "s").want(t, 201)
	p.call(t, "PUT", k.url("/scratch/s"), []byte("2")).want(t, 200)
	p.crash()
	if again := p.call(t, "PUT", k.url("/scratch/s"), []byte("1"), "Idempotency-Key", "s").want(t, 201); !bytes.Equal(s.Body, again.Body) {
		t.Errorf("another answer: %s", again.Body)
	}
}

func TestContentLinks(t *testing.T) {
	p := newProject(t, map[string]string{"real": "one", "dir/f": "x"})
	outside := t.TempDir()
	for name, target := range map[string]string{"in": "real", "folder": "dir", "out": outside, "up": "../..", "abs": filepath.Join(p.dir, "real")} {
		need.NoError(t, os.Symlink(target, filepath.Join(p.dir, name)))
	}
	k := p.task(t)
	has(t, k.put(t, "in", "two").want(t, 200).obj(t), map[string]any{"path": "real", "operation": "modify"})
	has(t, k.put(t, "folder/g", "y").want(t, 201).obj(t), map[string]any{"path": "dir/g"})
	if p.read(t, "real") != "two" || p.read(t, "dir/g") != "y" {
		t.Error("the targets were not written")
	}
	if st, err := os.Lstat(filepath.Join(p.dir, "in")); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v", err)
	}
	for _, bad := range []string{"out/x", "up/x", "up/" + filepath.Base(outside) + "/x"} {
		if r := k.put(t, bad, "no"); r.Status < 400 || r.Status >= 500 {
			t.Errorf("%s: %d", bad, r.Status)
		}
		if r := p.call(t, "GET", k.file(bad), nil); r.Status < 400 || r.Status >= 500 {
			t.Errorf("read of %s: %d", bad, r.Status)
		}
	}
	if list, err := os.ReadDir(outside); err != nil || len(list) != 0 {
		t.Errorf("something came to stand outside: %v", list)
	}
	p.call(t, "DELETE", k.file("in"), nil).want(t, 200)
	if p.read(t, "real") != "two" {
		t.Error("the link's target went along")
	}
	if r := p.call(t, "GET", k.url("/content?path="+url.QueryEscape("folder/f")+"&at=base"), nil).want(t, 200); string(r.Body) != "x" {
		t.Errorf("through a link in history: %q", r.Body)
	}
	k.fsck(t)
}
