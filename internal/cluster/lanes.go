package cluster

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"umbra/gitstore/sink"
	"umbra/internal/cluster/engine"
	"umbra/internal/cluster/recordrow"
)

const (
	// laneCount is how many statements that append are on their way at most: while
	// one waits for the standby the next is collected.
	laneCount = 3
	// A statement has at most so many groups and about so many bytes.
	laneGroups = 256
	laneBytes  = 4 << 20
)

// lanes append the groups of all workspaces of a node: each lane takes what has
// queued and sends it in one statement. A workspace has one group at a time.
//
// A lane keeps a group until its outcome is certain, whatever happens to
// connections and servers: it resolves, and sends the same group again. Its
// caller may have stopped waiting by then.
type lanes struct {
	n *Node

	mu     sync.Mutex
	more   sync.Cond // the queue, or the state of the engine, has changed
	queue  []*group
	closed bool
}

// group is a row of the journal on its way.
type group struct {
	ws                string
	epoch, pos, nonce int64
	data              []byte
	records           []sink.Record

	doubt  bool       // the lane's: a statement with the group ended without an answer
	sent   bool       // under lanes.mu: a statement may be on its way
	gone   bool       // under lanes.mu: withdrawn before it was sent
	result chan error // buffered; nil, or an error of package sink
}

func newLanes(n *Node) *lanes {
	l := &lanes{n: n}
	l.more.L = &l.mu
	for range laneCount {
		n.wg.Go(l.run)
	}
	context.AfterFunc(n.ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.closed = true
		l.more.Broadcast()
	})
	return l
}

func (l *lanes) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.more.Broadcast()
}

// append makes a group durable. It returns nil, or an error of package sink: a
// refusal is certain, anything else leaves the group to the lane.
func (l *lanes) append(g *group, within time.Duration) error {
	g.result = make(chan error, 1)
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return l.n.refusal()
	}
	l.queue = append(l.queue, g)
	l.more.Signal()
	l.mu.Unlock()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case err := <-g.result:
		return err
	case <-timer.C:
	case <-l.n.ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !g.sent {
		g.gone = true
		return l.n.refusal()
	}
	select {
	case err := <-g.result:
		return err
	default:
	}
	if mutant == ackUnknown {
		return nil
	}
	return sink.Unknown(engine.ErrSent)
}

// refusal returns why the engine takes no appends.
func (n *Node) refusal() error {
	switch reason := n.Engine().Reason; reason {
	case "replication_off":
		return sink.ReplicationOff(nil)
	case "":
		return sink.Unavailable("unreachable", nil)
	default:
		return sink.Unavailable(reason, nil)
	}
}

// take returns what the next statement appends; nil once the node is closed.
func (l *lanes) take() []*group {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if l.closed {
			return nil
		}
		if reason := l.n.Engine().Reason; reason == "replication_off" {
			for _, g := range l.queue {
				g.result <- sink.ReplicationOff(nil)
			}
			l.queue = nil
		} else if reason == "" {
			if batch := l.batch(); len(batch) > 0 {
				return batch
			}
		}
		l.more.Wait()
	}
}

// batch takes groups from the queue; the caller holds mu.
func (l *lanes) batch() (batch []*group) {
	size, i := 0, 0
	for ; i < len(l.queue) && len(batch) < laneGroups && size < laneBytes; i++ {
		g := l.queue[i]
		if g.gone {
			continue
		}
		// One statement cannot write a row twice.
		if len(batch) > 0 && len(g.records) > 0 && sharesRecord(batch, g) {
			break
		}
		size += len(g.data)
		batch = append(batch, g)
	}
	l.queue = append([]*group(nil), l.queue[i:]...)
	if len(l.queue) > 0 {
		l.more.Signal()
	}
	return batch
}

func sharesRecord(batch []*group, g *group) bool {
	for _, other := range batch {
		for _, r := range other.records {
			for _, s := range g.records {
				if r.Bucket == s.Bucket && bytes.Equal(r.Key, s.Key) {
					return true
				}
			}
		}
	}
	return false
}

func (l *lanes) run() {
	var c *engine.Conn
	for {
		batch := l.take()
		if batch == nil {
			break
		}
		c = l.settle(c, batch, false)
	}
	if c != nil {
		l.n.e.Drop(c)
	}
}

