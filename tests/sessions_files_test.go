package tests

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
)

func TestSessionReads(t *testing.T) {
	p := newProject(t, map[string]string{"a.txt": "one\ntwo\r\nthree", "src/b.ts": "export const x = 1\n", "empty": "", "bin": "\xff\x00\xfe"})
	s := p.session(t)
	o := s.p.call(t, "GET", s.url("/fs"), nil).want(t, 200).obj(t)
	has(t, o, map[string]any{"service": "codey-server/fs", "version": "0.1-poc"})
	features, _ := o["features"].(map[string]any)
	for _, f := range []string{"list", "stat", "tree", "read", "download", "write", "replace", "mkdir", "move", "copy", "delete_file", "delete_dir", "upload"} {
		if features[f] != true {
			t.Errorf("feature %s is %v", f, features[f])
		}
	}
	has(t, o["defaults"].(map[string]any), map[string]any{"respect_git_ignore": true, "respect_codey_ignore": true, "truncate_tool_output_lines": 1000})

	need.NoError(t, os.Chmod(filepath.Join(p.dir, "a.txt"), 0o644))
	st := s.get(t, "stat", "path", "./a.txt").want(t, 200).obj(t)
	has(t, st, map[string]any{"path": "a.txt", "isDir": false, "isSymlink": false, "size": 14, "mode": 420, "etag": tagOf("one\ntwo\r\nthree")})
	for _, root := range []string{".", ""} {
		st = s.get(t, "stat", "path", root).want(t, 200).obj(t)
		has(t, st, map[string]any{"path": ".", "isDir": true, "size": 0})
		if _, ok := st["etag"]; ok {
			t.Error("a folder has an etag")
		}
	}
	has(t, s.get(t, "stat", "path", "src/").want(t, 200).obj(t), map[string]any{"path": "src", "isDir": true})

	for _, c := range []struct {
		offset, limit string
		content       string
		lines         int
		truncated     bool
	}{
		{"", "", "one\ntwo\r\nthree", 3, false},
		{"0", "1", "one\n", 1, true},
		{"1", "1", "two\r\n", 1, true},
		{"1", "2", "two\r\nthree", 2, false},
		{"2", "", "three", 1, false},
		{"3", "", "", 0, false},
		{"99999", "1", "", 0, false},
		{"0", "0", "", 0, true},
	} {
		params := []string{"path", "a.txt"}
		if c.offset != "" {
			params = append(params, "offset", c.offset)
		}
		if c.limit != "" {
			params = append(params, "limit", c.limit)
		}
		o := s.get(t, "read", params...).want(t, 200).obj(t)
		off := c.offset
		if off == "" {
			off = "0"
		}
		has(t, o, map[string]any{"content": c.content, "lines": c.lines, "truncated": c.truncated, "totalLines": 3, "offset": off, "etag": tagOf("one\ntwo\r\nthree")})
	}
	has(t, s.get(t, "read", "path", "empty").want(t, 200).obj(t), map[string]any{"content": "", "totalLines": 0, "truncated": false, "etag": tagOf("")})
	if text := s.get(t, "read", "path", "bin").refuses(t, 422); !strings.Contains(text, "base64") {
		t.Errorf("the error does not say base64: %s", text)
	}
	has(t, s.get(t, "read", "path", "bin", "as", "base64").want(t, 200).obj(t),
		map[string]any{"encoding": "base64", "content": base64.StdEncoding.EncodeToString([]byte("\xff\x00\xfe")), "etag": tagOf("\xff\x00\xfe")})
	many := strings.Repeat("line\n", 1500)
	p.fill(t, map[string]string{"many": many})
	has(t, s.get(t, "read", "path", "many").want(t, 200).obj(t), map[string]any{"content": many[:5000], "truncated": true, "totalLines": 1500, "lines": 1000})

	for _, q := range [][]string{{}, {"path", "a.txt", "offset", "-1"}, {"path", "a.txt", "limit", "x"}, {"path", "a.txt", "as", "hex"}, {"path", "a.txt", "path", "b"}} {
		s.get(t, "read", q...).refuses(t, 400)
	}
	for _, op := range []string{"stat", "download"} {
		s.get(t, op).refuses(t, 400)
	}
}

