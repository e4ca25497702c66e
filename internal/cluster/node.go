package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/internal/clock"
	"umbra/internal/cluster/engine"
)

// What a node asks of replication (cluster.replication).
const (
	ReplicationSync     = "sync"     // PostgreSQL waits for a standby
	ReplicationProvider = "provider" // the storage below SQL is replicated
	ReplicationNone     = "none"     // one copy, for tests
)

// Options are what a node needs. URL, Name and Address are required.
type Options struct {
	URL         string        // of PostgreSQL
	ReadURL     string        // of a replica of it that followers read; empty: none
	Replication string        // ReplicationSync, ReplicationProvider, ReplicationNone
	Name        string        // unique among live nodes
	Address     string        // where other nodes reach this one
	PublicURL   string        // where clients may reach it; may be empty
	Version     string        // of the program
	Lease       time.Duration // of a cluster that does not exist yet; 0: DefaultLease
	// Former is the life that the holder of the data directory had before, 0 if
	// there was none: it is over, since its process is.
	Former int64
	// OnLife, if set, is called with each life of the process before the cluster
	// hears of it: the next process on the data directory gives it as Former. After an
	// error the life does not begin.
	OnLife   func(cluster string, life int64) error
	Wait     time.Duration // how long a statement is waited for (cluster.wait)
	Patience time.Duration // how long the engine is tried at the start; 0: 30 s
	Log      *slog.Logger

	// look says that nothing is made, and that the node does not live: for verbs.
	look bool
	// at is called at the named points, for tests: it may block.
	at func(point string)
	// boot is the clock of leases; nil: clock.Boot.
	boot func() time.Duration
}

// Node is this process's part in the cluster: its life, its lease, and what it
// knows of the others. It is safe for concurrent use.
type Node struct {
	Cluster *Cluster

	e       *engine.Engine
	replica *engine.Engine // nil: followers read e
	opts    Options
	lanes   *lanes

	ctx  context.Context // ends with the node
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu          sync.Mutex
	life        *Life
	lifeMade    chan struct{} // closed when the next life begins
	beaten      chan struct{} // closed when a beat was answered
	asked       chan struct{} // has an element when a beat is to be sent at once
	peers       map[int64]*seen
	steady      time.Duration // since when each beat was answered in time
	last        time.Duration // when a beat was answered last
	state       EngineState
	draining    bool
	floors      map[string]int64 // the oldest version of a purged workspace's manifest that may be read
	replicaFrom time.Duration    // by the boot clock: before, the replica is not asked
	former      []int64          // lives of this process or data directory that are over
	hurried     atomic.Bool      // the server stops
}

// Life is one run of a node, from its first beat until it is declared dead.
type Life struct {
	ID    int64
	lease time.Duration
	boot  func() time.Duration
	until atomic.Int64 // end of the lease, by the boot clock
	over  chan struct{}
	// listed is set once the cluster has the life's row.
	listed atomic.Bool
}

// Held reports whether the lease is held at this moment. An owner that answers a
// read compares after it has read.
func (l *Life) Held() bool { return l.Left() > 0 || mutant == noLease }

// Left returns how much of the lease is left; it is negative once it is over.
func (l *Life) Left() time.Duration { return time.Duration(l.until.Load()) - l.boot() }

// Reading runs an owner's read and reports whether its result may be answered: the
// lease was held after it. A lease that is compared before leaves a hole as long
// as a pause of the process.
func (l *Life) Reading(read func()) bool {
	if mutant == leaseFirst {
		held := l.Held()
		read()
		return held
	}
	read()
	return l.Held()
}

// Over is closed when the life was declared dead: its workspaces may have other
// owners.
func (l *Life) Over() <-chan struct{} { return l.over }

// Peer is a node as the cluster knows it.
type Peer struct {
	Life                        int64
	Name, Address, URL, Version string
	Draining                    bool
}

// seen is a peer and when its present beat was seen first.
type seen struct {
	Peer
	beat  int64
	since time.Duration
	tried bool // it was declared dead at this beat, in vain
}

