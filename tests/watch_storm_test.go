package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// Every byte that an editor saved, and every byte that the API wrote, is in the
// history of the file, whatever the order in which they came.
func TestRacingSavesLoseNothing(t *testing.T) {
	t.Parallel()
	saves := 600
	if soaking() {
		saves = 3000
	}
	w := newWatched(t, harness.Options{}, map[string]string{"f": "start", "g": "start"})
	wrote := make([][]string, 2)
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range saves {
			text := fmt.Sprintf("editor %d", i)
			temp := filepath.Join(w.dir, ".f.swp")
			if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
				t.Error(err)
			}
			// As an editor that looks at what it replaces: a save onto our write
			// keeps a copy of it, a save onto its own loses nothing.
			if err := exchange(temp, filepath.Join(w.dir, "f")); err != nil {
				t.Error(err)
			}
			old, err := os.ReadFile(temp)
			if err != nil {
				t.Error(err)
			}
			if bytes.HasPrefix(old, []byte("editor")) {
				wrote[0] = append(wrote[0], "superseded "+string(old))
			}
			os.Remove(temp)
		}
	})
	wg.Go(func() {
		for i := range saves / 10 {
			text := fmt.Sprintf("api %d", i)
			r := w.Do("PUT", w.k.file("f"), []byte(text))
			if r.Status == 200 || r.Status == 201 {
				wrote[1] = append(wrote[1], text)
			} else if r.Status != 409 {
				t.Errorf("PUT: %d %s", r.Status, r.Body)
			}
		}
	})
	wg.Wait()
	w.sync(t)
	history := harness.Git(t, w.k.gitDir(), "log", "-p", "--format=%H", "refs/umbra/head", "--", "f")
	for _, text := range wrote[1] {
		if !strings.Contains(history, "+"+text+"\n") {
			t.Errorf("%q was answered and is not in history", text)
		}
	}
	superseded := make(map[string]bool)
	for _, s := range wrote[0] {
		superseded[strings.TrimPrefix(s, "superseded ")] = true
	}
	for i := range saves {
		text := fmt.Sprintf("editor %d", i)
		if !superseded[text] && !strings.Contains(history, "+"+text+"\n") {
			t.Errorf("%q was neither replaced by the editor itself nor is it in history", text)
		}
	}
	now, err := os.ReadFile(filepath.Join(w.dir, "f"))
	if err != nil || harness.Git(t, w.k.gitDir(), "show", "refs/umbra/head:f") != string(now) {
		t.Errorf("the disk (%q, %v) is not the tip", now, err)
	}
	w.k.fsck(t)
}

func TestManyNewFiles(t *testing.T) {
	t.Parallel()
	n := 4000
	if soaking() {
		n = 20000
	}
	w := newWatched(t, harness.Options{}, map[string]string{"a": "1"})
	for i := range n {
		w.write(t, fmt.Sprintf("new/d%d/e%d/f%d", i%7, i%91, i), fmt.Sprint(i))
	}
	if got := len(w.tree(t)); got != n+1 {
		t.Errorf("%d files in history, want %d", got, n+1)
	}
}

func TestEditsWhileTheServerWasDown(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stop", "kill"} {
		w := newWatched(t, harness.Options{}, map[string]string{"a": "1", "b": "2", "c": "3"})
		w.write(t, "b", "seen")
		w.await(t, "modify b")
		if how == "stop" {
			w.Stop()
		} else {
			w.Kill()
		}
		w.write(t, "a", "while down")
		w.rename(t, "c", "d")
		w.Restart()
		// The start itself finds it: asked by the stream, from the beginning.
		w.stream = w.events(t, w.ws+"/stream?after=0")
		for _, c := range w.await(t, "modify a", "rename c -> d") {
			for _, raw := range c["entries"].([]any) {
				if e := raw.(map[string]any); e["path"] == "a" && e["task_id"] != nil {
					t.Errorf("%s: belongs to %v", how, e["task_id"])
				}
			}
		}
		w.write(t, "b", "again")
		c := w.await(t, "modify b")
		has(t, c[len(c)-1], map[string]any{"task_id": w.k.ID})
		w.k.fsck(t)
	}
}