// Larger files than are held in memory come out the same.
func TestSessionReadsLargeText(t *testing.T) {
	var b strings.Builder
	for i := 0; b.Len() < 9<<20; i++ {
		fmt.Fprintf(&b, "%d \"quoted\" \\ t\tab caf\u00e9 \x01 \U0001f600 </script>\u2028\n", i)
	}
	text := b.String()
	p := newProject(t, map[string]string{"large": text, "broken": text + "\xc3"})
	s := p.session(t)
	o := s.get(t, "read", "path", "large", "limit", "1000000").want(t, 200).obj(t)
	if o["content"] != text {
		t.Error("the content came out otherwise")
	}
	has(t, o, map[string]any{"truncated": false, "etag": tagOf(text), "totalLines": strings.Count(text, "\n")})
	o = s.get(t, "read", "path", "large", "offset", "70000", "limit", "2").want(t, 200).obj(t)
	if want := strings.Join(strings.SplitAfter(text, "\n")[70000:70002], ""); o["content"] != want {
		t.Errorf("%q, want %q", o["content"], want)
	}
	o = s.get(t, "read", "path", "broken", "as", "base64").want(t, 200).obj(t)
	if o["content"] != base64.StdEncoding.EncodeToString([]byte(text+"\xc3")) {
		t.Error("the base64 came out otherwise")
	}
	s.get(t, "read", "path", "broken", "limit", "1").refuses(t, 422)
}

func TestSessionDownload(t *testing.T) {
	data := strings.Repeat("0123456789", 100)
	p := newProject(t, map[string]string{"d/caf\u00e9 \"x\".bin": data})
	s := p.session(t)
	u := s.fs("download", "path", "d/caf\u00e9 \"x\".bin")
	r := p.call(t, "GET", u, nil).want(t, 200)
	if string(r.Body) != data || r.head("Etag") != tagOf(data) || r.head("Content-Type") != "application/octet-stream" || r.head("Last-Modified") == "" {
		t.Errorf("%d bytes, %v", len(r.Body), r.Header)
	}
	if got := r.head("Content-Disposition"); got != `attachment; filename="caf_ _x_.bin"; filename*=UTF-8''caf%C3%A9%20%22x%22.bin` {
		t.Errorf("Content-Disposition: %s", got)
	}
	r = p.call(t, "GET", u, nil, "Range", "bytes=10-14").want(t, 206)
	if string(r.Body) != "01234" || r.head("Content-Range") != "bytes 10-14/1000" {
		t.Errorf("%q %v", r.Body, r.Header)
	}
	p.call(t, "GET", u, nil, "Range", "bytes=2000-").refuses(t, 416)
	p.call(t, "GET", u, nil, "If-None-Match", tagOf(data)).want(t, 304)
	p.call(t, "GET", u, nil, "If-None-Match", tagOf("x")).want(t, 200)
	if r := p.call(t, "GET", u, nil, "If-Match", tagOf("x")); r.head("Etag") != tagOf(data) {
		r.refuses(t, 409)
	}
	if r := p.call(t, "HEAD", u, nil).want(t, 200); len(r.Body) != 0 || r.head("Content-Length") != "1000" {
		t.Errorf("HEAD: %v", r.Header)
	}
}

