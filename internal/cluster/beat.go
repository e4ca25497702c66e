package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"umbra/internal/cluster/engine"
)

// silence is how long a beat may go without an answer before the node looks for
// another server.
const silence = time.Second

// beats sends a beat each quarter of a lease for as long as the node runs, begins
// a new life when this one was declared dead, and declares others dead.
func (n *Node) beats() {
	var c *engine.Conn
	defer func() {
		if c != nil {
			n.e.Drop(c)
		}
	}()
	every := n.Cluster.Lease / 4
	next := n.opts.boot()
	for {
		asked, runs := n.rest(min(next, n.firstExpiry()) - n.opts.boot())
		if !runs {
			return
		}
		if asked {
			next = n.opts.boot()
		}
		if c == nil || c.Gone() {
			if c != nil {
				n.e.Drop(c)
			}
			var err error
			if c, err = n.e.Dial(n.ctx); err != nil {
				n.engineFailed(err)
				next = n.opts.boot() + min(every, 100*time.Millisecond)
				continue
			}
		}
		if n.opts.boot() < next {
			n.declareDue(c)
			continue
		}
		next = n.opts.boot() + every
		if !n.beat(c) {
			next = n.opts.boot() + min(every, 100*time.Millisecond)
		}
	}
}

// pause waits, and reports whether the node still runs.
func (n *Node) pause(d time.Duration) bool {
	_, runs := n.await(d, nil)
	return runs
}

// rest is pause until a beat is asked for.
func (n *Node) rest(d time.Duration) (asked, runs bool) { return n.await(d, n.asked) }

func (n *Node) await(d time.Duration, wake <-chan struct{}) (woken, runs bool) {
	if d <= 0 {
		return false, n.ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false, true
	case <-wake:
		return true, true
	case <-n.ctx.Done():
		return false, false
	}
}

// send sends statements on the beat's connection, and waits for the answer for as
// long as the connection lasts.
func (n *Node) send(c *engine.Conn, fill func(*pgx.Batch)) error {
	answered, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		n.watch(c, answered)
	}()
	err := c.Pipeline(context.Background(), fill)
	close(answered)
	<-watched
	if err != nil {
		n.e.Drop(c)
		if n.ctx.Err() == nil {
			n.engineFailed(err)
		}
	}
	return err
}

// beat sends one beat and reports whether it was answered.
func (n *Node) beat(c *engine.Conn) bool {
	life, _ := n.Life()
	if !life.listed.Load() {
		holder, _, err := n.enlist(n.ctx, life)
		if holder != nil {
			n.opts.Log.Error("another node has this node's name", "node", holder.Name, "address", holder.Address)
		}
		if err != nil || holder != nil {
			return false
		}
	}
	n.opts.at("beat")
	// The lease begins before the beat is sent: it may be on its way for long.
	sent := n.opts.boot()
	beat := `UPDATE node SET beat = beat + 1, beaten = now() WHERE life = $1 AND state <> 'dead'`
	if mutant == reviveBeat {
		beat = `UPDATE node SET beat = beat + 1, beaten = now(), state = 'live' WHERE life = $1`
	}
	alive, found, standbys := false, engine.Settings{}, 0
	var rows []*seen
	err := n.send(c, func(b *pgx.Batch) {
		b.Queue(beat, life.ID).Exec(func(tag pgconn.CommandTag) error {
			alive = tag.RowsAffected() == 1
			return nil
		})
		b.Queue(`SELECT life, name, address, url, version, state = 'draining', beat + 1 FROM node WHERE state <> 'dead'`).Query(func(r pgx.Rows) (err error) {
			rows, err = pgx.CollectRows(r, func(row pgx.CollectableRow) (*seen, error) {
				s := &seen{}
				return s, row.Scan(&s.Life, &s.Name, &s.Address, &s.URL, &s.Version, &s.Draining, &s.beat)
			})
			return err
		})
		b.Queue(`SELECT current_setting('synchronous_standby_names'), current_setting('fsync'), current_setting('full_page_writes'), ` + engine.ConnectedStandbys).
			QueryRow(func(row pgx.Row) error { return row.Scan(&found.Standbys, &found.FSync, &found.Pages, &standbys) })
	})
	n.opts.at("beaten")
	if err != nil {
		return false
	}
	if !alive {
		n.die(life)
		return false
	}
	now := n.opts.boot()
	life.until.Store(int64(sent + life.lease))
	n.note(life, rows, found, EngineState{Standbys: standbys, Version: c.Server.Version, Latency: now - sent}, now)
	// Without mu: the lanes ask for the engine's state under their lock.
	n.lanes.wake()
	return true
}

