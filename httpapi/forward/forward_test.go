package forward

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
	"umbra/internal/need"
)

func (a answer) json(t *testing.T) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := json.Unmarshal([]byte(a.body), &m); err != nil {
		t.Fatalf("%d %q: %v, %v", a.status, a.body, err, a.err)
	}
	return m
}

func (a answer) want(t *testing.T, status int, code string) answer {
	t.Helper()
	if a.err != nil || a.status != status {
		t.Fatalf("status %d, want %d: %s %v", a.status, status, a.body, a.err)
	}
	if code != "" && a.json(t)["error"] != code {
		t.Fatalf("%s, want %s", a.body, code)
	}
	return a
}

// Any node answers; the caller, the request's id, its target and its host arrive as
// they came, and its secret does not.
func TestForward(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one")
	for _, n := range w.nodes {
		a := n.ask("GET", "/w/a", "", "X-Request-Id: my-id").want(t, 200, "")
		m := a.json(t)
		if m["by"] != "n2" || m["caller"] != "alice" || m["write"] != true || m["id"] != "my-id" || m["auth"] != "" && n == n1 || m["host"] != strings.TrimPrefix(n.address, "http://") {
			t.Errorf("%s: %v", n.name, m)
		}
		if strings.HasSuffix(fmt.Sprint(m["remote"]), strings.TrimPrefix(n.address, "http://")) || a.h.Get("Umbra-Owner") != `"n2";epoch=1` || a.h.Get("Umbra-Seq") != "1" || a.h.Get("X-Request-Id") != "my-id" {
			t.Errorf("%s: %v", n.name, a.h)
		}
		if len(a.h.Values("X-Content-Type-Options")) != 1 || a.h.Get("Umbra-Run") != "" {
			t.Errorf("%s: %v", n.name, a.h)
		}
	}
	// The target is the same, byte by byte.
	a := n1.ask("PUT", "/w/a/%7Ex%2Fy;z?a=%20&b", "two", "X-Actor: x").want(t, 200, "")
	if m := a.json(t); m["path"] != "/w/a/%7Ex%2Fy;z?a=%20&b" || m["by"] != "n2" || m["actor"] != "alice" || a.h.Get("Umbra-Seq") != "2" {
		t.Errorf("%v %v", m, a.h)
	}
	// A parameter that the route does not take is refused, wherever the workspace is.
	for _, n := range w.nodes {
		n.ask("PUT", "/w/a/x?dry_run=true", "two").want(t, 400, "invalid_parameter")
	}
	// What a token may not do is refused by the node that is asked.
	n1.ask("PUT", "/w/a/x", "no", "Authorization: Bearer reader").want(t, 403, "forbidden")
	n1.ask("GET", "/w/a", "", "Authorization: Bearer none").want(t, 401, "unauthorized")
	// Nobody's is claimed by the node that is asked.
	w.set("b", "", "one")
	if a := n1.ask("GET", "/w/b", "").want(t, 200, ""); a.json(t)["by"] != "n1" || a.h.Get("Umbra-Owner") != `"n1";epoch=1` {
		t.Errorf("%s %v", a.body, a.h)
	}
	// What does not exist is 404 at any.
	n1.ask("GET", "/w/none", "").want(t, 404, "workspace_not_found")
	w.set("c", "n2", "one")
	w.locked(func() { w.values["c"] = nil })
	n1.ask("GET", "/w/c", "").want(t, 404, "workspace_not_found")
	if h := n1.ask("HEAD", "/w/a", "").want(t, 200, "").h; h.Get("Umbra-Owner") == "" {
		t.Errorf("HEAD: %v", h)
	}
	if n2.f.o.Meter.Answered.Load() != 0 || n1.f.o.Meter.Answered.Load() == 0 {
		t.Error("what was forwarded is not counted")
	}
}