// EngineState says whether the engine takes appends. Reason is empty where it
// does, else one of the contract's: "unreachable", "standby", "read_only",
// "replication_off".
type EngineState struct {
	Reason   string
	Standbys int           // that are connected, as far as the role may see
	Version  int           // 150004
	Latency  time.Duration // of the last beat
}

// Open connects, makes or upgrades the schema, and begins a life. Errors are
// *Refusal where an owner can do something about them. Without a connected
// standby it returns a node without a life, which gets one later.
func Open(ctx context.Context, opts Options) (*Node, error) {
	n, err := connect(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := n.enter(ctx); err != nil {
		n.e.Close()
		return nil, err
	}
	n.lanes = newLanes(n)
	n.wg.Go(n.beats)
	return n, nil
}

// connect is Open without a life.
func connect(ctx context.Context, opts Options) (*Node, error) {
	if opts.Replication == "" {
		opts.Replication = ReplicationSync
	}
	if opts.Lease == 0 {
		opts.Lease = DefaultLease
	}
	if opts.Wait == 0 {
		opts.Wait = 8 * time.Second
	}
	if opts.Patience == 0 {
		opts.Patience = 30 * time.Second
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.boot == nil {
		opts.boot = clock.Boot
	}
	if opts.at == nil {
		opts.at = func(string) {}
	}
	e, err := engine.New(opts.URL, mutant == cancelAppend)
	if err != nil {
		return nil, err
	}
	n := &Node{e: e, opts: opts, peers: map[int64]*seen{}, lifeMade: make(chan struct{}), beaten: make(chan struct{}), asked: make(chan struct{}, 1)}
	if opts.Former != 0 {
		n.former = append(n.former, opts.Former)
	}
	if opts.ReadURL != "" {
		if n.replica, err = engine.NewReplica(opts.ReadURL); err != nil {
			e.Close()
			return nil, err
		}
	}
	n.ctx, n.stop = context.WithCancel(context.Background())
	if err := n.reach(ctx); err != nil {
		e.Close()
		return nil, err
	}
	return n, nil
}

// reach waits until the engine answers, and reads the cluster's row.
func (n *Node) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, n.opts.Patience)
	defer cancel()
	var last error
	for {
		err := n.check(ctx)
		if err == nil {
			return nil
		}
		if last != nil && ctx.Err() != nil {
			err = last // what an attempt met that was not cut off
		}
		last = err
		if r, final := errors.AsType[*Refusal](err); final {
			return r
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return engine.Refuse("engine_unreachable", err, "No PostgreSQL answers at %s: %s.", n.e.Hosts(), engine.Cause(err))
		}
	}
}

func (n *Node) check(ctx context.Context) error {
	c, err := n.e.Dial(ctx)
	if err != nil {
		return err
	}
	defer n.e.Put(c)
	if err := c.CountStandbys(ctx); err != nil {
		return err
	}
	n.state = EngineState{Version: c.Server.Version, Standbys: c.Server.Standbys}
	if name, value, off := n.off(c.Server.Settings); off {
		if !n.opts.look {
			return engine.Refuse("replication_off", nil, "Nothing waits for a standby: %s is %s.", name, value)
		}
		n.state.Reason = "replication_off"
	} else if n.opts.Replication == ReplicationSync && c.Server.Standbys == 0 {
		n.state.Reason = "standby"
	}
	if n.opts.look {
		n.Cluster, err = clusterOf(ctx, c)
		if err == nil && n.Cluster == nil {
			err = engine.Refuse("cluster_missing", nil, "The database has no cluster of this program; run umbra cluster init.")
		}
		return err
	}
	n.Cluster, err = prepare(ctx, n.e, n.opts.Lease)
	return err
}

// off names the setting that makes an acknowledged commit unsafe, and its value.
func (n *Node) off(s engine.Settings) (name, value string, off bool) {
	if n.opts.Replication != ReplicationSync {
		return "", "", false
	}
	return s.Off()
}

// newLife makes a life that has no lease yet.
func (n *Node) newLife() *Life {
	l := &Life{ID: random63(), lease: n.Cluster.Lease, boot: n.opts.boot, over: make(chan struct{})}
	l.until.Store(int64(n.opts.boot()))
	return l
}

