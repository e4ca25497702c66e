package record

import (
	"testing"
	"testing/synctest"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
)

// TestDecoded: kept while somebody asks, for that commit and history alone.
func TestDecoded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d decoded
		a, b := object.Hash(object.Blob, []byte("a")), object.Hash(object.Blob, []byte("b"))
		list := make([]op.ChangeEntry, 3)
		has := func(commit object.ID, rewrites uint64, want bool) {
			t.Helper()
			if got := d.get(commit, rewrites) != nil; got != want {
				t.Errorf("%v after %d rewrites: %t", commit, rewrites, got)
			}
		}
		has(a, 0, false)
		d.put(a, 0, list)
		has(a, 0, true)
		has(b, 0, false)
		has(a, 1, false)
		for range 3 {
			<-time.After(keptDecoded - 1)
			has(a, 0, true)
		}
		<-time.After(keptDecoded + 1)
		has(a, 0, false)
		d.put(b, 1, list)
		has(b, 1, true)
		d.drop()
		has(b, 1, false)
		if d.entries != nil {
			t.Error("something is held")
		}
	})
}
