package filelock

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
)

// waits reports whether another waits for the lock of a file.
func waits(t *testing.T, f *os.File) bool {
	info, err := f.Stat()
	need.NoError(t, err)
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		need.Missing(t, "the system does not list locks: "+err.Error())
	}
	for line := range strings.Lines(string(locks)) {
		if strings.Contains(line, "-> FLOCK") && strings.Contains(line, fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)) {
			return true
		}
	}
	return false
}

func TestRemovedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "lock")
	first, err := Open(path)
	need.NoError(t, err)
	type opened struct {
		f   *os.File
		err error
	}
	next := make(chan opened)
	go func() {
		f, err := Open(path)
		next <- opened{f, err}
	}()
	for !waits(t, first) {
		runtime.Gosched()
	}
	need.NoError(t, os.Remove(path))
	need.NoError(t, first.Close())
	second := <-next
	if second.err != nil {
		t.Fatal(second.err)
	}
	defer second.f.Close()
	has, err := second.f.Stat()
	need.NoError(t, err)
	if there, err := os.Stat(path); err != nil || !os.SameFile(has, there) {
		t.Errorf("the lock is of a file that is not at its path: %v", err)
	}
}
