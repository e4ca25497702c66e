package httpapi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"

	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/goleak"

	"umbra/internal/access"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/testlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// trial is a dialect whose handlers the tests give.
type trial struct{ routes []Route }

func (d trial) Register(r *Router) {
	for _, rt := range d.routes {
		r.Handle(rt)
	}
}

func (d trial) OpenAPI() []byte { return []byte("paths: {}") }

// memory keeps answers as long as it lives.
type memory struct {
	mu      sync.Mutex
	answers map[[32]byte]state.Answer
	durable int
	fail    error
}

func (m *memory) Answer(key [32]byte) (state.Answer, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok := m.answers[key]
	return a, ok, nil
}

func (m *memory) BeginKey(string, [32]byte, [32]byte, time.Time) func() { return func() {} }

func (m *memory) KeepAnswer(key [32]byte, a state.Answer, durable bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if durable {
		m.durable++
	}
	if m.answers == nil {
		m.answers = map[[32]byte]state.Answer{}
	}
	m.answers[key] = a
	return m.fail
}

type setup struct {
	*Server
	log     *testlog.Buffer
	answers *memory
}

func newServer(t *testing.T, opts Options, routes ...Route) *setup {
	t.Helper()
	s := &setup{log: &testlog.Buffer{}, answers: &memory{}}
	opts.Log = slog.New(slog.NewTextHandler(s.log, nil))
	if opts.MaxJSON == 0 {
		opts.MaxJSON = 1000
	}
	if opts.Answers == nil {
		opts.Answers = s.answers
	}
	var err error
	if s.Server, err = New(opts, trial{routes}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stopStreams(); s.stopPatience(nil) })
	return s
}

// ask sends one request without a network. Headers are "Name: value".
func (s *setup) ask(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, "http://127.0.0.1:8080"+target, r)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		} else {
			req.Header.Add(name, value)
		}
	}
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, req)
	return rec
}

func field(t *testing.T, rec *httptest.ResponseRecorder, name string) any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(rec.Body.Bytes(), &m); err != nil {
		t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
	}
	return m[name]
}

func expect(t *testing.T, rec *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	if rec.Code != status || field(t, rec, "error") != code {
		t.Errorf("%d %s, want %d %s", rec.Code, rec.Body, status, code)
	}
}

func ok(c *gin.Context) error { JSON(c, 200, map[string]any{"ok": true}); return nil }

const jsonType = "Content-Type: application/json"

func TestPathParametersAreDecodedOnce(t *testing.T) {
	echo := func(c *gin.Context) error {
		id, err := Param(c, "id")
		if err != nil {
			return err
		}
		p, err := Param(c, "path")
		if err != nil {
			return err
		}
		c.String(200, "%q %q %s", id, p, factsOf(c).route.Pattern)
		return nil
	}
	s := newServer(t, Options{},
		Route{Method: "GET", Pattern: "/t/{id}/files", Handler: echo},
		Route{Method: "GET", Pattern: "/t/{id}/files/{path...}", Handler: echo},
		Route{Method: "GET", Pattern: "/t/{id}/files/{path...}/diff", Handler: echo},
		Route{Method: "POST", Pattern: "/t/{id}/files/{path...}/revert", Handler: echo},
		Route{Method: "GET", Pattern: "/t/{id}/sub/{path}/x", Handler: echo},
	)
	for _, c := range []struct{ method, target, want string }{
		{"GET", "/t/a/files", `"a" "" /t/{id}/files`},
		{"GET", "/t/a/files/src/b.go", `"a" "src/b.go" /t/{id}/files/{path...}`},
		{"GET", "/t/a/files/src/b.go/diff", `"a" "src/b.go" /t/{id}/files/{path...}/diff`},
		{"GET", "/t/a/files/diff/diff", `"a" "diff" /t/{id}/files/{path...}/diff`},
		{"GET", "/t/a/files/diff", `"a" "diff" /t/{id}/files/{path...}`},
		{"POST", "/t/a/files/x%2Fy/revert", `"a" "x/y" /t/{id}/files/{path...}/revert`},
		{"GET", "/t/a/files/a%2Fdiff", `"a" "a/diff" /t/{id}/files/{path...}`},
		{"GET", "/t/a/files/%00%0a%FF%25%20+/diff", `"a" "\x00\n\xff% +" /t/{id}/files/{path...}/diff`},
		{"GET", "/t/a/files/%252e/diff", `"a" "%2e" /t/{id}/files/{path...}/diff`},
		{"GET", "/t/a/files/../x//y/./diff", `"a" "../x//y/." /t/{id}/files/{path...}/diff`},
		{"GET", "/t/a%2Fb/files", `"a/b" "" /t/{id}/files`},
		{"GET", "/t/a/sub/%2F/x", `"a" "/" /t/{id}/sub/{path}/x`},
		{"GET", "/t/%C3%A9/files/\u00e9", `"é" "é" /t/{id}/files/{path...}`},
	} {
		if rec := s.ask(c.method, c.target, ""); rec.Body.String() != c.want {
			t.Errorf("%s %s: %d %s, want %s", c.method, c.target, rec.Code, rec.Body, c.want)
		}
	}
	expect(t, s.ask("GET", "/t/a/files/", ""), 404, "not_found")
	expect(t, s.ask("GET", "/t/a/", ""), 404, "not_found")
	expect(t, s.ask("GET", "/t//files", ""), 404, "not_found")
	expect(t, s.ask("DELETE", "/t/a/files/x/diff", ""), 405, "method_not_allowed")
	rec := s.ask("POST", "/t/a/files/x", "")
	expect(t, rec, 405, "method_not_allowed")
	if got := rec.Header().Get("Allow"); got != "GET, HEAD, OPTIONS" {
		t.Errorf("Allow: %s", got)
	}
	if got := s.ask("POST", "/t/a/files/x/diff", "").Header().Get("Allow"); got != "GET, HEAD, OPTIONS" {
		t.Errorf("Allow: %s", got)
	}
	if rec := s.ask("OPTIONS", "/t/a/files/x/revert", ""); rec.Code != 204 || rec.Header().Get("Allow") != "GET, HEAD, OPTIONS, POST" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
	if rec := s.ask("HEAD", "/t/a/files", ""); rec.Code != 200 {
		t.Errorf("HEAD: %d", rec.Code)
	}
}

