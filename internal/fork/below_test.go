package fork

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/workspaces"
)

// A directory that no fork shows any more is removed while the server runs, but not while one
// is being made, which no record names yet.
func TestSweepBelow(t *testing.T) {
	records := &workspaces.MemRecords{}
	m, err := workspaces.NewManager(workspaces.Options{DataDir: t.TempDir(), Records: records, Foreground: true})
	need.NoError(t, err)
	defer func() { need.NoError(t, m.Close(context.Background())) }()
	s := New(Options{Workspaces: m, State: state.NewMemory(), Log: slog.New(slog.DiscardHandler)})
	defer s.Close()
	need.NoError(t, records.Put(workspaces.Record{ID: "f", Kind: workspaces.VirtualKind, Fork: &workspaces.Fork{Kind: workspaces.LayerKind, Below: "shown"}}))
	for _, name := range []string{"shown", "left"} {
		need.NoError(t, os.MkdirAll(m.BelowDir(name), 0o700))
	}
	is := func(name string) bool {
		_, err := os.Stat(m.BelowDir(name))
		return err == nil
	}
	s.below.RLock()
	s.sweepBelow()
	if s.below.RUnlock(); !is("left") {
		t.Error("one that is being made was removed")
	}
	s.sweepBelow()
	if is("left") || !is("shown") {
		t.Errorf("the one that is left: %v, the one that is shown: %v", is("left"), is("shown"))
	}
}
