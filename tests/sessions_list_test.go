package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestSessionList(t *testing.T) {
	p := newProject(t, map[string]string{"b.txt": "bb", "a.txt": "a", "Z": "", "dir/x": "x", "dir/sub/y": "y", "adir/k": "k"})
	need.NoError(t, os.Symlink("dir", filepath.Join(p.dir, "link")))
	need.NoError(t, os.Symlink("/etc", filepath.Join(p.dir, "out")))
	need.NoError(t, syscall.Mkfifo(filepath.Join(p.dir, "fifo"), 0o600))
	p.fill(t, map[string]string{".umbra-0123456789abcdef.tmp": "ours", ".git/HEAD": "no repository", "dir/.git": "gitdir: x"})
	s := p.session(t)
	r := s.get(t, "list").want(t, 200)
	has(t, r.obj(t), map[string]any{"page": 1, "pageSize": 1000, "total": 7})
	sameList(t, "root", r.names(t), "adir", "dir", "Z", "a.txt", "b.txt", "link", "out")
	for _, e := range r.list(t, "entries") {
		switch e["path"] {
		case "dir":
			has(t, e, map[string]any{"name": "dir", "isDir": true, "isSymlink": false, "size": 0})
		case "b.txt":
			has(t, e, map[string]any{"name": "b.txt", "isDir": false, "size": 2})
		case "link", "out":
			has(t, e, map[string]any{"isDir": false, "isSymlink": true})
		}
		if m, _ := e["mtime"].(string); len(m) != len("2025-09-15T10:00:00.000Z") {
			t.Errorf("mtime %q", m)
		}
	}
	all := []string{"adir", "adir/k", "dir", "dir/sub", "dir/sub/y", "dir/x", "Z", "a.txt", "b.txt", "link", "out"}
	sameList(t, "recursive", s.get(t, "list", "recursive", "true").want(t, 200).names(t), all...)
	sameList(t, "below", s.get(t, "list", "path", "dir", "recursive", "true").want(t, 200).names(t), "dir/sub", "dir/sub/y", "dir/x")
	sameList(t, "through a link", s.get(t, "list", "path", "link").want(t, 200).names(t), "link/sub", "link/x")
	var paged []string
	for page := 1; page <= 6; page++ {
		r := s.get(t, "list", "recursive", "true", "page_size", "3", "page", fmt.Sprint(page)).want(t, 200)
		has(t, r.obj(t), map[string]any{"page": page, "pageSize": 3, "total": len(all)})
		paged = append(paged, r.names(t)...)
	}
	sameList(t, "pages", paged, all...)

	s.get(t, "list", "path", "a.txt").refuses(t, 400)
	s.get(t, "list", "path", "a.txt/x").refuses(t, 400)
	s.get(t, "list", "path", "missing").refuses(t, 404)
	s.get(t, "list", "path", "out").refuses(t, 404)
	s.get(t, "list", "path", "../").refuses(t, 404)
	s.get(t, "list", "path", "/").refuses(t, 400)
	for _, q := range [][2]string{{"page", "0"}, {"page_size", "0"}, {"page_size", "10001"}, {"recursive", "maybe"}, {"respect_git_ignore", "2"}} {
		s.get(t, "list", q[0], q[1]).refuses(t, 400)
	}
}

