package tests

import (
	"context"
	"fmt"
	"net/http"
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

// The routes of contracts/clients.md, "What the server adds".

// bothKinds runs a test on a directory and on a virtual workspace.
func bothKinds(t *testing.T, test func(t *testing.T, k *taskOf, virtual bool)) {
	t.Parallel()
	p := &project{Server: harness.Start(t, harness.Options{}), dir: t.TempDir()}
	t.Run("physical", func(t *testing.T) { test(t, p.task(t), false) })
	t.Run("virtual", func(t *testing.T) { test(t, p.task(t, "kind", "virtual", "workspace", ""), true) })
}

func (k *taskOf) ask(t *testing.T, rest string) *answer {
	t.Helper()
	return k.p.call(t, "GET", k.url(rest), nil)
}

func (k *taskOf) send(t *testing.T, rest string, body any, header ...string) *answer {
	t.Helper()
	return k.p.call(t, "POST", k.url(rest), body, header...)
}

func namesIn(t *testing.T, a *answer, list, member string) []string {
	t.Helper()
	out := []string{}
	for _, e := range a.want(t, 200).list(t, list) {
		out = append(out, e[member].(string))
	}
	return out
}

func wantNames(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestFilesList(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		for _, f := range []string{"a/x", "a/y/z", "a.txt", "a-b", ".hidden", "Z", "a/é b", "ignored/f", ".gitignore"} {
			k.put(t, f, "ignored/\n").want(t, 201)
		}
		a := k.ask(t, "/list")
		wantNames(t, "list", namesIn(t, a, "entries", "path"), []string{".gitignore", ".hidden", "Z", "a", "a-b", "a.txt", "ignored"})
		if a.obj(t)["next"] != nil || a.str(t, "path") != "." {
			t.Error(string(a.Body))
		}
		entry := k.ask(t, "/list?path=a").want(t, 200).list(t, "entries")[0]
		has(t, entry, map[string]any{"path": "a/x", "name": "x", "type": "file", "size": 9.0, "mode": "100644"})
		if tag := k.ask(t, "/content?path=a/x").want(t, 200).head("Etag"); entry["etag"] != tag {
			t.Errorf("etag %v, content has %s", entry["etag"], tag)
		}
		all := []string{".gitignore", ".hidden", "Z", "a", "a-b", "a.txt", "a/x", "a/y", "a/y/z", "a/é b", "ignored", "ignored/f"}
		wantNames(t, "recursive", namesIn(t, k.ask(t, "/list?recursive=true"), "entries", "path"), all)
		for size := 1; size < 5; size++ {
			var got []string
			after := ""
			for {
				page := k.ask(t, fmt.Sprintf("/list?recursive=true&limit=%d%s", size, after)).want(t, 200)
				got = append(got, namesIn(t, page, "entries", "path")...)
				next, more := page.obj(t)["next"].(string)
				if !more {
					break
				}
				after = "&after=" + url.QueryEscape(next)
			}
			wantNames(t, fmt.Sprint("pages of ", size), got, all)
		}
		k.ask(t, "/list?path=a.txt").fails(t, 400, "not_directory")
		k.ask(t, "/list?path=none").fails(t, 404, "file_not_found")
		k.ask(t, "/list?limit=0").fails(t, 400, "invalid_parameter")
		k.ask(t, "/list?limit=99999999").want(t, 200)
		k.ask(t, "/list?path=../x").fails(t, 400, "bad_path")
	})
}

