package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// watched is a folder with a task on it, and the stream of its workspace.
type watched struct {
	*project
	k      *taskOf
	ws     string
	stream *eventStream
}

func newWatched(t *testing.T, opts harness.Options, files map[string]string) *watched {
	t.Helper()
	p := &project{Server: harness.Start(t, opts), dir: t.TempDir()}
	p.fill(t, files)
	return watch(t, p)
}

func watch(t *testing.T, p *project) *watched {
	t.Helper()
	w := &watched{project: p, k: p.task(t)}
	w.ws = "/workspaces/" + w.k.str("workspace_id")
	w.stream = p.events(t, w.ws+"/stream")
	return w
}

// write changes a file as a person does.
func (w *watched) write(t *testing.T, name, data string) {
	t.Helper()
	w.fill(t, map[string]string{name: data})
}

// await takes external changes from the stream until all of the given ones have
// come, as "operation path", and gives the commits that brought them.
func (w *watched) await(t *testing.T, want ...string) (commits []map[string]any) {
	t.Helper()
	missing := make(map[string]bool)
	for _, s := range want {
		missing[s] = true
	}
	for len(missing) > 0 {
		e, ok := w.stream.next(t)
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.Data["source"] != "external" {
			continue
		}
		commits = append(commits, e.Data)
		for _, raw := range e.Data["entries"].([]any) {
			delete(missing, describe(raw.(map[string]any)))
		}
	}
	return commits
}

func (w *watched) sync(t *testing.T) map[string]any {
	t.Helper()
	return w.call(t, "POST", w.ws+"/sync", nil).want(t, 200).obj(t)
}

// tree lists what history holds, "mode path" by path.
func (w *watched) tree(t *testing.T) map[string]string {
	t.Helper()
	w.sync(t)
	out := make(map[string]string)
	for line := range strings.SplitSeq(harness.Git(t, w.k.gitDir(), "ls-tree", "-r", "-z", "--format=%(objectname) %(path)", "refs/umbra/head"), "\x00") {
		if id, path, ok := strings.Cut(line, " "); ok {
			out[path] = id
		}
	}
	return out
}

// person runs git as the folder's owner does.
func (w *watched) person(t *testing.T, args ...string) string {
	t.Helper()
	return harness.Git(t, w.dir, append([]string{"-c", "user.name=p", "-c", "user.email=p@example.org", "-c", "init.defaultBranch=main", "-c", "advice.detachedHead=false"}, args...)...)
}

func (w *watched) remove(t *testing.T, name string) {
	t.Helper()
	need.NoError(t, os.RemoveAll(filepath.Join(w.dir, name)))
}

func (w *watched) rename(t *testing.T, from, to string) {
	t.Helper()
	need.NoError(t, os.Rename(filepath.Join(w.dir, from), filepath.Join(w.dir, to)))
}

// logHas waits until the server's log holds a text.
func (p *project) logHas(t *testing.T, text string) {
	t.Helper()
	p.Log.Await(func(s string) bool { return strings.Contains(s, text) }, 20*time.Second)
}