// The rules hide what git would not see, of the project's own repository too.
func TestSessionIgnores(t *testing.T) {
	p := newProject(t, map[string]string{
		".gitignore": "*.log\nbuild/\n!keep.log\n", "sub/.gitignore": "*\n!.gitignore\n!here\n", "sub/here": "", "sub/gone": "",
		"a.log": "", "keep.log": "", "tracked.log": "", "build/out": "", "build/tracked": "", "secret": "", "sub/secret": "", "excluded": "",
		".codeyignore": "/secret\nsub/secret\n", "sub/.codeyignore": "here\n",
	})
	harness.Git(t, p.dir, "init", "-q")
	harness.Git(t, p.dir, "add", "-f", "tracked.log", "build/tracked")
	need.NoError(t, os.WriteFile(filepath.Join(p.dir, ".git/info/exclude"), []byte("excluded\n"), 0o644))
	s := p.session(t)
	// A file that only our history tracks stays hidden, and can be used.
	s.put(t, "b.log", "ours").want(t, 201)
	s.put(t, "build/ours", "ours").want(t, 201)
	if got := s.get(t, "read", "path", "b.log").want(t, 200).str(t, "content"); got != "ours" {
		t.Errorf("%q", got)
	}
	list := func(params ...string) []string {
		t.Helper()
		return s.get(t, "list", append(params, "recursive", "true")...).want(t, 200).names(t)
	}
	want := []string{"build", "build/tracked", "sub", "sub/.gitignore", "sub/here", ".codeyignore", ".gitignore", "keep.log", "tracked.log"}
	sameList(t, "both", list(), want...)
	sameList(t, "below an ignored folder", list("path", "build"), "build/tracked")
	git := slices.Insert(slices.Clone(want), slices.Index(want, "keep.log")+1, "secret")
	sameList(t, "git's alone", list("respect_codey_ignore", "false"), git...)
	sameList(t, "codey's alone", list("respect_git_ignore", "false"), "build", "build/ours", "build/out", "build/tracked", "sub", "sub/.codeyignore", "sub/.gitignore",
		"sub/gone", "sub/here", ".codeyignore", ".gitignore", "a.log", "b.log", "excluded", "keep.log", "tracked.log")
	if n := len(list("respect_git_ignore", "false", "respect_codey_ignore", "false")); n != 18 {
		t.Errorf("%d of all", n)
	}
	// git itself says the same of what is not tracked.
	for name := range strings.FieldsSeq(harness.Git(t, p.dir, "ls-files", "-o", "--exclude-standard")) {
		if !slices.Contains(git, name) {
			t.Errorf("git shows %s", name)
		}
	}
	// Rules and index may change at any time.
	harness.Git(t, p.dir, "add", "-f", "a.log")
	p.fill(t, map[string]string{"sub/.gitignore": "here\n"})
	got := list()
	for _, name := range []string{"a.log", "sub/gone"} {
		if !slices.Contains(got, name) {
			t.Errorf("%s is not in %q", name, got)
		}
	}
	if slices.Contains(got, "sub/here") {
		t.Errorf("sub/here is in %q", got)
	}
	tree := s.get(t, "tree", "depth", "2").want(t, 200).obj(t)
	if text := testJSON(tree); strings.Contains(text, "secret") || strings.Contains(text, "build/out") || !strings.Contains(text, "build/tracked") {
		t.Errorf("the tree has %s", text)
	}
	// Without a repository the rules hold too.
	need.NoError(t, os.RemoveAll(filepath.Join(p.dir, ".git")))
	if got := list(); slices.Contains(got, "tracked.log") || !slices.Contains(got, "excluded") {
		t.Errorf("without a repository: %q", got)
	}
}

func TestSessionTree(t *testing.T) {
	p := newProject(t, map[string]string{"src/index.ts": "", "src/lib/a/b": "", "zz": ""})
	for _, l := range [][2]string{{"src", "link"}, {"link/nowhere", "dangling"}} {
		need.NoError(t, os.Symlink(l[0], filepath.Join(p.dir, l[1])))
	}
	s := p.session(t)
	got := testJSON(s.get(t, "tree", "path", "src").want(t, 200).obj(t))
	want := `{"children":[{"isDir":false,"name":"index.ts","path":"src/index.ts"},{"children":[{"isDir":true,"name":"a","path":"src/lib/a"}],"isDir":true,"name":"lib","path":"src/lib"}],"isDir":true,"name":"src","path":"src"}`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	got = testJSON(s.get(t, "tree", "depth", "1").want(t, 200).obj(t))
	want = `{"children":[{"isDir":false,"isSymlink":true,"name":"dangling","path":"dangling"},{"isDir":false,"isSymlink":true,"name":"link","path":"link"},` +
		`{"isDir":true,"name":"src","path":"src"},{"isDir":false,"name":"zz","path":"zz"}],"isDir":true,"name":".","path":"."}`
	if got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := testJSON(s.get(t, "tree", "depth", "9").want(t, 200).obj(t)); !strings.Contains(got, `"path":"src/lib/a/b"`) {
		t.Error(got)
	}
	s.get(t, "tree", "path", "zz").refuses(t, 400)
	s.get(t, "tree", "path", "missing").refuses(t, 404)
	s.get(t, "tree", "depth", "0").refuses(t, 400)
}