func TestFilesStat(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		k.put(t, "d/f", "abc", "X-File-Mode", "100755").want(t, 201)
		k.send(t, "/symlink", map[string]any{"path": "l", "target": "d/f"}).want(t, 201)
		k.send(t, "/symlink", map[string]any{"path": "gone", "target": "d/none"}).want(t, 201)
		f := k.ask(t, "/stat?path=d/f").want(t, 200).obj(t)
		has(t, f, map[string]any{"path": "d/f", "name": "f", "type": "file", "size": 3.0, "mode": "100755"})
		if f["etag"] == nil || f["created"] == nil {
			t.Error(f)
		}
		has(t, k.ask(t, "/stat?path=d").want(t, 200).obj(t), map[string]any{"type": "directory", "size": 0.0})
		has(t, k.ask(t, "/stat?path=").want(t, 200).obj(t), map[string]any{"path": ".", "type": "directory"})
		has(t, k.ask(t, "/stat?path=l").want(t, 200).obj(t), map[string]any{"path": "l", "type": "file", "target": "d/f", "size": 3.0})
		has(t, k.ask(t, "/stat?path=l&follow=false").want(t, 200).obj(t), map[string]any{"type": "symlink", "target": "d/f", "mode": "120000"})
		has(t, k.ask(t, "/stat?path=gone").want(t, 200).obj(t), map[string]any{"type": "symlink", "target": "d/none"})
		k.ask(t, "/stat?path=none").fails(t, 404, "file_not_found")
		k.ask(t, "/stat?path=d/f/x").fails(t, 404, "file_not_found")
		k.ask(t, "/stat").fails(t, 400, "invalid_parameter")
		k.p.call(t, "POST", k.url("/move"), map[string]any{"from": "d/f", "to": "d/g"}).want(t, 200)
		if at := k.ask(t, "/stat?path=d/g").want(t, 200).obj(t)["created"]; at != f["created"] {
			t.Errorf("created %v after a move, %v before", at, f["created"])
		}
		k.put(t, "scratch://s", "xy").want(t, 201)
		has(t, k.ask(t, "/stat?path=scratch://s").want(t, 200).obj(t), map[string]any{"path": "scratch://s", "type": "file", "size": 2.0})
		wantNames(t, "scratch", namesIn(t, k.ask(t, "/list?path=scratch://"), "entries", "path"), []string{"scratch://s"})
	})
}

func TestFilesLines(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		text := "one\r\ntwo\n\nfour é\nlast"
		tag := k.put(t, "f", text).want(t, 201).str(t, "etag")
		for _, c := range []struct{ query, want, next string }{
			{"&offset=0", text, ""}, {"&limit=1", "one\r\n", "1"}, {"&offset=1&limit=2", "two\n\n", "3"}, {"&offset=3&limit=2", "four é\nlast", ""},
			{"&offset=4", "last", ""}, {"&offset=5", "", ""}, {"&offset=99&limit=5", "", ""}, {"&limit=0", "", "0"},
		} {
			a := k.ask(t, "/content?path=f"+c.query).want(t, 200)
			if string(a.Body) != c.want || a.head("Umbra-Total-Lines") != "5" || a.head("Umbra-Next-Offset") != c.next || a.head("Etag") != tag {
				t.Errorf("%s: %q %v", c.query, a.Body, a.Header)
			}
		}
		k.put(t, "bin", "a\xff").want(t, 201)
		k.ask(t, "/content?path=bin&offset=0").fails(t, 422, "not_text")
		k.ask(t, "/content?path=bin").want(t, 200)
		k.ask(t, "/content?path=f&offset=-1").fails(t, 400, "invalid_parameter")
		k.put(t, "f", "new").want(t, 200)
		if a := k.ask(t, "/content?path=f&limit=1&at=1").want(t, 200); string(a.Body) != "one\r\n" {
			t.Errorf("%q", a.Body)
		}
	})
}

