package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"umbra/config"
	"umbra/httpapi"
	"umbra/internal/need"
)

// A node that waits for its engine answers probes, and refuses everything else.
func TestStarting(t *testing.T) {
	engine, err := net.Listen("tcp", "127.0.0.1:0") // never answers
	need.NoError(t, err)
	own, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	cfg := config.Default()
	cfg.Listen, cfg.DataDir = own.Addr().String(), t.TempDir()
	own.Close()
	cfg.Cluster.URL = "postgres://umbra@" + engine.Addr().String() + "/umbra"
	cfg.Cluster.Blobs = "s3://bucket/prefix?region=us-east-1"
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		err := Serve(ctx, cfg, Options{}, io.Discard, io.Discard)
		engine.Close()
		ended <- err
	}()
	conn, err := engine.Accept() // the server listens before it connects to its engine
	if err != nil {
		t.Fatalf("the server has ended: %v", <-ended)
	}
	defer conn.Close()
	get := func(path string, headers ...string) (*http.Response, string) {
		t.Helper()
		r, err := http.NewRequest("GET", "http://"+cfg.Listen+path, nil)
		need.NoError(t, err)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		res, err := http.DefaultClient.Do(r)
		need.NoError(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		need.NoError(t, err)
		return res, string(body)
	}
	for _, c := range []struct {
		path   string
		status int
		body   string
	}{
		{"/healthz", 200, "ok\n"},
		{"/readyz", 503, "not ready: starting\n"},
		{"/readyz?for=writes", 503, "not ready: starting\n"},
	} {
		if res, body := get(c.path); res.StatusCode != c.status || body != c.body {
			t.Errorf("%s: %d %q", c.path, res.StatusCode, body)
		}
	}
	res, body := get("/workspaces")
	var problem map[string]string
	need.NoError(t, json.Unmarshal([]byte(body), &problem))
	if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || problem["error"] != "starting" || problem["detail"] == "" || problem["request_id"] != res.Header.Get("X-Request-Id") {
		t.Errorf("%d %v %v", res.StatusCode, res.Header, problem)
	}
	// Another node tries again, and does not pass this on.
	if res, _ := get("/workspaces", "Umbra-Forwarded: x.y"); res.StatusCode != 421 {
		t.Errorf("forwarded: %d", res.StatusCode)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("a start that was interrupted is none")
	}
}

// The listener goes from the lobby to the server without a connection lost.
func TestLobbyLeaves(t *testing.T) {
	l, address, err := httpapi.Listen("127.0.0.1:0")
	need.NoError(t, err)
	defer l.Close()
	b := openLobby(l, nil)
	stop, asked := make(chan struct{}), make(chan map[string]int)
	go func() {
		seen := map[string]int{}
		client := http.Client{Transport: &http.Transport{}}
		defer func() { asked <- seen }()
		for {
			res, err := client.Get(address + "/readyz")
			if err != nil {
				seen[err.Error()]++
			} else {
				var body bytes.Buffer
				_, _ = body.ReadFrom(res.Body)
				res.Body.Close()
				seen[body.String()]++
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	need.NoError(t, b.leave())
	answered := make(chan struct{}, 1)
	next := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "ready\n")
		select {
		case answered <- struct{}{}:
		default:
		}
	})}
	go func() { _ = next.Serve(l) }()
	<-answered
	close(stop)
	seen := <-asked
	next.Close()
	if len(seen) > 2 || seen["ready\n"] == 0 || len(seen) == 2 && seen["not ready: starting\n"] == 0 {
		t.Errorf("%v", seen)
	}
}

// Who connected to the lobby before it left is answered, also if the request comes later.
func TestLobbyAnswersThoseBefore(t *testing.T) {
	l, address, err := httpapi.Listen("127.0.0.1:0")
	need.NoError(t, err)
	defer l.Close()
	b := openLobby(l, nil)
	c, err := net.Dial("tcp", l.Addr().String())
	need.NoError(t, err)
	defer c.Close()
	res, err := http.Get(address + "/healthz") // connections are accepted in their order
	need.NoError(t, err)
	res.Body.Close()
	need.NoError(t, b.leave())
	_, err = io.WriteString(c, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
	need.NoError(t, err)
	answer, err := io.ReadAll(c)
	need.NoError(t, err)
	if !strings.Contains(string(answer), "not ready: starting\n") {
		t.Errorf("%q", answer)
	}
}
