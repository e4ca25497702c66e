package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What a node asks of replication (cluster.replication).
const (
	ReplicationSync     = "sync"     // PostgreSQL waits for a standby
	ReplicationProvider = "provider" // the storage below SQL is replicated
	ReplicationNone     = "none"     // one copy, for tests
)

const (
	// oldest is the first major version whose features the statements use.
	oldest         = 14
	connectTimeout = 2 * time.Second
	// general is how many connections there are at most in addition to the lanes' and the
	// beat's.
	general = 6
	// fresh is for how long a connection that was put back is used again without
	// asking whether its server is there.
	fresh = time.Second
)

// Errors of a connection attempt: the server answers, and is not the one that
// takes commits.
var (
	errStandby  = errors.New("the server is a standby")
	errOlder    = errors.New("the server is a former primary")
	errReadOnly = errors.New("the server is read-only")
	errVersion  = errors.New("the server's version is too old")

	errNoCancel = errors.New("statements are not canceled")
)

// engine is the connections to PostgreSQL. It is safe for concurrent use.
type engine struct {
	cfg  *pgx.ConnConfig
	mode string

	// timeline is the highest seen; a server with a lower one is a primary that
	// was replaced.
	timeline atomic.Int64

	mu    sync.Mutex
	open  map[*conn]bool
	idle  []*conn
	down  bool
	slots chan struct{} // of the general connections
}

// conn is one connection. It is used by one goroutine at a time.
type conn struct {
	*pgx.Conn
	net     net.Conn
	server  server
	noticed atomic.Bool // the server sent a warning since it was cleared
	dropped atomic.Bool
	used    time.Time // when it was put back
}

// alive reports whether the server still answers on the connection.
func (c *conn) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.Ping(ctx) == nil
}

// gone reports whether the connection can no longer be used.
func (c *conn) gone() bool { return c.dropped.Load() || c.IsClosed() }

// server is what a connection found at its other end.
type server struct {
	version  int   // 150004
	timeline int64 // of the log it writes
	started  string
	settings settings
	standbys int // that are connected, as far as the role may see
}

// same reports whether both are one run of one server.
func (s server) same(o server) bool { return s.started == o.started && s.timeline == o.timeline }

// settings decide whether an acknowledged commit is replicated.
type settings struct{ standbys, fsync, pages string }

// off names the setting that makes an acknowledged commit unsafe, and its value.
func (s settings) off(mode string) (name, value string, off bool) {
	if mode != ReplicationSync {
		return "", "", false
	}
	switch {
	case strings.TrimSpace(s.standbys) == "":
		return "synchronous_standby_names", "empty", true
	case s.fsync != "on":
		return "fsync", s.fsync, true
	case s.pages != "on":
		return "full_page_writes", s.pages, true
	}
	return "", "", false
}

func newEngine(url, mode string) (*engine, error) {
	cfg, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"synchronous_commit": "on", "default_transaction_isolation": "read committed", "default_transaction_read_only": "off",
		// A statement that ends at a timeout has committed all the same, without the
		// standby.
		"statement_timeout": "0", "lock_timeout": "0",
		// A transaction of two round trips whose client is paused would hold its locks.
		"idle_in_transaction_session_timeout": "1000",
		"application_name":                    "umbra",
	} {
		cfg.RuntimeParams[name] = value
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	dialer := &net.Dialer{Control: giveUpEarly, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3}}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
		defer cancel()
		return dialer.DialContext(ctx, network, address)
	}
	return &engine{cfg: cfg, mode: mode, open: map[*conn]bool{}, slots: make(chan struct{}, general)}, nil
}

// dial opens a connection to the server that takes commits. It tries all hosts.
func (e *engine) dial(ctx context.Context) (*conn, error) { return e.dialAt(ctx, e.cfg) }

func (e *engine) dialAt(ctx context.Context, cfg *pgx.ConnConfig) (*conn, error) {
	c := &conn{}
	cfg = cfg.Copy()
	cfg.ValidateConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		found, err := examine(ctx, pg)
		if err != nil {
			return err
		}
		for {
			highest := e.timeline.Load()
			if found.timeline < highest {
				return errOlder
			}
			if found.timeline == highest || e.timeline.CompareAndSwap(highest, found.timeline) {
				break
			}
		}
		c.server, c.net = found, pg.Conn()
		return nil
	}
	// pgx asks the server to cancel what runs when a connection breaks, over a
	// connection of its own: a commit that waits for the standby would end without
	// it.
	var connected atomic.Bool
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() && mutant != cancelAppend {
			return nil, errNoCancel
		}
		return dial(ctx, network, address)
	}
	defer connected.Store(true)
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" || n.Severity == "WARNING" {
			c.noticed.Store(true)
		}
	}
	pg, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c.Conn = pg
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down {
		_ = c.net.Close()
		return nil, ErrClosed
	}
	e.open[c] = true
	return c, nil
}

// connectedStandbys counts the standbys that a commit may wait for. Without
// pg_monitor a role does not see their state, but sees them.
const connectedStandbys = `(SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum'))`

