package workspaces

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore/sink/sinktest"
	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// TestSharedTimes: at another server a file has the time that it had, also where more commits came
// since than are read one by one; where the object store is away that is said, and no other time.
func TestSharedTimes(t *testing.T) {
	var seconds atomic.Int64
	s := newShop(t)
	s.now = func() time.Time { return time.Unix(1e9+seconds.Load(), 0) }
	a := s.server("a")
	w := a.open("times")
	later := func(name, data string) {
		seconds.Add(1)
		put(t, w, name, data)
	}
	later("dir/kept", "kept")
	later("dir/old", "old")
	later("dir/old", "older")
	later("dir/again", "again")
	later("dir/again", "other")
	later("dir/again", "again")
	for i := range 20 {
		data := make([]byte, 100<<10)
		for j := range data {
			data[j] = byte(rand.Uint32())
		}
		later(fmt.Sprint("large", i), string(data))
	}
	for i := range 2100 {
		later(fmt.Sprint("new", i%7), fmt.Sprint(i))
	}
	names := []string{"dir/kept", "dir/old", "dir/again", "large3", "new0", "new6", "dir"}
	times := func(w *workspace.Workspace) (out []int64) {
		t.Helper()
		for _, name := range names {
			l, err := w.Stat(t.Context(), wspath.Path(name))
			must(t, err)
			out = append(out, l.Info.MtimeNs/1e9-1e9)
		}
		return out
	}
	want := times(w)
	if end := seconds.Load(); !slices.Equal(want[:4], []int64{1, 3, 6, 10}) || want[6] != end {
		t.Fatal(want, end)
	}
	w.Release()
	log := s.rows[w.ID()].log
	must(t, a.m.Close(context.Background()))
	a.die()

	b := s.server("b")
	w = b.open("times")
	defer w.Release()
	var away atomic.Bool
	log.OnCall = func(c sinktest.Call) sinktest.Fault {
		if c.Op == "fetch" && away.Load() {
			return sinktest.Refused
		}
		return sinktest.None
	}
	f, err := w.OpenFile(t.Context(), wspath.Path("dir/old"))
	must(t, err)
	if f.Close(); f.Info.MtimeNs != 0 {
		t.Errorf("a read waited for the time: %d", f.Info.MtimeNs)
	}
	away.Store(true)
	if l, err := w.Stat(t.Context(), wspath.Path("dir/old")); !errs.Is(err, errs.Unavailable) {
		t.Errorf("the store is away: %v, %v", l.Info.MtimeNs, err)
	}
	away.Store(false)
	if got := times(w); !slices.Equal(got, want) {
		t.Errorf("%v at another server, they were %v", got, want)
	}
}
