package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"umbra/internal/client"
	"umbra/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, h http.HandlerFunc, o client.Options) *client.Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	if o.Address == "" {
		o.Address = s.URL
	}
	return open(t, o)
}

func open(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	need.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestAddresses(t *testing.T) {
	for _, good := range []string{"http://127.0.0.1:1", "https://example.org/prefix/", "unix:/tmp/x", "http://[::1]:80"} {
		if _, err := client.New(client.Options{Address: good}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "localhost:80", "ftp://x", "http://", "http://u:p@x", "http://x?y", "http://x#y", "://"} {
		if _, err := client.New(client.Options{Address: bad}); !errors.Is(err, client.ErrAddress) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// What a request carries, and under which name the server is called.
func TestRequest(t *testing.T) {
	var got *http.Request
	var body string
	h := func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got, body = r, string(raw)
		io.WriteString(w, "{}\n")
	}
	c := serve(t, h, client.Options{Token: "secret", Actor: "me"})
	_, err := c.JSON(context.Background(), client.Request{Method: "POST", Path: client.Path("tasks", "a/b c"), Query: url.Values{"path": {"x\xff"}},
		Body: map[string]any{"a": 1}, Subtask: "s"}, nil)
	need.NoError(t, err)
	if got.RequestURI != "/tasks/a%2Fb%20c?path=x%FF" || body != `{"a":1}` {
		t.Error(got.RequestURI, body)
	}
	for name, want := range map[string]string{"Authorization": "Bearer secret", "X-Actor": "me", "X-Subtask-Id": "s", "Content-Type": "application/json", "Accept": "application/json"} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s is %q", name, v)
		}
	}
	// A reader signs nothing.
	if _, err := c.JSON(context.Background(), client.Request{Path: "/"}, nil); err != nil || got.Header.Get("X-Actor") != "" {
		t.Error(err, got.Header)
	}
}

// The owner's own server is called by a loopback name, whatever it listens on.
func TestOwn(t *testing.T) {
	var host string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { host = r.Host; io.WriteString(w, "{}") }))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	need.NoError(t, err)
	for _, address := range []string{"http://127.0.0.1:" + port, "http://0.0.0.0:" + port} {
		c := open(t, client.Options{Address: address, Own: true})
		if _, err := c.JSON(context.Background(), client.Request{Path: "/"}, nil); err != nil || host != "localhost:"+port {
			t.Errorf("%s: called as %q, %v", address, host, err)
		}
		c.Close()
	}
}

