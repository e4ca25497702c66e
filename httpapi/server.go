package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/access"
	"umbra/internal/peer"
	"umbra/internal/telemetry"
)

// How a stop goes by: what still runs stopPatience before its end gets its context
// canceled and its body cut off, what still runs stopCut before it loses its connection,
// and what has not ended then is left alone. The rest of the ten seconds is for closing
// what lies below.
const (
	stopFresh    = 500 * time.Millisecond // since it was made, for a connection without a request
	stopPatience = time.Second
	stopCut      = 500 * time.Millisecond
	stopEnd      = 9 * time.Second // where the caller says nothing else
)

// maxHead bounds a request's head: a path of 4096 bytes, percent-encoded, and
// headers.
const maxHead = 64 << 10

// Options are the frame's settings.
type Options struct {
	Version string
	Log     *slog.Logger

	Hosts, Origins []string     // further Host names (no port), further origins
	SameUser       bool         // only processes of our own user, or root; off where Tokens are on
	Tokens         *access.Book // nil: tokens are off
	// Owner is the SHA-256 of the secret by which the owner's own verbs get in
	// where tokens are on; zero: there is none.
	Owner  [sha256.Size]byte
	Roots  []string // canonical; where a client may open workspaces
	Own    []string // canonical; workspaces of the server's own: code and output
	Hosted bool

	MaxJSON                int64 // bytes of a JSON body, where the route names no other limit
	MaxBodies              int64 // bytes that all bodies hold in memory; 0 is off
	MaxConnections         int   // open at once; 0 is off
	MaxStreams             int   // event streams open at once; 0 is off
	PerMinute, PerIPMinute int   // requests a minute, 0 is off

	Answers AnswerStore
	// Cluster decides which node answers a request; nil: there is this server alone.
	Cluster Cluster
	// Trace begins a request's span: it returns the context that the request goes on
	// with, and end is called with the answer. Nil: no traces.
	Trace func(r *http.Request, method, route, requestID string) (ctx context.Context, end func(status int, code string))
	// Requests counts what is answered, and what is open.
	Requests *telemetry.Requests
	// Ready returns why the server cannot do its work now; nil func: always ready.
	Ready func() error
	// RefsBehind counts the refs of which git sees older values; nil func: none ever.
	RefsBehind func() int
	// Processes counts the programs that run now; nil func: none ever.
	Processes func() int
}

// Server is the HTTP side of one umbra server.
type Server struct {
	opts      Options
	tokens    *access.Book
	policy    policy
	checkPeer bool
	engine    *gin.Engine
	table     *table
	perIP     *limiter
	global    *limiter
	bodies    budget
	flights   flights
	openapi   func() ([]byte, error)
	started   time.Time

	streams      context.Context // ends when the server begins to stop
	stopStreams  context.CancelFunc
	patience     context.Context // ends when it waits no longer
	stopPatience context.CancelCauseFunc
	running      inflight

	connMu  sync.Mutex
	fresh   map[net.Conn]time.Time // connected, nothing sent yet: since when
	settled chan struct{}          // has an element after a connection has become idle, or closed
	http    *http.Server
}

// New makes the server with the frame's own routes and those of the dialects.
func New(opts Options, dialects ...Dialect) (*Server, error) {
	if opts.Log == nil || opts.Answers == nil || opts.MaxJSON <= 0 {
		return nil, errors.New("httpapi: Log, Answers and MaxJSON are needed")
	}
	if opts.Requests == nil {
		opts.Requests = telemetry.NewRequests()
	}
	opts.Hosts = lowered(opts.Hosts)
	opts.Origins = lowered(opts.Origins)
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.RedirectTrailingSlash = false
	engine.RedirectFixedPath = false
	engine.HandleMethodNotAllowed = false // noRoute does, with our own shape
	engine.ForwardedByClientIP = false
	engine.UseEscapedPath = true // the path as it was sent: Param decodes it, once
	engine.UnescapePathValues = false
	engine.ContextWithFallback = false // one handed on by mistake never ends: gin reuses them
	if err := engine.SetTrustedProxies(nil); err != nil {
		return nil, err
	}
	s := &Server{
		opts: opts, engine: engine, table: newTable(engine, opts.Requests), started: time.Now(),
		tokens:  opts.Tokens,
		policy:  policy{roots: opts.Roots, own: opts.Own, hosted: opts.Hosted},
		perIP:   newLimiter(opts.PerIPMinute),
		global:  newLimiter(opts.PerMinute),
		bodies:  budget{max: opts.MaxBodies},
		flights: flights{now: map[[32]byte]*flight{}},
		fresh:   map[net.Conn]time.Time{},
		settled: make(chan struct{}, 1),
	}
	s.streams, s.stopStreams = context.WithCancel(context.Background())
	s.patience, s.stopPatience = context.WithCancelCause(context.Background())
	if s.tokens == nil {
		s.tokens = access.Fixed()
	}
	if opts.SameUser {
		if s.checkPeer = peer.Knowable(); !s.checkPeer && !s.tokens.On() {
			opts.Log.Warn("this system does not report the owner of a connection: processes of other users are let in", "key", "auth.peer")
		}
	}
	engine.Use(s.middleware()...)
	engine.NoRoute(s.table.noRoute)
	all := append([]Dialect{(*frame)(s)}, dialects...)
	root := &Router{shape: CommonShape(), t: s.table}
	if opts.Cluster != nil {
		all = append(all, opts.Cluster)
	}
	for _, d := range all {
		d.Register(root)
	}
	s.openapi = sync.OnceValues(func() ([]byte, error) { return mergeOpenAPI(all, s.table.all, opts.Version) })
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serveHTTP),
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(opts.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return s.patience },
		ConnContext:       peer.With,
		ConnState:         s.connState,
	}
	return s, nil
}

