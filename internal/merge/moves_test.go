package merge_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/merge"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// TestRenameTakenBack: a rename that the disk refused, and the commit that took it back,
// send nothing of a merge to another file.
func TestRenameTakenBack(t *testing.T) {
	ctx, top := t.Context(), t.TempDir()
	m, err := workspaces.NewManager(workspaces.Options{DataDir: filepath.Join(top, "data"), Records: &workspaces.MemRecords{}})
	need.NoError(t, err)
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	// Two that begin alike are a workspace and its fork.
	open := func(name string) *workspace.Workspace {
		root := filepath.Join(top, name)
		need.NoError(t, os.Mkdir(root, 0o777))
		for _, file := range []string{"a", "b"} {
			need.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(file+"\n"), 0o666))
		}
		w, _, err := m.Open(ctx, root, workspaces.OpenOptions{})
		need.NoError(t, err)
		t.Cleanup(w.Release)
		return w
	}
	from, into := open("from"), open("into")
	since := into.Store().Tip().Seq
	if from.Store().Tip().Seq != since {
		t.Fatal("the workspaces do not begin alike")
	}
	apply := func(w *workspace.Workspace, op workspace.Op) {
		t.Helper()
		if _, err := w.Apply(ctx, workspace.Request{By: workspace.By{Actor: "tester"}, Ops: []workspace.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	apply(from, workspace.Op{Kind: workspace.OpWrite, Path: "b", Data: []byte("of the fork\n")})
	apply(into, workspace.Op{Kind: workspace.OpDelete, Path: "b"})
	var moved object.ID
	for _, x := range []struct {
		source   message.Source
		from, to string
	}{{message.API, "a", "b"}, {message.Rollback, "b", "a"}} {
		d := gitstore.Draft{Entries: 1, Edits: []gitstore.Edit{{Path: wspath.Path(x.from), MoveTo: wspath.Path(x.to)}}}
		d.Message = message.Message{Actor: "tester", Source: x.source, Entries: []message.Entry{{Operation: message.Rename, Path: x.to, OldPath: x.from}}}
		if x.source == message.Rollback {
			d.Message.Reverts = []object.ID{moved}
		}
		c, err := into.Store().Commit(ctx, d)
		need.NoError(t, err)
		moved = c.Commit
	}
	side := func(w *workspace.Workspace) merge.Side {
		return merge.Side{W: w, Lineage: []merge.Ancestor{{ID: "both", Seq: since}}}
	}
	res, err := merge.Do(ctx, side(from), side(into), merge.Request{As: merge.Replay, OnConflict: merge.Refuse, DryRun: true})
	need.NoError(t, err)
	if len(res.Files) != 0 || len(res.Conflicts) != 1 || res.Conflicts[0].Path != "b" || res.Conflicts[0].Reason != "deleted_here" {
		t.Errorf("%+v", res)
	}
}