// A tree ends at 50,000 nodes, and its folders are still told apart.
func TestSessionTreeIsBounded(t *testing.T) {
	p := newProject(t, map[string]string{"zz": ""})
	for i := range 60 {
		dir := filepath.Join(p.dir, "many", fmt.Sprint(i))
		need.NoError(t, os.MkdirAll(dir, 0o755))
		if i > 5 {
			continue
		}
		for k := range 10_000 {
			need.NoError(t, os.Link(filepath.Join(p.dir, "zz"), filepath.Join(dir, fmt.Sprint(k))))
		}
	}
	s := p.session(t)
	r := s.get(t, "tree", "path", "many", "depth", "5").want(t, 200)
	if o := r.obj(t); o["truncated"] != true {
		t.Error("not truncated")
	}
	if n := strings.Count(string(r.Body), `"path"`); n != 50_000 {
		t.Errorf("%d nodes", n)
	}
	if n := strings.Count(string(r.Body), `"children":[]`); n < 54 {
		t.Errorf("%d folders without children", n)
	}
}

func TestSessionLinks(t *testing.T) {
	p := newProject(t, map[string]string{"f": "file", "dir/x": "x"})
	outside := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(outside, "secret"), []byte("secret"), 0o600))
	for name, target := range map[string]string{
		"to-f": "f", "to-dir": "dir", "dangling": "nowhere", "loop": "loop", "loop2": "loop", "out": outside, "out-rel": "../..", "deep/up": "../f",
	} {
		need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(p.dir, name)), 0o755))
		need.NoError(t, os.Symlink(target, filepath.Join(p.dir, name)))
	}
	s := p.session(t)
	has(t, s.get(t, "stat", "path", "to-f").want(t, 200).obj(t), map[string]any{"path": "to-f", "isSymlink": true, "isDir": false, "target": "f", "size": 4, "etag": tagOf("file")})
	has(t, s.get(t, "stat", "path", "deep/up").want(t, 200).obj(t), map[string]any{"target": "../f", "etag": tagOf("file")})
	has(t, s.get(t, "stat", "path", "to-dir").want(t, 200).obj(t), map[string]any{"isSymlink": true, "isDir": true, "size": 0, "target": "dir"})
	for name, size := range map[string]int{"dangling": 7, "loop": 4, "loop2": 4} {
		o := s.get(t, "stat", "path", name).want(t, 200).obj(t)
		has(t, o, map[string]any{"isSymlink": true, "isDir": false, "size": size})
		if _, ok := o["etag"]; ok {
			t.Errorf("%s has an etag", name)
		}
		s.get(t, "read", "path", name).refuses(t, 404)
	}
	for _, name := range []string{"out", "out-rel", "out/secret", "out-rel/x", "to-dir/../../x"} {
		s.get(t, "stat", "path", name).refuses(t, 404)
		s.get(t, "read", "path", name).refuses(t, 404)
		s.get(t, "download", "path", name).refuses(t, 404)
	}
	s.put(t, "out/new", "x").refuses(t, 404)
	s.put(t, "out-rel/new", "x").refuses(t, 404)
	if got := s.get(t, "read", "path", "to-dir/x").want(t, 200).str(t, "content"); got != "x" {
		t.Errorf("%q", got)
	}
	// A write goes through, to what is there or not.
	has(t, s.put(t, "to-f", "new").want(t, 200).obj(t), map[string]any{"path": "to-f"})
	s.put(t, "dangling", "born").want(t, 201)
	s.do(t, "replace", "path", "to-f", "old_string", "new", "new_string", "newer").want(t, 200)
	if p.read(t, "f") != "newer" || p.read(t, "nowhere") != "born" {
		t.Errorf("%q %q", p.read(t, "f"), p.read(t, "nowhere"))
	}
	// Delete, move and copy act on the link itself.
	s.do(t, "move", "from", "to-f", "to", "moved").want(t, 200)
	s.do(t, "copy", "from", "moved", "to", "copied").want(t, 200)
	for _, name := range []string{"moved", "copied"} {
		if target, err := os.Readlink(filepath.Join(p.dir, name)); err != nil || target != "f" {
			t.Errorf("%s: %q %v", name, target, err)
		}
	}
	s.delete(t, "file", "to-dir").want(t, 200)
	s.delete(t, "file", "copied").want(t, 200)
	p.read(t, "dir/x")
	p.read(t, "f")
	s.delete(t, "dir", "out", "recursive", "true").refuses(t, 400)

	o := s.do(t, "symlink", "path", "made/here", "target", "../f").want(t, 201).obj(t)
	if has(t, o, map[string]any{"path": "made/here", "target": "../f"}); o["commit"] == nil {
		t.Errorf("%v", o)
	}
	has(t, s.get(t, "stat", "path", "made/here").want(t, 200).obj(t), map[string]any{"etag": tagOf("newer")})
	s.do(t, "symlink", "path", "dang", "target", "not/there/yet").want(t, 201)
	for _, target := range []string{"/etc/passwd", "../x", "a/../../x", "out/secret", "", "made/.git/config", "a\x00b"} {
		s.do(t, "symlink", "path", "bad", "target", target).refuses(t, 400)
	}
	s.do(t, "symlink", "path", "f", "target", "dir").refuses(t, 409)
	s.do(t, "symlink", "path", "dir", "target", "f").refuses(t, 409)
	s.do(t, "symlink", "path", "f/x", "target", "dir").refuses(t, 400)
	s.do(t, "symlink", "path", "x").refuses(t, 400)
	if entries, _ := os.ReadDir(outside); len(entries) != 1 {
		t.Error("something was written outside")
	}
	s.diskIsTip(t)
}

