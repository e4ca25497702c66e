package measure

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"umbra/internal/need"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/disk"
)

// fake takes a given time for each change.
type fake struct {
	takes time.Duration
	fails error
	mu    sync.Mutex
	times []time.Time
	most  atomic.Int64
	now   atomic.Int64
}

func (f *fake) Name() string    { return "fake" }
func (f *fake) Durable() string { return "nothing" }
func (f *fake) Change(context.Context, int, corpus.Change) error {
	n := f.now.Add(1)
	defer f.now.Add(-1)
	for {
		most := f.most.Load()
		if n <= most || f.most.CompareAndSwap(most, n) {
			break
		}
	}
	f.mu.Lock()
	f.times = append(f.times, time.Now())
	f.mu.Unlock()
	<-time.After(f.takes)
	return f.fails
}

type serialFake struct{ fake }

func (*serialFake) OneAtATime() {}

func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, quick := &fake{takes: 4 * time.Millisecond}, &fake{takes: time.Millisecond}
		e := &Env{Scale: Scale{Rounds: 5, Slice: 40 * time.Millisecond}}
		got, err := e.Loop(t.Context(), []Lane{{Subject: slow, Files: 100}, {Subject: quick, Files: 100, Label: "quick"}})
		need.NoError(t, err)
		if got[0].Name != "fake" || got[1].Name != "quick" {
			t.Errorf("names %q, %q", got[0].Name, got[1].Name)
		}
		if r := got[0].P50Ratio(got[1]); r != 4 {
			t.Errorf("ratio %v, want 4", r)
		}
		if got[0].N != 50 || got[1].N != 200 || got[1].Rate != 1000 {
			t.Errorf("%d and %d changes, rate %v", got[0].N, got[1].N, got[1].Rate)
		}
	})
}

func TestLoopWithClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many, one := &fake{takes: time.Millisecond}, &serialFake{fake{takes: time.Millisecond}}
		e := &Env{Scale: Scale{Rounds: 2, Slice: 10 * time.Millisecond}}
		got, err := e.Loop(t.Context(), []Lane{{Subject: many, Files: 100, Clients: 8}, {Subject: one, Files: 100, Clients: 8}})
		need.NoError(t, err)
		if many.most.Load() != 8 || one.most.Load() != 1 || got[0].Clients != 8 || got[1].Clients != 1 {
			t.Errorf("at once %d and %d, told as %d and %d", many.most.Load(), one.most.Load(), got[0].Clients, got[1].Clients)
		}
		if r := got[0].RateRatio(got[1]); r != 8 {
			t.Errorf("ratio of rates %v, want 8", r)
		}
	})
}

func TestLoopReportsWhoFailed(t *testing.T) {
	broken := errors.New("broken")
	e := &Env{Scale: Scale{Rounds: 1}}
	if _, err := e.Loop(t.Context(), []Lane{{Subject: &fake{fails: broken}, Files: 1, Clients: 4}}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestPacedKeepsItsPace(t *testing.T) {
	for _, block := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			a, b := &fake{takes: time.Millisecond}, &fake{takes: time.Millisecond}
			got, err := new(Env).Paced(t.Context(), []Lane{{Subject: a, Files: 10}, {Subject: b, Files: 10}}, 200*time.Millisecond, 6, block)
			need.NoError(t, err)
			if got[0].N != 6 || got[1].N != 6 {
				t.Fatalf("block %d: %d and %d changes", block, got[0].N, got[1].N)
			}
			for i := 1; i < len(a.times); i++ {
				if gap := a.times[i].Sub(a.times[i-1]); gap < 199*time.Millisecond {
					t.Errorf("block %d: two changes %v apart", block, gap)
				}
			}
		})
	}
}

func TestStoppedRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := new(Env).Paced(ctx, []Lane{{Subject: &fake{}, Files: 10}}, time.Hour, 6, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		e := &Env{Scale: Scale{Rounds: 1000, Slice: time.Hour}}
		if _, err := e.Loop(ctx, []Lane{{Subject: &fake{}, Files: 10, Clients: 2}}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestLoopsDoNotRepeatEachOther(t *testing.T) {
	e := new(Env)
	a, b := newTrack(Lane{Subject: &fake{}, Files: 10}, e.nextSeed()), newTrack(Lane{Subject: &fake{}, Files: 10}, e.nextSeed())
	if x, y := a.sequences[0].Next(), b.sequences[0].Next(); bytes.Equal(x.Data, y.Data) {
		t.Error("two loops begin with the same change")
	}
}

func TestEnvUndoesEverything(t *testing.T) {
	dir := t.TempDir()
	e, err := NewEnv(Quick(), disk.Disk{Dir: dir}, "", "", t.Logf)
	need.NoError(t, err)
	var order []string
	e.Defer("first", func() error { order = append(order, "first"); return nil })
	e.Defer("second", func() error { order = append(order, "second"); return errors.New("no") })
	part, err := e.Part()
	need.NoError(t, err)
	if _, err := part.Dir("x"); err != nil {
		t.Fatal(err)
	}
	need.NoError(t, part.Close())
	if err := e.Close(); err == nil || len(order) != 2 || order[0] != "second" {
		t.Errorf("%v, %v", err, order)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d things are left", len(left))
	}
}

func TestSustainFindsTheStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := new(Env).Sustain(t.Context(), Lane{Subject: &fake{takes: 10 * time.Millisecond}, Files: 100, Clients: 4}, time.Second)
		need.NoError(t, err)
		if got.N != 400 || got.Max != 10*time.Millisecond || got.Silence != 10*time.Millisecond || got.Rate != 400 {
			t.Errorf("%+v", got)
		}
	})
}

func TestSilenceIsTheLongestGap(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	for _, c := range []struct {
		moments []time.Time
		want    time.Duration
	}{
		{nil, 0},
		{[]time.Time{at(5)}, 5 * time.Millisecond},
		{[]time.Time{at(30), at(1), at(7)}, 23 * time.Millisecond},
	} {
		if got := silence(at(0), c.moments); got != c.want {
			t.Errorf("%v: %v, want %v", c.moments, got, c.want)
		}
	}
}

func TestBesideProbesUntilStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := Beside(5*time.Millisecond, func() error { <-time.After(time.Millisecond); return nil })
		<-time.After(52 * time.Millisecond)
		got, err := stop()
		if err != nil || got.N != 10 || got.Max != time.Millisecond {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
