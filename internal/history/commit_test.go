package history_test

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// newWorkspace opens one with a task t and a file a.
func newWorkspace(t *testing.T) *workspace.Workspace {
	t.Helper()
	top := t.TempDir()
	root := filepath.Join(top, "ws")
	need.NoError(t, os.Mkdir(root, 0o777))
	need.NoError(t, os.WriteFile(filepath.Join(root, "a"), []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), 0o666))
	m, err := workspaces.NewManager(workspaces.Options{DataDir: filepath.Join(top, "data"), Records: &workspaces.MemRecords{}})
	need.NoError(t, err)
	w, _, err := m.Open(t.Context(), root, workspaces.OpenOptions{})
	need.NoError(t, err)
	t.Cleanup(func() {
		w.Release()
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.Store().PutTask(t.Context(), message.Info{TaskID: "t", Goal: "g", Status: "executing"}, object.Zero); err != nil {
		t.Fatal(err)
	}
	return w
}

func apply(t *testing.T, w *workspace.Workspace, subtask string, ops ...workspace.Op) *workspace.Result {
	t.Helper()
	res, err := w.Apply(t.Context(), workspace.Request{By: workspace.By{TaskID: "t", SubtaskID: subtask}, Ops: ops})
	need.NoError(t, err)
	return res
}

func write(p, data string) workspace.Op {
	return workspace.Op{Kind: workspace.OpWrite, Path: wspath.Path(p), Data: []byte(data)}
}

func TestFind(t *testing.T) {
	w := newWorkspace(t)
	made := apply(t, w, "", write("b", "x"))
	id := made.Commit.String()
	for _, name := range []string{id, id[:12], "head"} {
		if c, err := history.Find(t.Context(), w.Store(), name); err != nil || c.ID != made.Commit {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	for name, code := range map[string]string{"": "invalid_commit", "abc": "invalid_commit", "xyzw": "invalid_commit", id + "0": "invalid_commit",
		"HEAD~1": "invalid_commit", "0000000000000000000000000000000000000001": "commit_not_found", "00000000000000": "commit_not_found"} {
		if _, err := history.Find(t.Context(), w.Store(), name); err == nil || errs.CodeOf(err) != code {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// An id that is cut too short names nobody. Four digits are two commits' after
// some hundred commits.
func TestFindAmbiguous(t *testing.T) {
	w := newWorkspace(t)
	seen := map[string]bool{}
	for n := range 5000 {
		id := apply(t, w, "", write("b", strconv.Itoa(n))).Commit.String()
		if seen[id[:4]] {
			if _, err := history.Find(t.Context(), w.Store(), id[:4]); err == nil || errs.CodeOf(err) != "commit_ambiguous" {
				t.Errorf("%s: %v", id[:4], err)
			}
			if c, err := history.Find(t.Context(), w.Store(), id[:20]); err != nil || c.ID.String() != id {
				t.Error(c, err)
			}
			return
		}
		seen[id[:4]] = true
	}
	t.Error("no two of 5000 ids begin alike")
}

// Each of two subtasks that worked on one file in turn has what it did alone.
func TestSubtaskSummary(t *testing.T) {
	w := newWorkspace(t)
	cache := history.NewCache()
	apply(t, w, "one", write("a", "ONE\n2\n3\n4\n5\n6\n7\n8\n9\n"))
	apply(t, w, "two", write("a", "ONE\n2\n3\n4\n5\n6\n7\n8\nNINE\n"))
	apply(t, w, "one", write("a", "ONE\nTWO\n3\n4\n5\n6\n7\n8\nNINE\n"))
	apply(t, w, "two", write("b", "new\n"))
	for sub, want := range map[string]struct {
		files, additions int
		mixed            bool
	}{"one": {1, 2, true}, "two": {2, 1, false}} {
		sum, err := cache.SubtaskSummary(t.Context(), w, "t", sub)
		need.NoError(t, err)
		f := sum.Find("a")
		if len(sum.Files) != want.files || f == nil || f.Additions != want.additions || f.Deletions != want.additions || f.Mixed != want.mixed {
			t.Errorf("%s: %+v", sub, sum.Files)
		}
	}
	if _, err := cache.SubtaskSummary(t.Context(), w, "t", "none"); errs.CodeOf(err) != "subtask_not_found" || err == nil {
		t.Error(err)
	}
}

func TestPairsOf(t *testing.T) {
	w := newWorkspace(t)
	res := apply(t, w, "", write("b", "x"), workspace.Op{Kind: workspace.OpRename, Path: "a", To: "c"}, workspace.Op{Kind: workspace.OpMkdir, Path: "d"})
	pairs := history.PairsOf(res.Entries)
	if len(res.Entries) != 3 || len(pairs) != 2 {
		t.Fatalf("%+v of %+v", pairs, res.Entries)
	}
	for _, p := range pairs {
		old, now, err := p.Sides(t.Context(), w.Store(), 1<<20)
		need.NoError(t, err)
		switch now.Path {
		case "b":
			if old.Mode != 0 || string(now.Data) != "x" {
				t.Errorf("%+v %+v", old, now)
			}
		case "c":
			if old.Path != "a" || string(old.Data) != string(now.Data) || len(now.Data) == 0 {
				t.Errorf("%+v %+v", old, now)
			}
		default:
			t.Error(now.Path)
		}
	}
}