func TestSessionWrites(t *testing.T) {
	p := newProject(t, map[string]string{"old": "old\n"})
	need.NoError(t, os.Chmod(filepath.Join(p.dir, "old"), 0o640))
	s := p.session(t)
	r := s.put(t, "src/new.ts", "export const x = 1\n").want(t, 201)
	o := r.obj(t)
	has(t, o, map[string]any{"path": "src/new.ts", "bytesWritten": 19, "etag": tagOf("export const x = 1\n"), "created": true})
	if o["commit"] == nil || r.head("Etag") != tagOf("export const x = 1\n") {
		t.Errorf("%s %v", r.Body, r.Header)
	}
	if st := s.get(t, "stat", "path", "src/new.ts").obj(t); st["mtime"] != o["mtime"] || st["etag"] != o["etag"] {
		t.Errorf("stat says %v, the write %v", st, o)
	}
	has(t, s.put(t, "old", "new\n").want(t, 200).obj(t), map[string]any{"created": false})
	if st, err := os.Stat(filepath.Join(p.dir, "old")); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	if o := s.put(t, "old", "new\n").want(t, 200).obj(t); o["commit"] != nil {
		t.Errorf("an unchanged write made a commit: %v", o)
	}
	bin := "\x00\xff\r\n"
	o = s.do(t, "write", "path", "b", "content", base64.StdEncoding.EncodeToString([]byte(bin)), "contentEncoding", "base64").want(t, 201).obj(t)
	has(t, o, map[string]any{"bytesWritten": 4, "etag": tagOf(bin)})
	s.do(t, "upload", "path", "u", "content", "eA==", "contentEncoding", "base64").want(t, 201)
	s.do(t, "upload", "path", "u", "content", "y").want(t, 200)
	o = p.call(t, "PUT", s.fs("upload", "path", "raw/deep/f"), []byte("raw bytes")).want(t, 201).obj(t)
	has(t, o, map[string]any{"path": "raw/deep/f", "bytesWritten": 9, "created": true, "etag": tagOf("raw bytes")})
	p.call(t, "PUT", s.fs("upload", "path", "raw/deep/f"), []byte("more")).want(t, 200)
	p.call(t, "PUT", s.fs("upload", "path", "run.sh"), []byte("#!"), "X-File-Mode", "100755").want(t, 201)
	if got := p.read(t, "b") + p.read(t, "u") + p.read(t, "raw/deep/f"); got != bin+"ymore" {
		t.Errorf("%q", got)
	}
	for _, body := range []map[string]any{
		{"content": "x"}, {"path": "x"}, {"path": "x", "content": "@@", "contentEncoding": "base64"}, {"path": "x", "content": "eA", "contentEncoding": "base64"},
		{"path": "x", "content": "x", "contentEncoding": "hex"}, {"path": "src", "content": "x"}, {"path": "old/x", "content": "x"}, {"path": ".", "content": "x"},
		{"path": "", "content": "x"}, {"path": "/x", "content": "x"}, {"path": ".git/x", "content": "x"}, {"path": "a\x00b", "content": "x"},
		{"path": strings.Repeat("n", 256), "content": "x"}, {"path": "x", "content": "x", "ifMatchEtag": "plain"}, {"path": "x", "content": 1},
	} {
		p.post(t, s.fs("write"), body).refuses(t, 400)
	}
	s.put(t, "a/../../x", "x").refuses(t, 404)
	p.call(t, "POST", s.fs("write"), []byte("{}"), "Content-Type", "text/plain").refuses(t, 415)
	p.call(t, "POST", s.fs("write"), []byte("{"), "Content-Type", "application/json").refuses(t, 400)
	// One commit a change, all of the session's task.
	k := s.task(t)
	want := []string{"create src/new.ts", "modify old", "create b", "create u", "modify u", "create raw/deep/f", "modify raw/deep/f", "create run.sh"}
	sameList(t, "changes", briefs(k.changes(t, "")), want...)
	s.diskIsTip(t)
}

