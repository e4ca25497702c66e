package forward

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"umbra/internal/clock"
)

// Bounds of what is between nodes.
const (
	dialPatience = 2 * time.Second
	idlePatience = 60 * time.Second // less than the servers' own
	maxIdle      = 256              // connections kept for each node
	maxAnswer    = 1 << 20          // bytes of an answer's head
	watchEvery   = 100 * time.Millisecond
)

// process is a life of another node at its address.
type process struct {
	address string
	life    int64 // 0: not known
}

// peer is one run of another node, as this one reaches it.
type peer struct {
	address   string
	name      string
	transport *http.Transport
	ctx       context.Context // ends when the node was declared dead
	end       context.CancelFunc

	mu     sync.Mutex
	life   int64  // 0: not known yet
	listed bool   // the list of nodes had it
	run    string // of its program; empty: not asked yet
	silent time.Time
	missed time.Time // since when the list does not have it
	// left is set when it has said that it is about to stop: it gets no request then.
	left    bool
	waiting int           // requests on their way, without an answer yet
	none    chan struct{} // closed once there are none, after left
}

// begin notes that a request is about to be sent; false: the node has left.
func (p *peer) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return false
	}
	p.waiting++
	return true
}

// answered ends begin.
func (p *peer) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting--; p.left && p.waiting == 0 {
		close(p.none)
	}
}

// setLeft has the node get no more requests. It returns when those on their way are
// answered, or ctx ends.
func (p *peer) setLeft(ctx context.Context) {
	p.mu.Lock()
	if !p.left {
		p.left, p.none = true, make(chan struct{})
		if p.waiting == 0 {
			close(p.none)
		}
	}
	p.mu.Unlock()
	select {
	case <-p.none:
	case <-ctx.Done():
	}
	p.transport.CloseIdleConnections()
}

// peer returns what is known of a node, made at the first use. The list of nodes is older
// than the life that the engine names for an owner: it may have the node's former life.
func (f *Forwarder) peer(o Owner) *peer {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := process{o.Address, o.Life}
	p := f.peers[key]
	if p == nil {
		p = &peer{address: o.Address, name: o.Node, life: o.Life, transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: dialPatience, KeepAlive: 15 * time.Second}).DialContext,
			TLSHandshakeTimeout: dialPatience, ExpectContinueTimeout: dialPatience, ForceAttemptHTTP2: true, DisableCompression: true,
			MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idlePatience, MaxResponseHeaderBytes: maxAnswer,
		}}
		ctx, cancel := context.WithCancel(context.Background())
		p.ctx, p.end = ctx, func() {
			cancel()
			p.transport.CloseIdleConnections()
		}
		p.gone(f.o.Node.Peers(), time.Now())
		f.peers[key] = p
	}
	return p
}

// isSilent reports whether a node has left a question without an answer within the
// last second: few requests wait for one that is cut off.
func (p *peer) isSilent(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Sub(p.silent) < time.Second
}

func (p *peer) setSilent(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = now
}

// watch ends what is on its way to nodes that were declared dead: a connection to
// a machine that is gone does not say so.
func (f *Forwarder) watch(ctx context.Context) {
	for now := range clock.Ticks(ctx, watchEvery) {
		f.compare(f.o.Node.Peers(), now)
	}
}

// compare drops the peers that the list of live nodes does not have.
func (f *Forwarder) compare(list []Peer, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, p := range f.peers {
		if p.gone(list, now) {
			p.end()
			delete(f.peers, key)
		}
	}
}

// gone reports whether the node's life is over: the list of live nodes had it, or might have
// had it for long, and does not have it.
func (p *peer) gone(list []Peer, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range list {
		if x.Address == p.address && (p.life == 0 || p.life == x.Life) {
			p.life, p.listed, p.missed = x.Life, true, time.Time{}
			return false
		}
	}
	if p.listed {
		return true
	}
	// It may have come after the list was made.
	if p.missed.IsZero() {
		p.missed = now
	}
	return now.Sub(p.missed) > 10*time.Second
}