// settle appends a batch until the outcome of each group is certain. sent says
// that a statement with the groups may be on its way. settle returns the
// connection to go on with.
func (l *lanes) settle(c *engine.Conn, batch []*group, sent bool) *engine.Conn {
	for len(batch) > 0 {
		if c = l.connected(c); c == nil {
			return nil
		}
		if sent {
			rest, err := l.resolve(c, batch)
			if err != nil {
				if !engine.Again(err) {
					l.n.e.Drop(c)
				}
				if !l.n.pause(20 * time.Millisecond) {
					return c
				}
				continue
			}
			if batch = rest; len(batch) == 0 {
				break
			}
		}
		if !sent {
			if batch = l.mark(batch); len(batch) == 0 {
				break
			}
		}
		sent = true
		l.n.opts.at("append")
		stands, err := l.send(c, batch)
		l.n.opts.at("appended")
		switch {
		case engine.Again(err): // it did nothing
		case engine.Refused(err):
			if len(batch) > 1 {
				for _, g := range batch {
					c = l.settle(c, []*group{g}, g.doubt)
				}
				return c
			}
			l.n.opts.Log.Error("the engine refuses a group", "workspace", batch[0].ws, "position", batch[0].pos, "error", err)
			if !batch[0].doubt {
				batch[0].result <- sink.Unavailable("unreachable", err)
				return c
			}
			if !l.n.pause(time.Second) {
				return c
			}
		case mutant == cancelAppend && errors.Is(err, context.DeadlineExceeded):
			for _, g := range batch {
				g.result <- sink.Unavailable("unreachable", err)
			}
			return c
		case err != nil:
			for _, g := range batch {
				g.doubt = true
			}
			l.n.e.Drop(c)
		default:
			batch = slices.DeleteFunc(batch, func(g *group) bool {
				done := stands[g.ws] == g.pos
				if done {
					g.result <- nil
				}
				return done
			})
		}
	}
	return c
}

// mark notes that groups are about to be sent, and leaves out those whose callers
// have stopped waiting: these were refused.
func (l *lanes) mark(batch []*group) []*group {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch = slices.DeleteFunc(batch, func(g *group) bool { return g.gone })
	for _, g := range batch {
		g.sent = true
	}
	return batch
}

// connected returns c if it can be used, else another connection; nil once the
// node ends, when no caller waits any more.
func (l *lanes) connected(c *engine.Conn) *engine.Conn {
	if c != nil && !c.Gone() {
		return c
	}
	if c != nil {
		l.n.e.Drop(c)
	}
	for {
		c, err := l.n.e.Dial(l.n.ctx)
		if err == nil {
			return c
		}
		if l.n.ctx.Err() == nil {
			l.n.engineFailed(err)
		}
		if !l.n.pause(100 * time.Millisecond) {
			return nil
		}
	}
}

// The join takes the rows of the workspaces under a lock that a claim waits for,
// in the order of their ids: statements of several lanes wait for each other in
// one order. A group of an epoch that is over joins nothing and drops out alone.
const (
	appendHead = `WITH added AS (
		INSERT INTO journal (ws, pos, epoch, nonce, data)
		SELECT i.ws, i.pos, i.epoch, i.nonce, i.data
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bytea[]) AS i (ws, pos, epoch, nonce, data)
		JOIN (SELECT id, epoch FROM workspace WHERE id = ANY ($1) ORDER BY id FOR SHARE) w ON w.id = i.ws AND w.epoch = i.epoch
		ON CONFLICT DO NOTHING
		RETURNING ws, pos)`
	appendTail = ` SELECT ws, pos, current_setting('synchronous_standby_names') FROM added`

	appendGroups  = appendHead + appendTail
	appendRecords = appendHead + `, put AS (
		INSERT INTO record (key, value)
		SELECT r.key, r.value
		FROM unnest($6::text[], $7::bytea[], $8::bytea[]) AS r (ws, key, value)
		JOIN added ON added.ws = r.ws WHERE r.value IS NOT NULL
		ON CONFLICT (key) DO UPDATE SET value = excluded.value` + recordrow.UnlessUsed + `),
	removed AS (
		DELETE FROM record USING unnest($6::text[], $7::bytea[], $8::bytea[]) AS r (ws, key, value), added
		WHERE record.key = r.key AND added.ws = r.ws AND r.value IS NULL)` + appendTail
)

