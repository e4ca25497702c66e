package server

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsGivenBackOnceTheServerIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var allocated, live atomic.Uint64
		var freed atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			giveBack(ctx, func() memoryUse { return memoryUse{allocated.Load(), live.Load()} }, func() { freed.Add(1) })
		}()
		// look has the server allocate, and its memory looked at.
		look := func(bytes uint64, want int64, what string) {
			t.Helper()
			synctest.Wait()
			allocated.Add(bytes)
			<-time.After(memoryLook) // the bubble's clock: nobody waits
			synctest.Wait()
			if n := freed.Load(); n != want {
				t.Fatalf("%s: given back %d times, not %d", what, n, want)
			}
		}
		look(25<<20, 0, "busy with its start")
		look(quietBytes+1, 0, "still busy")
		look(quietBytes, 1, "quiet")
		look(0, 1, "quiet on")
		look(worthBytes-1, 1, "a little work")
		look(0, 1, "quiet after a little work")
		look(2, 2, "that adds up")
		live.Store(400 << 20)
		look(100<<20, 2, "busy with much memory in use")
		look(0, 2, "less than a quarter of what lives")
		look(worthBytes, 2, "busy again")
		look(0, 3, "a quarter of what lives")
		live.Store(354 << 20)
		look(0, 3, "a little less lives")
		live.Store(353 << 20)
		look(0, 4, "much less lives")
		look(0, 4, "quiet on")
		live.Store(500 << 20)
		look(0, 4, "more lives")
		live.Store(430 << 20)
		look(0, 5, "and less again")
		cancel()
		<-done
	})
}
