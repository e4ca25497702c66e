package blame_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

type noRecords struct{}

func (noRecords) All() ([]workspaces.Record, error) { return nil, nil }
func (noRecords) Put(...workspaces.Record) error    { return nil }
func (noRecords) Delete(string) error               { return nil }

// newWorkspace opens one with a task t.
func newWorkspace(t *testing.T) *workspace.Workspace {
	t.Helper()
	top := t.TempDir()
	root := filepath.Join(top, "ws")
	if err := os.Mkdir(root, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "base"), []byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	m, err := workspaces.NewManager(workspaces.Options{DataDir: filepath.Join(top, "data"), Records: noRecords{}})
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := m.Open(t.Context(), root, workspaces.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
