package tests

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestFrameRoutes(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	h := s.Do("GET", "/health", nil).Expect(200)
	if h.Text("status") != "ok" || h.Text("version") == "" || h.Field("activeProcesses") != 0.0 || h.Field("memoryUsage.rss").(float64) <= 0 {
		t.Error(string(h.Body))
	}
	for _, target := range []string{"/healthz", "/readyz"} {
		if r := s.Do("GET", target, nil).Expect(200); !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
			t.Error(target, r.Header)
		}
	}
	if r := s.Do("GET", "/openapi.json", nil).Expect(200); !strings.HasPrefix(r.Text("openapi"), "3.1") {
		t.Error(r.Text("openapi"))
	}
	if r := s.Do("GET", "/docs", nil).Expect(200); !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || strings.Contains(string(r.Body), "//cdn") {
		t.Error("the page")
	}
	if r := s.Do("HEAD", "/health", nil).Expect(200); len(r.Body) != 0 {
		t.Errorf("%q", r.Body)
	}
}

func TestWhatIsNoRoute(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	for _, target := range []string{"/nonsense", "/.well-known/oauth-authorization-server", "/.well-known/x/y", "/health/", "/HEALTH", "/%2e%2e/health", "//health", "/tasks%2Fx"} {
		r := s.Do("GET", target, nil).ExpectError(404, "not_found")
		if r.Text("detail") == "" || r.Text("request_id") != r.Header.Get("X-Request-Id") {
			t.Error(string(r.Body))
		}
	}
	r := s.Do("DELETE", "/health", nil).ExpectError(405, "method_not_allowed")
	if !strings.Contains(r.Header.Get("Allow"), "GET") {
		t.Error(r.Header)
	}
	s.Do("BREW", "/health", nil).ExpectError(405, "method_not_allowed")
	api := s.Do("GET", "/api/nonsense", nil).Expect(404)
	if sentence := api.Text("error"); !strings.Contains(sentence, " ") || api.Field("detail") != nil {
		t.Error(string(api.Body))
	}
}

func TestOddRequestsGetAnAnswer(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	for request, want := range map[string]int{
		"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n":                            403,
		"GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n\r\n":                            200,
		"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n":                             403,
		"GET /%zz HTTP/1.1\r\nHost: localhost\r\n\r\n":                                                  400,
		"GET /health HTTP/1.1\r\n\r\n":                                                                  400,
		"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n":                            400,
		"GET /tasks/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n":                                            404,
		"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 1<<17) + "\r\n\r\n": 431,
	} {
		if status, body := s.Raw(request); status != want {
			t.Errorf("%.60q: %d %s", request, status, body)
		}
	}
	s.Do("GET", "/health", nil).Expect(200)
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	long := strings.Repeat("x", 128)
	for id, kept := range map[string]bool{"one two": true, long: true, long + "x": false, "\u00e9": false} {
		r := s.Do("GET", "/health", nil, "X-Request-Id: "+id)
		got := r.Header.Get("X-Request-Id")
		if (got == id) != kept || got == "" {
			t.Errorf("%q came back as %q", id, got)
		}
		if _, ok := s.Log.Await(func(text string) bool { return strings.Contains(text, got) }, 10*time.Second); !ok {
			t.Errorf("%q is not in the log", got)
		}
	}
	if a, b := s.Do("GET", "/health", nil), s.Do("GET", "/health", nil); a.Header.Get("X-Request-Id") == b.Header.Get("X-Request-Id") {
		t.Error("two requests have one id")
	}
}

