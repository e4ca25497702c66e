package tests

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// mountedFork makes a layer fork at a path; the test is left out where the server may
// not mount. What is mounted goes with the test.
func mountedFork(t *testing.T, p *project, ws, dir string, body map[string]any) string {
	t.Helper()
	if body == nil {
		body = map[string]any{}
	}
	body["kind"], body["path"] = "layer", dir
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	a := p.post(t, ws+"/forks", body)
	if a.Status == 422 && strings.Contains(string(a.Body), "kind_unavailable") {
		need.Missing(t, "a layer at a path needs root and overlayfs")
	}
	made := a.want(t, 201).list(t, "forks")[0]
	if made["kind"] != "layer" || made["root"] != dir {
		t.Fatalf("%v", made)
	}
	return made["id"].(string)
}

// A layer at a path is a directory that all processes see: it has the files of the
// moment, keeps its own changes, and shows none of the parent's.
func TestForkMounted(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "two\n", "d/deep/c": "c\n", "gone/x": "x\n", "turn/f": "f\n", ".gitignore": "out/\n*.log\n"})
	p.shell(t, "mkdir out; echo built > out/x; ln -s a link; chmod 755 d/b; ln d/b d/hard")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	dir := filepath.Join(t.TempDir(), "fork")
	id := mountedFork(t, p, ws, dir, nil)
	fork := "/workspaces/" + id
	const all = `find . -path ./out -prune -o -name .git -prune -o \( -type f -o -type l \) -print | LC_ALL=C sort; cat a d/b d/deep/c gone/x turn/f; readlink link; stat -c %a d/b`
	before := sh(t, dir, all)
	if got := sh(t, dir, "cat out/x"); got != "built\n" {
		t.Errorf("what is ignored is %q", got)
	}
	same := func(why string) {
		t.Helper()
		got := ""
		t.Cleanup(func() {
			if t.Failed() && got != before {
				t.Logf("%s: the fork has\n%s", why, got)
			}
		})
		eventually(t, func() bool { got = sh(t, dir, "( "+all+" ) 2>&1 || true"); return got == before })
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		if got := sh(t, dir, all); got != before {
			t.Errorf("%s: the fork had\n%s\nand has\n%s", why, before, got)
		}
		if log := p.log(t, id); len(log) != 0 {
			t.Errorf("%s: the fork's history has %+v", why, log)
		}
	}
	same("new")

	// The parent goes on, by the server and by its user.
	task.put(t, "a", "parent\n")
	task.put(t, "fresh/f", "new\n")
	same("the server's change")
	p.shell(t, "echo user >> d/b; rm -r gone; echo file > fresh2; rm link; ln -s d link; chmod 644 d/b; mv d/deep moved; rm -r turn; echo file > turn")
	p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
	same("the user's change")

	// The fork's own changes are recorded, and are in it alone.
	sh(t, dir, "echo fork > a; rm d/deep/c; mkdir n; echo new > n/new; mv gone went; echo mine > out/x")
	p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
	made := p.post(t, "/tasks", map[string]any{"task_id": "in-fork", "workspace": id, "goal": "try"}).want(t, 201).obj(t)
	if made["workspace_id"] != id {
		t.Fatalf("%v", made)
	}
	p.call(t, "PUT", "/tasks/in-fork/content?path=n/api", []byte("api\n")).want(t, 201)
	p.post(t, "/tasks/in-fork/move", map[string]any{"from": "d", "to": "renamed"}).want(t, 200)
	want := "fork\nnew\napi\nx\nmine\ntwo\n"
	const own = `cat a n/new n/api went/x out/x renamed/b; test ! -e d; test ! -e gone; test ! -e renamed/deep/c; test -e renamed/hard`
	if got := sh(t, dir, own); got != want {
		t.Errorf("the fork has %q", got)
	}
	if p.read(t, "a") != "parent\n" || p.read(t, "out/x") != "built\n" || p.read(t, "d/b") != "two\nuser\n" {
		t.Error("the parent changed")
	}
	p.absent(t, "n")
	p.absent(t, "renamed")

	// It is there while no server runs, and after a kill.
	p.Kill()
	if got := sh(t, dir, own); got != want {
		t.Errorf("without a server the fork has %q", got)
	}
	p.shell(t, "echo while > a; echo while > while; rm -r d")
	sh(t, dir, "echo while > n/new")
	p.Restart()
	want = strings.Replace(want, "new\n", "while\n", 1)
	check := func() {
		t.Helper()
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		if got := sh(t, dir, own+"; test ! -e while"); got != want {
			t.Errorf("the fork has %q", got)
		}
		if got := string(p.call(t, "GET", "/tasks/in-fork/content?path=n/new", nil).want(t, 200).Body); got != "while\n" {
			t.Errorf("the fork's history has %q", got)
		}
	}
	check()
	// The mount is lost with the machine's start: it is made again.
	p.Stop()
	need.NoError(t, syscall.Unmount(dir, 0))
	p.Restart()
	check()
	// Nothing of a user's is hidden.
	p.Stop()
	need.NoError(t, syscall.Unmount(dir, 0))
	sh(t, dir, "echo mine > mine")
	p.Restart()
	p.post(t, fork+"/sync", map[string]any{}).fails(t, 409, "workspace_missing")
	p.post(t, fork+"/sync", map[string]any{"adopt": true}).fails(t, 409, "layer_in_use")
	if got := sh(t, dir, "cat mine; rm mine"); got != "mine\n" {
		t.Errorf("the user's file is %q", got)
	}
	p.restart()
	check()
	// The mount of another data directory, of which this one is a copy, is not its own.
	p.Stop()
	layer := p.Find("workspaces", id, "layer")
	sh(t, layer, "mkdir was; mv upper work was")
	p.Restart()
	p.post(t, fork+"/sync", map[string]any{}).fails(t, 409, "workspace_missing")
	p.Stop()
	sh(t, layer, "rm -r upper work; mv was/* .; rmdir was")
	p.Restart()
	check()

	// It is run in, merged and deleted as any other.
	p.in(t, id, "cat renamed/b; echo in > in; echo in > in.log")
	if got := sh(t, dir, "cat in in.log"); got != "in\nin\n" {
		t.Errorf("a command left %q", got)
	}
	p.call(t, "PATCH", "/workspaces/"+id, map[string]any{"root": t.TempDir()}).fails(t, 409, "layer_in_use")
	p.call(t, "PATCH", "/tasks/in-fork", map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", fork, nil).fails(t, 409, "unmerged")
	p.merge(t, id, map[string]any{"on_conflict": "skip"})
	if p.read(t, "n/api") != "api\n" {
		t.Error("not merged")
	}
	task.fsck(t)
	user := exec.Command("sleep", "100")
	user.Dir = dir
	need.NoError(t, user.Start())
	p.call(t, "DELETE", fork+"?force=false", nil).fails(t, 409, "unmerged") // the conflicts
	p.call(t, "DELETE", fork+"?force=true", nil).want(t, 204)
	_ = user.Process.Kill()
	_ = user.Wait()
	for _, gone := range []string{dir, filepath.Join(p.DataDir, "workspaces", id)} {
		if _, err := os.Lstat(gone); err == nil {
			t.Errorf("%s is there", gone)
		}
	}
	if p.read(t, "out/x") != "built\n" {
		t.Error("the parent's files went with the fork")
	}
}

