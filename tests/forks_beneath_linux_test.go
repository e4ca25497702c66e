package tests

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A directory that the parent removes stays in a mounted fork that has files of its own in
// it: they are listed, and no scan takes them for deleted, even while a process uses the
// directory.
func TestForkMountedRemovedBeneath(t *testing.T) {
	p := newProject(t, map[string]string{"e/f/z": "z\n", "e/f/y": "y\n", "d/x": "x\n"})
	ws := "/workspaces/" + p.task(t).str("workspace_id")
	dir := filepath.Join(t.TempDir(), "fork")
	id := mountedFork(t, p, ws, dir, nil)
	fork := "/workspaces/" + id
	sh(t, dir, "echo mine > e/f/z; echo mine > d/x; ls -R")
	p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
	user := exec.Command("sleep", "100")
	user.Dir = filepath.Join(dir, "d")
	need.NoError(t, user.Start())
	defer func() {
		_ = user.Process.Kill()
		_ = user.Wait()
	}()
	log := len(p.log(t, id))
	p.shell(t, "rm -r e d")
	p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
	want := "./e/f/y\n./e/f/z\n"
	eventually(t, func() bool { return sh(t, dir, "find ./e -type f | sort") == want })
	check := func(why string) {
		t.Helper()
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		if got := sh(t, dir, "cat e/f/z e/f/y d/x"); got != "mine\ny\nmine\n" {
			t.Errorf("%s: the fork has %q", why, got)
		}
		if got := len(p.log(t, id)); got != log {
			t.Errorf("%s: the fork's history has %d new commits", why, got-log)
		}
	}
	check("removed")
	p.restart()
	check("restarted")
}

// What the parent has for a moment only is none of a mounted fork's changes.
func TestForkMountedMomentBeneath(t *testing.T) {
	p := newProject(t, map[string]string{"a": "a\n"})
	task := p.task(t)
	id := mountedFork(t, p, "/workspaces/"+task.str("workspace_id"), filepath.Join(t.TempDir(), "fork"), nil)
	log := len(p.log(t, id))
	for i := range 100 {
		file := fmt.Sprintf("d%d/x", i%10)
		p.call(t, "PUT", "/tasks/"+task.ID+"/content?path="+file, []byte("x\n")).want(t, 201)
		p.post(t, "/tasks/"+task.ID+"/move", map[string]any{"from": file, "to": "y"}).want(t, 200)
		p.call(t, "DELETE", "/tasks/"+task.ID+"/content?path=y", nil).want(t, 200)
	}
	p.post(t, "/workspaces/"+id+"/sync", map[string]any{}).want(t, 200)
	if got := p.log(t, id); len(got) != log {
		t.Errorf("the fork's history has %+v", got[:len(got)-log])
	}
}

// Nor is a directory that the parent moves away and back, whenever a mounted fork looks.
func TestForkMountedMovedBeneath(t *testing.T) {
	p := newProject(t, map[string]string{"w/x": "x\n", "w/y": "y\n"})
	task := p.task(t)
	for range 4 {
		forks, log := map[string]string{}, 0
		for range 8 {
			dir := filepath.Join(t.TempDir(), "fork")
			id := mountedFork(t, p, "/workspaces/"+task.str("workspace_id"), dir, nil)
			forks[id], log = dir, len(p.log(t, id))
		}
		for range 4 {
			p.post(t, "/tasks/"+task.ID+"/move", map[string]any{"from": "w", "to": "v"}).want(t, 200)
			p.post(t, "/tasks/"+task.ID+"/move", map[string]any{"from": "v", "to": "w"}).want(t, 200)
		}
		for id, dir := range forks {
			p.post(t, "/workspaces/"+id+"/sync", map[string]any{}).want(t, 200)
			if got := p.log(t, id); len(got) != log {
				t.Errorf("the fork's history has %+v", got[:len(got)-log])
			}
			if got := sh(t, dir, "cat w/x w/y"); got != "x\ny\n" {
				t.Errorf("the fork has %q", got)
			}
			p.call(t, "DELETE", "/workspaces/"+id+"?force=true", nil).want(t, 204)
		}
	}
}

