// Package engine is a node's connections to PostgreSQL: to the server that takes
// commits, wherever it is, and how sure the answer to a statement is.
//
// It knows no table. Statements are sent so that none that writes is ever canceled,
// and an outcome that is not certain is an error: ErrSent.
package engine

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// Oldest is the first major version whose features the statements use.
	Oldest = 14
	// ConnectTimeout bounds an attempt to connect to one server.
	ConnectTimeout = 2 * time.Second
	// general is how many connections there are at most in addition to the lanes' and the
	// beat's.
	general = 6
)

// Errors of a connection attempt: the server answers, and is not the one that
// takes commits.
var (
	ErrStandby  = errors.New("the server is a standby")
	ErrOlder    = errors.New("the server is a former primary")
	ErrReadOnly = errors.New("the server is read-only")

	errNoCancel = errors.New("statements are not canceled")
)

// Engine is the connections to PostgreSQL. It is safe for concurrent use.
type Engine struct {
	cfg     *pgx.ConnConfig
	cancels bool // pgx cancels statements, which the cluster never may
	replica bool // any server serves, for reads

	// timeline is the highest seen; a server with a lower one is a primary that
	// was replaced.
	timeline atomic.Int64

	mu    sync.Mutex
	open  map[*Conn]bool
	down  bool
	slots chan struct{} // of the general connections
	pool  *Pool         // the general connections
}

// Conn is one connection. It is used by one goroutine at a time.
type Conn struct {
	*pgx.Conn
	net     net.Conn
	Server  Server
	Noticed atomic.Bool // the server sent a warning since it was cleared
	dropped atomic.Bool
	used    time.Time // when it was put back
}

// Alive reports whether the server still answers on the connection.
func (c *Conn) Alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout)
	defer cancel()
	return c.Ping(ctx) == nil
}

// Abort ends a connection: the server goes on with what runs on it, and the outcome
// is unknown.
func (c *Conn) Abort() { _ = c.net.Close() }

// CountStandbys sets Server.Standbys.
func (c *Conn) CountStandbys(ctx context.Context) error {
	return c.QueryRow(ctx, `SELECT `+ConnectedStandbys).Scan(&c.Server.Standbys)
}

// Gone reports whether the connection can no longer be used.
func (c *Conn) Gone() bool { return c.dropped.Load() || c.IsClosed() }

// Server is what a connection found at its other end.
type Server struct {
	Version  int   // 150004
	Timeline int64 // of the log it writes
	started  string
	Settings Settings
	Standbys int // that are connected, as far as the role may see: set by Survey and CountStandbys
}

// Same reports whether both are one run of one server.
func (s Server) Same(o Server) bool { return s.started == o.started && s.Timeline == o.Timeline }

// Settings decide whether an acknowledged commit is replicated.
type Settings struct{ Standbys, FSync, Pages string }

// Off names the setting that lets the server answer a commit without a replica, or
// without its own disk, and its value.
func (s Settings) Off() (name, value string, off bool) {
	switch {
	case strings.TrimSpace(s.Standbys) == "":
		return "synchronous_standby_names", "empty", true
	case s.FSync != "on":
		return "fsync", s.FSync, true
	case s.Pages != "on":
		return "full_page_writes", s.Pages, true
	}
	return "", "", false
}

// New returns the connections to the servers that a URL names, and opens none.
// cancels lets pgx cancel what a broken connection was waiting for, for tests of the
// tests. Errors: a Refusal.
func New(url string, cancels bool) (*Engine, error) {
	return newEngine(url, "cluster.url", cancels)
}

// NewReplica is New for servers that are only read from: standbys serve as well, and
// their state may be older than what was committed.
func NewReplica(url string) (*Engine, error) {
	e, err := newEngine(url, "cluster.read_url", false)
	if err == nil {
		e.replica = true
	}
	return e, err
}