// A client's own headers among nodes count for nothing.
func TestForged(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.set("a", "n2", "one")
	n1, n2 := w.nodes[0], w.nodes[1]
	a := n1.ask("GET", "/w/a", "", "Umbra-Forwarded: e30.AAAA", "Authorization: none").want(t, 401, "unauthorized")
	if a.h.Get("Umbra-Run") != "" {
		t.Error("it names its run")
	}
	n1.ask("GET", "/w/a", "", "Umbra-Forwarded: e30.AAAA").want(t, 200, "")
	for _, n := range w.nodes {
		for method, path := range map[string]string{"POST": "/cluster/handover?workspace=a", "GET": "/cluster/hello"} {
			n.ask(method, path, "").want(t, 404, "not_found")
		}
	}
	if a := n1.ask("OPTIONS", "/cluster/handover", ""); a.status != 404 {
		t.Errorf("OPTIONS: %d %v", a.status, a.h)
	}
	// A request that was recorded on its way is refused the second time, and by
	// another run of the node.
	r := httptest.NewRequest("GET", n2.address+"/w/a", nil)
	c := claims{Node: "n1", Sender: "x", Number: 1, To: n2.f.run, Token: "alice"}
	send := func() answer {
		req, _ := http.NewRequest("GET", n2.address+"/w/a", http.NoBody)
		req.Host = r.Host
		need.NoError(t, sign(n2.Key(), req, "/w/a", c))
		resp, err := http.DefaultClient.Do(req)
		need.NoError(t, err)
		resp.Body.Close()
		return answer{status: resp.StatusCode, h: resp.Header}
	}
	if a := send(); a.status != 200 {
		t.Errorf("first: %d", a.status)
	}
	if a := send(); a.status != 421 || a.h.Get("Umbra-Run") != n2.f.run {
		t.Errorf("again: %d", a.status)
	}
	c.Number, c.To = 2, "another"
	if a := send(); a.status != 421 {
		t.Errorf("another run: %d", a.status)
	}
}

func TestHandover(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.set("a", "n2", "one")
	n1, n2 := w.nodes[0], w.nodes[1]
	owner, err := n1.Owner(t.Context(), "a")
	need.NoError(t, err)
	need.NoError(t, n1.f.Handover(t.Context(), owner, "a"))
	if a := n1.ask("GET", "/w/a", "").want(t, 200, ""); a.json(t)["by"] != "n1" {
		t.Error(a.body)
	}
	if err := n1.f.Handover(t.Context(), owner, "a"); errs.CodeOf(err) != "owner_moving" {
		t.Errorf("what it does not own: %v", err)
	}
	// The node was restarted: its run is another.
	n1.f.peer(owner).setRun("former")
	w.set("b", "n2", "one")
	if err := n1.f.Handover(t.Context(), owner, "b"); err != nil {
		t.Error(err)
	}
	w.set("c", "n2", "one")
	n1.f.peer(owner).setRun("former")
	n1.ask("PUT", "/w/c/x", "two").want(t, 200, "")
	if len(w.values["c"]) != 2 || n2.handled["c"] != 1 {
		t.Error(w.values["c"])
	}
}

// A verb has a node look at its row.
func TestOutsiderHasANodeLook(t *testing.T) {
	n := newWorld(t, "n1").nodes[0]
	o := Outsider{Key: n.Key(), To: Peer{Name: "n1", Address: n.address}}
	if err := o.Look(t.Context()); err != nil || n.looked != 1 {
		t.Errorf("%v, it looked %d times", err, n.looked)
	}
	o.Key = []byte("another key")
	if err := o.Look(t.Context()); err == nil || n.looked != 1 {
		t.Errorf("with another key: %v, it looked %d times", err, n.looked)
	}
	if a := n.ask("POST", "/cluster/look", ""); a.status != 404 || n.looked != 1 {
		t.Errorf("a client: %d %s", a.status, a.body)
	}
}

