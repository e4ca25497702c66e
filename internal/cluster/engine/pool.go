package engine

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// fresh is for how long a connection that was put back is used again without
	// asking whether its server is there.
	fresh = time.Second
	// dialPatience is how long a statement waits for a connection that others use, or
	// open, before it opens one itself.
	dialPatience = 50 * time.Millisecond
)

// Pool is connections of the same settings. It opens one at a time, and uses one that was put
// back meanwhile: a burst of short statements would otherwise open one each, which costs the
// server more than the statement. It is safe for concurrent use.
type Pool struct {
	e        *Engine
	cfg      *pgx.ConnConfig
	patience time.Duration // dialPatience
	dialing  chan struct{} // has an element while a connection is opened
	rested   chan struct{} // has one for each connection that was put back

	mu     sync.Mutex
	idle   []*Conn
	closed bool
}

// NewPool returns a pool for at most so many connections, and opens none.
func (e *Engine) NewPool(cfg *pgx.ConnConfig, most int) *Pool {
	return &Pool{e: e, cfg: cfg, patience: dialPatience, dialing: make(chan struct{}, 1), rested: make(chan struct{}, most)}
}

// Take returns a connection to the server that takes commits.
func (p *Pool) Take(ctx context.Context) (*Conn, error) {
	var late <-chan time.Time
	for {
		c := p.rest()
		switch {
		case c == nil:
		case p.usable(ctx, c):
			return c, nil
		default:
			p.e.Drop(c)
			continue
		}
		if late == nil {
			t := time.NewTimer(p.patience)
			defer t.Stop()
			late = t.C
		}
		select {
		case p.dialing <- struct{}{}:
			c, err := p.e.DialAt(ctx, p.cfg)
			<-p.dialing
			return c, err
		case <-late: // the other attempt may be at a server that is away
			return p.e.DialAt(ctx, p.cfg)
		case <-p.rested:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// rest returns a connection that is not in use; nil: there is none.
func (p *Pool) rest() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle)
	if n == 0 {
		return nil
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c
}

// usable reports whether a connection that is not in use leads to the server that takes
// commits, and is there.
func (p *Pool) usable(ctx context.Context, c *Conn) bool {
	return !c.Gone() && (p.e.replica || c.Server.Timeline == p.e.timeline.Load()) && (time.Since(c.used) < fresh || c.Alive(ctx))
}

// Put gives a connection back. One that is gone, or in a transaction, is dropped.
func (p *Pool) Put(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || c.Gone() || c.PgConn().TxStatus() != 'I' {
		p.e.Drop(c)
		return
	}
	c.used = time.Now()
	p.idle = append(p.idle, c)
	select {
	case p.rested <- struct{}{}:
	default:
	}
}

// Close ends the pool, and returns the connections that were not in use.
func (p *Pool) Close() (idle []*Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	idle, p.idle, p.closed = p.idle, nil, true
	return idle
}