func newEngine(url, setting string, cancels bool) (*Engine, error) {
	cfg, err := parseURL(url, setting)
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
		cfg.ConnectTimeout = ConnectTimeout
	}
	dialer := &net.Dialer{Control: giveUpEarly, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 2 * time.Second, Interval: time.Second, Count: 3}}
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
		defer cancel()
		return dialer.DialContext(ctx, network, address)
	}
	e := &Engine{cfg: cfg, cancels: cancels, open: map[*Conn]bool{}, slots: make(chan struct{}, general)}
	e.pool = e.NewPool(cfg, general)
	return e, nil
}

// Config returns a copy of the settings that connections are opened with.
func (e *Engine) Config() *pgx.ConnConfig { return e.cfg.Copy() }

// Dial opens a connection to the server that takes commits. It tries all hosts.
func (e *Engine) Dial(ctx context.Context) (*Conn, error) { return e.DialAt(ctx, e.cfg) }

// DialAt opens a connection with other settings: a changed copy of Config.
func (e *Engine) DialAt(ctx context.Context, cfg *pgx.ConnConfig) (*Conn, error) {
	e.mu.Lock()
	down := e.down
	e.mu.Unlock()
	if down {
		return nil, ErrClosed
	}
	c := &Conn{}
	cfg = cfg.Copy()
	cfg.ValidateConnect = func(ctx context.Context, pg *pgconn.PgConn) error {
		found, err := examine(ctx, pg)
		if e.replica && (errors.Is(err, ErrStandby) || errors.Is(err, ErrReadOnly)) {
			err = nil
		}
		if err != nil {
			return err
		}
		for !e.replica {
			highest := e.timeline.Load()
			if found.Timeline < highest {
				return ErrOlder
			}
			if found.Timeline == highest || e.timeline.CompareAndSwap(highest, found.Timeline) {
				break
			}
		}
		c.Server, c.net = found, pg.Conn()
		return nil
	}
	// pgx asks the server to cancel what runs when a connection breaks, over a
	// connection of its own: a commit that waits for the standby would end without
	// it.
	var connected atomic.Bool
	dial := cfg.DialFunc
	cfg.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() && !e.cancels {
			return nil, errNoCancel
		}
		return dial(ctx, network, address)
	}
	defer connected.Store(true)
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" || n.Severity == "WARNING" {
			c.Noticed.Store(true)
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

// ConnectedStandbys counts the standbys that a commit may wait for. Without
// pg_monitor a role does not see their state, but sees them.
const ConnectedStandbys = `(SELECT count(*) FROM pg_stat_replication WHERE sync_state IS NULL OR sync_state IN ('sync', 'quorum'))`

// examine asks a server whether it takes commits, and how.
func examine(ctx context.Context, pg *pgconn.PgConn) (Server, error) {
	results, err := pg.Exec(ctx, `SELECT current_setting('server_version_num'), pg_is_in_recovery(),
		CASE WHEN pg_is_in_recovery() THEN '0' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
		pg_postmaster_start_time()::text, current_setting('transaction_read_only'),
		current_setting('synchronous_standby_names'), current_setting('fsync'), current_setting('full_page_writes')`).ReadAll()
	if err != nil {
		return Server{}, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return Server{}, errors.New("the server does not describe itself")
	}
	row := make([]string, 8)
	for i, value := range results[0].Rows[0] {
		row[i] = string(value)
	}
	s := Server{started: row[3], Settings: Settings{row[5], row[6], row[7]}}
	if s.Version, err = strconv.Atoi(row[0]); err != nil {
		return Server{}, err
	}
	if s.Timeline, err = strconv.ParseInt(row[2], 16, 64); err != nil {
		return Server{}, err
	}
	switch {
	case s.Version/10000 < Oldest:
		return Server{}, Refuse("engine_version", nil, "PostgreSQL %d is too old; %d is needed.", s.Version/10000, Oldest)
	case row[1] == "t":
		return s, ErrStandby
	case row[4] == "on":
		return s, ErrReadOnly
	}
	return s, nil
}