// What the client asks for by its headers.
func TestHeaders(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one", "two")
	a := n1.ask("GET", "/w/a", "", "Umbra-Direct: 1").want(t, 421, "not_owner")
	if a.h.Get("Umbra-Owner") != `"n2";epoch=1;url="http://n2.example"` {
		t.Errorf("%v", a.h)
	}
	n1.ask("PUT", "/w/a/x", "three", "Umbra-Direct: 1").want(t, 421, "not_owner")
	if len(w.values["a"]) != 2 {
		t.Error("it was done")
	}
	n2.ask("GET", "/w/a", "", "Umbra-Direct: 1").want(t, 200, "")
	n1.ask("GET", "/w/a", "", "Umbra-Direct: 1", "Umbra-Min-Seq: 2").want(t, 200, "")
	a = n1.ask("PUT", "/w/a/x?y=1", "three", "Umbra-Redirect: 1").want(t, 307, "")
	if a.h.Get("Location") != "http://n2.example/w/a/x?y=1" || len(w.values["a"]) != 2 {
		t.Errorf("%v", a.h)
	}
	for _, v := range []string{"x", "-1", "1.0", " 1 2"} {
		n1.ask("GET", "/w/a", "", "Umbra-Min-Seq: "+v).want(t, 400, "invalid_parameter")
	}
	n1.ask("PUT", "/w/a/x", "three", "Umbra-Min-Seq: 99").want(t, 200, "") // writes ignore it
	for _, n := range w.nodes {
		n.ask("GET", "/w/a", "", "Umbra-Min-Seq: 0").want(t, 200, "")
		a := n.ask("GET", "/w/a", "", "Umbra-Min-Seq: 9").want(t, 503, "seq_not_reached")
		if a.h.Get("Retry-After") != "1" {
			t.Errorf("%v", a.h)
		}
	}
	reached := make(chan answer, 1)
	go func() { reached <- n1.ask("GET", "/w/a", "", "Umbra-Min-Seq: 4") }()
	n2.ask("PUT", "/w/a/x", "four").want(t, 200, "")
	if a := (<-reached).want(t, 200, ""); a.json(t)["value"] != "four" || a.h.Get("Umbra-Seq") != "4" {
		t.Errorf("%s %v", a.body, a.h)
	}
	// Umbra-Node names where something new is made.
	for node, by := range map[string]string{"n1": "n1", "n2": "n2", "": "n1"} {
		if m := n1.ask("POST", "/new", "x", "Umbra-Node: "+node).want(t, 201, "").json(t); m["by"] != by {
			t.Errorf("%q: %v", node, m)
		}
	}
	n1.ask("POST", "/new", "x", "Umbra-Node: other").want(t, 404, "node_not_found")
	if a := n1.ask("POST", "/new", "x", "Umbra-Node: gone").want(t, 503, "node_down"); a.h.Get("Retry-After") != "30" || a.json(t)["node"] != "gone" {
		t.Errorf("%v", a.h)
	}
	for _, node := range []string{"N2", "a b", "n1,n2", "n_1", strings.Repeat("n", 64)} {
		if m := n1.ask("POST", "/new", "x", "Umbra-Node: "+node).want(t, 400, "invalid_parameter").json(t); m["field"] != "Umbra-Node" {
			t.Errorf("%q: %v", node, m)
		}
	}
	w.locked(func() { w.engine = false })
	n1.ask("POST", "/new", "x", "Umbra-Node: other").want(t, 503, "engine_unavailable")
	n1.ask("POST", "/new", "x", "Umbra-Node: n2").want(t, 201, "")
	w.locked(func() { w.engine = true })
	// A request that names its node goes there.
	for node, by := range map[string]string{"n1": "n1", "n2": "n2", "other": "n1"} {
		if m := n1.ask("GET", "/at/"+node, "").want(t, 200, "").json(t); m["by"] != by {
			t.Errorf("at %s: %v", node, m)
		}
	}
}

// While ownership moves a request waits, and is done once.
func TestMoving(t *testing.T) {
	w := newWorld(t, "n1", "n2", "n3")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one")
	var refusals atomic.Int64
	n2.before = func(*gin.Context, string) error {
		// It has lost the workspace between the look and the handler.
		if refusals.Add(1) > 3 {
			w.locked(func() { w.owner["a"] = "n3"; w.epoch["a"]++ })
		}
		return errs.New(errs.Unavailable, "owner_moving", "It moves.")
	}
	for i, method := range []string{"GET", "PUT"} {
		w.locked(func() { w.owner["a"] = "n2" })
		refusals.Store(0)
		for _, n := range []*fakeNode{n1, n2} {
			path := "/w/a"
			if method == "PUT" {
				path = "/w/a/x"
			}
			m := n.ask(method, path, strings.Repeat("b", 5000*i)).want(t, 200, "").json(t)
			if m["by"] != "n3" {
				t.Errorf("%s at %s: %v", method, n.name, m)
			}
		}
	}
	if len(w.values["a"]) != 3 || w.values["a"][2] != strings.Repeat("b", 5000) {
		t.Errorf("%d values", len(w.values["a"]))
	}
	// It never ends: 503 after the wait, in the answer of the one who owns it.
	w.locked(func() { w.owner["a"] = "n2" })
	refusals.Store(-1 << 40)
	for _, n := range []*fakeNode{n1, n2} {
		began := time.Now()
		a := n.ask("PUT", "/w/a/x", "no").want(t, 503, "owner_moving")
		if took := time.Since(began); took < 900*time.Millisecond || took > 5*time.Second || a.h.Get("Retry-After") != "1" || a.h.Get("Umbra-Error") != "" {
			t.Errorf("%s after %v: %v", n.name, took, a.h)
		}
	}
	// Two nodes that each take the other for the owner do not send it in circles.
	w.set("b", "", "one")
	w.locked(func() { w.claims = false })
	n1.ask("GET", "/w/b", "").want(t, 503, "owner_moving")
}

