package workspaces

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore/sink/sinktest"
	"umbra/internal/errs"
	"umbra/internal/witness"
)

// TestForwardable: a request that can go to the server that has its workspace does not
// take it from there, and one that waits next to it and cannot go there does.
func TestForwardable(t *testing.T) {
	for _, read := range []bool{false, true} {
		s := newShop(t)
		a, b := s.server("a"), s.server("b")
		w := a.open("x")
		id := w.ID()
		put(t, w, "f", "one")
		w.Release()
		get := b.m.Get
		if read {
			get = b.m.Read
		}
		b.asked = make(chan struct{})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := get(witness.Forwardable(t.Context(), id), id)
			first <- err
		}()
		await := func(refs int) {
			for waits := false; !waits; runtime.Gosched() {
				b.m.mu.Lock()
				waits = b.m.open[id] != nil && b.m.open[id].refs == refs
				b.m.mu.Unlock()
			}
		}
		await(1)
		go func() {
			w, err := get(t.Context(), id)
			if err == nil {
				w.Release()
			}
			second <- err
		}()
		await(2)
		<-b.asked
		if err := <-first; !errors.Is(err, ErrOwnedElsewhere) || errs.CodeOf(err) != "owner_moving" {
			t.Errorf("a request that can go to the owner: %v", err)
		}
		if err := <-second; err != nil || s.rows[id].owner != b {
			t.Errorf("one that cannot: %v", err)
		}
	}
}

// TestYieldTogether: workspaces that are released at the same time do not wait for each
// other's records, nor hooks for records, nor both for the last seal.
func TestYieldTogether(t *testing.T) {
	s := newShop(t)
	var together func()
	a := s.server("a", Hooks{Leaving: func(context.Context, string) {
		if together != nil {
			together()
		}
	}})
	var ids []string
	for _, name := range []string{"x", "y"} {
		w := a.open(name)
		put(t, w, "f", "one")
		ids = append(ids, w.ID())
		w.Release()
	}
	var arrived sync.WaitGroup
	arrived.Add(3 * len(ids))
	both := make(chan struct{})
	go func() { arrived.Wait(); close(both) }()
	together = func() {
		arrived.Done()
		select {
		case <-both:
		case <-time.After(20 * time.Second):
			t.Error("what could be done at the same time is not")
		}
	}
	s.putting = together
	for _, id := range ids {
		seal := sync.OnceFunc(together)
		s.rows[id].log.OnCall = func(c sinktest.Call) sinktest.Fault {
			if c.Op == "put" {
				seal()
			}
			return sinktest.None
		}
	}
	var yielding sync.WaitGroup
	for _, id := range ids {
		yielding.Go(func() { must(t, a.m.Yield(t.Context(), id, true)) })
	}
	yielding.Wait()
	s.putting, together = nil, nil
}

// TestYieldForksTogether: the forks of a workspace that is released are closed at the same
// time.
func TestYieldForksTogether(t *testing.T) {
	s := newShop(t)
	a := s.server("a")
	w := a.open("x")
	put(t, w, "f", "one")
	forks, err := a.m.ForkVirtual(t.Context(), w, ForkSpec{}, make([]string, 3))
	must(t, err)
	for _, r := range forks {
		fork, err := a.m.Get(t.Context(), r.ID)
		must(t, err)
		fork.Release()
	}
	w.Release()
	var arrived atomic.Int64
	all := make(chan struct{})
	s.putting = func() {
		if arrived.Add(1) == int64(len(forks)) {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(20 * time.Second):
			t.Error("a fork waits for another one")
		}
	}
	must(t, a.m.Yield(t.Context(), w.ID(), true))
	s.putting = nil
}

// TestYieldBesideUpkeep: what has a workspace without being a request of it, as a seal
// does, is waited for until it ends, and no longer.
func TestYieldBesideUpkeep(t *testing.T) {
	s := newShop(t)
	a := s.server("a")
	w := a.open("x")
	id := w.ID()
	w.Release()
	store, release := a.m.store(id)
	if store == nil {
		t.Fatal("it is not open")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	yielded := make(chan error, 1)
	go func() { yielded <- a.m.Yield(ctx, id, false) }()
	for waits := false; !waits; runtime.Gosched() {
		a.m.mu.Lock()
		waits = a.m.open[id].unused != nil
		a.m.mu.Unlock()
	}
	release()
	select {
	case err := <-yielded:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it is waited for after its end")
	}
}