func TestFilesSearch(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		k.put(t, ".gitignore", "out/\n*.log\n").want(t, 201)
		k.put(t, "a.txt", "first\n😀 a.b needle\r\nthird needle needle\n").want(t, 201)
		k.put(t, "d/.dot", "needle").want(t, 201)
		k.put(t, "d/bin", "needle\x00").want(t, 201)
		k.put(t, "out/f.txt", "needle\n").want(t, 201)
		k.put(t, "d/x.log", "needle\n").want(t, 201)
		find := func(query string) []string {
			out := []string{}
			for _, m := range k.ask(t, "/search?"+query).want(t, 200).list(t, "matches") {
				out = append(out, fmt.Sprintf("%v:%v:%v", m["path"], m["line"], m["column"]))
			}
			return out
		}
		wantNames(t, "needle", find("pattern=needle"), []string{"a.txt:2:7", "a.txt:3:6", "d/.dot:1:0"})
		wantNames(t, "RE2", find("pattern=ne%2Bdle$"), []string{"a.txt:2:7", "a.txt:3:13", "d/.dot:1:0"})
		wantNames(t, "a.b", find("pattern=a.b&literal=true"), []string{"a.txt:2:3"})
		wantNames(t, "case", find("pattern=NEEDLE&ignore_case=1&literal=1&max_per_file=1"), []string{"a.txt:2:7", "d/.dot:1:0"})
		wantNames(t, "glob", find("pattern=needle&glob=*.txt"), []string{"a.txt:2:7", "a.txt:3:6"})
		wantNames(t, "ignored directory", find("pattern=needle&path=out"), []string{"out/f.txt:1:0"})
		wantNames(t, "ignored file", find("pattern=needle&path=d/x.log"), []string{"d/x.log:1:0"})
		wantNames(t, "directory", find("pattern=needle&path=d"), []string{"d/.dot:1:0"})
		wantNames(t, "nothing", find("pattern=nothing+here"), []string{})
		a := k.ask(t, "/search?pattern=a\\.b&context=1").want(t, 200)
		m := a.list(t, "matches")[0]
		if m["text"] != "😀 a.b needle" || testJSON(m["before"]) != `["first"]` || testJSON(m["after"]) != `["third needle needle"]` || a.obj(t)["truncated"] != false {
			t.Error(string(a.Body))
		}
		if a := k.ask(t, "/search?pattern=needle&max=1").want(t, 200); len(a.list(t, "matches")) != 1 || a.obj(t)["truncated"] != true {
			t.Error(string(a.Body))
		}
		k.ask(t, "/search?pattern=(").fails(t, 400, "invalid_pattern")
		k.ask(t, "/search?pattern=(%3F%3D)").fails(t, 400, "invalid_pattern")
		k.ask(t, "/search").fails(t, 400, "invalid_parameter")
		k.ask(t, "/search?pattern=x&path=none").fails(t, 404, "file_not_found")
	})
}

func TestFilesGlob(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		for _, f := range []string{"a.ts", "a.js", "src/b.ts", "src/deep/c.ts", "src/.h.ts", ".x/d.ts", "src/[x].ts", "src/*.ts"} {
			k.put(t, f, "x").want(t, 201)
		}
		find := func(query string) []string { return namesIn(t, k.ask(t, "/glob?"+query), "entries", "path") }
		wantNames(t, "*", find("pattern=*"), []string{"a.js", "a.ts", "src"})
		wantNames(t, "**/*.ts", find("pattern=**/*.ts"), []string{"a.ts", "src/*.ts", "src/[x].ts", "src/b.ts", "src/deep/c.ts"})
		wantNames(t, "path", find("pattern=*.ts&path=src"), []string{"src/*.ts", "src/[x].ts", "src/b.ts"})
		wantNames(t, "dot", find("pattern=**/.*"), []string{".x", "src/.h.ts"})
		wantNames(t, "braces", find("pattern=a.{js,ts}"), []string{"a.js", "a.ts"})
		wantNames(t, "class", find("pattern=[!b].[jt]s"), []string{"a.js", "a.ts"})
		wantNames(t, "backslash", find("pattern="+url.QueryEscape(`src/\*.ts`)), []string{"src/*.ts"})
		wantNames(t, "question", find("pattern=src/%3F.ts"), []string{"src/*.ts", "src/b.ts"})
		if a := k.ask(t, "/glob?pattern=**&max=2").want(t, 200); len(a.list(t, "entries")) != 2 || a.obj(t)["truncated"] != true {
			t.Error(string(a.Body))
		}
		k.ask(t, "/glob?pattern=[a").fails(t, 400, "invalid_pattern")
		k.ask(t, "/glob?pattern=*&path=a.ts").fails(t, 400, "not_directory")
	})
}