func TestMissingAndMovedFolders(t *testing.T) {
	t.Parallel()
	w := newWatched(t, harness.Options{}, map[string]string{"a": "1", "d/b": "2"})
	aside := w.dir + ".aside"
	need.NoError(t, os.Rename(w.dir, aside))
	state := func(want string) {
		t.Helper()
		has(t, w.call(t, "GET", w.ws, nil).want(t, 200).obj(t), map[string]any{"state": want})
	}
	state("missing")
	w.call(t, "POST", w.ws+"/sync", nil).fails(t, 409, "workspace_missing")
	w.k.put(t, "x", "y").fails(t, 409, "workspace_missing")
	need.NoError(t, os.WriteFile(filepath.Join(aside, "a"), []byte("changed aside"), 0o644))
	need.NoError(t, os.Rename(aside, w.dir))
	for _, c := range w.await(t, "modify a") {
		if len(c["entries"].([]any)) != 1 {
			t.Errorf("recorded: %v", c)
		}
	}
	// The server starts while the folder is gone, and it comes back.
	w.Stop()
	need.NoError(t, os.Rename(w.dir, aside))
	w.Restart()
	state("missing")
	need.NoError(t, os.WriteFile(filepath.Join(aside, "a"), []byte("changed again"), 0o644))
	need.NoError(t, os.Rename(aside, w.dir))
	w.stream = w.events(t, w.ws+"/stream")
	w.sync(t)
	state("clean")
	if tree := w.tree(t); len(tree) != 2 {
		t.Errorf("history: %v", tree)
	}
	// Another folder in its place is not read, until it is adopted.
	w.remove(t, "")
	need.NoError(t, os.Mkdir(w.dir, 0o755))
	w.write(t, "other", "o")
	state("missing")
	w.call(t, "POST", w.ws+"/sync", nil).fails(t, 409, "workspace_missing")
	if r := w.call(t, "POST", w.ws+"/sync", map[string]any{"adopt": true}).want(t, 200).obj(t); fmt.Sprint(r["changed"]) != "3" {
		t.Errorf("adopted: %v", r)
	}
	state("clean")
	w.stream = w.events(t, w.ws+"/stream")
	w.write(t, "after", "1")
	w.await(t, "create after")
	w.k.fsck(t)
}

func TestWatchLimit(t *testing.T) {
	t.Parallel()
	w := newWatched(t, harness.Options{Config: "workspaces: {max_watches: 5}\n"}, map[string]string{"a/b/c/d/e/f/g/h": "1", "x": "2"})
	w.logHas(t, "limit")
	w.write(t, "a/b/c/d/e/f/g/h", "deep")
	w.write(t, "x", "shallow")
	if r := w.sync(t); fmt.Sprint(r["changed"]) != "2" {
		t.Errorf("sync: %v", r)
	}
	if n := strings.Count(w.Log.String(), "limit"); n != 1 {
		t.Errorf("the limit is told %d times", n)
	}
	w.k.fsck(t)
}

// The kernel's queue overflows while the server is stopped.
func TestInjectedOverflow(t *testing.T) {
	raw, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if errors.Is(err, fs.ErrNotExist) {
		return // no inotify, no such queue
	}
	limit, atoiErr := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || atoiErr != nil {
		t.Fatal(err, atoiErr)
	}
	w := newWatched(t, harness.Options{}, map[string]string{"a": "1", "b": "1"})
	w.Signal(syscall.SIGSTOP)
	defer w.Signal(syscall.SIGCONT)
	for range limit/2 + 1 { // equal events in a row would be one
		for _, name := range []string{"a", "b"} {
			need.NoError(t, os.Chmod(filepath.Join(w.dir, name), 0o644))
		}
	}
	n := 3000
	if soaking() {
		n = 20000
	}
	for i := range n {
		w.write(t, fmt.Sprintf("d%d/f%d", i%50, i), fmt.Sprint(i))
	}
	w.Signal(syscall.SIGCONT)
	if got := len(w.tree(t)); got != n+2 {
		t.Errorf("%d files in history, want %d", got, n+2)
	}
	w.logHas(t, "events of changed files were lost")
}
