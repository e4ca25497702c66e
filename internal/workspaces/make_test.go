package workspaces

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"umbra/gitstore"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// folders makes a machine with a few folders of files.
func folders(t *testing.T, files int, names ...string) (*memHost, *memRecords, func() *Manager) {
	t.Helper()
	host := &memHost{Top: vfs.NewMem(vfs.MemOptions{}), Boot: "e1"}
	for _, name := range names {
		mkdirs(t, host.Top, name)
		for i := range files {
			writeDisk(t, host.Top, fmt.Sprintf("%s/f%d", name, i), strings.Repeat(fmt.Sprint(i*7919), 40))
		}
	}
	mkdirs(t, host.Top, "data")
	records := &memRecords{}
	return host, records, func() *Manager {
		m, err := NewManager(Options{DataDir: "/data", Host: host, Records: records, Foreground: true,
			Store: func(o *gitstore.Options) { o.BaselinePart = 1000 }})
		must(t, err)
		t.Cleanup(func() { must(t, m.Close(context.Background())) })
		return m
	}
}

func TestBaselineCutOffIsGoneOnWith(t *testing.T) {
	host, records, manager := folders(t, 400, "ws")
	m := manager()
	ctx, cancel := context.WithCancel(t.Context())
	if _, _, err := m.Open(ctx, "/ws", OpenOptions{Progress: func(n int64) {
		if n > 100 {
			cancel()
		}
	}}); err == nil {
		t.Fatal("not cut off")
	}
	all, err := records.All()
	must(t, err)
	if len(all) != 1 || !all[0].Unfinished || len(m.List()) != 0 {
		t.Fatalf("%+v, %v", all, m.List())
	}
	if _, err := m.Get(t.Context(), all[0].ID); code(err) != "workspace_not_found" {
		t.Errorf("an unfinished workspace: %v", err)
	}
	// The next process goes on with it.
	m = manager()
	if _, err := m.Freeze(t.Context(), all[0].ID); code(err) != "workspace_unfinished" {
		t.Errorf("a copy of it: %v", err)
	}
	w, _, err := m.Open(t.Context(), "/ws", OpenOptions{})
	must(t, err)
	defer w.Release()
	if w.ID() != all[0].ID {
		t.Errorf("%s was begun, %s made", all[0].ID, w.ID())
	}
	if again, _ := records.All(); len(again) != 1 || again[0].Unfinished {
		t.Errorf("%+v", again)
	}
	if list, _ := host.Top.ReadDir("data/workspaces"); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
	for i := range 400 {
		e, ok, err := w.Store().Snapshot().Lookup(wspath.Path(fmt.Sprintf("f%d", i)))
		if err != nil || !ok {
			t.Fatalf("f%d: %v %v", i, ok, err)
		}
		data, err := w.Store().ReadBlob(t.Context(), e.ID, 1<<20)
		if err != nil || string(data) != strings.Repeat(fmt.Sprint(i*7919), 40) {
			t.Fatalf("f%d: %q, %v", i, data, err)
		}
	}
}

// While a baseline is taken others see it, and can wait for its end.
func TestBegunIsSeen(t *testing.T) {
	_, _, manager := folders(t, 3, "ws")
	m := manager()
	seen := 0
	w, _, err := m.Open(t.Context(), "/ws", OpenOptions{Progress: func(n int64) {
		seen++
		all := m.Begun()
		if len(all) != 1 || all[0].Files() != n || all[0].Root != "/ws" || len(m.List()) != 0 {
			t.Errorf("%d files: %+v", n, all)
			return
		}
		if _, ok := m.BegunOf(all[0].ID); !ok {
			t.Error("not found by its id")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if all[0].Wait(ended) == nil {
			t.Error("it is waited for no longer")
		}
	}})
	must(t, err)
	defer w.Release()
	if seen == 0 || len(m.Begun()) != 0 || len(m.List()) != 1 {
		t.Errorf("reported %d times, then %v and %v", seen, m.Begun(), m.List())
	}
}

// A folder that fails to become a workspace leaves nothing.
func TestFailedBaselineLeavesNothing(t *testing.T) {
	host, records, manager := folders(t, 3, "ws")
	m := manager()
	broken := false
	m.opt.Store = func(o *gitstore.Options) {
		if !broken {
			broken = true
			o.FS = vfs.Inject(o.FS, &vfs.Hook{OnCall: func(c vfs.Call) error {
				if c.Op == vfs.OpWrite {
					return syscall.EIO
				}
				return nil
			}})
		}
	}
	if _, _, err := m.Open(t.Context(), "/ws", OpenOptions{}); err == nil {
		t.Fatal("it works on a broken disk")
	}
	if all, _ := records.All(); len(all) != 0 {
		t.Errorf("%+v", all)
	}
	if list, _ := host.Top.ReadDir("data/workspaces"); len(list) != 0 {
		t.Errorf("left behind: %v", list)
	}
}

// While one folder is recorded another one becomes a workspace, and who wants
// the first one too gets it.
func TestFoldersDoNotWaitForEachOther(t *testing.T) {
	_, _, manager := folders(t, 5, "slow", "quick")
	m := manager()
	entered, goOn := make(chan struct{}), make(chan struct{})
	once := false
	type opened struct {
		w   *workspace.Workspace
		err error
	}
	first, second := make(chan opened, 1), make(chan opened, 1)
	go func() {
		w, _, err := m.Open(t.Context(), "/slow", OpenOptions{Progress: func(int64) {
			if !once {
				once = true
				close(entered)
				<-goOn
			}
		}})
		first <- opened{w, err}
	}()
	<-entered
	go func() {
		w, _, err := m.Open(t.Context(), "/slow", OpenOptions{})
		second <- opened{w, err}
	}()
	w, _, err := m.Open(t.Context(), "/quick", OpenOptions{})
	must(t, err)
	w.Release()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := m.Open(gone, "/slow", OpenOptions{}); err == nil {
		t.Error("a caller that is gone waits")
	}
	close(goOn)
	a, b := <-first, <-second
	must(t, a.err)
	must(t, b.err)
	if a.w.ID() != b.w.ID() {
		t.Errorf("%s and %s", a.w.ID(), b.w.ID())
	}
	a.w.Release()
	b.w.Release()
}