func TestFilesEdit(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		k.put(t, "f", "one two two\r\n").want(t, 201)
		edit := func(old, new string, all bool, header ...string) *answer {
			return k.send(t, "/edit", map[string]any{"path": "f", "old_string": old, "new_string": new, "replace_all": all}, header...)
		}
		a := edit("one", "three", false, "X-Subtask-Id", "s").want(t, 200).obj(t)
		has(t, a, map[string]any{"path": "f", "operation": "modify", "change_id": 2.0, "occurrences": 1.0, "bytes": 15.0})
		if o := edit("two", "x", false).fails(t, 422, "many_matches"); fmt.Sprint(o["occurrences"]) != "2" {
			t.Error(o)
		}
		edit("none", "x", true).fails(t, 422, "no_match")
		edit("", "x", true).fails(t, 422, "empty_old_string")
		if o := edit("two", "two", false).want(t, 200).obj(t); o["commit"] != nil {
			t.Error(o)
		}
		has(t, edit("two", "2", true, "Idempotency-Key", k.ID).want(t, 200).obj(t), map[string]any{"occurrences": 2.0})
		if again := edit("two", "2", true, "Idempotency-Key", k.ID).want(t, 200); again.head("Idempotent-Replay") != "true" {
			t.Error(again.Header)
		}
		if got := string(k.ask(t, "/content?path=f").want(t, 200).Body); got != "three 2 2\r\n" {
			t.Errorf("%q", got)
		}
		edit("three", "4", false, "If-Match", `W/"0000000000000000000000000000000000000000"`).fails(t, 412, "precondition_failed")
		k.put(t, "bin", "a\xff").want(t, 201)
		k.send(t, "/edit", map[string]any{"path": "bin", "old_string": "a", "new_string": "b"}).fails(t, 422, "not_text")
		k.send(t, "/edit", map[string]any{"path": "none", "old_string": "a", "new_string": "b"}).fails(t, 404, "file_not_found")
		k.send(t, "/edit", map[string]any{"path": "f", "old_string": "a"}).fails(t, 422, "validation_failed")
		if e := k.changes(t, "?subtask_id=s"); len(e) != 1 || e[0]["operation"] != "modify" {
			t.Error(e)
		}
	})
}

func TestFilesAppend(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		add := func(data string, header ...string) *answer {
			return k.p.call(t, "POST", k.url("/append?path=d/f"), []byte(data), header...)
		}
		if o := add("").want(t, 200).obj(t); o["commit"] != nil {
			t.Error(o)
		}
		has(t, add("one\n").want(t, 201).obj(t), map[string]any{"path": "d/f", "operation": "create"})
		add("two\n", "Idempotency-Key", k.ID).want(t, 200)
		add("two\n", "Idempotency-Key", k.ID).want(t, 200)
		if o := add("").want(t, 200).obj(t); o["commit"] != nil {
			t.Error(o)
		}
		add("x", "If-None-Match", "*").fails(t, 412, "precondition_failed")
		if got := string(k.ask(t, "/content?path=d/f").want(t, 200).Body); got != "one\ntwo\n" {
			t.Errorf("%q", got)
		}
		k.p.call(t, "POST", k.url("/append?path=d"), []byte("x")).fails(t, 409, "is_a_directory")
		k.p.call(t, "POST", k.url("/append?path=scratch://log"), []byte("a")).want(t, 201)
		k.p.call(t, "POST", k.url("/append?path=scratch://log"), []byte("b")).want(t, 200)
		if got := string(k.ask(t, "/content?path=scratch://log").want(t, 200).Body); got != "ab" {
			t.Errorf("%q", got)
		}
	})
}