// An owner that dies over a request: a read and a write with a key are repeated,
// another write is not.
func TestOwnerDies(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	hang := make(chan struct{})
	defer close(hang)
	die := func(c *gin.Context) {
		w.locked(func() { n2.dead = true })
		select {
		case <-hang:
		case <-c.Request.Context().Done():
		}
	}
	set := func() {
		w.set("a", "n2", "one")
		w.locked(func() { n2.dead = false })
	}
	n2.before = func(c *gin.Context, _ string) error { die(c); return nil }
	set()
	if m := n1.ask("GET", "/w/a", "").want(t, 200, "").json(t); m["by"] != "n1" {
		t.Errorf("%v", m)
	}
	set()
	n1.ask("PUT", "/w/a/x", "two").want(t, 503, "outcome_unknown")
	set()
	big := strings.Repeat("b", 100_000)
	if m := n1.ask("PUT", "/w/a/x", big, "Idempotency-Key: k").want(t, 200, "").json(t); m["by"] != "n1" || w.values["a"][1] != big {
		t.Errorf("%v", m)
	}
	set()
	n1.ask("PUT", "/w/a/x", strings.Repeat("b", 2<<20), "Idempotency-Key: m").want(t, 200, "") // it did not take the body
	n2.before, n2.after = nil, die
	set()
	n1.ask("PUT", "/w/a/x", strings.Repeat("b", 2<<20), "Idempotency-Key: l").want(t, 503, "outcome_unknown")
	// It is dead before: nothing was sent, and everything is done by the next.
	n2.after = nil
	set()
	w.locked(func() { n2.dead = true })
	n1.ask("PUT", "/w/a/x", strings.Repeat("b", 2<<20)).want(t, 200, "")
	if n := n1.f.o.Meter.Unknown.Load(); n != 2 {
		t.Errorf("%d unknown", n)
	}
}

// A node that does not answer at its address: nothing was sent.
func TestUnreachable(t *testing.T) {
	w := newWorld(t, "n1")
	w.nodes = append(w.nodes, &fakeNode{w: w, name: "n2", address: "http://127.0.0.1:1", life: 9})
	w.set("a", "n2", "one")
	time.AfterFunc(200*time.Millisecond, func() { w.locked(func() { w.nodes[1].dead = true }) })
	if m := w.nodes[0].ask("PUT", "/w/a/x", "two").want(t, 200, "").json(t); m["by"] != "n1" {
		t.Errorf("%v", m)
	}
}