// random63 returns a positive random number.
func random63() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return int64(binary.BigEndian.Uint64(b[:])>>1) | 1
}

// enter begins the first life of the process: another live node of the name
// refuses it, one that does not beat any more is declared dead.
func (n *Node) enter(ctx context.Context) error {
	life := n.newLife()
	n.setLife(life)
	var watched int64
	begun := n.opts.boot()
	for {
		holder, beat, err := n.enlist(ctx, life)
		switch {
		case errors.Is(err, engine.ErrSent) || errors.Is(err, engine.ErrBusy):
			// No standby is connected: the node starts for reads, and the beats
			// enlist it once one is.
			return nil
		case err != nil:
			return err
		case holder == nil:
			return nil
		case beat != watched:
			if watched != 0 {
				return engine.Refuse("node_name_taken", nil, "Node %s is live at %s.", n.opts.Name, holder.Address)
			}
			watched, begun = beat, n.opts.boot()
		case n.opts.boot()-begun > n.wait():
			if err := n.declare(ctx, holder.Life, beat); err != nil {
				return err
			}
		}
		select {
		case <-time.After(n.Cluster.Lease / 8):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wait is for how long a peer's beat must be unchanged before it is declared
// dead: a lease, and a little for clocks of different rates.
func (n *Node) wait() time.Duration { return n.Cluster.Lease + n.Cluster.Lease/64 }

// Bounds of what a node that stops does not wait longer for.
const (
	hurriedWait     = 500 * time.Millisecond
	hurriedAttempts = 8
)

// Hurry is called when the server begins to stop: claims and records no longer wait
// for an engine that is away.
func (n *Node) Hurry() { n.hurried.Store(true) }

// Hurried reports whether Hurry was called.
func (n *Node) Hurried() bool { return n.hurried.Load() }

// patience is how long a claim or a transaction of records waits for the engine.
func (n *Node) patience() time.Duration {
	if n.hurried.Load() {
		return min(n.opts.Wait, hurriedWait)
	}
	return n.opts.Wait
}

// enlist adds the life's row, ends the former lives of this process and data
// directory, and begins the lease. If another life has the name, it returns that
// one, and its beat plus one, so that it is never 0.
func (n *Node) enlist(ctx context.Context, life *Life) (holder *Peer, beat int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, n.opts.Wait)
	defer cancel()
	if n.opts.OnLife != nil {
		if err := n.opts.OnLife(n.Cluster.ID, life.ID); err != nil {
			return nil, 0, err
		}
	}
	n.mu.Lock()
	former := slices.Clone(n.former)
	n.mu.Unlock()
	sent := n.opts.boot()
	for {
		type found struct {
			holder *Peer
			beat   int64
		}
		var f found
		result := make(chan found, 1)
		err := n.e.Retry(ctx, func(ctx context.Context, c *engine.Conn) error {
			var f found
			err := c.Pipeline(ctx, func(b *pgx.Batch) {
				b.Queue(`UPDATE node SET state = 'dead', ended = now() WHERE life = ANY($1) AND state <> 'dead'`, former)
				b.Queue(`INSERT INTO node (life, name, address, url, version) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`,
					life.ID, n.opts.Name, n.opts.Address, n.opts.PublicURL, n.opts.Version)
				b.Queue(`SELECT life, name, address, url, version, state = 'draining', beat + 1 FROM node WHERE name = $1 AND state <> 'dead'`, n.opts.Name).
					QueryRow(func(row pgx.Row) error {
						p := &Peer{}
						f.holder = p
						return row.Scan(&p.Life, &p.Name, &p.Address, &p.URL, &p.Version, &p.Draining, &f.beat)
					})
			})
			if err == nil { // else it may run again
				result <- f
			}
			return err
		})
		if err != nil {
			return nil, 0, err
		}
		f = <-result
		switch {
		case f.holder.Life == life.ID:
			life.until.Store(int64(sent + life.lease))
			life.listed.Store(true)
			n.mu.Lock()
			n.last, n.steady = n.opts.boot(), n.opts.boot()
			n.renewed()
			n.mu.Unlock()
			return nil, 0, nil
		case slices.Contains(former, f.holder.Life):
			// Its row was on its way when this began.
		default:
			return f.holder, f.beat, nil
		}
	}
}

// declareDead is a state, not a comparison of ages: a beat that was held up on
// its way commits after others took over, and would revive its life.
const declareDead = `UPDATE node SET state = 'dead', ended = now() WHERE life = $1 AND beat + 1 = $2 AND state <> 'dead'`

// declare ends a life whose beat is still the one that was seen.
func (n *Node) declare(ctx context.Context, life, beat int64) error {
	ctx, cancel := context.WithTimeout(ctx, n.opts.Wait)
	defer cancel()
	return n.e.Retry(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, declareDead, life, beat)
		return err
	})
}