// A workspace is deleted with force although layers at a path show its directory: they take
// over what they showed, also where the directory goes with it and a process uses the
// layer's.
func TestForkMountedParentDeleted(t *testing.T) {
	const list = `find . -name .git -prune -o -print | LC_ALL=C sort; cat a d/x d/run out/big own n/new; readlink link; stat -c %a d/run; test ! -e gone`
	for _, copied := range []bool{false, true} {
		for _, used := range []bool{false, true} {
			p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", "gone": "gone\n", "own": "one\n", ".gitignore": "out/\n"})
			p.shell(t, "mkdir out empty; echo big > out/big; ln -s a link; echo '#!/bin/sh' > d/run; chmod 755 d/run; mkfifo out/pipe")
			task := p.task(t)
			of := task.str("workspace_id")
			below := p.dir
			if copied {
				below = filepath.Join(t.TempDir(), "copy")
				of = p.forks(t, "/workspaces/"+of, map[string]any{"kind": "copy", "path": below})[0]["id"].(string)
			}
			ws := "/workspaces/" + of
			dir := filepath.Join(t.TempDir(), "fork")
			id := mountedFork(t, p, ws, dir, nil)
			fork := "/workspaces/" + id
			sh(t, dir, "rm gone; echo mine > own; mkdir n; echo new > n/new")
			p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
			want, log := sh(t, dir, list), len(p.log(t, id))
			sh(t, below, "echo later > d/x; echo later > later; rm a")
			user := exec.Command("sleep", "100")
			if user.Dir = dir; used {
				need.NoError(t, user.Start())
				t.Cleanup(func() {
					_ = user.Process.Kill()
					_ = user.Wait()
				})
			}
			if !copied {
				p.call(t, "DELETE", ws, nil).fails(t, 409, "has_forks")
				p.call(t, "DELETE", ws+"?force=true", nil).fails(t, 409, "workspace_busy")
				p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
			}
			p.call(t, "DELETE", ws+"?force=true", nil).want(t, 204)
			p.call(t, "GET", ws, nil).want(t, 404)
			check := func(why string) {
				t.Helper()
				p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
				if got := sh(t, dir, list); got != want {
					t.Errorf("copied %v, used %v, %s: the fork had\n%s\nand has\n%s", copied, used, why, want, got)
				}
				if got := p.log(t, id); len(got) != log {
					t.Errorf("copied %v, used %v, %s: the fork's history has %+v", copied, used, why, got)
				}
			}
			check("deleted")
			if !copied { // what becomes of the directory is none of the fork's
				sh(t, below, "rm -r d; echo new > new; echo new > out/big; echo mine > a; cat a")
				check("changed")
			}
			p.restart()
			check("restarted")
			p.Stop()
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
			if got := sh(t, dir, "ls -A"); got != "" {
				t.Errorf("below the layer is %q", got)
			}
			p.Restart()
			check("mounted again")
			sh(t, dir, "echo more > d/x; rm own; mkdir own; echo sub > own/sub")
			p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
			if got := p.in(t, id, "cat d/x own/sub"); got != "more\nsub\n" {
				t.Errorf("a command sees %q", got)
			}
			if mounts := sh(t, dir, "grep -c umbra-"+id+" /proc/self/mountinfo"); strings.TrimSpace(mounts) != "1" {
				t.Errorf("%s mounts", mounts)
			}
			p.call(t, "DELETE", fork+"?force=true", nil).want(t, 204)
			if mounts := sh(t, "/", "grep -c umbra-"+id+" /proc/self/mountinfo || true"); strings.TrimSpace(mounts) != "0" {
				t.Errorf("%s mounts", mounts)
			}
			p.Stop()
		}
	}
}

// A server that is killed while it deletes what a layer at a path shows loses nothing of
// the layer, and deletes it when it is asked again.
func TestForkMountedParentDeletionKilled(t *testing.T) {
	files := map[string]string{}
	for i := range 400 {
		files[fmt.Sprintf("d%d/f%d", i%7, i)] = strconv.Itoa(i) + "\n"
	}
	const list = "find . -name .git -prune -o -type f -print | LC_ALL=C sort | xargs sha256sum"
	for delay := time.Millisecond; delay < 400*time.Millisecond; delay = delay * 5 / 2 {
		p := newProject(t, files)
		first := p.task(t).str("workspace_id")
		below := filepath.Join(t.TempDir(), "copy")
		of := p.forks(t, "/workspaces/"+first, map[string]any{"kind": "copy", "path": below})[0]["id"].(string)
		dir := filepath.Join(t.TempDir(), "fork")
		id := mountedFork(t, p, "/workspaces/"+of, dir, nil)
		sh(t, dir, "echo mine > d0/f0; rm d1/f1")
		p.post(t, "/workspaces/"+id+"/sync", map[string]any{}).want(t, 200)
		want, log := sh(t, dir, list), len(p.log(t, id))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			req, _ := http.NewRequest("DELETE", p.URL+"/workspaces/"+of+"?force=true", nil)
			if res, err := http.DefaultClient.Do(req); err == nil {
				res.Body.Close()
			}
		}()
		select {
		case <-ended:
		case <-time.After(delay):
		}
		p.Kill()
		<-ended
		check := func(why string) {
			t.Helper()
			p.post(t, "/workspaces/"+id+"/sync", map[string]any{}).want(t, 200)
			if got := sh(t, dir, list); got != want {
				t.Errorf("%v, %s: the fork has\n%s\nand had\n%s", delay, why, got, want)
			}
			if got := p.log(t, id); len(got) != log {
				t.Errorf("%v, %s: the fork's history has %+v", delay, why, got)
			}
		}
		p.Restart()
		check("killed")
		if a := p.call(t, "DELETE", "/workspaces/"+of+"?force=true", nil); a.Status != 204 && a.Status != 404 {
			t.Errorf("%v: %s", delay, a.Body)
		}
		check("deleted")
		if _, err := os.Lstat(below); err == nil {
			t.Errorf("%v: the copy's directory is there", delay)
		}
		p.Stop()
	}
}