func TestSessionReplace(t *testing.T) {
	crlf := "\xef\xbb\xbfone foo\r\ntwo foo\r\n\xff\x00"
	p := newProject(t, map[string]string{"f": crlf, "g": "abc"})
	s := p.session(t)
	if text := s.do(t, "replace", "path", "f", "old_string", "foo", "new_string", "bar").refuses(t, 422); !strings.Contains(text, "2") {
		t.Errorf("it does not say how many: %s", text)
	}
	s.do(t, "replace", "path", "f", "old_string", "none", "new_string", "bar").refuses(t, 422)
	o := s.do(t, "replace", "path", "f", "old_string", "foo\r\ntwo", "new_string", "bar\r\n2").want(t, 200).obj(t)
	want := strings.Replace(crlf, "foo\r\ntwo", "bar\r\n2", 1)
	has(t, o, map[string]any{"path": "f", "replacements": 1, "etag": tagOf(want)})
	o = s.do(t, "replace", "path", "f", "old_string", "o", "new_string", "", "allowMultiple", true).want(t, 200).obj(t)
	want = strings.ReplaceAll(want, "o", "")
	has(t, o, map[string]any{"replacements": 3, "etag": tagOf(want)})
	if got := p.read(t, "f"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, pairs := range [][]any{
		{"path", "f", "old_string", "", "new_string", "x"}, {"path", "f", "old_string", "x", "new_string", "x"}, {"path", "f", "new_string", "x"},
		{"path", "f", "old_string", "x"}, {"old_string", "a", "new_string", "x"}, {"path", ".", "old_string", "a", "new_string", "x"},
	} {
		s.do(t, "replace", pairs...).refuses(t, 400)
	}
	s.do(t, "replace", "path", "missing", "old_string", "a", "new_string", "x").refuses(t, 404)
	r := s.do(t, "replace", "path", "g", "old_string", "a", "new_string", "x", "ifMatchEtag", tagOf("other"))
	r.refuses(t, 409)
	if r.head("Etag") != tagOf("abc") {
		t.Errorf("ETag %s", r.head("Etag"))
	}
	s.do(t, "replace", "path", "g", "old_string", "a", "new_string", "x", "ifMatchEtag", tagOf("abc")).want(t, 200)
	s.diskIsTip(t)
}

func TestSessionConditions(t *testing.T) {
	p := newProject(t, map[string]string{"f": "one", "dir/x": "x"})
	s := p.session(t)
	stale := func(r *answer, current string) {
		t.Helper()
		r.refuses(t, 409)
		if got := r.head("Etag"); got != current {
			t.Errorf("%s: ETag %q, want %q", r.what, got, current)
		}
	}
	tag, other := tagOf("one"), tagOf("other")
	stale(s.put(t, "f", "two", "If-Match", other), tag)
	stale(s.do(t, "write", "path", "f", "content", "two", "ifMatchEtag", other), tag)
	stale(s.put(t, "missing", "two", "If-Match", tag), "")
	stale(s.put(t, "missing", "two", "If-Match", "*"), "")
	stale(s.put(t, "f", "two", "If-None-Match", "*"), tag)
	stale(p.call(t, "PUT", s.fs("upload", "path", "f"), []byte("two"), "If-Match", other), tag)
	stale(s.do(t, "move", "from", "f", "to", "g", "ifMatchEtag", other), tag)
	stale(s.do(t, "copy", "from", "f", "to", "g", "ifMatchEtag", other), tag)
	stale(p.call(t, "DELETE", s.fs("file", "path", "f"), nil, "If-Match", other), tag)
	stale(p.call(t, "DELETE", s.fs("file", "path", "missing", "force", "true"), nil, "If-Match", other), "")
	for _, h := range []string{"one", `"one`, `W/one`, ""} {
		s.put(t, "f", "two", "If-Match", h).refuses(t, 400)
	}
	p.call(t, "POST", s.fs("write"), map[string]any{"path": "f", "content": "two", "ifMatchEtag": other}, "If-Match", tag).refuses(t, 400)
	s.do(t, "move", "from", "dir", "to", "g", "ifMatchEtag", tag).refuses(t, 400)
	p.call(t, "DELETE", s.fs("dir", "path", "dir", "recursive", "true"), nil, "If-Match", tag).refuses(t, 400)
	p.call(t, "POST", s.fs("mkdir"), map[string]any{"path": "new"}, "If-Match", tag).refuses(t, 400)
	stale(p.call(t, "POST", s.fs("symlink"), map[string]any{"path": "new", "target": "f"}, "If-Match", tag), "")
	if p.read(t, "f") != "one" {
		t.Error("something was written")
	}
	p.call(t, "POST", s.fs("write"), map[string]any{"path": "f", "content": "two", "ifMatchEtag": tag}, "If-Match", tag).want(t, 200)
	s.put(t, "f", "three", "If-Match", other+", "+strings.TrimPrefix(tagOf("two"), "W/")).want(t, 200)
	s.put(t, "f", "four", "If-Match", "*").want(t, 200)
	s.do(t, "copy", "from", "f", "to", "g", "ifMatchEtag", tagOf("four")).want(t, 200)
	p.call(t, "DELETE", s.fs("file", "path", "f"), nil, "If-Match", tagOf("four")).want(t, 200)
	// The tags are the tasks dialect's too.
	if r := p.call(t, "GET", s.task(t).file("g"), nil); r.head("Etag") != tagOf("four") {
		t.Errorf("the tasks dialect says %s", r.head("Etag"))
	}
}

func TestSessionMkdirMoveCopyDelete(t *testing.T) {
	p := newProject(t, map[string]string{"a/x": "x", "a/y/z": "z", "f": "f", "full/1": "1", "empty/.keep": ""})
	s := p.session(t)
	has(t, s.do(t, "mkdir", "path", "n").want(t, 201).obj(t), map[string]any{"path": "n", "created": true})
	s.do(t, "mkdir", "path", "n").refuses(t, 409)
	o := s.do(t, "mkdir", "path", "n", "recursive", true).want(t, 200).obj(t)
	if has(t, o, map[string]any{"created": false}); o["commit"] != nil {
		t.Errorf("%v", o)
	}
	s.do(t, "mkdir", "path", "q/r").refuses(t, 404)
	s.do(t, "mkdir", "path", "q/r/", "recursive", true).want(t, 201)
	s.do(t, "mkdir", "path", "f", "recursive", true).refuses(t, 409)
	s.do(t, "mkdir", "path", "f/x", "recursive", true).refuses(t, 409)
	s.do(t, "mkdir", "path", ".").refuses(t, 409)
	s.do(t, "mkdir").refuses(t, 400)

	s.do(t, "move", "from", "f", "to", "a/x").refuses(t, 409)
	o = s.do(t, "move", "from", "f", "to", "deep/er/f").want(t, 200).obj(t)
	if has(t, o, map[string]any{"from": "f", "to": "deep/er/f"}); o["commit"] == nil {
		t.Errorf("%v", o)
	}
	s.do(t, "move", "from", "deep/er/f", "to", "a/x", "overwrite", true).want(t, 200)
	if p.read(t, "a/x") != "f" {
		t.Error("not overwritten")
	}
	s.do(t, "move", "from", "a", "to", "full", "overwrite", true).refuses(t, 409)
	s.do(t, "move", "from", "a", "to", "n", "overwrite", true).want(t, 200)
	s.do(t, "move", "from", "n", "to", "n").refuses(t, 400)
	s.do(t, "move", "from", "n", "to", "n/y/deeper").refuses(t, 400)
	s.do(t, "move", "from", "n", "to", "full/1", "overwrite", true).refuses(t, 409)
	s.do(t, "move", "from", "n", "to", "full/1/below").refuses(t, 400)
	s.do(t, "move", "from", "missing", "to", "m").refuses(t, 404)
	s.do(t, "move", "from", ".", "to", "m").refuses(t, 400)
	s.do(t, "move", "to", "m").refuses(t, 400)

	s.do(t, "copy", "from", "n", "to", "copied").want(t, 200)
	s.do(t, "copy", "from", "n/x", "to", "copied/x").refuses(t, 409)
	s.do(t, "copy", "from", "n", "to", "copied", "overwrite", true).refuses(t, 409)
	s.do(t, "copy", "from", "n", "to", "n/inside").refuses(t, 400)
	s.do(t, "copy", "from", "n", "to", "n").refuses(t, 400)
	s.do(t, "copy", "from", "missing", "to", "m").refuses(t, 404)
	if p.read(t, "copied/x") != "f" || p.read(t, "copied/y/z") != "z" {
		t.Error("not copied")
	}

	has(t, s.delete(t, "file", "copied/x").want(t, 200).obj(t), map[string]any{"path": "copied/x", "deleted": true})
	s.delete(t, "file", "copied/x").refuses(t, 404)
	o = s.delete(t, "file", "copied/x", "force", "true").want(t, 200).obj(t)
	if has(t, o, map[string]any{"deleted": false}); o["commit"] != nil {
		t.Errorf("%v", o)
	}
	s.delete(t, "file", "copied").refuses(t, 400)
	s.delete(t, "dir", "n/x").refuses(t, 400)
	s.delete(t, "dir", "n").refuses(t, 400)
	s.delete(t, "dir", ".", "recursive", "true").refuses(t, 400)
	s.delete(t, "dir", "missing", "recursive", "true").refuses(t, 404)
	has(t, s.delete(t, "dir", "missing", "force", "true").want(t, 200).obj(t), map[string]any{"deleted": false})
	has(t, s.delete(t, "dir", "n/", "recursive", "true").want(t, 200).obj(t), map[string]any{"path": "n", "deleted": true})
	s.do(t, "mkdir", "path", "e").want(t, 201)
	s.delete(t, "dir", "e").want(t, 200)
	p.absent(t, "e")
	s.diskIsTip(t)
}

func TestSessionNotRecordable(t *testing.T) {
	p := newProject(t, map[string]string{"d/f": "f"})
	fifo := filepath.Join(p.dir, "d/fifo")
	need.NoError(t, syscall.Mkfifo(fifo, 0o600))
	s := p.session(t)
	r := s.delete(t, "dir", "d", "recursive", "true")
	r.refuses(t, 409)
	if list := r.list(t, "unrecorded"); len(list) != 1 || list[0]["path"] != "d/fifo" || list[0]["reason"] != "special" {
		t.Errorf("%v", list)
	}
	p.read(t, "d/f")
	r = s.delete(t, "dir", "d", "recursive", "true", "force", "true").want(t, 200)
	if list := r.list(t, "unrecorded"); len(list) != 1 {
		t.Errorf("%v", list)
	}
	p.absent(t, "d")
}