func TestFilesMkdir(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		mkdir := func(path string, recursive bool) *answer {
			return k.send(t, "/mkdir", map[string]any{"path": path, "recursive": recursive})
		}
		a := mkdir("a", false).want(t, 201).obj(t)
		has(t, a, map[string]any{"path": "a", "created": true})
		if a["commit"] == nil {
			t.Error(a)
		}
		mkdir("a", false).fails(t, 409, "target_exists")
		has(t, mkdir("a", true).want(t, 200).obj(t), map[string]any{"created": false, "commit": nil})
		mkdir("x/y", false).fails(t, 404, "parent_not_found")
		mkdir("x/y/", true).want(t, 201)
		k.put(t, "f", "x").want(t, 201)
		if s := mkdir("f", true).Status; s != 409 {
			t.Error(s)
		}
		wantNames(t, "list", namesIn(t, k.ask(t, "/list?recursive=true"), "entries", "path"), []string{"a", "f", "x", "x/y"})
		wantNames(t, "empty", namesIn(t, k.ask(t, "/list?path=x/y"), "entries", "path"), []string{})
		has(t, k.ask(t, "/stat?path=x/y").want(t, 200).obj(t), map[string]any{"type": "directory"})
		// It stays when what was put into it is deleted.
		k.put(t, "a/g", "x").want(t, 201)
		k.p.call(t, "DELETE", k.file("a/g"), nil).want(t, 200)
		wantNames(t, "after a delete", namesIn(t, k.ask(t, "/glob?pattern=**"), "entries", "path"), []string{"a", "f", "x", "x/y"})
		k.p.call(t, "DELETE", k.file("a")+"&recursive=true", nil).want(t, 200)
		k.ask(t, "/stat?path=a").fails(t, 404, "file_not_found")
		// An empty one is deleted alone; one with a directory in it is not.
		k.p.call(t, "DELETE", k.file("x"), nil).fails(t, 409, "directory_not_empty")
		has(t, k.p.call(t, "DELETE", k.file("x/y"), nil).want(t, 200).obj(t), map[string]any{"path": "x/y"})
		k.ask(t, "/stat?path=x/y").fails(t, 404, "file_not_found")
	})
}

func TestFilesCopyAndLink(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		k.put(t, "d/f", "x", "X-File-Mode", "100755").want(t, 201)
		cp := func(from, to string, more ...any) *answer {
			body := map[string]any{"from": from, "to": to}
			for i := 0; i+1 < len(more); i += 2 {
				body[more[i].(string)] = more[i+1]
			}
			return k.send(t, "/copy", body)
		}
		has(t, cp("d/f", "new/g").want(t, 200).obj(t), map[string]any{"path": "d/f", "new_path": "new/g"})
		has(t, k.ask(t, "/stat?path=new/g").want(t, 200).obj(t), map[string]any{"mode": "100755", "size": 1.0})
		cp("d/f", "new/g").fails(t, 409, "target_exists")
		k.put(t, "d/f", "y").want(t, 200)
		cp("d/f", "new/g", "overwrite", true).want(t, 200)
		cp("d", "e").fails(t, 400, "is_a_directory")
		cp("d", "e", "recursive", true).want(t, 200)
		wantNames(t, "copied", namesIn(t, k.ask(t, "/list?path=e"), "entries", "path"), []string{"e/f"})
		cp("none", "x").fails(t, 404, "file_not_found")
		cp("d/f", "d/f").fails(t, 400, "same_path")
		// path and new_path are other names of both, as in a move.
		k.send(t, "/copy", map[string]any{"path": "d/f", "new_path": "named"}).want(t, 200)
		cp("d/f", "twice", "path", "d/f").fails(t, 422, "validation_failed")

		l := k.send(t, "/symlink", map[string]any{"path": "l", "target": "d"}).want(t, 201).obj(t)
		has(t, l, map[string]any{"path": "l", "target": "d"})
		k.send(t, "/symlink", map[string]any{"path": "l", "target": "e"}).fails(t, 409, "target_exists")
		k.send(t, "/symlink", map[string]any{"path": "out", "target": "../x"}).want(t, 400)
		k.send(t, "/symlink", map[string]any{"path": "abs", "target": "/etc/passwd"}).want(t, 400)
		wantNames(t, "through a link", namesIn(t, k.ask(t, "/list?path=l"), "entries", "path"), []string{"l/f"})
		entry := k.ask(t, "/list").want(t, 200).list(t, "entries")
		i := slices.IndexFunc(entry, func(e map[string]any) bool { return e["path"] == "l" })
		has(t, entry[i], map[string]any{"type": "symlink", "target": "d"})
		// The whole task can be undone.
		k.send(t, "/revert", nil).want(t, 200)
		wantNames(t, "after the revert", namesIn(t, k.ask(t, "/list?recursive=true"), "entries", "path"), []string{})
	})
}