// Without a lease a read is another node's, or says how stale it may be.
func TestLease(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n1", "one")
	w.locked(func() { n1.lease = false })
	// n2 has a lease, but n1 is the owner still.
	a := n1.ask("GET", "/w/a", "").want(t, 200, "")
	if a.h.Get("Umbra-Stale") != "12" || a.json(t)["by"] != "n1" {
		t.Errorf("%s %v", a.body, a.h)
	}
	for _, path := range []string{"/w/a", "/w/a/stream"} {
		for _, n := range w.nodes {
			n.ask("GET", path, "", "Umbra-Strict: 1").want(t, 503, "engine_unavailable")
		}
	}
	if a := n1.ask("GET", "/w/a/long", ""); a.err != nil || len(a.body) != 1_000_000 || a.h.Get("Umbra-Stale") == "" {
		t.Errorf("%d bytes, %v", len(a.body), a.err)
	}
	// A refusal by what was read is a read; what was written is written.
	n1.ask("PUT", "/w/a/x", "two", "If-Match: other").want(t, 503, "engine_unavailable")
	if a := n1.ask("PUT", "/w/a/x", "two").want(t, 200, ""); a.h.Get("Umbra-Stale") != "" || a.h.Get("Umbra-Seq") != "2" {
		t.Errorf("%v", a.h)
	}
	// n2 has taken over, and n1 does not know.
	w.locked(func() {
		n1.stale["a"] = []string{"one"}
		w.owner["a"], w.values["a"] = "n2", []string{"one", "two", "three"}
	})
	for _, header := range []string{"Umbra-Strict: 1", "X: y"} {
		a = n1.ask("GET", "/w/a", "", header).want(t, 200, "")
		if a.h.Get("Umbra-Stale") != "" || a.json(t)["value"] != "three" {
			t.Errorf("%s %v", a.body, a.h)
		}
	}
	// Nobody has a lease: stale at once, also by a node that does not own it.
	w.locked(func() { n2.lease, w.engine = false, false })
	began := time.Now()
	if a := n1.ask("GET", "/w/a", "").want(t, 200, ""); a.h.Get("Umbra-Stale") != "12" || a.json(t)["value"] != "one" {
		t.Errorf("%s %v", a.body, a.h)
	}
	w.locked(func() { n1.stale = map[string][]string{} })
	if a := n1.ask("GET", "/w/a", "").want(t, 200, ""); a.h.Get("Umbra-Stale") != "12" || a.json(t)["value"] != "three" || a.json(t)["by"] != "n2" {
		t.Errorf("%s %v", a.body, a.h)
	}
	if took := time.Since(began); took > 900*time.Millisecond {
		t.Errorf("a stale read took %v", took)
	}
	w.set("resting", "", "one")
	n1.ask("GET", "/w/resting", "").want(t, 503, "engine_unavailable")
}

func TestNoStaleReads(t *testing.T) {
	w := newWorld(t)
	n := w.start("n1", func(o *Options) { o.StaleReads = false })
	w.set("a", "n1", "one")
	n.ask("GET", "/w/a", "").want(t, 200, "")
	w.locked(func() { n.lease = false })
	n.ask("GET", "/w/a", "").want(t, 503, "engine_unavailable")
}

// The document of a cluster's node describes the headers.
func TestDocument(t *testing.T) {
	w := newWorld(t, "n1")
	a := w.nodes[0].ask("GET", "/openapi.json", "").want(t, 200, "")
	for _, name := range []string{"UmbraOwner", "UmbraSeq", "UmbraStale", "UmbraMinSeq", "UmbraDirect", "UmbraRedirect", "UmbraStrict"} {
		if !strings.Contains(a.body, `"`+name+`"`) {
			t.Errorf("%s is not in the document", name)
		}
	}
}

// A node is ready while it answers reads: without a lease only stale ones.
func TestReady(t *testing.T) {
	w := newWorld(t, "n1")
	w.start("n2", func(o *Options) { o.StaleReads = false })
	for _, lease := range []bool{true, false, true} {
		for i, n := range w.nodes {
			w.locked(func() { n.lease = lease })
			status, text := 200, "ready\n"
			if !lease && i == 1 {
				status, text = 503, "not ready: engine_unavailable\n"
			}
			if a := n.ask("GET", "/readyz", ""); a.status != status || a.body != text {
				t.Errorf("%s with a lease (%v): %d %q", n.name, lease, a.status, a.body)
			}
		}
	}
}

// A long answer whose lease ends is not made to look whole.
func TestLeaseEndsInAnAnswer(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n2 := w.nodes[1]
	w.set("a", "n2", "one")
	n2.after = func(*gin.Context) { w.locked(func() { n2.lease = false }) }
	for _, n := range w.nodes {
		w.locked(func() { n2.lease = true })
		if a := n.ask("GET", "/w/a/long", ""); a.err == nil {
			t.Errorf("%s: a whole answer of %d bytes", n.name, len(a.body))
		}
	}
}