// send appends a batch in one statement, and returns the positions of those that
// are durable. Of the others nothing is known.
func (l *lanes) send(c *engine.Conn, batch []*group) (map[string]int64, error) {
	n := len(batch)
	ws, pos, epoch, nonce, data := make([]string, n), make([]int64, n), make([]int64, n), make([]int64, n), make([][]byte, n)
	var r recordArrays
	for i, g := range batch {
		ws[i], pos[i], epoch[i], nonce[i], data[i] = g.ws, g.pos, g.epoch, g.nonce, g.data
		r.add(g)
	}
	statement, args := appendGroups, []any{ws, pos, epoch, nonce, data}
	if len(r.ws) > 0 {
		statement, args = appendRecords, append(args, r.ws, r.key, r.value)
	}
	statement = unfence(statement)
	ctx := context.Background()
	if mutant == cancelAppend {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	c.Noticed.Store(false)
	rows, err := c.Query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	stands := make(map[string]int64, n)
	var id, names string
	var at int64
	if _, err = pgx.ForEachRow(rows, []any{&id, &at, &names}, func() error {
		stands[id] = at
		return nil
	}); err != nil {
		return nil, err
	}
	if len(stands) > 0 && (c.Noticed.Load() || l.n.unsafe(names)) {
		return nil, sink.ErrUnknown
	}
	return stands, nil
}

// unsafe reports whether the engine did not wait for a standby when a statement
// ran.
func (n *Node) unsafe(names string) bool {
	if _, _, off := n.off(engine.Settings{Standbys: names, FSync: "on", Pages: "on"}); !off {
		return false
	}
	n.setReason("replication_off")
	return true
}

// recordArrays are the records of a batch, as the statement takes them.
type recordArrays struct {
	ws         []string
	key, value [][]byte
}

func (r *recordArrays) add(g *group) {
	last := make(map[string]int, len(g.records)) // a later value of a key is the one that stays
	for i, rec := range g.records {
		last[string(recordrow.Key(rec.Bucket, string(rec.Key)))] = i
	}
	for i, rec := range g.records {
		if key := recordrow.Key(rec.Bucket, string(rec.Key)); last[string(key)] == i {
			r.ws, r.key, r.value = append(r.ws, g.ws), append(r.key, key), append(r.value, recordrow.PackValue(rec.Bucket, string(rec.Key), rec.Value))
		}
	}
}

// resolveGroups writes on purpose: a row that a crashed primary had written for
// itself is visible to a SELECT before any standby has it, and this statement
// waits for one.
const resolveGroups = `UPDATE workspace w SET epoch = w.epoch
	FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS i (ws, epoch, pos)
	WHERE w.id = i.ws AND w.epoch = i.epoch
	RETURNING w.id, (SELECT nonce FROM journal j WHERE j.ws = i.ws AND j.pos = i.pos), current_setting('synchronous_standby_names')`

// readGroups is what resolveGroups must not be.
const readGroups = `SELECT w.id, (SELECT nonce FROM journal j WHERE j.ws = i.ws AND j.pos = i.pos), current_setting('synchronous_standby_names')
	FROM workspace w JOIN unnest($1::text[], $2::bigint[], $3::bigint[]) AS i (ws, epoch, pos) ON w.id = i.ws AND w.epoch = i.epoch`

// resolve answers the groups whose outcome is certain now, and returns those to
// send again: they are not in the log, or a twin that is on its way may still
// write them, which the next resolve sees.
func (l *lanes) resolve(c *engine.Conn, batch []*group) ([]*group, error) {
	n := len(batch)
	ws, epoch, pos := make([]string, n), make([]int64, n), make([]int64, n)
	for i, g := range batch {
		ws[i], epoch[i], pos[i] = g.ws, g.epoch, g.pos
	}
	l.n.opts.at("resolve")
	statement := resolveGroups
	if mutant == resolveByRead {
		statement = readGroups
	}
	c.Noticed.Store(false)
	rows, err := c.Query(context.Background(), unfence(statement), ws, epoch, pos)
	if err != nil {
		return nil, err
	}
	nonces := make(map[string]*int64, n)
	var id, names string
	var nonce *int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &nonce, &names}, func() error {
		nonces[id] = nonce
		return nil
	}); err != nil {
		return nil, err
	}
	if len(nonces) > 0 && (c.Noticed.Load() || l.n.unsafe(names)) {
		return nil, sink.ErrUnknown
	}
	var rest []*group
	for _, g := range batch {
		nonce, owned := nonces[g.ws]
		switch {
		case owned && nonce != nil && *nonce == g.nonce:
			g.result <- nil
		case owned && nonce == nil:
			rest = append(rest, g)
		default:
			g.result <- sink.Fenced(!g.doubt, nil)
		}
	}
	return rest, nil
}

// unfence leaves the epoch out where a mutant does.
func unfence(statement string) string {
	switch mutant {
	case positionOnly:
		statement = strings.ReplaceAll(statement, "AND w.epoch = i.epoch", "")
	case noEpoch:
		if strings.Contains(statement, "INSERT INTO journal") {
			statement = strings.ReplaceAll(statement, "AND w.epoch = i.epoch", "")
		}
	}
	return statement
}
