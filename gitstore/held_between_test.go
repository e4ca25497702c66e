package gitstore

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"umbra/gitstore/packset"
	"umbra/gitstore/sink/sinktest"
	"umbra/internal/need"
)

// A long merge leaves the log sealed: else it would fill up with what is written
// meanwhile, and writes would be refused.
func TestSealBetween(t *testing.T) {
	m := sinktest.NewMemory()
	s := onSink(t, m, func(o *Options) { o.MaxUnsealed = 256 << 10 })
	baselineOf(t, s, map[string]string{"a": "a\n"})
	write := func(i int) { mustPut(t, s, "", fmt.Sprintf("d%d/f%d", i%7, i%40), fmt.Sprintln("line", i)) }
	n := 0
	for range mergeWidth {
		for range 100 {
			write(n)
			n++
		}
		need.NoError(t, s.Seal(t.Context()))
	}
	for bytes, _ := s.r.Held.Unsealed(); bytes < s.opt.MaxUnsealed/4; bytes, _ = s.r.Held.Unsealed() {
		write(n)
		n++
	}
	var bases []uint64
	m.OnCall = func(c sinktest.Call) sinktest.Fault {
		if c.Op == "swap" {
			bases = append(bases, m.Manifest().Base)
		}
		return sinktest.None
	}
	before := len(m.Manifest().Packs)
	need.NoError(t, s.Maintain(t.Context()))
	if len(bases) != 2 || bases[1] <= bases[0] {
		t.Errorf("manifests were replaced at the positions %v: the first of them while packs are merged", bases)
	}
	if got := len(m.Manifest().Packs); got >= before {
		t.Errorf("%d packs, of %d", got, before)
	}
	if bytes, _ := s.r.Held.Unsealed(); bytes != 0 {
		t.Errorf("%d bytes are not sealed", bytes)
	}
	m.OnCall = nil
	need.NoError(t, s.Close(t.Context()))
	s = onSink(t, m)
	defer closeStore(t, s)
	for i := n - 40; i < n; i++ {
		if data, err := s.readAt(t, fmt.Sprintf("d%d/f%d", i%7, i%40)); err != nil || string(data) != fmt.Sprintln("line", i) {
			t.Errorf("%d: %q, %v", i, data, err)
		}
	}
}

// A store that is about to be closed does not wait until packs are merged.
func TestSealAheadInterrupts(t *testing.T) {
	m := sinktest.NewMemory()
	s := onSink(t, m, func(o *Options) { o.MaxUnsealed = 4 * sealedAhead })
	defer closeStore(t, s)
	baselineOf(t, s, map[string]string{"a": "a\n"})
	n := 0
	for range mergeWidth {
		for range 50 {
			mustPut(t, s, "", fmt.Sprintf("d%d/f%d", n%7, n%40), fmt.Sprintln("line", n))
			n++
		}
		need.NoError(t, s.Seal(t.Context()))
	}
	for bytes, _ := s.r.Held.Unsealed(); bytes < sealedAhead; bytes, _ = s.r.Held.Unsealed() {
		mustPut(t, s, "", fmt.Sprintf("d%d/f%d", n%7, n%40), fmt.Sprintln("line", n))
		n++
	}
	before := len(m.Manifest().Packs)
	ahead := make(chan error, 1)
	m.OnCall = func(c sinktest.Call) sinktest.Fault {
		interrupt := s.interrupt.Load()
		if c.Op != "swap" || interrupt == nil {
			return sinktest.None
		}
		interrupted := make(chan struct{})
		then := context.CancelFunc(func() { (*interrupt)(); close(interrupted) })
		s.interrupt.Store(&then)
		m.OnCall = nil
		go func() { ahead <- s.SealAhead(t.Context()) }()
		select {
		case <-interrupted:
		case <-time.After(10 * time.Second):
			t.Error("packs are merged, and nothing interrupts it")
		}
		return sinktest.None
	}
	need.NoError(t, s.Maintain(t.Context()))
	need.NoError(t, <-ahead)
	if got := len(m.Manifest().Packs); got < before {
		t.Errorf("%d packs, of %d: they were merged all the same", got, before)
	}
	if bytes, _ := s.r.Held.Unsealed(); bytes != 0 {
		t.Errorf("%d bytes are not sealed", bytes)
	}
	s.ahead.Add(1) // as while SealAhead waits for its turn
	need.NoError(t, s.Maintain(t.Context()))
	if got := len(m.Manifest().Packs); got < before {
		t.Errorf("%d packs, of %d: a merge began before the seal had its turn", got, before)
	}
	s.ahead.Add(-1)
	need.NoError(t, s.Maintain(t.Context()))
	if got := len(m.Manifest().Packs); got >= before {
		t.Errorf("%d packs, of %d: they are not merged by the next run", got, before)
	}
}

// TestSealsAreMerged seals so often that the publisher never publishes by itself: the packs of
// a log that is written to all the time are merged all the same, and do not become hundreds.
func TestSealsAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := onSink(t, sinktest.NewMemory(), func(o *Options) { o.Foreground, o.VisibleAfter = false, time.Hour })
		defer closeStore(t, s)
		for i := range 2 * mergeWidth {
			mustPut(t, s, "", fmt.Sprint("f", i), "1\n")
			need.NoError(t, s.Seal(t.Context()))
		}
		synctest.Wait()
		packs := s.r.Packs.InUse()
		packset.ReleaseAll(packs)
		if len(packs) >= mergeWidth {
			t.Errorf("%d packs", len(packs))
		}
	})
}