// examine asks a server whether it takes commits, and how.
func examine(ctx context.Context, pg *pgconn.PgConn) (server, error) {
	results, err := pg.Exec(ctx, `SELECT current_setting('server_version_num'), pg_is_in_recovery(),
		CASE WHEN pg_is_in_recovery() THEN '0' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
		pg_postmaster_start_time()::text, current_setting('transaction_read_only'),
		current_setting('synchronous_standby_names'), current_setting('fsync'), current_setting('full_page_writes'),
		`+connectedStandbys).ReadAll()
	if err != nil {
		return server{}, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return server{}, errors.New("the server does not describe itself")
	}
	row := make([]string, 9)
	for i, value := range results[0].Rows[0] {
		row[i] = string(value)
	}
	s := server{started: row[3], settings: settings{row[5], row[6], row[7]}}
	if s.version, err = strconv.Atoi(row[0]); err != nil {
		return server{}, err
	}
	if s.timeline, err = strconv.ParseInt(row[2], 16, 64); err != nil {
		return server{}, err
	}
	if s.standbys, err = strconv.Atoi(row[8]); err != nil {
		return server{}, err
	}
	switch {
	case s.version/10000 < oldest:
		return server{}, fmt.Errorf("%w: %d", errVersion, s.version/10000)
	case row[1] == "t":
		return server{}, errStandby
	case row[4] == "on":
		return server{}, errReadOnly
	}
	return s, nil
}

// survey connects to each host by itself, so that the highest timeline is seen
// whichever order the hosts have, and returns the server to use.
func (e *engine) survey(ctx context.Context) (server, error) {
	type answer struct {
		server server
		err    error
	}
	each := e.eachHost()
	answers := make(chan answer, len(each))
	for _, cfg := range each {
		go func() {
			c, err := e.dialAt(ctx, cfg)
			if err != nil {
				answers <- answer{err: err}
				return
			}
			e.drop(c)
			answers <- answer{server: c.server}
		}()
	}
	best, failed := server{}, error(nil)
	for range each {
		a := <-answers
		switch {
		case a.err != nil:
			failed = errors.Join(failed, a.err)
		case a.server.timeline > best.timeline:
			best = a.server
		}
	}
	if best.timeline == 0 {
		return best, failed
	}
	return best, nil
}

func (e *engine) eachHost() []*pgx.ConnConfig {
	var list []*pgx.ConnConfig
	last := ""
	add := func(f *pgconn.FallbackConfig) {
		at := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
		if at == last { // once more without TLS
			list[len(list)-1].Fallbacks = append(list[len(list)-1].Fallbacks, f)
			return
		}
		last = at
		cfg := e.cfg.Copy()
		cfg.Host, cfg.Port, cfg.TLSConfig, cfg.Fallbacks = f.Host, f.Port, f.TLSConfig, nil
		list = append(list, cfg)
	}
	add(&pgconn.FallbackConfig{Host: e.cfg.Host, Port: e.cfg.Port, TLSConfig: e.cfg.TLSConfig})
	for _, f := range e.cfg.Fallbacks {
		add(f)
	}
	return list
}

// drop closes a connection without asking the server to cancel what runs on it.
func (e *engine) drop(c *conn) {
	c.dropped.Store(true)
	_ = c.net.Close()
	e.mu.Lock()
	delete(e.open, c)
	e.mu.Unlock()
}

// cut ends all connections that do not lead to the given server. Statements in
// flight on them end with an error, and their outcome is unknown.
func (e *engine) cut(keep server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.open {
		if !c.server.same(keep) {
			_ = c.net.Close()
		}
	}
}

// close ends all connections, and all later attempts.
func (e *engine) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = true
	for c := range e.open {
		_ = c.net.Close()
	}
	e.idle = nil
}

// do runs f on a general connection. f's context never ends: a statement that
// writes must not be canceled. If ctx ends first, do returns errSent, or
// errBusy if f had not begun, and f goes on by itself. f must not use what its
// caller may touch after do returned.
func (e *engine) do(ctx context.Context, f func(context.Context, *conn) error) error {
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return errBusy
	}
	done := make(chan error, 1)
	var begun atomic.Bool
	go func() {
		defer func() { <-e.slots }()
		c, err := e.take(ctx)
		if err != nil {
			done <- errors.Join(errBusy, err)
			return
		}
		begun.Store(true)
		c.noticed.Store(false)
		err = f(context.Background(), c)
		if c.gone() || c.PgConn().TxStatus() != 'I' {
			e.drop(c)
		} else {
			e.put(c)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if begun.Load() {
			return errSent
		}
		return errBusy
	}
}

func (e *engine) take(ctx context.Context) (*conn, error) {
	for {
		e.mu.Lock()
		if e.down {
			e.mu.Unlock()
			return nil, ErrClosed
		}
		if len(e.idle) == 0 {
			e.mu.Unlock()
			return e.dial(ctx)
		}
		c := e.idle[len(e.idle)-1]
		e.idle = e.idle[:len(e.idle)-1]
		e.mu.Unlock()
		if c.server.timeline == e.timeline.Load() && (time.Since(c.used) < fresh || c.alive(ctx)) {
			return c, nil
		}
		e.drop(c)
	}
}

func (e *engine) put(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down {
		_ = c.net.Close()
		delete(e.open, c)
		return
	}
	c.used = time.Now()
	e.idle = append(e.idle, c)
}

// pipeline sends statements in one round trip and one transaction, and reports
// an outcome that is not certain as an error: the answers of the statements come
// before that of the commit.
func (c *conn) pipeline(ctx context.Context, fill func(*pgx.Batch)) error {
	c.noticed.Store(false)
	b := &pgx.Batch{}
	fill(b)
	if err := c.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if c.noticed.Load() {
		return errSent
	}
	return nil
}

// again reports whether a statement failed for a reason that another attempt may
// not meet, and did nothing.
func again(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// refused reports whether the server answered a statement with an error: nothing
// was done.
func refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	// Class 57 ends the session, perhaps in the middle of a commit.
	return ok && !strings.HasPrefix(pg.Code, "57") && pg.Severity != "FATAL" && pg.Severity != "PANIC"
}

// retry repeats do while its transaction had to be given up, and nothing else.
func (e *engine) retry(ctx context.Context, f func(context.Context, *conn) error) error {
	for {
		err := e.do(ctx, f)
		if !again(err) || ctx.Err() != nil {
			return err
		}
	}
}
