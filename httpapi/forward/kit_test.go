package forward

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/access"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/testlog"
	"umbra/internal/witness"
)

// world is a cluster without an engine: its state is in memory, and tests break it.
type world struct {
	t *testing.T

	mu     monitor
	owner  map[string]string // workspace → node
	epoch  map[string]int64
	values map[string][]string // commits of a workspace: what is in its one file
	nodes  []*fakeNode
	engine bool   // it answers
	claims bool   // a handler may claim
	as     string // the workspace that a name is taken for
}

// monitor is a lock of a state that is waited for: Unlock wakes who waits.
type monitor struct {
	sync.Mutex
	changed chan struct{}
}

func (m *monitor) Unlock() {
	if m.changed != nil {
		close(m.changed)
		m.changed = nil
	}
	m.Mutex.Unlock()
}

// release unlocks without a change, and returns what is closed after the next one.
func (m *monitor) release() <-chan struct{} {
	if m.changed == nil {
		m.changed = make(chan struct{})
	}
	changed := m.changed
	m.Mutex.Unlock()
	return changed
}

func newWorld(t *testing.T, names ...string) *world {
	w := &world{t: t, owner: map[string]string{}, epoch: map[string]int64{}, values: map[string][]string{}, engine: true, claims: true}
	for _, name := range names {
		w.start(name)
	}
	return w
}

// fakeNode is one server of it.
type fakeNode struct {
	w        *world
	name     string
	address  string
	life     int64
	former   int64 // of the life before, while the lists of nodes still have it; 0: they do not
	lease    bool
	forgot   []string // nodes
	looked   int
	draining bool
	dead     bool
	unseen   bool // no beat has found it yet
	f        *Forwarder
	server   *httpapi.Server
	log      *testlog.Buffer
	handled  map[string]int // by workspace
	// before, if set, is called by the handler before it does anything.
	before func(c *gin.Context, ws string) error
	// after is called after a write was done and before it is answered.
	after func(c *gin.Context)
	stale map[string][]string // what a node that was deposed still shows
}

func (w *world) start(name string, change ...func(*Options)) *fakeNode {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	n := &fakeNode{w: w, name: name, address: "http://" + l.Addr().String(), life: int64(len(w.nodes) + 1), lease: true, handled: map[string]int{}, log: &testlog.Buffer{}, stale: map[string][]string{}}
	log := slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	o := Options{Node: n, Wait: time.Second, StaleReads: true, Reach: n.reach, Log: log, Known: n.known, Tip: n.tip}
	for _, c := range change {
		c(&o)
	}
	n.f = New(o)
	answers, err := state.OpenAnswers(state.NewMemory(), filepath.Join(w.t.TempDir(), "answers"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := answers.Close(); err != nil {
			w.t.Error(err)
		}
	})
	secret := sha256.Sum256([]byte("secret"))
	reader := sha256.Sum256([]byte("reader"))
	n.server, err = httpapi.New(httpapi.Options{Log: log, Answers: answers, MaxJSON: 4 << 20, Cluster: n.f,
		Tokens: access.Fixed(access.Token{Name: "alice", SHA256: secret, Scope: access.Write}, access.Token{Name: "bob", SHA256: reader, Scope: access.Read})}, n)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.nodes = append(w.nodes, n)
	w.mu.Unlock()
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(l) }()
	w.t.Cleanup(func() {
		n.f.Close()
		l.Close()
		n.server.Stop()
		<-served
	})
	return n
}

// The node's part (Node).

func (n *fakeNode) Name() string { return n.name }
func (n *fakeNode) Key() []byte  { return []byte("the cluster's key") }

func (n *fakeNode) Peers() []Peer { return n.peers(false) }

// peers returns the live nodes; all: also those that no beat has found yet.
func (n *fakeNode) peers(all bool) (list []Peer) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for _, p := range n.w.nodes {
		if !p.dead && (all || !p.unseen) {
			list = append(list, Peer{Life: cmp.Or(p.former, p.life), Name: p.name, Address: p.address, URL: "http://" + p.name + ".example", Draining: p.draining})
		}
	}
	return list
}

