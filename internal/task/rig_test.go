package task

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// rig is a service on real folders.
type rig struct {
	*Service
	dir, root string
	records   *workspaces.MemRecords
	db        *state.DB
	manager   *workspaces.Manager
	files     vfs.FS
	lag       uint64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{dir: t.TempDir(), root: t.TempDir(), records: &workspaces.MemRecords{}}
	need.NoError(t, os.WriteFile(filepath.Join(g.root, "f"), []byte("zero"), 0o644))
	g.open(t)
	t.Cleanup(func() { g.shut(t) })
	return g
}

func (g *rig) open(t *testing.T) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		need.NoError(t, err)
	}
	var err error
	g.db, err = state.Open(filepath.Join(g.dir, "state.db"))
	check(err)
	g.manager, err = workspaces.NewManager(workspaces.Options{DataDir: g.dir, Records: g.records})
	check(err)
	dir := filepath.Join(g.dir, "tasks")
	check(os.MkdirAll(dir, 0o700))
	g.files, err = vfs.OS(dir)
	check(err)
	g.Service, err = New(context.Background(), Options{Workspaces: g.manager, State: g.db, FS: g.files, Dir: dir, StreamLag: g.lag})
	check(err)
}

func (g *rig) shut(t *testing.T) {
	t.Helper()
	g.Service.Close()
	if err := errors.Join(g.manager.Close(context.Background()), g.files.Close(), g.db.Close()); err != nil {
		t.Error(err)
	}
}

func (g *rig) reopen(t *testing.T) {
	t.Helper()
	g.shut(t)
	g.open(t)
}

// kill reopens as after a kill: what the index has not written is lost.
func (g *rig) kill(t *testing.T) {
	t.Helper()
	g.dropLate()
	g.reopen(t)
}

// dropLate has the index write nothing more.
func (g *rig) dropLate() {
	x := g.index
	x.mu.Lock()
	x.late.closed = true
	x.mu.Unlock()
	close(x.late.stop)
	x.late.writer.Wait()
}

func (g *rig) create(t *testing.T, change func(*CreateOptions)) *Made {
	t.Helper()
	o := CreateOptions{Goal: "goal", Root: g.root}
	if change != nil {
		change(&o)
	}
	m, err := g.Create(context.Background(), o)
	need.NoError(t, err)
	return m
}

func (g *rig) get(t *testing.T, id string) *Ref {
	t.Helper()
	r, err := g.Get(context.Background(), id, nil)
	need.NoError(t, err)
	return r
}

func (g *rig) write(r *Ref, path, data string) error {
	_, err := g.Apply(context.Background(), r, workspace.Request{Ops: []workspace.Op{{Kind: workspace.OpWrite, Path: mustPath(path), Data: []byte(data)}}})
	return err
}

func (g *rig) patch(t *testing.T, r *Ref, st Status) {
	t.Helper()
	need.NoError(t, g.Patch(context.Background(), r, Patch{Status: &st}, ""))
}

// mustPath is for paths that a test writes down.
func mustPath(s string) wspath.Path {
	p, err := wspath.Parse(s)
	if err != nil {
		panic(err)
	}
	return p
}