// note keeps what an answered beat found: the others' rows, the engine's settings
// and its state, whose reason it adds.
func (n *Node) note(life *Life, rows []*seen, found engine.Settings, state EngineState, now time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// A gap means that the engine was away, perhaps for all.
	if now-n.last > life.lease/2 {
		n.steady = now
	}
	n.last = now
	n.renewed()
	n.observe(rows, now)
	n.draining = n.peers[life.ID] != nil && n.peers[life.ID].Draining
	if name, value, off := n.off(found); off {
		state.Reason = "replication_off"
		if n.state.Reason != state.Reason {
			n.opts.Log.Error("the engine stopped waiting for a standby: writes are refused", "setting", name, "value", value)
		}
	}
	n.state = state
}

// watch looks for another server when a beat gets no answer: it may be one that
// was replaced, or lost. The old connection stays for as long as its server does:
// an append that waits for a standby is on its way.
func (n *Node) watch(c *engine.Conn, answered <-chan struct{}) {
	t := time.NewTimer(silence)
	defer t.Stop()
	for probes := 1; ; probes++ {
		select {
		case <-answered:
			return
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		ctx, cancel := context.WithTimeout(n.ctx, engine.ConnectTimeout)
		best, err := n.e.Survey(ctx)
		cancel()
		switch {
		case err != nil:
			n.engineFailed(err)
		case best.Same(c.Server):
			// One that is connected may be slow, or paused.
			if best.Standbys == 0 || probes > 8 {
				n.setReason("standby")
			}
		default:
			n.opts.Log.Warn("the engine has failed over", "timeline", best.Timeline)
			n.e.Cut(best)
			return
		}
		t.Reset(silence / 4)
	}
}

// observe compares the others' beats with those of before; the caller holds mu.
func (n *Node) observe(rows []*seen, now time.Duration) {
	peers := make(map[int64]*seen, len(rows))
	for _, r := range rows {
		if p := n.peers[r.Life]; p != nil && p.beat == r.beat {
			p.Peer = r.Peer
			peers[r.Life] = p
			continue
		}
		r.since = now
		peers[r.Life] = r
	}
	n.peers = peers
}

// firstExpiry returns when the first other life may be declared dead.
func (n *Node) firstExpiry() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	first := time.Duration(1<<63 - 1)
	if n.life == nil {
		return first
	}
	for life, p := range n.peers {
		if life != n.life.ID && !p.tried {
			// The node that declares must have beaten without a gap for as long.
			first = min(first, max(p.since, n.steady)+n.wait())
		}
	}
	return first
}

// declareDue declares those dead whose beats have not changed for a lease.
func (n *Node) declareDue(c *engine.Conn) {
	now := n.opts.boot()
	n.mu.Lock()
	var due []*seen
	for life, p := range n.peers {
		if life != n.life.ID && !p.tried && max(p.since, n.steady)+n.wait() <= now {
			p.tried = true
			due = append(due, p)
		}
	}
	n.mu.Unlock()
	for _, p := range due {
		dead := false
		err := n.send(c, func(b *pgx.Batch) {
			b.Queue(declareDead, p.Life, p.beat).
				Exec(func(tag pgconn.CommandTag) error {
					dead = tag.RowsAffected() == 1
					return nil
				})
		})
		if err != nil {
			n.mu.Lock()
			p.tried = false
			n.mu.Unlock()
			return
		}
		if dead {
			n.opts.Log.Warn("a node was declared dead", "node", p.Name, "address", p.Address)
		}
	}
}

// die ends a life that was declared dead, and begins the next.
func (n *Node) die(life *Life) {
	n.opts.Log.Error("this node was declared dead: it closes its workspaces", "node", n.opts.Name)
	life.until.Store(0)
	close(life.over)
	n.mu.Lock()
	n.former = append(n.former, life.ID)
	n.mu.Unlock()
	n.setLife(n.newLife())
}

// engineFailed notes that the engine does not answer, and why.
func (n *Node) engineFailed(err error) {
	reason := "unreachable"
	switch {
	case errors.Is(err, engine.ErrStandby), errors.Is(err, engine.ErrReadOnly):
		reason = "read_only"
	}
	n.setReason(reason)
}

func (n *Node) setReason(reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.state.Reason != reason {
		n.opts.Log.Warn("the engine takes no writes", "reason", reason)
	}
	n.state.Reason = reason
}
