package workspace

import (
	"reflect"
	"testing"

	"umbra/internal/errs"
	"umbra/internal/workspace/reconcile"
)

// Compare tells what differs, and leaves history alone.
func TestCompare(t *testing.T) {
	b := newBench(t, map[string]string{"same": "1", "changed": "1", "gone": "1", "dir/gone": "1", "link": "->same", "file-now-dir": "1", ".gitignore": "ignored\n"})
	defer b.stop()
	b.ok(write("by-us", "x"))
	if got, err := b.w.Compare(t.Context()); err != nil || len(got) != 0 {
		t.Fatal(got, err)
	}
	tip := b.w.Store().Tip()
	for name, content := range map[string]string{"changed": "2", "new": "1", "ignored": "1", "dir/new": "1"} {
		writeDisk(t, b.mem, "ws/"+name, content)
	}
	for _, name := range []string{"gone", "dir/gone", "link", "file-now-dir"} {
		must(t, b.mem.Remove("ws/"+name))
	}
	writeDisk(t, b.mem, "ws/link", "->changed")
	writeDisk(t, b.mem, "ws/file-now-dir/inside", "1")
	got, err := b.w.Compare(t.Context())
	must(t, err)
	want := []reconcile.Difference{{Path: "changed", Reason: "modified"}, {Path: "dir/gone", Reason: "missing"}, {Path: "dir/new", Reason: "unrecorded"}, {Path: "file-now-dir", Reason: "missing"},
		{Path: "file-now-dir/inside", Reason: "unrecorded"}, {Path: "gone", Reason: "missing"}, {Path: "link", Reason: "modified"}, {Path: "new", Reason: "unrecorded"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	if b.w.Store().Tip() != tip {
		t.Error("something was recorded")
	}
	if _, err := b.w.Sync(t.Context(), reconcile.SyncOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := b.w.Compare(t.Context()); err != nil || len(got) != 0 {
		t.Error("after a sync:", got, err)
	}
	must(t, b.mem.Rename("ws", "away"))
	if _, err := b.w.Compare(t.Context()); errs.CodeOf(err) != "workspace_missing" || err == nil {
		t.Error(err)
	}
	must(t, b.mem.Rename("away", "ws"))
}