func lowered(list []string) []string {
	list = slices.Clone(list)
	for i := range list {
		list[i] = strings.ToLower(list[i])
	}
	return list
}

// ServeHTTP answers one request, for tests that need no network.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.serveHTTP(w, r) }

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	s.running.begin()
	defer s.running.end()
	s.engine.ServeHTTP(w, r)
}

// Routes lists all routes as "METHOD pattern", for the test of the document.
func (s *Server) Routes() []string {
	var list []string
	for _, rt := range s.table.all {
		list = append(list, rt.Method+" "+rt.Pattern)
	}
	return list
}

// Serve answers on l until Stop; then it returns nil at once, while Stop still
// works.
func (s *Server) Serve(l net.Listener) error {
	if err := s.http.Serve(boundedListener{l, s}); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeTLS is like Serve, by HTTPS. It may be called once, and not together with
// Serve.
func (s *Server) ServeTLS(l net.Listener, secure *tls.Config) error {
	s.http.TLSConfig = secure
	if err := s.http.ServeTLS(boundedListener{l, s}, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Stop ends the server: no new connections, streams end at once, accepted
// requests are finished, and within nine seconds all is over. It reports whether
// every handler has returned.
func (s *Server) Stop() (clean bool) { return s.StopWithin(stopEnd) }

// StopWithin is like Stop, for a caller that has another time left.
func (s *Server) StopWithin(end time.Duration) (clean bool) {
	s.stopStreams()
	patience := time.AfterFunc(end-stopPatience, func() { s.stopPatience(stoppingProblem()) })
	start := time.Now()
	if !s.closeConnections(time.After(end - stopCut)) {
		s.http.Close()
	}
	patience.Stop()
	select {
	case <-s.running.idle():
		clean = true
	case <-time.After(end - time.Since(start)):
	}
	s.stopPatience(stoppingProblem())
	return clean
}

// Refuse begins a stop that StopWithin ends: no connection is taken, streams end, and a
// connection is closed once it has no request. It waits for that until grace is over.
func (s *Server) Refuse(grace time.Duration) {
	s.stopStreams()
	s.closeConnections(time.After(grace))
}

// inflight counts the handlers that run.
type inflight struct {
	mu    sync.Mutex
	n     int
	last  time.Time     // when the last one ended
	empty chan struct{} // closed at n == 0, once there is a waiter
}

func (i *inflight) begin() {
	i.mu.Lock()
	i.n++
	i.mu.Unlock()
}

func (i *inflight) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last = time.Now()
	if i.n--; i.n == 0 && i.empty != nil {
		close(i.empty)
		i.empty = nil
	}
}

// Quiet returns for how long the server has had no request; 0 while one runs.
func (s *Server) Quiet() time.Duration {
	s.running.mu.Lock()
	defer s.running.mu.Unlock()
	switch {
	case s.running.n > 0:
		return 0
	case s.running.last.IsZero():
		return time.Since(s.started)
	}
	return time.Since(s.running.last)
}

// idle gives a channel that is closed when none runs.
func (i *inflight) idle() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := make(chan struct{})
	if i.n == 0 {
		close(c)
	} else {
		i.empty = c
	}
	return c
}