// A path at which a layer cannot be mounted, or may not, is refused, and nothing is left.
func TestForkMountedPlaces(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", ".gitignore": "out/\n"})
	p.shell(t, "mkdir out; echo built > out/x")
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	top := t.TempDir()
	dir := filepath.Join(top, "fork")
	id := mountedFork(t, p, ws, dir, nil)
	full := filepath.Join(top, "full")
	sh(t, top, "mkdir full empty; echo mine > full/mine; ln -s full link; ln -s "+p.dir+" parent; ln -s . same")
	try := func(path, code string, status int, more ...any) {
		t.Helper()
		body := map[string]any{"kind": "layer", "path": path}
		for i := 0; i < len(more); i += 2 {
			body[more[i].(string)] = more[i+1]
		}
		p.post(t, ws+"/forks", body).fails(t, status, code)
	}
	for _, there := range []string{full, filepath.Join(top, "empty"), filepath.Join(top, "link"), dir, p.dir} {
		try(there, "path_exists", 409)
	}
	try("relative", "invalid_path", 400)
	try(filepath.Join(top, "no/such"), "invalid_path", 400)
	try(filepath.Join(top, "x.git\x00"), "invalid_path", 400)
	try(filepath.Join(top, ".git"), "invalid_path", 400)
	try(filepath.Join(top, "two"), "invalid_path", 400, "count", 2)
	try(filepath.Join(top, "ignored"), "invalid_ignored", 400, "ignored", "all")
	try(filepath.Join(p.dir, "inside"), "workspace_overlaps", 409)
	try(filepath.Join(top, "parent/inside"), "workspace_overlaps", 409)
	try(filepath.Join(dir, "inside"), "workspace_overlaps", 409)
	try(filepath.Join(filepath.Dir(p.Find("workspaces", id)), "x"), "workspace_not_allowed", 403)
	p.absent(t, "inside")
	if got := sh(t, top, "ls; cat full/mine"); got != "empty\nfork\nfull\nlink\nparent\nsame\nmine\n" {
		t.Errorf("there is\n%s", got)
	}
	if mounted := sh(t, top, "grep -c ' "+top+"' /proc/self/mountinfo || true"); mounted != "1\n" {
		t.Errorf("%s mounts", mounted)
	}

	// Ignored files of its own; a fork of the fork; both at a spelling with a link.
	none := mountedFork(t, p, ws, filepath.Join(top, "none"), map[string]any{"ignored": "none"})
	if got := sh(t, filepath.Join(top, "none"), "ls -A"); got != ".gitignore\na\n" {
		t.Errorf("without ignored files it has\n%s", got)
	}
	copied := mountedFork(t, p, ws, filepath.Join(top, "copied"), map[string]any{"ignored": "copy"})
	p.shell(t, "echo changed > out/x")
	if got := sh(t, filepath.Join(top, "copied"), "cat out/x"); got != "built\n" {
		t.Errorf("the copy is %q", got)
	}
	sh(t, dir, "echo two > a")
	p.post(t, "/workspaces/"+id+"/forks", map[string]any{"kind": "layer", "path": filepath.Join(top, "deep")}).fails(t, 422, "kind_unavailable")
	deep := layerFork(t, p, "/workspaces/"+id, nil)
	sh(t, dir, "echo three > a; echo new > new")
	p.post(t, "/workspaces/"+id+"/sync", map[string]any{}).want(t, 200)
	if got := p.in(t, deep, "cat a; ls"); got != "two\na\nout\n" {
		t.Errorf("the fork's fork has %q", got)
	}
	for _, x := range []string{deep, copied, none} {
		p.call(t, "DELETE", "/workspaces/"+x, nil).want(t, 204)
	}

	// A fork whose directory a process uses is not deleted without force.
	sh(t, dir, "echo one > a; rm new")
	p.post(t, "/workspaces/"+id+"/sync", map[string]any{}).want(t, 200)
	user := exec.Command("sleep", "100")
	user.Dir = dir
	need.NoError(t, user.Start())
	p.call(t, "DELETE", "/workspaces/"+id, nil).fails(t, 409, "layer_in_use")
	if got := sh(t, dir, "cat a"); got != "one\n" {
		t.Errorf("a has %q", got)
	}
	_ = user.Process.Kill()
	_ = user.Wait()
	p.call(t, "DELETE", "/workspaces/"+id, nil).want(t, 204)
	if got := sh(t, top, "ls"); got != "empty\nfull\nlink\nparent\nsame\n" {
		t.Errorf("there is\n%s", got)
	}
}

