package harness

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/internal/blob/blobtest"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
)

// Nodes is how many nodes of a cluster take the place of each server of a test
// (UMBRA_CLUSTER); 0: it is one server.
func Nodes() int {
	n, _ := strconv.Atoi(os.Getenv("UMBRA_CLUSTER")) // not set, or no number
	return n
}

// common is what the clusters of a test process have in common: an engine and a
// store, started at the first need. Each cluster has a database and a prefix.
var common foundation

type foundation struct {
	once   sync.Once
	t      *lasting
	engine *clustertest.Server // nil: it could not be started
	store  *blobtest.Server

	mu     sync.Mutex
	fleets map[string]*fleet // by data directory
}

// of returns the cluster whose data directory this is; nil: none's.
func (f *foundation) of(dataDir string) *fleet {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fleets[dataDir]
}

func (f *foundation) start(t testing.TB) {
	f.once.Do(func() {
		f.t = &lasting{TB: t}
		f.store = blobtest.Start(f.t)
		// Nothing has to outlive the machine.
		f.engine = clustertest.Start(f.t, clustertest.Options{Settings: []string{"fsync = off", "full_page_writes = off"}}).A
	})
	if f.engine == nil {
		need.Missing(t, "the cluster's PostgreSQL did not start")
	}
}

func (f *foundation) end() {
	if f.t != nil {
		f.t.end()
	}
}

// lasting is a test that lasts as long as the process.
type lasting struct {
	testing.TB
	cleanups []func()
}

func (l *lasting) Cleanup(f func()) { l.cleanups = append(l.cleanups, f) }

// Failed reports nothing: the logs of what all tests share are no one's.
func (l *lasting) Failed() bool { return false }

func (l *lasting) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
}

// fleet is what nodes of a cluster need that are one server to a test.
type fleet struct {
	dir        string
	url, blobs string
	fronts     []*clustertest.Link // where other nodes reach each
	balancer   *httptest.Server

	mu      sync.Mutex
	targets []*url.URL
	turn    atomic.Uint64
}

// newFleet prepares a cluster in the place of a server; nil where the test is to have
// one server. A test that asks for what no cluster promises is left out.
func newFleet(t testing.TB, opts Options) *fleet {
	t.Helper()
	n := Nodes()
	if n == 0 || slices.Contains(opts.Args, "--cluster") {
		return nil
	}
	if why := apartFor(t.Name()); why != "" {
		need.Missing(t, "not of a cluster: "+why)
	}
	if strings.HasPrefix(opts.Listen, "unix:") {
		need.Missing(t, "not of a cluster: nodes are reached over a network")
	}
	if f := common.of(opts.DataDir); f != nil {
		return f // another start of it
	}
	common.start(t)
	if err := os.MkdirAll(opts.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := &fleet{dir: opts.DataDir, url: common.engine.Database(t)}
	u, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	t.Cleanup(func() { common.engine.Drop(name) })
	f.blobs = blobtest.At(common.store.URL, name)
	for range n {
		f.fronts = append(f.fronts, clustertest.NewLink(t, "127.0.0.1:1"))
	}
	f.balancer = httptest.NewServer(f.proxy())
	t.Cleanup(f.balancer.Close)
	common.mu.Lock()
	defer common.mu.Unlock()
	if common.fleets == nil {
		common.fleets = map[string]*fleet{}
	}
	common.fleets[f.dir], common.fleets[f.home(0)] = f, f
	return f
}

// home is the data directory of a node.
func (f *fleet) home(i int) string { return filepath.Join(f.dir, fmt.Sprintf("n%d", i+1)) }

// env is the environment of a program that uses the cluster.
func (f *fleet) env() []string {
	return append(blobtest.Credentials(), "UMBRA_CLUSTER_URL="+f.url, "UMBRA_CLUSTER_BLOBS="+f.blobs, "UMBRA_CLUSTER_REPLICATION=none")
}

// launch starts the nodes.
func (f *fleet) launch(s *Server, config string) {
	s.t.Helper()
	s.Log.writers = len(f.fronts)
	for i, front := range f.fronts {
		env := append(f.env(), fmt.Sprintf("UMBRA_CLUSTER_NODE=n%d", i+1), "UMBRA_CLUSTER_ADVERTISE=http://"+front.Address(), "UMBRA_CLUSTER_PHYSICAL=true")
		s.nodes = append(s.nodes, s.launch(f.home(i), s.opts.Listen, config, append(env, s.opts.Env...), s.opts.Args))
	}
}

// balance leads the balancer to the nodes, which are ready, and returns its address.
func (f *fleet) balance(s *Server) string {
	s.t.Helper()
	var targets []*url.URL
	for i, p := range s.nodes {
		u, err := url.Parse(p.address)
		if err != nil {
			s.t.Fatal(err)
		}
		f.fronts[i].Retarget(u.Host)
		targets = append(targets, u)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.targets = targets
	return f.balancer.URL
}

// next is the node that gets a request.
func (f *fleet) next() *url.URL {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.targets[f.turn.Add(1)%uint64(len(f.targets))]
}

// proxy sends each request to the next node, as it came.
func (f *fleet) proxy() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			to := f.next()
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
			if b := r.Out.Body; b != nil && r.Out.ContentLength > 0 {
				// The transport looks for more at the end, and closes the connection if the server
				// has closed the body by then, since the answer has begun.
				r.Out.Body = struct {
					io.Reader
					io.Closer
				}{io.LimitReader(b, r.Out.ContentLength), b}
			}
			path, query, _ := strings.Cut(r.In.RequestURI, "?")
			if strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
				r.Out.URL.Opaque = path
			}
			r.Out.URL.RawQuery, r.Out.URL.ForceQuery = query, strings.HasSuffix(r.In.RequestURI, "?")
			for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := r.In.Header[name]; ok {
					r.Out.Header[name] = v
				}
			}
		},
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64, ExpectContinueTimeout: time.Minute},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}
}

// tokenPatience is within what time a change of tokens is in force at all nodes.
const tokenPatience = 2 * time.Second

// AwaitToken waits until every node lets a token in, or none does any more: one server
// does so at once, nodes of a cluster within 2 s. "" is a request without a token.
func (s *Server) AwaitToken(secret string, in bool) {
	s.t.Helper()
	if in && secret != "" {
		s.AwaitToken("", false) // a node that knows of none lets everybody in
	}
	header := http.Header{}
	if secret != "" {
		header.Set("Authorization", "Bearer "+secret)
	}
	began := time.Now()
	for _, p := range s.nodes {
		status := 0
		settled := func() (bool, error) {
			req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, p.address+"/workspaces", http.NoBody)
			if err != nil {
				return false, err
			}
			req.Header = header
			res, err := s.Client.Do(req)
			if err != nil {
				return false, err
			}
			status = res.StatusCode
			return (status != http.StatusUnauthorized) == in, res.Body.Close()
		}
		ok, err := settled()
		if err == nil && !ok && s.fleet != nil {
			ok, err = true, clustertest.Await(tokenPatience-time.Since(began), settled)
		}
		if err != nil || !ok {
			s.t.Errorf("%s answers %d to the token %q: %v", p.address, status, secret, err)
		}
	}
}
