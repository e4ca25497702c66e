package blame_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/workspaces/recordstest"
)

// kit is a directory with a data directory, and a workspace that can be opened again.
type kit struct {
	t    *testing.T
	o    workspaces.Options
	root string
	shut func()
}

func newKit(t *testing.T) *kit {
	t.Helper()
	top := t.TempDir()
	k := &kit{t: t, root: filepath.Join(top, "ws"), shut: func() {}, o: workspaces.Options{DataDir: filepath.Join(top, "data"), Records: &recordstest.Records{}}}
	need.NoError(t, os.Mkdir(k.root, 0o777))
	need.NoError(t, os.WriteFile(filepath.Join(k.root, "base"), []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), 0o666))
	t.Cleanup(func() { k.shut() })
	return k
}

// reopen opens the workspace with empty caches; the one of before is closed.
func (k *kit) reopen() *workspace.Workspace {
	k.t.Helper()
	k.shut()
	k.shut = func() {}
	m, err := workspaces.NewManager(k.o)
	if err != nil {
		k.t.Fatal(err)
	}
	w, _, err := m.Open(k.t.Context(), k.root, workspaces.OpenOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	k.shut = func() {
		w.Release()
		if err := m.Close(context.Background()); err != nil {
			k.t.Error(err)
		}
	}
	return w
}

// newWorkspace opens one with a task t.
func newWorkspace(t *testing.T) *workspace.Workspace {
	t.Helper()
	w := newKit(t).reopen()
	if _, err := w.Store().PutTask(t.Context(), message.Info{TaskID: "t", Goal: "g", Status: "executing"}, object.Zero); err != nil {
		t.Fatal(err)
	}
	return w
}
