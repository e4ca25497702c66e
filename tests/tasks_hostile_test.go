package tests

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Names that git, HTTP or JSON could trip over: each is recorded exactly.
func TestHostileNames(t *testing.T) {
	p := newProject(t, nil)
	k := p.task(t)
	names := []string{"new\nline", "tab\there", `quo"te`, `back\slash`, ":colon", "-dash", "--", " lead", "trail ", "per%41cent", "plus+and&amp", "#hash?query",
		"\x01\x1b[31m", "caf\u00e9", "cafe\u0301", strings.Repeat("n", 255), "dot.", "...", "\xff\xfe-bytes", "half\xc3", "a\u202eb", "Task-Id: forged", "sub dir/ f",
		strings.Repeat("d/", 100) + "deep", "\xf0\x9f\x98\x80"}
	for i, name := range names {
		r := k.put(t, name, fmt.Sprint("content ", i))
		if r.Status != 201 {
			t.Errorf("%q: %d %.200s", name, r.Status, r.Body)
			continue
		}
		if got, err := os.ReadFile(filepath.Join(p.dir, name)); err != nil || string(got) != fmt.Sprint("content ", i) {
			t.Errorf("%q on disk: %q, %v", name, got, err)
		}
		if g := p.call(t, "GET", k.file(name), nil); g.Status != 200 || string(g.Body) != fmt.Sprint("content ", i) {
			t.Errorf("%q: read %d %q", name, g.Status, g.Body)
		}
		o := r.obj(t)
		back := o["path"].(string)
		if o["path_encoding"] == "percent" {
			var err error
			if back, err = url.PathUnescape(back); err != nil {
				t.Errorf("%q: %v", o["path"], err)
			}
		}
		if back != name {
			t.Errorf("%q is told as %q", name, back)
		}
	}
	out := strings.TrimSuffix(k.git(t, "ls-tree", "-r", "-z", "--name-only", "refs/umbra/head"), "\x00")
	got := strings.Split(out, "\x00")
	slices.Sort(got)
	want := slices.Sorted(slices.Values(names))
	if !slices.Equal(got, want) {
		t.Errorf("git lists %q, want %q", got, want)
	}
	ids := strings.Fields(k.git(t, "log", "--format=%(trailers:key=Task-Id,valueonly)", "refs/umbra/head", "--not", k.str("base")))
	for _, id := range ids {
		if id != k.ID {
			t.Errorf("git reads the task %q", id)
		}
	}
	if len(ids) != len(names) {
		t.Errorf("%d commits of %d", len(ids), len(names))
	}
	list := k.changes(t, "")
	if len(list) != len(names) {
		t.Errorf("%d entries", len(list))
	}
	// The same bytes, percent-encoded, in a JSON body.
	p.post(t, k.url("/move"), map[string]any{"from": "%FF%FE-bytes", "to": "was%25bytes", "path_encoding": "percent"}).want(t, 200)
	if got := p.read(t, "was%bytes"); !strings.HasPrefix(got, "content") {
		t.Errorf("moved: %q", got)
	}
	p.post(t, k.url("/move"), map[string]any{"from": "x", "to": "y", "path_encoding": "base64"}).fails(t, 400, "invalid_path_encoding")
	k.fsck(t)
}

func TestHostilePaths(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	bad := []string{"../x", "/etc/passwd", "a/../../x", ".git/config", ".GIT/x", "git~1/x", ".g\u200cit/x", "a/.git", ".umbra-0123456789abcdef.tmp", "d/", "", ".",
		"nul\x00byte", strings.Repeat("n", 256), strings.Repeat("d/", 2050) + "x", "scratch://../x", "scratch:///etc/passwd", "artifacts://", "scratch://.git/x"}
	for _, name := range bad {
		if name == "" || name == "." || name == "d/" || name == "artifacts://" || strings.HasSuffix(name, ".git") || strings.HasSuffix(name, ".tmp") {
			// Not bad any more with something behind.
			for _, r := range []*answer{k.put(t, name, "no"), p.call(t, "GET", k.file(name), nil)} {
				r.fails(t, 400, "bad_path")
			}
			continue
		}
		for _, r := range []*answer{
			k.put(t, name, "no"),
			p.call(t, "GET", k.file(name), nil),
			p.post(t, k.url("/move"), map[string]any{"from": "f", "to": name + "x"}),
			p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "write", "path": name, "content": ""}}}),
		} {
			if r.Status == 422 && r.obj(t)["error"] == "move_across" {
				continue
			}
			if r.Status != 400 || r.obj(t)["error"] != "bad_path" {
				t.Errorf("%.40q: %s: %d %.200s", name, r.what, r.Status, r.Body)
			}
		}
	}
	for _, f := range []string{"bare/HEAD", "bare/config", "bare/objects/x"} {
		k.put(t, f, "x").want(t, 201)
	}
	k.put(t, "bare/refs/heads/x", "x").fails(t, 400, "bad_path")
	p.post(t, k.url("/move"), map[string]any{"from": "f", "to": "bare/refs"}).fails(t, 400, "bad_path")
	for _, beside := range []string{filepath.Dir(p.dir), k.str("scratch") + "/..", k.str("scratch") + "/../.."} {
		for _, name := range []string{"x", "xx"} {
			if _, err := os.Lstat(filepath.Join(beside, name)); err == nil {
				t.Errorf("%s came to stand in %s", name, beside)
			}
		}
	}
	k.fsck(t)
}