func TestRequestIDs(t *testing.T) {
	s := newServer(t, Options{}, Route{Method: "GET", Pattern: "/x", Handler: func(c *gin.Context) error { c.String(200, RequestID(c)); return nil }})
	long := strings.Repeat("a", 128)
	for id, kept := range map[string]bool{"my id-1": true, long: true, long + "a": false, "é": false, "": false, "\x7f": false} {
		rec := s.ask("GET", "/x", "", "X-Request-Id: "+id)
		got := rec.Header().Get("X-Request-Id")
		if (got == id) != kept || len(got) == 0 || rec.Body.String() != got {
			t.Errorf("%q: echoed %q, handler saw %q", id, got, rec.Body)
		}
		if !strings.Contains(s.log.String(), got) {
			t.Errorf("%q is not in the log", got)
		}
	}
	if rec := s.ask("GET", "/none", "", "X-Request-Id: mine"); field(t, rec, "request_id") != "mine" {
		t.Error(rec.Body)
	}
}

func TestHostsAndOrigins(t *testing.T) {
	s := newServer(t, Options{Hosts: []string{"Umbra.Example"}, Origins: []string{"https://App.Example"}},
		Route{Method: "GET", Pattern: "/x", Handler: ok}, Route{Method: "POST", Pattern: "/x", Handler: ok})
	for host, want := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:99": 200, "localhost:8080": 200, "LOCALHOST": 200, "localhost.": 200, "[::1]:8080": 200, "127.8.8.8": 200, "a.localhost": 200,
		"umbra.example": 200, "UMBRA.example:443": 200, "evil.example": 403, "127.0.0.1.evil.example": 403, "192.0.2.1": 403, "localhost.evil": 403, "": 403,
		"[::ffff:127.0.0.1]": 200, "umbra.example.evil": 403, "0.0.0.0": 403,
	} {
		if rec := s.ask("GET", "/x", "", "Host: "+host); rec.Code != want {
			t.Errorf("Host %q: %d %s, want %d", host, rec.Code, rec.Body, want)
		}
	}
	expect(t, s.ask("GET", "/none", "", "Host: evil.example"), 403, "host_not_allowed")
	if rec := s.ask("GET", "/healthz", "", "Host: evil.example", "Origin: http://evil.example"); rec.Code != 200 {
		t.Errorf("healthz: %d", rec.Code)
	}
	if rec := s.ask("GET", "/api/none", "", "Host: evil.example"); rec.Code != 403 || field(t, rec, "error") != "The Host header names another server." {
		t.Error(rec.Body)
	}
	for origin, want := range map[string]int{
		"http://127.0.0.1:8080": 200, "http://evil.example": 403, "null": 403, "": 403, "http://127.0.0.1:8081": 403, "https://app.example": 200, "https://APP.example": 200,
		"http://app.example": 403, "https://app.example:444": 403, "https://umbra.example": 200, "http://umbra.example:8080": 200, "http://127.0.0.1:8080/": 403,
		"http://127.0.0.1:8080@evil.example": 403, "file://": 403,
	} {
		rec := s.ask("POST", "/x", "", "Host: 127.0.0.1:8080", "Origin: "+origin)
		if rec.Code != want {
			t.Errorf("Origin %q: %d %s, want %d", origin, rec.Code, rec.Body, want)
		}
		allowed := rec.Header().Get("Access-Control-Allow-Origin")
		if listed := strings.EqualFold(origin, "https://app.example"); listed && allowed != origin || !listed && allowed != "" {
			t.Errorf("Origin %q is allowed as %q", origin, allowed)
		}
	}
	rec := s.ask("OPTIONS", "/x", "", "Origin: https://app.example", "Access-Control-Request-Method: PUT")
	if rec.Code != 204 || !strings.Contains(rec.Header().Get("Access-Control-Allow-Methods"), "PUT") || rec.Header().Get("Access-Control-Allow-Origin") != "https://app.example" {
		t.Error(rec.Code, rec.Header())
	}
	expect(t, s.ask("OPTIONS", "/x", "", "Origin: https://evil.example", "Access-Control-Request-Method: PUT"), 403, "origin_not_allowed")
	for _, site := range []string{"cross-site", "same-site"} {
		expect(t, s.ask("POST", "/x", "", "Sec-Fetch-Site: "+site), 403, "origin_not_allowed")
		expect(t, s.ask("GET", "/openapi.json", "", "Sec-Fetch-Site: "+site), 403, "origin_not_allowed")
		expect(t, s.ask("GET", "/openapi.json", "", "Sec-Fetch-Site: "+site, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"), 403, "origin_not_allowed")
		expect(t, s.ask("GET", "/docs", "", "Sec-Fetch-Site: "+site, "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"), 403, "origin_not_allowed")
		if rec := s.ask("GET", "/docs", "", "Sec-Fetch-Site: "+site, "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"); rec.Code != 200 ||
			rec.Header().Get("Cross-Origin-Resource-Policy") != "same-origin" || strings.Contains(rec.Header().Get("Content-Security-Policy"), "unsafe-inline") {
			t.Error(rec.Code, rec.Header())
		}
	}
	for _, site := range []string{"same-origin", "none", ""} {
		if rec := s.ask("GET", "/openapi.json", "", "Sec-Fetch-Site: "+site); rec.Code != 200 {
			t.Errorf("%q: %d", site, rec.Code)
		}
	}
}

func TestTokens(t *testing.T) {
	sum := func(s string) [32]byte { return sha256.Sum256([]byte(s)) }
	var seen Caller
	see := func(c *gin.Context) error { seen = CallerOf(c); c.String(200, TagsOf(c).Actor); return nil }
	s := newServer(t, Options{Tokens: access.Fixed([]Token{
		{Name: "reader", SHA256: sum("r")}, {Name: "writer", SHA256: sum("w"), Scope: ScopeWrite, Roots: []string{"/srv/a"}},
		{Name: "late", SHA256: sum("l"), Scope: ScopeWrite, Expires: time.Now().Add(-time.Second)},
	}...)},
		Route{Method: "GET", Pattern: "/r", Handler: see}, Route{Method: "POST", Pattern: "/w", Handler: see, Access: AccessWrite, Changes: true},
		Route{Method: "GET", Pattern: "/p", Handler: see, Access: AccessPublic})
	for _, c := range []struct {
		method, target, auth string
		want                 int
	}{
		{"GET", "/r", "", 401}, {"GET", "/r", "Bearer x", 401}, {"GET", "/r", "Basic r", 401}, {"GET", "/r", "Bearer", 401}, {"GET", "/r", "Bearer l", 401},
		{"GET", "/r", "Bearer r", 200}, {"GET", "/r", "bearer w", 200}, {"POST", "/w", "Bearer r", 403}, {"POST", "/w", "Bearer w", 200},
		{"GET", "/p", "", 200}, {"GET", "/healthz", "", 200}, {"GET", "/readyz", "", 200}, {"GET", "/docs", "", 200}, {"GET", "/openapi.json", "", 200},
		{"GET", "/health", "", 401}, {"GET", "/none", "", 401}, {"GET", "/none", "Bearer r", 404}, {"GET", "/api/none", "", 401},
	} {
		rec := s.ask(c.method, c.target, "", "Authorization: "+c.auth, "X-Actor: another user")
		if rec.Code != c.want {
			t.Errorf("%s %s with %q: %d %s, want %d", c.method, c.target, c.auth, rec.Code, rec.Body, c.want)
		}
		if (rec.Code == 401) != (rec.Header().Get("WWW-Authenticate") != "") {
			t.Errorf("%s %s: WWW-Authenticate %q", c.method, c.target, rec.Header().Get("WWW-Authenticate"))
		}
	}
	if rec := s.ask("POST", "/w", "", "Authorization: Bearer w", "X-Actor: another user"); rec.Body.String() != "writer" {
		t.Errorf("the actor is %q", rec.Body)
	}
	if !seen.Sees("/srv/a/b") || !seen.Sees("/srv/a") || seen.Sees("/srv/ab") || seen.Sees("/srv") || seen.Sees("") {
		t.Error("roots do not bound what is seen")
	}
	if seen.MayOpen("/srv/a/b") != nil || !errs.Is(seen.MayOpen("/srv/b"), errs.Forbidden) {
		t.Error("roots do not bound what is opened")
	}
	s.ask("GET", "/r", "", "Authorization: Bearer r")
	if !seen.Sees("/any") || !seen.Sees("") || seen.MayOpen("/any") == nil {
		t.Error("a token without roots sees everything and opens nothing")
	}
	if log := s.log.String(); !strings.Contains(log, "audit=true") || !strings.Contains(log, "token=reader") || strings.Contains(log, "Bearer") {
		t.Error(log)
	}
}

func TestWhoMayOpenWhat(t *testing.T) {
	var seen Caller
	see := func(c *gin.Context) error { seen = CallerOf(c); return nil }
	for _, c := range []struct {
		opts Options
		root string
		want bool
	}{
		{Options{}, "/any", true}, {Options{Hosted: true}, "/any", false}, {Options{Roots: []string{"/srv"}}, "/srv/x", true}, {Options{Roots: []string{"/srv"}}, "/any", false},
		{Options{Hosted: true, Roots: []string{"/srv"}}, "/srv/..x", true}, {Options{Roots: []string{"/"}}, "/any", true},
	} {
		s := newServer(t, c.opts, Route{Method: "GET", Pattern: "/x", Handler: see})
		s.ask("GET", "/x", "")
		if got := seen.MayOpen(c.root) == nil; got != c.want {
			t.Errorf("%+v %s: %v", c.opts, c.root, got)
		}
	}
}

func TestTags(t *testing.T) {
	s := newServer(t, Options{}, Route{Method: "POST", Pattern: "/x", Changes: true, Handler: func(c *gin.Context) error { JSON(c, 200, TagsOf(c)); return nil }})
	rec := s.ask("POST", "/x", "", "X-Task-Id: a1.b-c_d", "X-Subtask-Id: Z", "X-Actor: Jörg (bot)")
	if rec.Code != 200 || field(t, rec, "TaskID") != "a1.b-c_d" || field(t, rec, "SubtaskID") != "Z" || field(t, rec, "Actor") != "Jörg (bot)" {
		t.Error(rec.Code, rec.Body)
	}
	bad := []string{"", "-a", ".a", "a..b", "a.lock", "a/b", "a b", "a\nb", "é", strings.Repeat("a", 129), "a~1", "a\x00"}
	for _, id := range bad {
		for _, h := range []string{"X-Task-Id", "X-Subtask-Id"} {
			rec := s.ask("POST", "/x", "", h+": "+id)
			expect(t, rec, 400, "bad_tag")
		}
	}
	for _, actor := range []string{"", " ", "a<b", "a>b", "a\nb", "a\tb", "a\x7f", "\xff", strings.Repeat("é", 129), "a\u200bb", "a\u2028b"} {
		expect(t, s.ask("POST", "/x", "", "X-Actor: "+actor), 400, "bad_tag")
	}
	expect(t, s.ask("POST", "/x", "", "X-Task-Id: a", "X-Task-Id: b"), 400, "bad_tag")
	if rec := s.ask("POST", "/x", "", "X-Actor: "+strings.Repeat("é", 128)); rec.Code != 200 {
		t.Error(rec.Body)
	}
}

func TestErrorsHaveTheirShape(t *testing.T) {
	fail := func(err error) Handler { return func(*gin.Context) error { return err } }
	s := newServer(t, Options{},
		Route{Method: "GET", Pattern: "/conflict", Handler: fail(fmt.Errorf("below: %w", errs.New(errs.Conflict, "task_ended", "It is over.").With("task_id", "t")))},
		Route{Method: "GET", Pattern: "/bug", Handler: fail(errors.New("secret /home/x"))},
		Route{Method: "GET", Pattern: "/named-bug", Handler: fail(errs.New(errs.Internal, "leak", "secret /home/x").With("k", "secret"))},
		Route{Method: "GET", Pattern: "/panic", Handler: func(*gin.Context) error { panic("secret /home/x") }},
		Route{Method: "GET", Pattern: "/nospace", Handler: fail(&os.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC})},
		Route{Method: "GET", Pattern: "/no-json", Handler: func(c *gin.Context) error { JSON(c, 200, math.NaN()); return nil }},
		Route{Method: "GET", Pattern: "/no-json-error", Handler: fail(errs.New(errs.Conflict, "task_ended", "Over.").With("n", math.NaN()))},
		Route{Method: "GET", Pattern: "/late", Handler: func(c *gin.Context) error { c.String(200, "begun"); return errors.New("secret late") }},
	)
	rec := s.ask("GET", "/conflict", "")
	expect(t, rec, 409, "task_ended")
	if field(t, rec, "detail") != "It is over." || field(t, rec, "task_id") != "t" || field(t, rec, "request_id") == "" {
		t.Error(rec.Body)
	}
	for _, target := range []string{"/bug", "/named-bug", "/panic"} {
		rec := s.ask("GET", target, "")
		expect(t, rec, 500, "internal_error")
		if strings.Contains(rec.Body.String(), "secret") {
			t.Errorf("%s leaks: %s", target, rec.Body)
		}
	}
	if !strings.Contains(s.log.String(), "secret /home/x") {
		t.Error("the log lacks the cause")
	}
	expect(t, s.ask("GET", "/nospace", ""), 507, "insufficient_storage")
	expect(t, s.ask("GET", "/no-json", ""), 500, "internal_error")
	expect(t, s.ask("GET", "/no-json-error", ""), 409, "task_ended")
	if rec := s.ask("GET", "/late", ""); rec.Code != 200 || rec.Body.String() != "begun" {
		t.Error(rec.Code, rec.Body)
	}
	if rec := s.ask("GET", "/api/x", ""); rec.Code != 404 || field(t, rec, "error") != "The route does not exist; GET /docs lists all routes." || field(t, rec, "detail") != nil {
		t.Error(rec.Body)
	}
	expect(t, s.ask("GET", "/.well-known/oauth-authorization-server", ""), 404, "not_found")

	sessions := APIShape()
	sessions.Status = map[errs.Kind]int{errs.Precondition: 409}
	own := trialShape{Route{Method: "PUT", Pattern: "/api/s/{id}", Body: BodyJSON, Handler: fail(errs.New(errs.Precondition, "precondition_failed", "Another version."))}, sessions}
	tasks := trialShape{Route{Method: "GET", Pattern: "/tasks/{id}", Handler: fail(errs.New(errs.NotFound, "task_not_found", "No such task."))}, TaskShape()}
	server, err := New(s.opts, own, tasks)
	need.NoError(t, err)
	s.Server = server
	if rec := s.ask("PUT", "/api/s/1", "{}", jsonType); rec.Code != 409 || field(t, rec, "error") != "Another version." {
		t.Error(rec.Code, rec.Body)
	}
	if rec := s.ask("PUT", "/api/s/1", "{}"); rec.Code != 415 || len(rec.Body.String()) == 0 || field(t, rec, "request_id") != nil {
		t.Error(rec.Code, rec.Body)
	}
	rec = s.ask("GET", "/tasks/t1", "")
	expect(t, rec, 404, "task_not_found")
	if field(t, rec, "task_id") != "t1" {
		t.Error(rec.Body)
	}
}

