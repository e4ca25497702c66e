package workspaces

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/ignore"
	"umbra/internal/workspace"
	"umbra/internal/workspace/host"
)

// heldHost lets a look at a whole folder begin when it is told to, or fail.
type heldHost struct {
	host.Host
	begin chan error
}

func (h heldHost) GitRules(dir string) ([]byte, *ignore.Index, error) {
	if err := <-h.begin; err != nil {
		return nil, nil, err
	}
	return h.Host.GitRules(dir)
}

// TestReadBeforeTheFolderIsLookedAt: who reads is let in while who writes waits.
func TestReadBeforeTheFolderIsLookedAt(t *testing.T) {
	dir, recs := t.TempDir(), &memRecords{}
	root := filepath.Join(dir, "ws")
	must(t, os.Mkdir(root, 0o755))
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("first"), 0o644))
	start := func(begin chan error) *Manager {
		m, err := NewManager(Options{DataDir: filepath.Join(dir, "data"), Records: recs, Host: heldHost{host.OS{}, begin}})
		must(t, err)
		return m
	}
	free := make(chan error)
	close(free)
	m := start(free)
	w, _, err := m.Open(t.Context(), root, OpenOptions{})
	must(t, err)
	id, tip := w.ID(), w.Store().Tip()
	w.Release()
	must(t, m.Close(t.Context()))
	must(t, os.WriteFile(filepath.Join(root, "a"), []byte("while down"), 0o644))

	held := make(chan error)
	m = start(held)
	early, err := m.Read(t.Context(), id)
	must(t, err)
	if got := early.Store().Tip(); got.Commit != tip.Commit {
		t.Errorf("the tip is %v, was %v", got, tip)
	}
	// One that waits for the look at the folder gives up, and is not counted.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Get(gone, id); !errors.Is(err, context.Canceled) {
		t.Fatalf("Get did not wait: %v", err)
	}
	close(held)
	w, err = m.Get(t.Context(), id)
	must(t, err)
	if w != early {
		t.Error("it was opened twice")
	}
	if got := tree(t, w); got["a"] != "while down" {
		t.Errorf("history: %v", got)
	}
	again, err := m.Read(t.Context(), id)
	must(t, err)
	for _, w := range []*workspace.Workspace{early, w, again} {
		w.Release()
	}
	m.mu.Lock()
	n := m.open[id].refs
	m.mu.Unlock()
	if n != 0 {
		t.Errorf("%d are counted as users", n)
	}
	must(t, m.Close(t.Context()))

	// The look fails: nothing is left open, and the next one opens it anew.
	broken := make(chan error)
	m = start(broken)
	early, err = m.Read(t.Context(), id)
	must(t, err)
	m.mu.Lock()
	h := m.open[id]
	m.mu.Unlock()
	no := errors.New("no")
	broken <- no
	if <-h.ready; !errors.Is(h.err, no) {
		t.Errorf("it was opened: %v", h.err)
	}
	early.Release()
	close(broken)
	w, err = m.Get(t.Context(), id)
	must(t, err)
	w.Release()
	must(t, m.Close(t.Context()))
}