func TestHostAndOrigin(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Config: "http: {hosts: [umbra.example], origins: ['https://app.example']}\n"}).First()
	own := strings.TrimPrefix(s.URL, "http://")
	_, port, _ := net.SplitHostPort(own)
	for host, want := range map[string]int{own: 200, "localhost:" + port: 200, "[::1]": 200, "Umbra.Example": 200, "umbra.example:8": 200, "evil.example": 403, "evil.example:" + port: 403, "192.0.2.7": 403} {
		if r := s.Do("GET", "/health", nil, "Host: "+host); r.Status != want {
			t.Errorf("Host %s: %d", host, r.Status)
		}
	}
	for origin, want := range map[string]int{
		"http://" + own: 200, "https://app.example": 200, "http://umbra.example": 200, "https://umbra.example:8443": 200,
		"http://evil.example": 403, "null": 403, "http://app.example": 403, "http://127.0.0.1:1": 403, "https://app.example.evil": 403,
	} {
		r := s.Do("GET", "/health", nil, "Origin: "+origin)
		if r.Status != want {
			t.Errorf("Origin %s: %d", origin, r.Status)
		}
		if got := r.Header.Get("Access-Control-Allow-Origin"); (got == origin) != (origin == "https://app.example") || got == "*" {
			t.Errorf("Origin %s: allowed %q", origin, got)
		}
	}
	s.Do("GET", "/nonsense", nil, "Origin: http://evil.example").Expect(403)
	for _, target := range []string{"/healthz", "/readyz"} {
		s.Do("GET", target, nil, "Origin: http://evil.example", "Host: evil.example").Expect(200)
	}
	if status, _ := s.Raw("GET /health HTTP/1.0\r\n\r\n"); status != 403 {
		t.Errorf("without a Host: %d", status)
	}
}

func TestBearerTokens(t *testing.T) {
	t.Parallel()
	config := fmt.Sprintf("auth: {tokens: [{name: ci, scope: read, sha256: '%x'}, {name: old, scope: write, sha256: '%x', expires: '2020-01-01T00:00:00Z'}]}\n", sha256.Sum256([]byte("secret")), sha256.Sum256([]byte("past")))
	s := harness.Start(t, harness.Options{Config: config, Listen: "0.0.0.0:0"})
	for auth, want := range map[string]int{"": 401, "Bearer secret": 200, "bearer secret": 200, "Bearer wrong": 401, "Bearer past": 401, "Bearer ": 401, "Basic c2VjcmV0": 401, "secret": 401} {
		r := s.Do("GET", "/health", nil, "Authorization: "+auth, "Host: localhost")
		if r.Status != want {
			t.Errorf("%q: %d", auth, r.Status)
		}
		if want == 401 && (r.Text("error") != "unauthorized" || r.Header.Get("WWW-Authenticate") == "") {
			t.Error(string(r.Body), r.Header)
		}
	}
	for _, target := range []string{"/healthz", "/readyz", "/docs", "/openapi.json"} {
		s.Do("GET", target, nil, "Host: localhost").Expect(200)
	}
	s.Do("GET", "/nonsense", nil, "Host: localhost").Expect(401)
	if log, ok := s.Log.Await(func(text string) bool { return strings.Contains(text, "audit=true") }, 10*time.Second); !ok || strings.Contains(log, "secret") {
		t.Error(log)
	}
}

func TestOtherUsersAreKeptOut(t *testing.T) {
	t.Parallel()
	need.Root(t)
	const nobody = 65534
	ask := func(s *harness.Server, uid int) (status int) {
		conn := as(t, uid, strings.TrimPrefix(s.First().Address, "http://"))
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
		res, err := client.Get(s.URL + "/health")
		need.NoError(t, err)
		res.Body.Close()
		return res.StatusCode
	}
	for _, listen := range []string{"127.0.0.1:0", "[::1]:0"} {
		s := harness.Start(t, harness.Options{Listen: listen})
		if status := ask(s, os.Getuid()); status != 200 {
			t.Errorf("%s: our own process: %d", listen, status)
		}
		if status := ask(s, nobody); status != 403 {
			t.Errorf("%s: another user's process: %d", listen, status)
		}
	}
	open := harness.Start(t, harness.Options{Config: "auth: {peer: any}\n"})
	if status := ask(open, nobody); status != 200 {
		t.Errorf("peer any: %d", status)
	}
	token := harness.Start(t, harness.Options{Config: fmt.Sprintf("auth: {tokens: [{name: ci, scope: read, sha256: '%x'}]}\n", sha256.Sum256([]byte("s")))})
	if status := ask(token, nobody); status != 401 {
		t.Errorf("with tokens: %d", status)
	}
}

func TestAUserWhoDropsTheConnectionIsNotRoot(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	// The kernel lists a closed socket with user 0.
	for range 20 {
		conn := s.Dial()
		fmt.Fprint(conn, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
		conn.Close()
	}
	s.Do("GET", "/health", nil).Expect(200)
}