func (n *fakeNode) Owner(ctx context.Context, ws string) (Owner, error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	name := n.w.owner[ws]
	if name == n.name || n.stale[ws] != nil {
		return Owner{Node: n.name, Epoch: n.w.epoch[ws], Self: true}, nil
	}
	if ctx.Err() != nil || !n.w.engine {
		return Owner{}, errs.New(errs.Unavailable, "engine_unavailable", "The engine is away.").With("reason", "unreachable")
	}
	for _, p := range n.w.nodes {
		if p.name == name && !p.dead {
			return Owner{Node: p.name, Address: p.address, URL: "http://" + p.name + ".example", Life: p.life, Epoch: n.w.epoch[ws]}, nil
		}
	}
	return Owner{}, ErrResting
}

func (n *fakeNode) Owners(ctx context.Context, workspaces []string) (map[string]Owner, error) {
	owners := map[string]Owner{}
	for _, ws := range workspaces {
		if o, err := n.Owner(ctx, ws); err == nil && !o.Self {
			owners[ws] = o
		} else if err != nil && err != ErrResting {
			return nil, err
		}
	}
	return owners, nil
}

func (n *fakeNode) Forget(string) {}

func (n *fakeNode) ForgetNode(name string) {
	n.w.locked(func() { n.forgot = append(n.forgot, name) })
}

func (n *fakeNode) known(_ context.Context, name string) (bool, error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if !n.w.engine {
		return false, errs.New(errs.Unavailable, "engine_unavailable", "The engine is away.").With("reason", "unreachable")
	}
	return name == "gone", nil
}

func (n *fakeNode) Lease() (bool, time.Duration) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.lease, 12 * time.Second
}

func (n *fakeNode) Handover(_ context.Context, ws string) error {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.w.owner[ws] != n.name {
		return errs.New(errs.Unavailable, "owner_moving", "Not here.")
	}
	n.w.owner[ws] = ""
	return nil
}

func (n *fakeNode) Look() { n.w.locked(func() { n.looked++ }) }

func (n *fakeNode) Ready() (reads, writes error) { return nil, nil }

func (n *fakeNode) tip(ws string) (seq uint64, open bool) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return uint64(len(n.w.values[ws])), n.w.owner[ws] == n.name
}

func (n *fakeNode) reach(ctx context.Context, ws string, seq uint64) error {
	for {
		n.w.mu.Lock()
		ok := uint64(len(n.w.values[ws])) >= seq
		changed := n.w.mu.release()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// The node's handlers (httpapi.Dialect): one file for each workspace.

func (n *fakeNode) OpenAPI() []byte { return nil }

func (n *fakeNode) Register(r *httpapi.Router) {
	one := httpapi.AboutWorkspace("ws", "")
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/w/{ws}", Handler: n.get, About: one})
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/w/{ws}/long", Handler: n.long, About: one})
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/w/{ws}/stream", Handler: n.stream, About: one, Stream: true})
	r.Handle(httpapi.Route{Method: "PUT", Pattern: "/w/{ws}/{path...}?a&b", Handler: n.put, About: one, Access: httpapi.AccessWrite, Body: httpapi.BodyRaw, MaxBody: 8 << 20, Changes: true})
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/entries", Handler: n.entries, About: httpapi.AboutNone})
	r.Handle(httpapi.Route{Method: "POST", Pattern: "/new", Handler: n.make, About: httpapi.AboutNone, Access: httpapi.AccessWrite, Body: httpapi.BodyRaw, Changes: true})
	r.Handle(httpapi.Route{Method: "POST", Pattern: workPath, Handler: n.work, About: httpapi.AboutNone, Body: httpapi.BodyRaw, Internal: true})
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/as/{name}", Handler: n.as, About: func(*gin.Context) (place httpapi.Place, err error) {
		n.w.locked(func() { place.Workspace = n.w.as })
		return place, nil
	}})
	r.Handle(httpapi.Route{Method: "GET", Pattern: "/at/{node}", Handler: n.at, About: func(c *gin.Context) (httpapi.Place, error) {
		name, err := httpapi.Param(c, "node")
		return httpapi.Place{Node: name}, err
	}})
}