func TestErrors(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/shape":
			w.WriteHeader(409)
			io.WriteString(w, `{"error":"revert_conflict","detail":"Something else changed it.","conflicts":[{}]}`)
		case "/plain":
			http.Error(w, "no", http.StatusBadGateway)
		case "/elsewhere":
			http.Redirect(w, r, "/shape", http.StatusFound)
		case "/garbage":
			io.WriteString(w, "<html>")
		}
	}, client.Options{})
	for path, want := range map[string]string{
		"/shape":     "Something else changed it (revert_conflict)",
		"/plain":     "the server answered 502 Bad Gateway",
		"/elsewhere": "the server answered 302 Found",
		"/garbage":   "the answer of /garbage is not JSON; is the address that of umbra?",
	} {
		var v any
		if _, err := c.JSON(context.Background(), client.Request{Path: path}, &v); err == nil || err.Error() != want {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := c.Do(context.Background(), client.Request{Path: "/shape"})
	e, ok := errors.AsType[*client.Error](err)
	if !ok || client.CodeOf(err) != "revert_conflict" || !strings.Contains(string(e.Body), "conflicts") {
		t.Errorf("%#v", err)
	}
	if client.CodeOf(io.EOF) != "" {
		t.Error("a code of no answer")
	}
}

// What is put off is sent again, with its body; not for ever.
func TestPutOff(t *testing.T) {
	var calls atomic.Int32
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if n := calls.Add(1); r.URL.Path == "/never" || n == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(429)
			return
		}
		w.Write(body)
	}, client.Options{})
	raw, err := c.JSON(context.Background(), client.Request{Method: "POST", Path: "/", Body: "x"}, nil)
	if err != nil || string(raw) != `"x"` || calls.Load() != 2 {
		t.Errorf("%s, %v after %d calls", raw, err, calls.Load())
	}
	calls.Store(0)
	if _, err := c.JSON(context.Background(), client.Request{Path: "/never"}, nil); err == nil || calls.Load() != 5 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestPages(t *testing.T) {
	var asked []string
	pages := map[string]string{"": `{"xs":[1,2],"next":"b"}`, "b": `{"xs":[],"next":"c"}`, "c": `{"xs":[3],"next":null}`}
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RawQuery)
		io.WriteString(w, pages[r.URL.Query().Get("after")])
	}, client.Options{})
	var got []int
	q := url.Values{"k": {"v"}}
	for item, err := range client.Pages[int](context.Background(), c, "/xs", "xs", q, 2) {
		need.NoError(t, err)
		got = append(got, item.Value)
	}
	if len(got) != 3 || got[2] != 3 || len(asked) != 3 || asked[1] != "after=b&k=v&limit=2" || len(q) != 1 {
		t.Error(got, asked, q)
	}
	// Who has enough asks for no more.
	asked = nil
	for range client.Pages[int](context.Background(), c, "/xs", "xs", nil, 2) {
		break
	}
	if len(asked) != 1 {
		t.Error(asked)
	}
	// A wrong element and a wrong page are errors.
	pages[""] = `{"xs":["no"],"next":null}`
	failed := 0
	for _, err := range client.Pages[int](context.Background(), c, "/xs", "xs", nil, 2) {
		if err != nil {
			failed++
		}
	}
	pages[""] = `{"next":null}`
	for _, err := range client.Pages[int](context.Background(), c, "/xs", "xs", nil, 2) {
		if err != nil {
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d errors", failed)
	}
}

func TestUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	need.NoError(t, err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(r.Host) })}
	done := make(chan struct{})
	go func() { s.Serve(l); close(done) }()
	defer func() { s.Close(); <-done }()
	c := open(t, client.Options{Address: "unix:" + path})
	var host string
	if _, err := c.JSON(context.Background(), client.Request{Path: "/"}, &host); err != nil || host != "localhost" {
		t.Error(host, err)
	}
}

// A server on a pipe answers as on any listener, and its end is seen.
func TestPipe(t *testing.T) {
	p := client.NewPipe()
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		io.Copy(w, r.Body)
	})}
	done := make(chan error, 1)
	go func() { done <- s.Serve(p) }()
	c := open(t, client.Options{Dial: p.Dial})
	big := strings.Repeat("x", 1<<20)
	var got string
	if _, err := c.JSON(context.Background(), client.Request{Method: "POST", Path: "/", Body: big}, &got); err != nil || got != big {
		t.Error(len(got), err)
	}
	c.Close()
	if err := s.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if _, err := c.JSON(context.Background(), client.Request{Path: "/"}, nil); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := client.NewPipe().Dial(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestEntry(t *testing.T) {
	var e client.Entry
	raw := `{"id":3,"seq":7,"task_id":"t","subtask_id":null,"timestamp":"2026-01-02T03:04:05Z","operation":"rename","path":"a%FF","path_encoding":"percent",
		"new_path":"b%25","commit":"c","actor":"x","reverts":[1],"source":"api","more":{}}`
	need.NoError(t, json.Unmarshal([]byte(raw), &e))
	if *e.ID != 3 || e.Path != "a\xff" || e.NewPath != "b%" || e.SubtaskID != "" || e.TaskID != "t" || len(e.Reverts) != 1 {
		t.Errorf("%+v", e)
	}
	if err := json.Unmarshal([]byte(`{"seq":"x"}`), &e); err == nil {
		t.Error("a wrong type is taken")
	}
	if got := client.Bytes("a%zz", "percent"); got != "a%zz" {
		t.Error(got)
	}
}
