package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAreas(t *testing.T) {
	p := newProject(t, map[string]string{"f": "x"})
	k, other := p.task(t), p.task(t)
	head := k.git(t, "rev-parse", "refs/umbra/head")
	if list := p.call(t, "GET", k.url("/scratch"), nil).want(t, 200).list(t, "files"); len(list) != 0 {
		t.Errorf("a new scratch has %v", list)
	}
	o := p.call(t, "PUT", k.url("/scratch/notes/a%20b.txt"), []byte("one")).want(t, 201).obj(t)
	has(t, o, map[string]any{"path": "scratch://notes/a b.txt", "operation": "create", "commit": nil, "change_id": nil, "bytes": 3})
	// By any path of a tasks call it is the same file.
	has(t, k.put(t, "scratch://notes/a b.txt", "two").want(t, 200).obj(t), map[string]any{"operation": "modify", "commit": nil})
	r := p.call(t, "GET", k.file("scratch://notes/a b.txt"), nil).want(t, 200)
	if string(r.Body) != "two" {
		t.Errorf("read %q", r.Body)
	}
	if d := p.call(t, "GET", k.url("/scratch/notes/a%20b.txt"), nil, "Range", "bytes=1-1").want(t, 206); string(d.Body) != "w" {
		t.Errorf("the range is %q", d.Body)
	}
	p.call(t, "GET", k.url("/scratch/notes/a%20b.txt"), nil, "If-None-Match", r.head("Etag")).want(t, 304)
	p.call(t, "PUT", k.url("/scratch/notes/a%20b.txt"), []byte("x"), "If-None-Match", "*").fails(t, 412, "precondition_failed")
	p.call(t, "PUT", k.url("/scratch/new"), []byte("x"), "If-Match", "*").fails(t, 412, "precondition_failed")
	p.call(t, "GET", k.file("scratch://notes/a b.txt")+"&at=base", nil).fails(t, 400, "invalid_parameter")
	p.call(t, "GET", k.url("/scratch/nothing"), nil).fails(t, 404, "file_not_found")
	p.call(t, "GET", k.url("/scratch/notes"), nil).fails(t, 409, "is_a_directory")
	p.call(t, "GET", other.url("/scratch/notes/a%20b.txt"), nil).fails(t, 404, "file_not_found")
	for _, bad := range []string{"..%2f..%2fx", "%2e%2e/x", ".git/config", "a%00b", "%2Fetc%2Fpasswd", ".umbra-0123456789abcdef.tmp"} {
		p.call(t, "PUT", k.url("/scratch/")+bad, []byte("no")).fails(t, 400, "bad_path")
	}

	p.post(t, k.url("/move"), map[string]any{"from": "scratch://notes", "to": "artifacts://report"}).want(t, 200)
	list := p.call(t, "GET", k.url("/artifacts"), nil).want(t, 200).list(t, "files")
	if len(list) != 1 {
		t.Fatalf("artifacts has %v", list)
	}
	has(t, list[0], map[string]any{"path": "report/a b.txt", "size": 3, "etag": r.head("Etag")})
	if m, _ := list[0]["mtime"].(string); !strings.HasSuffix(m, "Z") {
		t.Errorf("mtime is %v", list[0]["mtime"])
	}
	if data, err := os.ReadFile(filepath.Join(k.str("artifacts"), "report", "a b.txt")); err != nil || string(data) != "two" {
		t.Errorf("on disk: %q, %v", data, err)
	}
	p.call(t, "DELETE", k.file("artifacts://report"), nil).fails(t, 409, "directory_not_empty")
	p.crash()
	if again := p.call(t, "GET", k.url("/artifacts/report/a%20b.txt"), nil).want(t, 200); string(again.Body) != "two" {
		t.Errorf("after a kill %q", again.Body)
	}
	has(t, p.call(t, "DELETE", k.file("artifacts://report")+"&recursive=true", nil).want(t, 200).obj(t), map[string]any{"operation": "delete", "commit": nil})
	if after := k.git(t, "rev-parse", "refs/umbra/head"); after != head {
		t.Error("something of it came into history")
	}
	if n := len(k.changes(t, "")); n != 0 {
		t.Errorf("%d changes", n)
	}
}