// An idempotency key means the same at every node.
func TestKey(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one")
	first := n1.ask("PUT", "/w/a/x", "two", "Idempotency-Key: k").want(t, 200, "")
	w.locked(func() { w.values["a"] = append(w.values["a"], "three") })
	for _, n := range []*fakeNode{n1, n2} {
		a := n.ask("PUT", "/w/a/x", "two", "Idempotency-Key: k").want(t, 200, "")
		if a.body != first.body || a.h.Get("Idempotent-Replay") != "true" || a.h.Get("Umbra-Seq") != "2" || a.h.Get("Umbra-Owner") == "" {
			t.Errorf("%s: %s %v", n.name, a.body, a.h)
		}
		n.ask("PUT", "/w/a/x", "other", "Idempotency-Key: k").want(t, 422, "idempotency_key_reused")
	}
	if len(w.values["a"]) != 3 {
		t.Errorf("%v", w.values["a"])
	}
}

// Events go through, and when ownership moves the stream ends after "retry".
func TestEvents(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "1", "2")
	listen := func(n *fakeNode, after int, got func(id string) bool) (tail string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, "GET", n.address+"/w/a/stream", nil)
		req.Header.Set("Authorization", "Bearer secret")
		req.Header.Set("Last-Event-ID", fmt.Sprint(after))
		resp, err := http.DefaultClient.Do(req)
		need.NoError(t, err)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			if id, ok := strings.CutPrefix(lines.Text(), "id: "); ok && !got(id) {
				return "left"
			}
			if lines.Text() != "" {
				tail = lines.Text()
			}
		}
		if err := lines.Err(); err != nil {
			t.Errorf("the stream is broken off: %v", err)
		}
		return tail
	}
	for _, n := range []*fakeNode{n1, n2} {
		w.locked(func() { w.owner["a"], w.values["a"] = "n2", []string{"1", "2"} })
		var ids []string
		tail := listen(n, 0, func(id string) bool {
			ids = append(ids, id)
			switch id {
			case "2": // it comes while the client listens
				w.locked(func() { w.values["a"] = append(w.values["a"], "3") })
			case "3":
				w.locked(func() { w.owner["a"] = "n1"; w.values["a"] = append(w.values["a"], "4", "5") })
			}
			return true
		})
		if tail != "retry: 1000" || strings.Join(ids, "") != "123" {
			t.Errorf("%s: %v, then %q", n.name, ids, tail)
		}
		listen(n, 3, func(id string) bool { ids = append(ids, id); return id != "5" })
		if strings.Join(ids, "") != "12345" {
			t.Errorf("%s: %v", n.name, ids)
		}
	}
	// The owner dies without a word.
	w.locked(func() { w.owner["a"], w.values["a"] = "n2", []string{"1"} })
	if tail := listen(n1, 0, func(string) bool { w.locked(func() { n2.dead = true }); return true }); tail != "retry: 1000" {
		t.Errorf("of a dead one: %q", tail)
	}
}

// A large body is not lost on a node that does not own the workspace any more.
func TestLargeBodyMeetsAFormerOwner(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one")
	n2.before = func(*gin.Context, string) error {
		w.locked(func() { w.owner["a"] = "n1" })
		return errs.New(errs.Unavailable, "owner_moving", "It moves.")
	}
	big := strings.Repeat("b", 3<<20)
	if m := n1.ask("PUT", "/w/a/x", big).want(t, 200, "").json(t); m["by"] != "n1" || w.values["a"][1] != big {
		t.Errorf("%v", m)
	}
}