type trialShape struct {
	Route
	s Shape
}

func (d trialShape) Register(r *Router) { r.With(d.s).Handle(d.Route) }
func (d trialShape) OpenAPI() []byte    { return nil }

func TestRates(t *testing.T) {
	s := newServer(t, Options{PerIPMinute: 3, PerMinute: 100}, Route{Method: "GET", Pattern: "/x", Handler: ok})
	for range 3 {
		if rec := s.ask("GET", "/x", ""); rec.Code != 200 {
			t.Fatal(rec.Body)
		}
	}
	rec := s.ask("GET", "/x", "")
	expect(t, rec, 429, "rate_limited")
	if after := rec.Header().Get("Retry-After"); after != "20" {
		t.Errorf("Retry-After: %s", after)
	}
	if rec := s.ask("GET", "/healthz", ""); rec.Code != 200 {
		t.Error("probes are limited")
	}
	l := newLimiter(60)
	now := time.Now()
	for i := range 2 * maxLimiters {
		if _, ok := l.allow(fmt.Sprint(i), now.Add(time.Duration(i))); !ok {
			t.Fatal("a new address is refused")
		}
	}
	if len(l.keys) > maxLimiters {
		t.Errorf("%d limiters are kept", len(l.keys))
	}
	if _, ok := l.allow("x", now.Add(2*time.Minute)); !ok {
		t.Error("a new address is refused")
	}
	if l.evict(now.Add(2 * time.Minute)); len(l.keys) != 1 {
		t.Errorf("%d limiters outlive their minute", len(l.keys))
	}
}