// What is no file never hangs a request.
func TestSessionSpecialFiles(t *testing.T) {
	p := newProject(t, map[string]string{"f": "f"})
	need.NoError(t, syscall.Mkfifo(filepath.Join(p.dir, "fifo"), 0o600))
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	need.NoError(t, err)
	defer syscall.Close(fd)
	dir, err := os.Open(p.dir) // a short name for the socket's address
	need.NoError(t, err)
	defer dir.Close()
	need.NoError(t, syscall.Bind(fd, &syscall.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/sock", dir.Fd())}))
	s := p.session(t)
	for _, name := range []string{"fifo", "sock"} {
		s.get(t, "read", "path", name).refuses(t, 400)
		s.get(t, "read", "path", name, "as", "base64").refuses(t, 400)
		s.get(t, "download", "path", name).refuses(t, 400)
		o := s.get(t, "stat", "path", name).want(t, 200).obj(t)
		if has(t, o, map[string]any{"isDir": false}); o["etag"] != nil {
			t.Errorf("%v", o)
		}
		s.put(t, name, "x").refuses(t, 400)
		s.do(t, "replace", "path", name, "old_string", "a", "new_string", "b").refuses(t, 400)
		s.do(t, "copy", "from", name, "to", "c").refuses(t, 400)
		s.do(t, "copy", "from", "f", "to", name).refuses(t, 409)
		s.do(t, "symlink", "path", name, "target", "f").refuses(t, 409)
		s.do(t, "mkdir", "path", name).refuses(t, 409)
		s.delete(t, "file", name).refuses(t, 409)
	}
	s.do(t, "move", "from", "fifo", "to", "moved").want(t, 200)
	s.delete(t, "file", "moved", "force", "true").want(t, 200)
	p.absent(t, "moved")
	sameList(t, "listed", s.get(t, "list").want(t, 200).names(t), "f")
}

func TestSessionNamesOfAnyBytes(t *testing.T) {
	p := newProject(t, nil)
	s := p.session(t)
	p.call(t, "PUT", s.fs("upload", "path", "d\xff/100%.txt"), []byte("x")).want(t, 201)
	o := s.get(t, "stat", "path", "d\xff/100%.txt").want(t, 200).obj(t)
	has(t, o, map[string]any{"path": "d%FF/100%25.txt", "path_encoding": "percent"})
	e := s.get(t, "list", "recursive", "true").want(t, 200).list(t, "entries")
	has(t, e[1], map[string]any{"path": "d%FF/100%25.txt", "name": "100%25.txt", "path_encoding": "percent"})
	s.do(t, "write", "path", "d%FF/100%25.txt", "path_encoding", "percent", "content", "y").want(t, 200)
	s.do(t, "move", "from", "d%FF", "to", "plain%21", "path_encoding", "percent").want(t, 200)
	if p.read(t, "plain!/100%.txt") != "y" {
		t.Error("not there")
	}
	s.diskIsTip(t)
}

// A path of 200 folders is listed like any other.
func TestSessionDeepFolders(t *testing.T) {
	deep := strings.Repeat("d/", 200)
	p := newProject(t, map[string]string{deep + "f": "x", "d/.gitignore": "*.log\n", deep + "a.log": ""})
	s := p.session(t)
	r := s.get(t, "list", "recursive", "true").want(t, 200)
	names := r.names(t)
	if len(names) != 202 || names[200] != deep+"f" {
		t.Errorf("%d names, %q", len(names), names[max(0, len(names)-3):])
	}
	if r := s.get(t, "tree", "depth", "1000").want(t, 200); strings.Count(string(r.Body), `"path"`) != 203 {
		t.Errorf("%d nodes", strings.Count(string(r.Body), `"path"`))
	}
	has(t, s.get(t, "read", "path", deep+"f").want(t, 200).obj(t), map[string]any{"content": "x"})
}
