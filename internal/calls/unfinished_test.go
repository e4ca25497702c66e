package calls_test

import (
	"bytes"
	"context"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"umbra/internal/calls"
	"umbra/internal/vfs"
)

// stoppingFS writes nothing more once a call has ended, as if the server were killed
// right after it had written that.
type stoppingFS struct {
	vfs.FS
	stopped atomic.Bool
}

type stoppingFile struct {
	vfs.File
	of *stoppingFS
}

func (s *stoppingFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	return &stoppingFile{f, s}, err
}

func (f *stoppingFile) WriteAt(b []byte, at int64) (int, error) {
	if f.of.stopped.Load() {
		return 0, syscall.EIO
	}
	f.of.stopped.Store(bytes.Contains(b, []byte(`"status":"ok"`)))
	return f.File.WriteAt(b, at)
}

// TestEndIsFinished: what is left of an end that a kill interrupted is done by the next
// start: a call that was open over a restart has all its commits, what it overwrote is
// known, and the shared change that it alone declared is its own.
func TestEndIsFinished(t *testing.T) {
	for _, again := range []bool{false, true} {
		w := newWorld(t)
		w.write("b", "1\n")
		other, id := w.begin("other"), w.begin("s")
		w.write("a", "2\n")
		w.finish(other)
		w.write("c", "1\n")
		w.finish(w.declare("third", "x", ""))
		w.close()
		w.wrap = func(f vfs.FS) vfs.FS { return &stoppingFS{FS: f} }
		w.open()
		w.write("b", "3\n")
		_, _ = w.calls.End(context.Background(), id, calls.End{Paths: []calls.Path{{Path: "a"}}})
		w.close()
		w.wrap = nil
		w.open()
		if !again {
			r, err := w.calls.Get(id, nil)
			for until := time.Now().Add(30 * time.Second); err == nil && r.Through == 0 && time.Now().Before(until); { // the start does it in the background
				r, err = w.calls.Get(id, nil)
			}
			if w.ok(err); r.Status != calls.OK || len(r.Commits) != 3 || len(r.Overwrote) != 1 || r.Through == 0 {
				t.Errorf("after the start: %+v", r)
			}
		}
		e := w.end(id)
		if e.Status != calls.OK || len(e.Entries) != 3 || len(e.Overwrote) != 1 || e.Overwrote[0].Path != "b" || len(e.Shared) != 0 {
			t.Errorf("ended again: %s %+v %+v %+v", e.Status, e.Entries, e.Overwrote, e.Shared)
		}
		w.close()
	}
}
