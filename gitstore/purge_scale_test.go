package gitstore

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/internal/need"
)

// TestPurgeOfALongHistory measures how long a purge takes, and for how long of it
// commits wait. UMBRA_PURGE_COMMITS says how many commits the history has.
func TestPurgeOfALongHistory(t *testing.T) {
	n := 2000
	if v, err := strconv.Atoi(os.Getenv("UMBRA_PURGE_COMMITS")); err == nil {
		n = v
	}
	dir := testDir(t)
	s := openAt(t, dir, Options{})
	defer closeStore(t, s)
	files := make(map[string]string)
	for i := range 400 {
		files[fmt.Sprintf("d%d/s%d/f%d", i%20, i%5, i)] = fmt.Sprintf("file %d\n", i)
	}
	baselineOf(t, s, files)
	if _, err := s.PutTask(t.Context(), message.Info{TaskID: "t", Goal: "g", Status: "executing"}, ID{}); err != nil {
		t.Fatal(err)
	}
	mustPut(t, s, "t", "d0/secret", secret)
	mustPut(t, s, "t", "d0/secret", "vault")
	for i := range n {
		mustPut(t, s, "t", fmt.Sprintf("d%d/s%d/f%d", i%20, i%5, i%400), fmt.Sprintf("change %d\n", i))
	}
	need.NoError(t, s.Publish(t.Context()))
	need.NoError(t, s.Maintain(t.Context()))
	before, err := s.purger.PackBytes()
	need.NoError(t, err)
	began := time.Now()
	p, err := s.BeginPurge(t.Context(), PurgeOptions{Blobs: []ID{s.NewBlob([]byte(secret)).ID()}})
	need.NoError(t, err)
	prepared := time.Since(began)
	held := time.Now()
	purged, err := p.Finish(t.Context())
	need.NoError(t, err)
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	after, _ := s.purger.PackBytes()
	t.Logf("%d commits: prepared in %v, commits held for %v; packs %d -> %d bytes; heap of the process %d MiB", purged.Commits, prepared.Round(time.Millisecond),
		time.Since(held).Round(time.Millisecond), before, after, mem.HeapSys>>20)
	if after > 2*before {
		t.Errorf("packs of %d bytes became %d: what is rewritten is not packed well", before, after)
	}
	fsck(t, dir)
}
