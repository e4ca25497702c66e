package blame_test

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"umbra/internal/blame"
	"umbra/internal/need"
)

// peak runs fn and returns the most memory that was live at a garbage collection.
func peak(fn func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	var most atomic.Uint64
	var done atomic.Bool
	var look func(*[16]byte)
	look = func(*[16]byte) { // called after each collection
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), m.HeapAlloc))
		if !done.Load() {
			runtime.SetFinalizer(new([16]byte), look)
		}
	}
	look(nil)
	before := most.Load()
	fn()
	done.Store(true)
	return most.Load() - min(most.Load(), before)
}

// The memory for a file of a million lines is bounded by its size, whatever the number
// of its versions, and what is kept of it by a constant.
func TestMillionLines(t *testing.T) {
	const n = 1_000_000
	lines := make([][]byte, n)
	for i := range lines {
		lines[i] = fmt.Appendf(nil, "line %d", i)
	}
	size := 0
	w := newWorkspace(t)
	save := func(version int) {
		for i := version; i < n; i += n / 50 {
			lines[i] = fmt.Appendf(nil, "line %d of version %d", i, version)
		}
		text := append(bytes.Join(lines, []byte("\n")), '\n')
		size = len(text)
		apply(t, w, write("large.txt", string(text)))
	}
	ranges := func(s *blame.Cache) int {
		a, err := s.Lines(t.Context(), w, blame.Request{Path: "large.txt", At: w.Store().Tip().Commit})
		need.NoError(t, err)
		return len(a.Ranges)
	}
	var used []uint64
	versions := 0
	for _, more := range []int{3, 6} {
		for range more {
			versions++
			save(versions)
		}
		s := blame.NewCache()
		used = append(used, peak(func() {
			if got := ranges(s); got < 50*(versions-1) {
				t.Errorf("%d ranges of %d versions", got, versions)
			}
		}))
		t.Logf("%d versions of %d MB: %d MB", versions, size>>20, used[len(used)-1]>>20)
	}
	if used[1] > used[0]+used[0]/2 {
		t.Errorf("%d MB for 9 versions, %d for 3", used[1]>>20, used[0]>>20)
	}
	// What the store keeps of history has a budget of its own.
	if limit := uint64(8*size) + 128<<20; used[1] > limit {
		t.Errorf("%d MB, more than %d", used[1]>>20, limit>>20)
	}
}