func TestHealth(t *testing.T) {
	notReady := error(nil)
	behind := 0
	s := newServer(t, Options{Version: "v1", Ready: func() error { return notReady }, RefsBehind: func() int { return behind }, Processes: func() int { return 3 }})
	rec := s.ask("GET", "/health", "")
	if rec.Code != 200 || field(t, rec, "status") != "ok" || field(t, rec, "version") != "v1" || field(t, rec, "activeProcesses") != 3.0 {
		t.Error(rec.Body)
	}
	if rec := s.ask("GET", "/readyz", ""); rec.Code != 200 || rec.Body.String() != "ready\n" {
		t.Error(rec.Body)
	}
	behind = 2
	if rec := s.ask("GET", "/readyz", ""); rec.Code != 200 || rec.Body.String() != "ready\nwarning: refs_behind 2\n" {
		t.Error(rec.Body)
	}
	notReady = errs.New(errs.NoSpace, "low_disk", "x")
	if rec := s.ask("GET", "/readyz", ""); rec.Code != 503 || !strings.Contains(rec.Body.String(), "low_disk") {
		t.Error(rec.Body)
	}
	if rec := s.ask("GET", "/healthz", ""); rec.Code != 200 || !strings.HasPrefix(rec.Header().Get("Content-Type"), "text/plain") {
		t.Error(rec.Body)
	}
}