func (n *Node) setLife(l *Life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life = l
	close(n.lifeMade)
	n.lifeMade = make(chan struct{})
}

// Life returns the present life, and a channel that is closed when another one
// begins.
func (n *Node) Life() (*Life, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life, n.lifeMade
}

// renewed notes that a lease was renewed; the caller holds mu.
func (n *Node) renewed() {
	close(n.beaten)
	n.beaten = make(chan struct{})
}

// held waits for a life with a lease.
func (n *Node) held(ctx context.Context) (*Life, error) {
	for {
		n.mu.Lock()
		life, beaten := n.life, n.beaten
		n.mu.Unlock()
		if life.Held() {
			return life, nil
		}
		select {
		case <-beaten:
		case <-ctx.Done():
			return nil, n.refusal()
		case <-n.ctx.Done():
			return nil, ErrClosed
		}
	}
}

// Name returns the node's name.
func (n *Node) Name() string { return n.opts.Name }

// PublicURL returns where clients may reach the node; empty: nowhere.
func (n *Node) PublicURL() string { return n.opts.PublicURL }

// Engine returns what the last beat found.
func (n *Node) Engine() EngineState {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.state
}

// Draining reports whether this node is asked to hand its workspaces over.
func (n *Node) Draining() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.draining
}

// Drain says to the others that this node hands its workspaces over.
func (n *Node) Drain(ctx context.Context) error {
	life, _ := n.Life()
	return n.write(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `UPDATE node SET state = 'draining' WHERE life = $1 AND state = 'live'`, life.ID)
		return err
	})
}

// Beaten returns a channel that is closed when the next beat was answered.
func (n *Node) Beaten() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.beaten
}

// Look has the node read its row, which was changed, and then send a beat, not only when
// the next one is due. It does not wait for the beat, which is a commit.
func (n *Node) Look() {
	life, _ := n.Life()
	ctx, cancel := context.WithTimeout(n.ctx, noticePatience)
	defer cancel()
	_ = n.e.Do(ctx, func(ctx context.Context, c *engine.Conn) error { // else the beat finds it
		var draining bool
		err := c.QueryRow(ctx, `SELECT state = 'draining' FROM node WHERE life = $1`, life.ID).Scan(&draining)
		if err == nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.draining = draining
			n.renewed()
		}
		return err
	})
	select {
	case n.asked <- struct{}{}:
	default:
	}
}

// Peers returns the live nodes that the last beat found, this one among them.
func (n *Node) Peers() []Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]Peer, 0, len(n.peers))
	for _, p := range n.peers {
		list = append(list, p.Peer)
	}
	return list
}

// unwaited is a condition of a statement whose commit waits for no disk and no standby:
// where that is lost, so is all that was committed after it.
const unwaited = `set_config('synchronous_commit', 'off', true) = 'off'`

// Close ends the life: other nodes may claim its workspaces at once. The caller
// has released them, or accepts that. It waits for the node's goroutines.
func (n *Node) Close(ctx context.Context) error {
	life, _ := n.Life()
	err := n.e.Retry(ctx, func(ctx context.Context, c *engine.Conn) error {
		_, err := c.Exec(ctx, `UPDATE node SET state = 'dead', ended = now() WHERE life = $1 AND `+unwaited, life.ID)
		return err
	})
	n.abandon()
	return err
}

// abandon ends the node as a kill would: nothing is said to the engine.
func (n *Node) abandon() {
	n.stop()
	n.e.Close()
	if n.replica != nil {
		n.replica.Close()
	}
	n.wg.Wait()
}
