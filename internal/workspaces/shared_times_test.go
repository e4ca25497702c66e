package workspaces

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"umbra/gitstore/sink/sinktest"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/host"
	"umbra/internal/wspath"
)

// timed is a workspace whose commits are a second apart.
type timed struct {
	s       *shop
	seconds atomic.Int64
	a       *clerk
	w       *workspace.Workspace
}

func newTimed(t *testing.T) *timed {
	t.Helper()
	h := &timed{s: newShop(t)}
	h.s.now = func() time.Time { return time.Unix(1e9+h.seconds.Load(), 0) }
	h.a = h.s.server("a")
	h.w = h.a.open("times")
	return h
}

func (h *timed) put(name, data string) {
	h.s.t.Helper()
	h.seconds.Add(1)
	put(h.s.t, h.w, name, data)
}

func (h *timed) at(ctx context.Context, name string) (seconds int64, err error) {
	l, err := h.w.Stat(ctx, wspath.Path(name))
	return l.Info.MtimeNs/1e9 - 1e9, err
}

// fill makes more commits than are read one by one, and packs that are not fetched at once.
func (h *timed) fill() {
	h.s.t.Helper()
	for i := range 20 {
		data := make([]byte, 100<<10)
		for j := range data {
			data[j] = byte(rand.Uint32())
		}
		h.put(fmt.Sprint("large", i), string(data))
	}
	for i := range 2100 {
		h.put(fmt.Sprint("new", i%7), fmt.Sprint(i))
	}
}

// move has another server open it, where onFetch is called for each fetch.
func (h *timed) move(onFetch func() sinktest.Fault) {
	h.s.t.Helper()
	h.w.Release()
	log := h.s.rows[h.w.ID()].log
	must(h.s.t, h.a.m.Close(context.Background()))
	h.a.die()
	h.w = h.s.server("b").open("times")
	h.s.t.Cleanup(h.w.Release)
	log.OnCall = func(c sinktest.Call) sinktest.Fault {
		if c.Op == "fetch" {
			return onFetch()
		}
		return sinktest.None
	}
}

// TestSharedTimes: at another server a file has the time that it had, also where more commits came
// since than are read one by one; where the object store is away that is said, and no other time.
func TestSharedTimes(t *testing.T) {
	h := newTimed(t)
	h.put("dir/kept", "kept")
	h.put("dir/old", "old")
	h.put("dir/old", "older")
	h.put("dir/again", "again")
	h.put("dir/again", "other")
	h.put("dir/again", "again")
	h.fill()
	names := []string{"dir/kept", "dir/old", "dir/again", "large3", "new0", "new6", "dir"}
	times := func() (out []int64) {
		t.Helper()
		for _, name := range names {
			at, err := h.at(t.Context(), name)
			must(t, err)
			out = append(out, at)
		}
		return out
	}
	want := times()
	if end := h.seconds.Load(); !slices.Equal(want[:4], []int64{1, 3, 6, 10}) || want[6] != end {
		t.Fatal(want, end)
	}
	var away, refused atomic.Bool
	h.move(func() sinktest.Fault {
		if away.Load() {
			refused.Store(true)
			return sinktest.Refused
		}
		return sinktest.None
	})
	f, err := h.w.OpenFile(t.Context(), "dir/old")
	must(t, err)
	if f.Close(); f.Info.MtimeNs != 0 {
		t.Errorf("a read waited for the time: %d", f.Info.MtimeNs)
	}
	away.Store(true)
	at, err := h.at(t.Context(), "dir/old")
	_, merr := h.w.Mtime(t.Context(), "dir/old")
	if refused.Load() && (!errs.Is(err, errs.Unavailable) || !errs.Is(merr, errs.Unavailable)) { // else all is here by now
		t.Errorf("the store is away: %v, %v, %v", at, err, merr)
	}
	away.Store(false)
	if got := times(); !slices.Equal(got, want) {
		t.Errorf("%v at another server, they were %v", got, want)
	}
}

// TestSharedTimeMeanwhile: a file is deleted and made again, just so, while its time is looked for,
// and the new time stays. A request that has ended waits for no other.
func TestSharedTimeMeanwhile(t *testing.T) {
	h := newTimed(t)
	h.put("dir/old", "old")
	h.put("dir/other", "other")
	h.fill()
	var once sync.Once
	asked, on := make(chan struct{}), make(chan struct{})
	h.move(func() sinktest.Fault {
		once.Do(func() {
			close(asked)
			<-on
		})
		return sinktest.None
	})
	done := make(chan error, 1)
	go func() {
		_, err := h.at(t.Context(), "dir/old")
		done <- err
	}()
	<-asked
	ended, end := context.WithCancel(t.Context())
	end()
	if at, err := h.at(ended, "dir/other"); !errs.Is(err, errs.Canceled) {
		t.Errorf("%v, %v", at, err)
	}
	_, err := h.w.Apply(t.Context(), workspace.Request{Ops: []workspace.Op{{Kind: workspace.OpDelete, Path: "dir/old"}}})
	must(t, err)
	h.put("dir/old", "old")
	close(on)
	must(t, <-done)
	if at, err := h.at(t.Context(), "dir/old"); at != h.seconds.Load() || err != nil {
		t.Errorf("%d, it was made again at %d, %v", at, h.seconds.Load(), err)
	}
}

// badHost is a machine whose disk fails as a hook says.
type badHost struct {
	host.OS
	hook *vfs.Hook
}

func (h badHost) Open(dir string) (vfs.FS, error) {
	f, err := h.OS.Open(dir)
	if err != nil {
		return nil, err
	}
	return vfs.Inject(f, h.hook), nil
}

// TestTimeOnABadDisk: where a disk cannot read the index of commits, files are read and listed all
// the same.
func TestTimeOnABadDisk(t *testing.T) {
	var bad atomic.Bool
	hook := &vfs.Hook{Reads: true, OnCall: func(c vfs.Call) error {
		if bad.Load() && c.Op == vfs.OpRead && strings.HasSuffix(c.Name, "records") {
			return syscall.EIO
		}
		return nil
	}}
	dir, recs := t.TempDir(), &MemRecords{}
	open := func() (*Manager, *workspace.Workspace) {
		m, err := NewManager(Options{DataDir: dir, Records: recs, Host: badHost{host.OS{}, hook}})
		must(t, err)
		w, err := m.OpenVirtual(t.Context(), []string{"n"})
		must(t, err)
		return m, w
	}
	m, w := open()
	put(t, w, "f", "f")
	for i := range 30 {
		put(t, w, "g", fmt.Sprint(i))
	}
	w.Release()
	must(t, m.Close(t.Context()))
	m, w = open()
	defer m.Close(context.Background())
	defer w.Release()
	bad.Store(true)
	defer bad.Store(false)
	f, err := w.OpenFile(t.Context(), "f")
	must(t, err)
	must(t, f.Close())
	if l, err := w.Peek(t.Context(), "f"); err != nil || l.Info.MtimeNs != 0 {
		t.Errorf("%v, %v", l.Info.MtimeNs, err)
	}
}
