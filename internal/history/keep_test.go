package history

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/workspaces/recordstest"
	"umbra/internal/wspath"
)

// longTask makes a workspace with a task of more commits than are needed for
// them to be kept.
func longTask(t *testing.T) *workspace.Workspace {
	t.Helper()
	top := t.TempDir()
	root := filepath.Join(top, "ws")
	need.NoError(t, os.Mkdir(root, 0o755))
	m, err := workspaces.NewManager(workspaces.Options{DataDir: filepath.Join(top, "data"), Records: &recordstest.Records{}})
	need.NoError(t, err)
	w, _, err := m.Open(t.Context(), root, workspaces.OpenOptions{})
	need.NoError(t, err)
	t.Cleanup(func() {
		w.Release()
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.Store().PutTask(t.Context(), message.Info{TaskID: "T", Goal: "T", Status: "executing"}, object.Zero); err != nil {
		t.Fatal(err)
	}
	more(t, w, 0, keptFrom+50)
	return w
}

// more makes commits of every kind.
func more(t *testing.T, w *workspace.Workspace, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		name := func(kind string, i int) wspath.Path { return wspath.Path(fmt.Sprintf("%s%d/f%d", kind, i%7, i)) }
		x := object.Executable
		ops := []workspace.Op{{Kind: workspace.OpWrite, Path: name("d", i), Data: fmt.Appendf(nil, "%d\n", i)}}
		switch i % 6 {
		case 1:
			ops = append(ops, workspace.Op{Kind: workspace.OpRename, Path: name("d", i-1), To: name("moved", i)})
		case 2:
			ops = append(ops, workspace.Op{Kind: workspace.OpDelete, Path: name("d", i-1)})
		case 3:
			ops = []workspace.Op{{Kind: workspace.OpChmod, Path: name("d", i-1), Mode: &x}}
		case 4:
			ops = []workspace.Op{{Kind: workspace.OpMkdir, Path: wspath.Path(fmt.Sprintf("empty%d", i))}}
		case 5:
			ops = append(ops, workspace.Op{Kind: workspace.OpWrite, Path: "same", Data: fmt.Appendf(nil, "%d\x00", i)})
		}
		by := workspace.By{TaskID: "T", SubtaskID: []string{"", "s1", "s2"}[i%3], Actor: "me \"and\" you"}
		if _, err := w.Apply(t.Context(), workspace.Request{By: by, Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
}

// both gives what a cache tells of the task.
func both(t *testing.T, c *Cache, w *workspace.Workspace) (*Task, *Summary) {
	t.Helper()
	task, err := c.Task(t.Context(), w, "T")
	need.NoError(t, err)
	sum, err := c.Summary(t.Context(), w, "T")
	need.NoError(t, err)
	return task, sum
}

// TestKept: what is read from the file is what is read from the commits, also
// where more came since, and whatever became of the file.
func TestKept(t *testing.T) {
	w := longTask(t)
	file := filepath.Join(filepath.Dir(w.GitDir()), "caches", keptName("T"))
	compare := func(what string, mustLoad bool) {
		t.Helper()
		c := NewCache()
		task, sum := both(t, c, w)
		if loaded := c.tasks[key{w.ID(), "T"}].kept.recs > 0; mustLoad && !loaded {
			t.Errorf("%s: nothing was taken from the file", what)
		}
		fresh := NewCache()
		s := fresh.slot(key{w.ID(), "T"})
		need.NoError(t, readAll(t.Context(), s, w))
		wantTask, wantSum := both(t, fresh, w)
		if !reflect.DeepEqual(task, wantTask) {
			t.Errorf("%s: the task is another", what)
		}
		if !reflect.DeepEqual(sum, wantSum) {
			t.Errorf("%s: the summary is another", what)
		}
	}
	first := NewCache()
	both(t, first, w)
	data, err := os.ReadFile(file)
	need.NoError(t, err)
	compare("kept", true)
	more(t, w, keptFrom+50, keptFrom+70)
	compare("more since", true)
	for _, bad := range [][]byte{nil, data[:len(data)/2], append([]byte("x"), data...), data[:40]} {
		need.NoError(t, os.WriteFile(file, bad, 0o600))
		compare(fmt.Sprintf("%d bytes", len(bad)), false)
	}
	data[len(data)/2] ^= 1
	need.NoError(t, os.WriteFile(file, data, 0o600))
	compare("a bit turned", false)

	// Kept when it is quiet, the answer too.
	c := NewCache()
	encode := func(*Summary) ([]byte, error) { return []byte("encoded"), nil }
	if _, err := c.Encoded(t.Context(), w, "T", encode); err != nil {
		t.Fatal(err)
	}
	c.Keep(t.Context(), w, true)
	never := func(*Summary) ([]byte, error) { t.Error("encoded again"); return nil, nil }
	if got, err := NewCache().Encoded(t.Context(), w, "T", never); err != nil || string(got) != "encoded" {
		t.Errorf("reported %q, %v", got, err)
	}
	more(t, w, keptFrom+70, keptFrom+71)
	again := 0
	count := func(*Summary) ([]byte, error) { again++; return []byte("new"), nil }
	if got, err := NewCache().Encoded(t.Context(), w, "T", count); err != nil || string(got) != "new" || again != 1 {
		t.Errorf("reported %q after a change, %v", got, err)
	}
}

// readAll reads a task from its commits alone.
func readAll(ctx context.Context, s *cached, w *workspace.Workspace) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	recs, err := w.Store().TaskRecords(ctx, "T")
	if err != nil {
		return err
	}
	s.from, s.rewrites = w.Store().Boundary().Seq, w.Store().Rewrites()
	return readCommits(ctx, w, recs, s.add)
}

// FuzzDecode: whatever a file holds, reading it does not fail hard.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(keptMagic))
	s := &cached{recs: 1, lastID: object.Hash(object.Blob, nil), raw: []workspace.ChangeEntry{{ID: 1, Path: "a", AfterHash: "sha256:x", Operation: message.Modify,
		Reverts: []message.EntryRef{{Task: "T", ID: 1}}}}, counts: map[pair]lines{{}: {1, 2, true}}, bare: map[object.ID][]message.EntryRef{{}: {{Task: "", ID: 4}}}}
	f.Add(s.encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		var k cached
		if k.decode(data, "T") {
			var again cached
			if !again.decode(k.encode(), "T") || !reflect.DeepEqual(again.raw, k.raw) || !reflect.DeepEqual(again.counts, k.counts) {
				t.Error("encoded otherwise")
			}
		}
	})
}