func TestEveryRouteStandsInTheDocument(t *testing.T) {
	s := newServer(t, Options{Version: "v1"})
	rec := s.ask("GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string                    `json:"openapi"`
		Info    map[string]any            `json:"info"`
		Paths   map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil || !strings.HasPrefix(doc.OpenAPI, "3.1") || doc.Info["version"] != "v1" {
		t.Fatal(err, doc)
	}
	for _, rt := range s.Routes() {
		method, pattern, _ := strings.Cut(rt, " ")
		if doc.Paths[strings.ReplaceAll(pattern, "...}", "}")][strings.ToLower(method)] == nil {
			t.Errorf("%s is not in the document", rt)
		}
	}
}

func TestUnixSockets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	l, address, err := Listen("unix:" + path)
	if err != nil || address != "unix:"+path {
		t.Fatal(address, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st.Mode(), err)
	}
	if _, _, err := Listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "another server") {
		t.Fatal(err)
	}
	l.(interface{ SetUnlinkOnClose(bool) }).SetUnlinkOnClose(false)
	l.Close() // as a kill leaves it
	l, _, err = Listen("unix:" + path)
	need.NoError(t, err)
	l.Close()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatal("the socket outlives its server", err)
	}
	for _, make := range []func() error{func() error { return os.WriteFile(path, []byte("mine"), 0o600) }, func() error { return os.Symlink("x", path) }, func() error { return os.Mkdir(path, 0o700) }} {
		need.NoError(t, make())
		if _, _, err := Listen("unix:" + path); err == nil {
			t.Error("something else was replaced")
		}
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
		need.NoError(t, os.Remove(path))
	}
}

// BenchmarkFrame is what the middleware costs a request, log line included.
func BenchmarkFrame(b *testing.B) {
	s, err := New(Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), MaxJSON: 1 << 20, Answers: &memory{}},
		trial{[]Route{{Method: "PUT", Pattern: "/t/{id}/content", Body: BodyRaw, Changes: true, Handler: swallow}}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Stop()
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequest("PUT", "http://127.0.0.1/t/a/content?path=x", strings.NewReader("x"))
		s.ServeHTTP(httptest.NewRecorder(), req)
	}
}
