package engine

import (
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
)

// TestPool: who waits for a connection gets one that is put back, and opens one itself where
// another's attempt takes long.
func TestPool(t *testing.T) {
	e, err := New(clustertest.Start(t, clustertest.Options{}).A.Database(t), false)
	need.NoError(t, err)
	t.Cleanup(e.Close)
	p := e.NewPool(e.Config(), 8)
	first, err := p.Take(t.Context())
	need.NoError(t, err)
	p.dialing <- struct{}{} // another opens one, and does not come to an end
	p.patience = time.Hour
	const waiters = 3
	taken := make(chan *Conn)
	for range waiters {
		go func() {
			c, err := p.Take(t.Context())
			if err != nil {
				t.Error(err)
			}
			taken <- c
		}()
	}
	p.Put(first)
	for range waiters {
		c := <-taken
		if c != first {
			t.Fatal("it is another connection")
		}
		p.Put(c)
	}
	again, err := p.Take(t.Context())
	need.NoError(t, err)
	p.patience = 0
	other, err := p.Take(t.Context())
	need.NoError(t, err)
	if again != first || other == first {
		t.Error("a connection is used twice")
	}
	p.Put(again)
	p.Put(other)
	if idle := p.Close(); len(idle) != 2 {
		t.Errorf("%d connections are not in use, want 2", len(idle))
	}
}