func TestHostileTags(t *testing.T) {
	p := newProject(t, nil)
	k := p.task(t)
	before := k.git(t, "rev-parse", "refs/umbra/head")
	long := strings.Repeat("x", 10<<10)
	for _, c := range []struct{ name, value string }{
		{"X-Subtask-Id", "a b"}, {"X-Subtask-Id", ".."}, {"X-Subtask-Id", "-x"}, {"X-Subtask-Id", "x.lock"}, {"X-Subtask-Id", long},
		{"X-Subtask-Id", "a\tb"}, {"X-Actor", "a <b@c>"}, {"X-Actor", long}, {"X-Actor", "tab\there"}, {"X-Task-Id", "no/slash"}, {"X-Task-Id", "another"},
		{"Idempotency-Key", long},
	} {
		if r := k.put(t, "f", "x", c.name, c.value); r.Status != 400 {
			t.Errorf("%s: %.30q: %d %.200s", c.name, c.value, r.Status, r.Body)
		}
	}
	if after := k.git(t, "rev-parse", "refs/umbra/head"); after != before {
		t.Error("something was committed")
	}
	k.put(t, "f", "x", "X-Task-Id", k.ID, "X-Actor", "Jos\u00e9 \"the bot\"; rm -rf").want(t, 201)
	message := "subject\n\nTask-Id: forged\nSeq: 99\n\nSource: external\r\nChange: 7\n---\ndiff --git a/x b/x\n\x00\x1b[31m\n\nTask-Id: forged again"
	p.post(t, k.url("/batch"), map[string]any{"message": message, "operations": []any{map[string]any{"op": "write", "path": "f", "content": "y"}}}).want(t, 200)
	goal := "goal\n\nStatus: completed\nTask-Id: forged"
	k2 := p.task(t, "goal", goal)
	if got := k2.str("goal"); got != goal {
		t.Errorf("the goal came back as %q", got)
	}
	if got := k.git(t, "log", "--format=%(trailers:key=Task-Id,valueonly,separator=%x2C)|%(trailers:key=Seq,valueonly,separator=%x2C)", "refs/umbra/head", "-2"); got != k.ID+"|3\n"+k.ID+"|2" {
		t.Errorf("git reads %q", got)
	}
	if got := k.git(t, "for-each-ref", "--format=%(contents:trailers:key=Status,valueonly)", "refs/umbra/tasks/"+k2.ID+"/info"); strings.TrimSpace(got) != "executing" {
		t.Errorf("git reads the status %q", got)
	}
	has(t, k.changes(t, "")[1], map[string]any{"task_id": k.ID, "source": "api"})
	k.fsck(t)
}

func TestHostileBodies(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k := p.task(t)
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"duplicate keys":    {`{"from":"f","to":"g","to":"../x"}`, 400},
		"trailing garbage":  {`{"from":"f","to":"g"} x`, 400},
		"deep":              {`{"from":"f","to":"g","x":` + deep + `}`, 400},
		"lone surrogate":    {`{"from":"f","to":"\ud800"}`, 400},
		"bad UTF-8":         {"{\"from\":\"f\",\"to\":\"\xff\"}", 400},
		"wrong type":        {`{"from":"f","to":["g"]}`, 400},
		"another case":      {`{"From":"f","To":"g"}`, 400},
		"empty":             {``, 400},
		"null":              {`null`, 422},
		"a list":            {`[]`, 400},
		"over the limit":    {`{"from":"` + strings.Repeat("a", 2<<20) + `","to":"g"}`, 413},
		"NUL in a path":     {`{"from":"f","to":"a\u0000b"}`, 400},
		"truncated":         {`{"from":"f","to":`, 400},
		"overwrite is text": {`{"from":"f","to":"g","overwrite":"yes"}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			r := p.call(t, "POST", k.url("/move"), []byte(c.body), "Content-Type", "application/json")
			if r.Status != c.status {
				t.Errorf("%d, want %d: %.200s", r.Status, c.status, r.Body)
			}
			if r.Status >= 400 {
				o := r.obj(t)
				if o["error"] == nil || o["detail"] == nil {
					t.Errorf("the answer's shape is %s", r.Body)
				}
			}
		})
	}
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"} {
		p.call(t, "POST", k.url("/move"), []byte(`{"from":"f","to":"g"}`), "Content-Type", ct).want(t, 415)
	}
	if p.read(t, "f") != "x" || len(k.changes(t, "")) != 0 {
		t.Error("something changed")
	}
}