// A workspace is deleted with force although a layer at a path shows its directory that is
// not mounted, since something is at the path: it has all that it showed when it is mounted
// again.
func TestForkUnmountedParentDeleted(t *testing.T) {
	const list = `find . -name .git -prune -o -print | LC_ALL=C sort; cat a d/x out/big own n/new unseen; test ! -e gone; test ! -e out/y`
	for _, copied := range []bool{false, true} {
		p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", "e/f": "f\n", "gone": "gone\n", "own": "one\n", ".gitignore": "out/\n"})
		p.shell(t, "mkdir out; echo big > out/big; echo y > out/y")
		kept := func() (list []string) {
			for _, dir := range p.DataDirs() {
				found, err := filepath.Glob(filepath.Join(dir, "below", "*"))
				need.NoError(t, err)
				list = append(list, found...)
			}
			return list
		}
		task := p.task(t)
		of, below := task.str("workspace_id"), p.dir
		if copied {
			below = filepath.Join(t.TempDir(), "copy")
			of = p.forks(t, "/workspaces/"+of, map[string]any{"kind": "copy", "path": below})[0]["id"].(string)
		}
		ws := "/workspaces/" + of
		dir := filepath.Join(t.TempDir(), "fork")
		id := mountedFork(t, p, ws, dir, nil)
		fork := "/workspaces/" + id
		sh(t, dir, "rm gone; echo mine > own; mkdir n; echo new > n/new; rm out/y")
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		log := len(p.log(t, id))
		p.Stop()
		sh(t, dir, "echo unseen > unseen") // by a process, before the machine stopped
		want := sh(t, dir, list)
		need.NoError(t, syscall.Unmount(dir, 0))
		sh(t, dir, "echo user > user")
		sh(t, below, "echo later > d/x; echo later > later; rm a; rm -r e; echo later > e")
		p.Restart()
		p.post(t, fork+"/sync", map[string]any{}).fails(t, 409, "workspace_missing")
		if !copied {
			p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
			p.call(t, "DELETE", ws, nil).fails(t, 409, "has_forks")
		}
		p.call(t, "DELETE", ws+"?force=true", nil).want(t, 204)
		if got := kept(); len(got) != 1 {
			t.Errorf("copied %v: kept for the fork is %s", copied, got)
		}
		p.post(t, fork+"/sync", map[string]any{}).fails(t, 409, "workspace_missing")
		if got := sh(t, dir, "cat user; rm user"); got != "user\n" {
			t.Errorf("copied %v: the user's file is %q", copied, got)
		}
		p.restart()
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		if got := sh(t, dir, list); got != want {
			t.Errorf("copied %v: the fork had\n%s\nand has\n%s", copied, want, got)
		}
		if got := p.log(t, id); len(got) != log+1 || got[0].Path != "unseen" {
			t.Errorf("copied %v: the fork's history has %+v", copied, got)
		}
		p.call(t, "DELETE", fork+"?force=true", nil).want(t, 204)
		if left := kept(); len(left) > 0 {
			t.Errorf("copied %v: left is %s", copied, left)
		}
		p.Stop()
	}
}