// entries is a list with an entry of each node.
func (n *fakeNode) entries(c *gin.Context) error {
	where := func(string) (string, error) { return "of-" + n.name, nil }
	if httpapi.Part(c) != nil {
		return httpapi.ServePart(c, []string{n.name}, where, func(context.Context, string) (any, error) { return n.name, nil })
	}
	others, err := httpapi.Others(c)
	if err == nil {
		httpapi.JSON(c, http.StatusOK, slices.Sorted(maps.Keys(others)))
	}
	return err
}

// open claims a workspace that no node owns.
func (n *fakeNode) open(c *gin.Context) (ws string, err error) {
	if ws, err = httpapi.Param(c, "ws"); err != nil {
		return "", err
	}
	if n.before != nil {
		if err := n.before(c, ws); err != nil {
			return "", err
		}
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.handled[ws]++
	if n.w.values[ws] == nil {
		return "", errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	}
	switch owner := n.w.owner[ws]; {
	case owner == n.name:
	case n.stale[ws] != nil:
		witness.Opened(c.Request.Context(), ws, ws, uint64(len(n.stale[ws])))
		return ws, nil
	case (owner == "" || n.w.isDead(owner)) && n.w.claims:
		n.w.owner[ws] = n.name
		n.w.epoch[ws]++
	default:
		return "", errs.New(errs.Unavailable, "owner_moving", "Another node has it.")
	}
	witness.Opened(c.Request.Context(), ws, ws, uint64(len(n.w.values[ws])))
	return ws, nil
}

func (n *fakeNode) get(c *gin.Context) error {
	ws, err := n.open(c)
	if err != nil {
		return err
	}
	n.w.mu.Lock()
	list := n.w.values[ws]
	if s := n.stale[ws]; s != nil && n.w.owner[ws] != n.name {
		list = s
	}
	n.w.mu.Unlock()
	k := httpapi.CallerOf(c)
	httpapi.JSON(c, 200, map[string]any{"value": list[len(list)-1], "by": n.name, "caller": k.Token, "write": k.Scope >= access.Write,
		"id": httpapi.RequestID(c), "host": c.Request.Host, "remote": c.Request.RemoteAddr, "auth": c.GetHeader("Authorization")})
	return nil
}

func (n *fakeNode) long(c *gin.Context) error {
	if _, err := n.open(c); err != nil {
		return err
	}
	for i := range 1000 {
		if i == 500 && n.after != nil {
			n.after(c)
		}
		if _, err := c.Writer.WriteString(strings.Repeat("x", 999) + "\n"); err != nil {
			return nil
		}
		c.Writer.Flush()
	}
	return nil
}

func (n *fakeNode) put(c *gin.Context) error {
	ws, err := n.open(c)
	if err != nil {
		return err
	}
	data, err := httpapi.ReadBody(c)
	if err != nil {
		return err
	}
	if c.GetHeader("If-Match") == "other" {
		return errs.New(errs.Precondition, "precondition_failed", "It is another.")
	}
	n.w.mu.Lock()
	n.w.values[ws] = append(n.w.values[ws], string(data))
	seq := uint64(len(n.w.values[ws]))
	n.w.mu.Unlock()
	witness.Committed(c.Request.Context(), ws, seq)
	if n.after != nil {
		n.after(c)
	}
	httpapi.JSON(c, 200, map[string]any{"seq": seq, "by": n.name, "path": c.Request.RequestURI, "actor": httpapi.TagsOf(c).Actor})
	return nil
}

// work adds the body to the workspace that it names, or reads that (httpapi.ServeForOwner).
func (n *fakeNode) work(c *gin.Context) error {
	data, err := httpapi.ReadBody(c)
	if err != nil {
		return err
	}
	ws, value, writes := strings.Cut(string(data), "=")
	return httpapi.ServeForOwner(c, ws, func(ctx context.Context, progress func(httpapi.Progress)) (any, error) {
		if n.before != nil {
			if err := n.before(c, ws); err != nil {
				return nil, err
			}
		}
		progress(httpapi.Progress{Step: "begun"})
		n.w.mu.Lock()
		if n.handled[ws]++; writes {
			n.w.values[ws] = append(n.w.values[ws], value)
		}
		list := n.w.values[ws]
		n.w.mu.Unlock()
		if witness.Opened(ctx, ws, ws, uint64(len(list))); writes {
			witness.Committed(ctx, ws, uint64(len(list)))
		}
		if n.after != nil {
			n.after(c)
		}
		k := httpapi.CallerOf(c)
		return map[string]any{"by": n.name, "value": list[len(list)-1], "caller": k.Token, "roots": k.Roots, "id": httpapi.RequestID(c)}, nil
	})
}

const workPath = "/cluster/work"

func (n *fakeNode) make(c *gin.Context) error {
	httpapi.JSON(c, 201, map[string]string{"by": n.name})
	return nil
}

func (n *fakeNode) at(c *gin.Context) error {
	httpapi.JSON(c, 200, map[string]string{"by": n.name})
	return nil
}

// as finds that the name is of workspace a, which is a directory.
func (n *fakeNode) as(c *gin.Context) error {
	n.w.mu.Lock()
	n.w.as = "a"
	owner := n.w.owner["a"]
	n.w.mu.Unlock()
	if owner != n.name {
		return errs.New(errs.Forbidden, "physical_off", "The directory is another node's.")
	}
	httpapi.JSON(c, 200, map[string]string{"by": n.name})
	return nil
}

// stream sends each value as an event, and ends when the workspace has left.
func (n *fakeNode) stream(c *gin.Context) error {
	ws, err := n.open(c)
	if err != nil {
		return err
	}
	after, _, err := httpapi.LastEventID(c)
	if err != nil {
		return err
	}
	at := int(after)
	return httpapi.ServeEvents(c, func(ctx context.Context) (httpapi.Event, error) {
		for {
			n.w.mu.Lock()
			list, owner := n.w.values[ws], n.w.owner[ws]
			changed := n.w.mu.release()
			if owner != n.name {
				return httpapi.Event{}, errs.New(errs.Unavailable, "owner_moving", "It has left.")
			}
			if at < len(list) {
				at++
				return httpapi.Event{ID: fmt.Sprint(at), Name: "change", Data: []byte(list[at-1])}, nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return httpapi.Event{}, io.EOF
			}
		}
	})
}

// answer is what came back.
type answer struct {
	status int
	h      http.Header
	body   string
	err    error
}

// ask sends a request to a node as alice. Headers are "Name: value".
func (n *fakeNode) ask(method, path, body string, headers ...string) answer {
	n.w.t.Helper()
	req, err := http.NewRequest(method, n.address+path, strings.NewReader(body))
	if err != nil {
		n.w.t.Fatal(err)
	}
	if body == "" {
		req.Body = http.NoBody
	}
	req.Header.Set("Authorization", "Bearer secret")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	client := http.Client{Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(raw), err}
}

// set makes a workspace of one commit.
func (w *world) set(ws, owner string, values ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owner[ws], w.values[ws] = owner, values
	if owner != "" {
		w.epoch[ws]++
	}
}

// isDead reports whether a node is; the caller holds mu.
func (w *world) isDead(name string) bool {
	for _, n := range w.nodes {
		if n.name == name {
			return n.dead
		}
	}
	return true
}

func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}