func TestFilesOfATaskThatEnded(t *testing.T) {
	bothKinds(t, func(t *testing.T, k *taskOf, virtual bool) {
		k.put(t, "f", "x").want(t, 201)
		k.p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
		k.ask(t, "/list").want(t, 200)
		k.send(t, "/mkdir", map[string]any{"path": "d"}).fails(t, 409, "task_ended")
		k.send(t, "/edit", map[string]any{"path": "f", "old_string": "x", "new_string": "y"}).fails(t, 409, "task_ended")
		k.p.call(t, "POST", k.url("/append?path=f"), []byte("x")).fails(t, 409, "task_ended")
		k.send(t, "/copy", map[string]any{"from": "f", "to": "g"}).fails(t, 409, "task_ended")
		k.send(t, "/symlink", map[string]any{"path": "l", "target": "f"}).fails(t, 409, "task_ended")
	})
}

func TestFilesNamesThatAreNotText(t *testing.T) {
	t.Parallel()
	p := newProject(t, nil)
	need.NoError(t, os.WriteFile(filepath.Join(p.dir, "a\xff%"), []byte("needle"), 0o644))
	p.fill(t, map[string]string{"b": "x", "%!c": "x"})
	k := p.task(t)
	var got []string
	after := ""
	for {
		page := k.ask(t, "/list?limit=1"+after).want(t, 200)
		got = append(got, namesIn(t, page, "entries", "path")...)
		next, more := page.obj(t)["next"].(string)
		if !more {
			break
		}
		after = "&after=" + url.QueryEscape(next)
	}
	wantNames(t, "pages", got, []string{"%!c", "a%FF%25", "b"})
	m := k.ask(t, "/search?pattern=needle").want(t, 200).list(t, "matches")[0]
	has(t, m, map[string]any{"path": "a%FF%25", "path_encoding": "percent"})
	has(t, k.ask(t, "/stat?path=a%FF%25").want(t, 200).obj(t), map[string]any{"path": "a%FF%25", "path_encoding": "percent"})
}