// A node that has said that it left gets nothing more, and closes no connection that
// another may be sending on: writes without a key have no unknown outcome.
func TestLeft(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		patient := func(o *Options) { o.Wait = 10 * time.Second } // also on busy processors
		n1, n2 := w.start("n1", patient), w.start("n2", patient)
		w.set("a", "n2", "one")
		ended, stopped := make(chan struct{}), make(chan struct{})
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				for {
					select {
					case <-ended:
						return
					default:
						if a := n1.ask("PUT", "/w/a/x", "two"); a.status != 200 {
							t.Errorf("%d %s %v", a.status, a.body, a.err)
							return
						}
					}
				}
			})
		}
		for n1.f.o.Meter.Answered.Load() < 20 {
			runtime.Gosched()
		}
		w.locked(func() { w.owner["a"] = "n1" })
		n2.f.SayLeft(t.Context())
		go func() { defer close(stopped); n2.server.Stop() }()
		<-stopped
		close(ended)
		writers.Wait()
		w.locked(func() {
			if !slices.Equal(n1.forgot, []string{"n2"}) {
				t.Errorf("n1 forgot %v", n1.forgot)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// A node that stops sends its clients on.
func TestEventsOfANodeThatStops(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.set("a", "n2", "1")
	for _, n := range w.nodes {
		req, _ := http.NewRequestWithContext(t.Context(), "GET", n.address+"/w/a/stream", nil)
		req.Header.Set("Authorization", "Bearer secret")
		resp, err := http.DefaultClient.Do(req)
		need.NoError(t, err)
		lines, tail := bufio.NewScanner(resp.Body), ""
		for lines.Scan() {
			if lines.Text() != "" {
				tail = lines.Text()
			}
			if strings.HasPrefix(tail, "data") {
				go n.server.Stop()
			}
		}
		resp.Body.Close()
		if tail != "retry: 1000" || lines.Err() != nil {
			t.Errorf("%s: %q, %v", n.name, tail, lines.Err())
		}
	}
}

// Many clients at both nodes while a workspace moves to and fro: nothing fails, and
// each write is done once.
func TestStorm(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	w.set("a", "n1", "0")
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{}, 1) // a request was answered since the last move
	var movers, clients sync.WaitGroup
	movers.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			w.locked(func() {
				w.owner["a"] = []string{"n1", "", "n2", ""}[i%4]
				w.epoch["a"]++
			})
			select {
			case <-asked:
			case <-ctx.Done():
			}
		}
	})
	for c := range 8 {
		clients.Go(func() {
			for i := range 25 {
				n := w.nodes[(c+i)%2]
				if a := n.ask("PUT", "/w/a/x", fmt.Sprintf("%d.%d", c, i)); a.status != 200 {
					t.Errorf("%d %s %v", a.status, a.body, a.err)
				}
				select {
				case asked <- struct{}{}:
				default:
				}
				if a := n.ask("GET", "/w/a", ""); a.status != 200 {
					t.Errorf("%d %s %v", a.status, a.body, a.err)
				}
			}
		})
	}
	clients.Wait()
	cancel()
	movers.Wait()
	once := map[string]int{}
	for _, v := range w.values["a"] {
		once[v]++
	}
	if len(once) != 8*25+1 || len(w.values["a"]) != len(once) {
		t.Errorf("%d different of %d", len(once), len(w.values["a"]))
	}
}

// A write with a key whose owner died over it, and which then finds no owner: a
// refusal of the second sending says nothing of the first.
func TestRefusedAfterALostAnswer(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one")
	hang := make(chan struct{})
	defer close(hang)
	n2.after = func(c *gin.Context) {
		w.locked(func() { n2.dead, w.claims = true, false })
		select {
		case <-hang:
		case <-c.Request.Context().Done():
		}
	}
	n1.ask("PUT", "/w/a/x", "two", "Idempotency-Key: k").want(t, 503, "outcome_unknown")
	if got := w.values["a"]; len(got) != 2 || got[1] != "two" {
		t.Errorf("%q", got)
	}
	// What its own handler refuses.
	w.set("b", "n2", "one")
	w.locked(func() { n2.dead, w.claims = false, true })
	n1.before = func(*gin.Context, string) error {
		return errs.New(errs.Unavailable, "engine_unavailable", "It is away.")
	}
	n1.ask("PUT", "/w/b/x", "two", "Idempotency-Key: l").want(t, 503, "outcome_unknown")
	// A read is only refused.
	w.set("c", "n1", "one")
	n1.ask("GET", "/w/c", "").want(t, 503, "engine_unavailable")
}

// A client's Connection header takes no condition and no key from a write on its way to
// the owner.
func TestWithoutHop(t *testing.T) {
	h := http.Header{"Connection": {"close, If-Match", "Idempotency-Key"}, "If-Match": {`"a"`}, "Idempotency-Key": {"k"}, "Te": {"trailers"}}
	if h = withoutHop(h); len(h) != 2 || h.Get("If-Match") == "" || h.Get("Idempotency-Key") == "" {
		t.Errorf("%v go on", h)
	}
}
