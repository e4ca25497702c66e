package workspaces

import (
	"context"
	"testing"
	"time"

	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/wstest"
)

// TestResting: a workspace that was put away is told of without opening it, one
// that is open or was left by a kill is not.
func TestResting(t *testing.T) {
	b := newBench(t, map[string]string{"a": "a"})
	b.ok(write("b", "b"))
	id, head := b.w.ID(), b.w.Store().Tip().Commit.String()
	if _, _, ok := b.m.Resting(id); ok {
		t.Error("an open workspace rests")
	}
	b.w.Release()
	b.m.PutAway(t.Context(), time.Now().Add(time.Hour))
	rest, state, ok := b.m.Resting(id)
	if !ok || state != workspace.Clean || rest.Head != head || rest.DiskBytes <= 0 {
		t.Errorf("put away: %+v, %s, %v", rest, state, ok)
	}
	must(t, b.m.Close(context.Background()))

	b.start() // the records tell it to the next process
	if again, _, ok := b.m.Resting(id); !ok || again.Head != head {
		t.Errorf("after a stop: %+v, %v", again, ok)
	}
	if b.m.IsOpen(id) {
		t.Error("asking opened it")
	}
	must(t, b.mem.Rename("ws", "elsewhere"))
	if _, state, ok := b.m.Resting(id); !ok || state != workspace.Missing {
		t.Errorf("without its folder: %s, %v", state, ok)
	}
	must(t, b.mem.Rename("elsewhere", "ws"))
	w, err := b.m.Get(t.Context(), id)
	must(t, err)
	if all, err := b.recs.All(); err != nil || len(all) != 1 || all[0].Rest != nil {
		t.Errorf("while it is open the record says %+v, %v", all, err)
	}
	killed, err := NewManager(Options{DataDir: "/data", Host: b.host, Records: b.recs, Foreground: true})
	must(t, err)
	if _, _, ok := killed.Resting(id); ok {
		t.Error("what a kill left rests")
	}
	must(t, killed.Close(context.Background()))
	w.Release()
	must(t, b.m.Close(context.Background()))
}

// renumberedHost is a machine whose disk got another number.
type renumberedHost struct {
	*wstest.MemHost
	more uint64 // added to the device's number
	born int64
}

func (h *renumberedHost) Stat(dir string) (vfs.Info, error) {
	info, err := h.MemHost.Stat(dir)
	info.Dev += h.more
	return info, err
}

func (h *renumberedHost) Born(string) int64 { return h.born }

// TestDeviceRenumbered: a folder on a device that has another number since the
// machine was started is the same one; one that was made at another time is not.
func TestDeviceRenumbered(t *testing.T) {
	b := newBench(t, map[string]string{"a": "a"})
	must(t, b.m.Close(context.Background()))
	host := &renumberedHost{MemHost: b.host, born: 17}
	open := func() (workspace.State, *Manager) {
		t.Helper()
		m, err := NewManager(Options{DataDir: "/data", Host: host, Records: b.recs, Foreground: true})
		must(t, err)
		w, err := m.Get(t.Context(), m.List()[0].ID)
		must(t, err)
		defer w.Release()
		return w.State(), m
	}
	rec := func() Record {
		t.Helper()
		all, err := b.recs.All()
		must(t, err)
		return all[0]
	}
	r := rec()
	r.Born = 17
	must(t, b.recs.Put(r))
	for _, step := range []struct {
		more uint64
		born int64
		want workspace.State
	}{{0, 17, workspace.Clean}, {5, 17, workspace.Clean}, {5, 17, workspace.Clean}, {9, 18, workspace.Missing}, {0, 17, workspace.Clean}} {
		host.more, host.born = step.more, step.born
		state, m := open()
		if state != step.want {
			t.Errorf("number +%d, made at %d: %s, want %s", step.more, step.born, state, step.want)
		}
		must(t, m.Close(context.Background()))
	}
	if now := rec(); now.Dev != r.Dev {
		t.Errorf("the record has device %d, not %d", now.Dev, r.Dev)
	}
}