func TestToolsetTurn(t *testing.T) {
	t.Parallel()
	p := newProject(t, map[string]string{"f": "x"})
	mounts := func(scope string) map[string]any {
		return map[string]any{"mounts": []any{map[string]any{"prefix": "/p", "scope": scope, "store": map[string]any{"type": "physical", "root": p.dir}}}}
	}
	id := p.post(t, "/toolsets", mounts("READ_ONLY")).want(t, 201).str(t, "id")
	for _, format := range []string{"mcp", "openai", "anthropic", "langchain"} {
		turn := p.call(t, "GET", "/toolsets/"+id+"/turn?format="+format, nil).want(t, 200)
		tools := p.call(t, "GET", "/toolsets/"+id+"/tools?format="+format, nil).want(t, 200)
		if testJSON(turn.obj(t)["tools"]) != testJSON(tools.obj(t)["tools"]) {
			t.Errorf("%s: other tools", format)
		}
	}
	turn := p.call(t, "GET", "/toolsets/"+id+"/turn", nil).want(t, 200)
	text := p.call(t, "GET", "/toolsets/"+id+"/filesystem-map", nil).want(t, 200)
	one := p.call(t, "GET", "/toolsets/"+id, nil).want(t, 200)
	if turn.str(t, "map") != string(text.Body) || testJSON(turn.obj(t)["mounts"]) != testJSON(one.obj(t)["mounts"]) {
		t.Error(string(turn.Body))
	}
	tag := turn.head("Etag")
	p.call(t, "GET", "/toolsets/"+id+"/turn", nil, "If-None-Match", tag).want(t, 304)
	p.call(t, "PUT", "/toolsets/"+id+"/mounts", mounts("READ_WRITE")).want(t, 200)
	now := p.call(t, "GET", "/toolsets/"+id+"/turn", nil, "If-None-Match", tag).want(t, 200)
	if now.head("Etag") == tag || !strings.Contains(now.str(t, "map"), "READ_WRITE") {
		t.Error(string(now.Body))
	}
	p.call(t, "GET", "/toolsets/"+id+"/turn?format=none", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "GET", "/toolsets/none/turn", nil).fails(t, 404, "toolset_not_found")
}

// A search whose pattern and line take minutes ends with its client.
func TestSearchEndsWithItsClient(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	s.Do("POST", "/tasks", obj{"goal": "x", "kind": "virtual", "task_id": "slow"}).Expect(201)
	s.Do("PUT", "/tasks/slow/content?path=line", strings.Repeat("a", 5<<20), "Content-Type: application/octet-stream").Expect(201)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/tasks/slow/search?pattern="+url.QueryEscape(strings.Repeat("(a*)*", 100)+"b"), nil)
	need.NoError(t, err)
	if res, err := http.DefaultClient.Do(req); err == nil {
		res.Body.Close()
		t.Fatal("it was answered:", res.Status)
	}
	eventually(t, func() bool {
		return strings.Contains(string(s.Do("GET", "/metrics", nil).Expect(200).Body), "\numbra_http_requests_running 1\n")
	})
	s.Do("GET", "/tasks/slow/search?pattern="+url.QueryEscape(strings.Repeat("(a*)*", 1000)), nil).Expect(400)
}

// TestFilesTime has a file of a virtual workspace that thousands of later commits leave alone:
// after a start its time is what it was, wherever it is asked for.
func TestFilesTime(t *testing.T) {
	t.Parallel()
	p := &project{Server: harness.Start(t, harness.Options{}), dir: t.TempDir()}
	k := p.task(t, "kind", "virtual", "workspace", "")
	k.put(t, "old/f", "old").want(t, 201)
	k.put(t, "old/f", "older").want(t, 200)
	times := func() (out []string) {
		for _, e := range k.ask(t, "/list?path=old").want(t, 200).list(t, "entries") {
			out = append(out, e["mtime"].(string))
		}
		out = append(out, k.ask(t, "/stat?path=old/f").want(t, 200).obj(t)["mtime"].(string))
		return append(out, k.ask(t, "/content?path=old/f").want(t, 200).head("Last-Modified"))
	}
	before := times()
	<-time.After(1100 * time.Millisecond) // times have whole seconds
	for n := range 2100 {
		status := http.StatusOK
		if n < 30 {
			status = http.StatusCreated
		}
		k.put(t, fmt.Sprintf("new/f%d", n%30), fmt.Sprint(n)).want(t, status)
	}
	p.Stop()
	p.Restart()
	if after := times(); !slices.Equal(after, before) || len(before) != 3 {
		t.Errorf("%q before the start, %q after it", before, after)
	}
}
