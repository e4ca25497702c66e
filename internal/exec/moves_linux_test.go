package exec

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"umbra/internal/need"
)

// A file that is copied, since the layer is on another file system, keeps its holes.
func TestCopyKeepsHoles(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	need.NoError(t, err)
	defer root.Close()
	m := &mover{root: root}
	for name, at := range map[string][]int64{"holes": {0, 40 << 20, 99 << 20}, "hole": nil, "end": {100<<20 - 4}} {
		from := filepath.Join(t.TempDir(), name)
		f, err := os.OpenFile(from, os.O_RDWR|os.O_CREATE, 0o640)
		need.NoError(t, err)
		need.NoError(t, f.Truncate(100<<20))
		for _, n := range at {
			if _, err := f.WriteAt([]byte("data"), n); err != nil {
				t.Fatal(err)
			}
		}
		f.Close()
		info, err := os.Lstat(from)
		need.NoError(t, err)
		need.NoError(t, m.copy(from, name, info))
		want, err := os.ReadFile(from)
		need.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		now, err := os.Lstat(filepath.Join(dir, name))
		if err != nil || now.Mode() != info.Mode() || now.Sys().(*syscall.Stat_t).Blocks > info.Sys().(*syscall.Stat_t).Blocks+1024 {
			t.Errorf("%s: %v %v", name, now, err)
		}
	}
}

// Those who look at the same time whether a layer's command runs do not take each other for
// it.
func TestLockedBesideOthers(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, lockFile)
	need.NoError(t, os.WriteFile(name, nil, 0o600))
	var wg sync.WaitGroup
	var found atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				if locked(name) {
					found.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := found.Load(); n > 0 {
		t.Errorf("a command was seen %d times, and none ran", n)
	}
	release, err := Hold(dir)
	need.NoError(t, err)
	if !locked(name) {
		t.Error("a command is not seen")
	}
	if release(); locked(name) {
		t.Error("a command is seen that has ended")
	}
}
