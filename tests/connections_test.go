package tests

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// A server answers beyond its connections and its event streams, and takes new
// ones as soon as one is closed.
func TestConnectionsAndStreamsAreBounded(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Config: "limits:\n  connections: 8\n  streams: 2\n"}).First() // a node has limits of its own
	ws := s.Do("POST", "/tasks", obj{"goal": "x", "workspace": t.TempDir()}).Expect(201).Field("workspace_id").(string)

	subscribe := func() (status int, body string, conn net.Conn) {
		conn = s.Dial()
		fmt.Fprintf(conn, "GET /workspaces/%s/stream HTTP/1.1\r\nHost: localhost\r\n\r\n", ws)
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		need.NoError(t, err)
		if res.StatusCode != 200 {
			raw, _ := io.ReadAll(res.Body)
			body = string(raw)
		}
		return res.StatusCode, body, conn
	}
	var open []net.Conn
	for range 2 {
		status, body, conn := subscribe()
		if status != 200 {
			t.Fatalf("a stream within the limit: %d %s", status, body)
		}
		open = append(open, conn)
	}
	status, body, conn := subscribe()
	conn.Close()
	if status != 503 || !strings.Contains(body, "too_many_streams") {
		t.Errorf("a stream beyond the limit: %d %s", status, body)
	}
	metrics := string(s.Do("GET", "/metrics", nil).Expect(200).Body)
	if !strings.Contains(metrics, "\numbra_http_streams 2\n") {
		t.Error("the metrics do not have two streams")
	}
	open[0].Close()
	eventually(t, func() bool {
		status, _, conn := subscribe()
		if status == 200 {
			open[0] = conn
			return true
		}
		conn.Close()
		return false
	})
	for _, c := range open {
		c.Close()
	}

	// Silent connections until one is answered without having asked.
	var idle []net.Conn
	refused := ""
	for range 20 {
		c := s.Dial()
		idle = append(idle, c)
		c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if raw, _ := io.ReadAll(c); len(raw) > 0 {
			refused = string(raw)
			break
		}
	}
	if !strings.HasPrefix(refused, "HTTP/1.1 503 ") || !strings.Contains(refused, "too_many_connections") {
		t.Errorf("%d connections are open, and the last was answered %q", len(idle), refused)
	}
	for _, c := range idle {
		c.Close()
	}
	eventually(t, func() bool {
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(s.URL + "/healthz")
		if err != nil {
			return false
		}
		res.Body.Close()
		return res.StatusCode == 200
	})
}

// The kernel that the tests run on has all walls around programs, and so has the
// program as it is built: a server that requires them starts and runs one.
func TestSandboxCanBeRequired(t *testing.T) {
	t.Parallel()
	c := startCoder(t, harness.Options{Config: "sandbox:\n  require: true\n"})
	if r := c.run(t, "console.log(6*7)", nil); r.status != 200 || r.Stdout != "42\n" {
		t.Errorf("%+v", r)
	}
	if strings.Contains(c.Log.String(), "without a wall") {
		t.Errorf("the log has a warning:\n%s", c.Log)
	}
}