// Survey connects to each host by itself, so that the highest timeline is seen
// whichever order the hosts have, and returns the server to use.
func (e *Engine) Survey(ctx context.Context) (Server, error) {
	type answer struct {
		server Server
		err    error
	}
	each := e.eachHost()
	answers := make(chan answer, len(each))
	for _, cfg := range each {
		go func() {
			c, err := e.DialAt(ctx, cfg)
			if err != nil {
				answers <- answer{err: err}
				return
			}
			err = c.CountStandbys(ctx)
			e.Drop(c)
			answers <- answer{server: c.Server, err: err}
		}()
	}
	best, failed := Server{}, error(nil)
	for range each {
		a := <-answers
		switch {
		case a.err != nil:
			failed = errors.Join(failed, a.err)
		case a.server.Timeline > best.Timeline:
			best = a.server
		}
	}
	if best.Timeline == 0 {
		return best, failed
	}
	return best, nil
}

func (e *Engine) eachHost() []*pgx.ConnConfig {
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

// Drop closes a connection without asking the server to cancel what runs on it.
func (e *Engine) Drop(c *Conn) {
	c.dropped.Store(true)
	_ = c.net.Close()
	e.mu.Lock()
	delete(e.open, c)
	e.mu.Unlock()
}

// Cut ends all connections that do not lead to the given server. Statements in
// flight on them end with an error, and their outcome is unknown.
func (e *Engine) Cut(keep Server) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.open {
		if !c.Server.Same(keep) {
			_ = c.net.Close()
		}
	}
}

// Close ends all connections, and all later attempts.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.down = true
	for c := range e.open {
		_ = c.net.Close()
	}
}

// Put keeps a connection that Dial returned for Do.
func (e *Engine) Put(c *Conn) { e.pool.Put(c) }

// Do runs f on a general connection. f's context never ends: a statement that
// writes must not be canceled. If ctx ends first, Do returns ErrSent, or
// ErrBusy if f had not begun, and f goes on by itself. f must not use what its
// caller may touch after Do returned.
func (e *Engine) Do(ctx context.Context, f func(context.Context, *Conn) error) error {
	select {
	case e.slots <- struct{}{}:
	case <-ctx.Done():
		return ErrBusy
	}
	done := make(chan error, 1)
	var begun atomic.Bool
	go func() {
		defer func() { <-e.slots }()
		c, err := e.pool.Take(ctx)
		if err != nil {
			done <- errors.Join(ErrBusy, err)
			return
		}
		begun.Store(true)
		c.Noticed.Store(false)
		err = f(context.Background(), c)
		e.pool.Put(c)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if begun.Load() {
			return ErrSent
		}
		return ErrBusy
	}
}

// Pipeline sends statements in one round trip and one transaction, and reports
// an outcome that is not certain as an error: the answers of the statements come
// before that of the commit.
func (c *Conn) Pipeline(ctx context.Context, fill func(*pgx.Batch)) error {
	c.Noticed.Store(false)
	b := &pgx.Batch{}
	fill(b)
	if err := c.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	if c.Noticed.Load() {
		return ErrSent
	}
	return nil
}

// Again reports whether a statement failed for a reason that another attempt may
// not meet, and did nothing.
func Again(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// Refused reports whether the server answered a statement with an error: nothing
// was done.
func Refused(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	// Class 57 ends the session, perhaps in the middle of a commit.
	return ok && !strings.HasPrefix(pg.Code, "57") && pg.Severity != "FATAL" && pg.Severity != "PANIC"
}

// Retry repeats Do while its transaction had to be given up, and nothing else.
func (e *Engine) Retry(ctx context.Context, f func(context.Context, *Conn) error) error {
	for {
		err := e.Do(ctx, f)
		if !Again(err) || ctx.Err() != nil {
			return err
		}
	}
}
