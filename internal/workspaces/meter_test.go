package workspaces

import (
	"context"
	"syscall"
	"testing"
	"time"

	"umbra/internal/vfs"
	"umbra/internal/workspace"
)

// What lags and what there is can be told without waiting for anybody.
func TestFigures(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	defer b.stop()
	b.ok(write("b", "B"))
	b.ok(write("c", "C"))
	f := b.m.Figures()
	if f.Known != 1 || f.Open != 1 || f.Missing != 0 || f.DiskLag != 0 || f.JournalBytes == 0 || f.PackBytes < 0 {
		t.Errorf("%+v", f)
	}
	if tip := b.w.Store().Tip().Seq; f.RefLag > tip || f.CheckpointLag > tip || f.CheckpointLag < 2 {
		t.Errorf("%+v at %d", f, tip)
	}
	must(t, b.w.Store().Publish(t.Context()))
	b.again(func(*Options) {}) // which syncs
	if f = b.m.Figures(); f.RefLag != 0 || f.Unseen != 0 || f.CheckpointLag != 0 || f.PackBytes == 0 {
		t.Errorf("published and synced: %+v", f)
	}
	must(t, b.mem.Rename("ws", "away"))
	_ = b.w.State() // looks
	if f = b.m.Figures(); f.Missing != 1 {
		t.Errorf("the folder is gone: %+v", f)
	}
	must(t, b.mem.Rename("away", "ws"))
}

// A workspace counts for readiness as long as a task executes on it.
func TestWritable(t *testing.T) {
	b := newBench(t, map[string]string{"a": "A"})
	defer b.stop()
	executing := true
	b.m.SetBusy(func(string) (bool, bool) { return true, executing })
	must(t, b.m.Writable(t.Context()))
	before := inFolder(t, b.mem, "ws")
	for _, refuse := range []error{syscall.ENOSPC, syscall.EROFS, syscall.EIO} {
		b.on(func(c vfs.Call) error {
			if c.Op == vfs.OpWrite || c.Op == vfs.OpTmpfile {
				return refuse
			}
			return nil
		})
		executing = true
		if err := b.m.Writable(t.Context()); code(err) != "workspace_not_writable" {
			t.Errorf("%v: %v", refuse, err)
		}
		executing = false
		must(t, b.m.Writable(t.Context()))
		b.on(nil)
	}
	executing = true
	must(t, b.m.Writable(t.Context()))
	if after := inFolder(t, b.mem, "ws"); len(after) != len(before) {
		t.Errorf("left behind: %v", after)
	}
	must(t, b.mem.Rename("ws", "away"))
	if err := b.m.Writable(t.Context()); code(err) != "workspace_not_writable" {
		t.Errorf("the folder is gone: %v", err)
	}
	must(t, b.mem.Rename("away", "ws"))
}

// What is traced names the commit, in the request's own context.
func TestStepsAreTraced(t *testing.T) {
	type key struct{}
	b := newBench(t, nil)
	defer b.stop()
	var steps []string
	meter := &workspace.Meter{Trace: func(ctx context.Context, name string, began time.Time, attrs ...string) {
		if ctx.Value(key{}) != "r" || time.Since(began) < 0 || len(attrs) != 4 || attrs[1] != b.w.Store().Tip().Commit.String() {
			t.Errorf("%s: %v", name, attrs)
		}
		steps = append(steps, name)
	}}
	b.again(func(o *Options) { o.Meter = meter })
	_, err := b.w.Apply(context.WithValue(t.Context(), key{}, "r"), workspace.Request{Ops: []workspace.Op{write("x", "X")}})
	must(t, err)
	if len(steps) != 2 || steps[0] != "commit" || steps[1] != "materialise" {
		t.Errorf("%v", steps)
	}
}