// A purge in a layer at a path that has files of its parent's history for itself, since it was
// not mounted when the parent was deleted, removes those that the fork replaced or removed.
func TestForkMountedPurge(t *testing.T) {
	const secret, ignored = "secret-of-the-parent-5518", "secret-that-is-ignored-5518"
	p := newProject(t, map[string]string{"a": "one\n", "key": secret + "\n", "env": "", ".gitignore": "out/\n"})
	p.shell(t, "mkdir out; echo "+ignored+" > out/env")
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	dir := filepath.Join(t.TempDir(), "fork")
	id := mountedFork(t, p, ws, dir, nil)
	fork := "/workspaces/" + id
	sh(t, dir, "cp out/env env")
	p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
	p.Stop()
	need.NoError(t, syscall.Unmount(dir, 0))
	sh(t, dir, "echo user > user")
	p.Restart()
	p.post(t, fork+"/sync", map[string]any{}).fails(t, 409, "workspace_missing")
	p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
	p.call(t, "DELETE", ws+"?force=true&history=delete", nil).want(t, 204)
	sh(t, dir, "rm user")
	p.restart()
	p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
	sh(t, dir, "rm key env; cat out/env")
	p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
	p.purge(t, 0, id, "key")
	if _, said := p.purge(t, 1, id, "env"); !strings.Contains(said, "out/env") {
		t.Errorf("the purge says %s", said)
	}
	p.purge(t, 0, id, "env", "--ignore")
	p.verb(t, "gc", "--now")
	for _, what := range []string{secret, ignored} {
		if found := p.Leaks(what); len(found) > 0 {
			t.Errorf("%s is in %v", what, found)
		}
	}
	if got := sh(t, dir, "cat a; ls -A . out"); !strings.HasPrefix(got, "one\n") || strings.Contains(got, "env") || strings.Contains(got, "key") {
		t.Errorf("the fork has %q", got)
	}
	log := len(p.log(t, id))
	p.restart()
	p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
	if now := p.log(t, id); len(now) != log {
		t.Errorf("the fork's history has %+v", now)
	}
}

// A workspace whose directory was moved is bound to it at its new path: layers that show it go
// on to show what they did, are put right when it changes, and keep it when it is deleted.
func TestForkParentMoved(t *testing.T) {
	for _, same := range []bool{true, false} {
		p := newProject(t, map[string]string{"a": "one\n", "d/x": "x\n", ".gitignore": "out/\n"})
		p.shell(t, "mkdir out; echo big > out/big")
		task := p.task(t)
		ws := "/workspaces/" + task.str("workspace_id")
		dir := filepath.Join(t.TempDir(), "fork")
		id := mountedFork(t, p, ws, dir, nil)
		fork := "/workspaces/" + id
		plain := layerFork(t, p, "/workspaces/"+p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string), nil)
		sh(t, dir, "echo mine > own")
		p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
		log := len(p.log(t, id))
		const list = "cat a d/x own out/big"
		want := sh(t, dir, list)
		to := filepath.Join(t.TempDir(), "moved")
		if same {
			sh(t, "/", "mv "+p.dir+" "+to)
		} else {
			sh(t, "/", "cp -a "+p.dir+" "+to+"; rm -r "+p.dir)
			user := exec.Command("sleep", "100")
			user.Dir = dir
			need.NoError(t, user.Start())
			p.call(t, "PATCH", ws, map[string]any{"root": to}).fails(t, 409, "layer_in_use")
			_ = user.Process.Kill()
			_ = user.Wait()
		}
		p.call(t, "PATCH", ws, map[string]any{"root": to}).want(t, 200)
		p.dir = to
		sh(t, to, "echo later > d/x; rm a; echo more > more")
		p.post(t, ws+"/sync", map[string]any{}).want(t, 200)
		check := func(why string) {
			t.Helper()
			eventually(t, func() bool { return sh(t, dir, list+" 2>&1 || true; test -e more || echo") == want+"\n" })
			p.post(t, fork+"/sync", map[string]any{}).want(t, 200)
			if got := p.log(t, id); len(got) != log {
				t.Errorf("same %v, %s: the fork's history has %+v", same, why, got)
			}
			files, want := "a d/x out/big", "one\nx\nbig\n"
			if why == "deleted" && harness.Nodes() > 0 { // the layer may be at a node without its ignored files
				files, want = "a d/x", "one\nx\n"
			}
			if got := p.in(t, plain, "cat "+files+"; test ! -e more"); got != want {
				t.Errorf("same %v, %s: the layer without a path shows %q", same, why, got)
			}
		}
		check("moved")
		p.restart()
		check("restarted")
		p.call(t, "PATCH", "/tasks/"+task.ID, map[string]any{"status": "completed"}).want(t, 200)
		p.call(t, "DELETE", ws+"?force=true", nil).want(t, 204)
		sh(t, to, "rm -r d out")
		check("deleted")
		p.Stop()
	}
}