// A token sees no fork outside its directories, and mounts none there; a mounted fork
// that expires goes with its mount, while a process uses it; and what users make in its
// place stays.
func TestForkMountedGuarded(t *testing.T) {
	p := newProject(t, map[string]string{"ws/a": "one\n"})
	inside, top := filepath.Join(p.dir, "ws"), t.TempDir()
	config := fmt.Sprintf("auth: {tokens: [{name: owner, scope: exec, roots: [/], sha256: '%x'}, {name: some, scope: write, roots: [%q], sha256: '%x'}]}\n",
		sha256.Sum256([]byte("owner")), inside, sha256.Sum256([]byte("some")))
	p = &project{Server: harness.Start(t, harness.Options{Config: config, Token: "owner"}), dir: inside}
	some := "Authorization: Bearer some"
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	dir := filepath.Join(top, "fork")
	id := mountedFork(t, p, ws, dir, nil)
	need.NoError(t, os.Symlink(top, filepath.Join(inside, "out")))
	for _, path := range []string{top + "/new", top + "/none/new", inside + "/out/new", inside + "/../new", dir, dir + "/x"} {
		if r := p.Do("POST", ws+"/forks", map[string]any{"kind": "layer", "path": path}, some); r.Status != 403 {
			t.Errorf("%s: %d %s", path, r.Status, r.Body)
		}
	}
	p.Do("GET", "/workspaces/"+id, nil, some).Expect(404)
	p.Do("DELETE", "/workspaces/"+id+"?force=true", nil, some).Expect(404)
	p.Do("POST", "/workspaces/"+id+"/forks", map[string]any{"kind": "virtual"}, some).Expect(404)
	if r := p.Do("GET", ws+"/forks", nil, some).Expect(200); strings.Contains(string(r.Body), id) {
		t.Errorf("the token is told of the fork: %s", r.Body)
	}
	p.call(t, "DELETE", ws, nil).fails(t, 409, "has_forks")

	// Files of a user's at the path while nothing is mounted there outlive the fork.
	p.Stop()
	need.NoError(t, syscall.Unmount(dir, 0))
	sh(t, dir, "echo mine > mine")
	p.Restart()
	p.call(t, "DELETE", "/workspaces/"+id+"?force=true", nil).want(t, 204)
	if got := sh(t, dir, "cat mine"); got != "mine\n" {
		t.Errorf("the user's file is %q", got)
	}
	gone := filepath.Join(top, "expires")
	mountedFork(t, p, ws, gone, map[string]any{"expires_in": 0.1})
	user := exec.Command("sleep", "100")
	user.Dir = gone
	need.NoError(t, user.Start())
	eventually(t, func() bool { _, err := os.Lstat(gone); return os.IsNotExist(err) })
	_ = user.Process.Kill()
	_ = user.Wait()
	if p.read(t, "a") != "one\n" {
		t.Error("the parent changed")
	}
}
