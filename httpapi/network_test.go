package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/need"
)

// pipes is a listener whose connections are in memory, so that a test's clock
// does not move while a goroutine works.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.done); return nil }

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.conns <- server
	return client
}

// onPipes runs f against a server in a bubble, and stops the server after it.
func onPipes(t *testing.T, routes []Route, f func(t *testing.T, s *setup, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{}, routes...)
		p := newPipes()
		served := make(chan error, 1)
		go func() { served <- s.Serve(p) }()
		f(t, s, p)
		if !s.Stop() {
			t.Error("a handler still runs")
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func readAnswer(t *testing.T, conn net.Conn) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	need.NoError(t, err)
	body, err := io.ReadAll(res.Body)
	need.NoError(t, err)
	return res, string(body)
}

func swallow(c *gin.Context) error {
	n, err := io.Copy(io.Discard, BodyReader(c))
	if err != nil {
		return err
	}
	JSON(c, 200, n)
	return nil
}

var bodyRoutes = []Route{
	{Method: "PUT", Pattern: "/x", Body: BodyRaw, MaxBody: 1 << 20, Handler: swallow},
	{Method: "POST", Pattern: "/json", Body: BodyJSON, Handler: ok},
}

func TestAHeadThatDoesNotEndIsCutOff(t *testing.T) {
	onPipes(t, bodyRoutes, func(t *testing.T, s *setup, p *pipes) {
		conn := p.dial()
		start := time.Now()
		fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: loc")
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != headTimeout {
			t.Errorf("after %v", took)
		}
	})
}

func TestABodyThatStallsIs408(t *testing.T) {
	onPipes(t, bodyRoutes, func(t *testing.T, s *setup, p *pipes) {
		conn := p.dial()
		fmt.Fprint(conn, "PUT /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
		for range 3 { // slow is not idle
			<-time.After(bodyIdle - time.Second)
			fmt.Fprint(conn, "x")
		}
		start := time.Now()
		res, body := readAnswer(t, conn)
		if res.StatusCode != 408 || !strings.Contains(body, `"request_timeout"`) || time.Since(start) != bodyIdle {
			t.Errorf("%d %s after %v", res.StatusCode, body, time.Since(start))
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("the connection is kept")
		}
	})
}

func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	onPipes(t, bodyRoutes, func(t *testing.T, s *setup, p *pipes) {
		conn := p.dial()
		start := time.Now()
		fmt.Fprint(conn, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
		res, body := readAnswer(t, conn)
		if res.StatusCode != 415 || time.Since(start) > 0 {
			t.Errorf("%d %s after %v", res.StatusCode, body, time.Since(start))
		}
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(start) > lingerIdle {
			t.Errorf("the connection is kept for %v", time.Since(start))
		}
	})
}

func TestAClientThatSendsTooMuchGetsItsAnswer(t *testing.T) {
	onPipes(t, bodyRoutes, func(t *testing.T, s *setup, p *pipes) {
		const n = 8 << 20
		for _, head := range []string{fmt.Sprintf("Content-Length: %d\r\n\r\n", n), "Transfer-Encoding: chunked\r\n\r\n"} {
			conn := p.dial()
			sent := make(chan error, 1)
			answers := make(chan string, 1)
			go func() { // a pipe has no buffer: it must be read
				res, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					answers <- err.Error()
					return
				}
				answers <- res.Status
			}()
			go func() {
				_, err := fmt.Fprintf(conn, "PUT /x HTTP/1.1\r\nHost: localhost\r\n%s", head)
				for i := 0; i < n && err == nil; i += 64 << 10 {
					piece := strings.Repeat("x", 64<<10)
					if strings.HasPrefix(head, "T") {
						piece = fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
					}
					_, err = io.WriteString(conn, piece)
				}
				if err == nil && strings.HasPrefix(head, "T") {
					_, err = io.WriteString(conn, "0\r\n\r\n")
				}
				sent <- err
			}()
			if err := <-sent; err != nil {
				t.Error(head, err)
			}
			if status := <-answers; !strings.HasPrefix(status, "413") {
				t.Error(head, status)
			}
			conn.Close()
		}
	})
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	onPipes(t, append(bodyRoutes, Route{Method: "PUT", Pattern: "/slow", Body: BodyRaw, Handler: func(c *gin.Context) error {
		if err := swallow(c); err != nil {
			return err
		}
		select {
		case <-time.After(2 * bodyIdle): // the body's deadline must not be left behind
			return nil
		case <-c.Request.Context().Done():
			return c.Err()
		}
	}}), func(t *testing.T, s *setup, p *pipes) {
		conn := p.dial()
		for _, target := range []string{"/x", "/slow", "/x"} {
			fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", target)
			if res, body := readAnswer(t, conn); res.StatusCode != 200 || body != "3\n" {
				t.Fatal(target, res.StatusCode, body)
			}
		}
	})
}

func TestAReaderThatStallsIsCutOff(t *testing.T) {
	var ended chan error // of the bubble
	big := make([]byte, 4*writePiece)
	onPipes(t, []Route{{Method: "GET", Pattern: "/big", Handler: func(c *gin.Context) error {
		_, err := c.Writer.Write(big)
		ended <- err
		return nil
	}}, {Method: "DELETE", Pattern: "/big", Handler: func(c *gin.Context) error { c.Status(204); return nil }}}, func(t *testing.T, s *setup, p *pipes) {
		ended = make(chan error, 1)
		conn := p.dial()
		fmt.Fprint(conn, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		start := time.Now()
		if err := <-ended; err == nil || time.Since(start) != writeIdle {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		conn.Close()
		// Slow is not stalled, and the bound does not outlive its answer.
		conn = p.dial()
		fmt.Fprint(conn, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		r := bufio.NewReader(conn)
		res, err := http.ReadResponse(r, nil)
		need.NoError(t, err)
		for left := len(big); left > 0; left -= writePiece / 2 {
			<-time.After(writeIdle / 3)
			if _, err := io.CopyN(io.Discard, res.Body, writePiece/2); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := res.Body.Read(make([]byte, 1)); err != io.EOF {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		<-time.After(writeIdle + time.Second)
		fmt.Fprint(conn, "DELETE /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if res, err := http.ReadResponse(r, nil); err != nil || res.StatusCode != 204 {
			t.Error(res, err)
		}
	})
}

func TestAStopFinishesWhatWasAccepted(t *testing.T) {
	begun := make(chan struct{})
	route := Route{Method: "GET", Pattern: "/work", Handler: func(c *gin.Context) error {
		close(begun)
		<-time.After(5 * time.Second)
		c.String(200, "done")
		return nil
	}}
	synctest.Test(t, func(t *testing.T) {
		begun = make(chan struct{})
		s := newServer(t, Options{}, route)
		p := newPipes()
		go s.Serve(p)
		idle := p.dial() // connected, as browsers do, and never used
		conn := p.dial()
		fmt.Fprint(conn, "GET /work HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-begun
		start := time.Now()
		stopped := make(chan bool)
		go func() { stopped <- s.Stop() }()
		if res, body := readAnswer(t, conn); res.StatusCode != 200 || body != "done" {
			t.Error(res.StatusCode, body)
		}
		if clean := <-stopped; !clean || time.Since(start) != 5*time.Second {
			t.Errorf("%v, %v after the last request", clean, time.Since(start)-5*time.Second)
		}
		if _, err := idle.Read(make([]byte, 1)); err == nil {
			t.Error("the idle connection is open")
		}
	})
}

// Refuse closes what has no request, and a request that takes longer is answered all the same.
func TestRefuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{}, 1)
		s := newServer(t, Options{}, Route{Method: "GET", Pattern: "/work", Handler: func(c *gin.Context) error {
			begun <- struct{}{}
			<-time.After(5 * time.Second)
			c.String(200, "done")
			return nil
		}})
		p := newPipes()
		served := make(chan error, 1)
		go func() { served <- s.Serve(p) }()
		kept, conn := p.dial(), p.dial()
		fmt.Fprint(kept, "GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if res, _ := readAnswer(t, kept); res.StatusCode != 404 || res.Close {
			t.Error(res.StatusCode, res.Close)
		}
		fmt.Fprint(conn, "GET /work HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-begun
		start := time.Now()
		s.Refuse(300 * time.Millisecond)
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Error(took)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if _, err := kept.Read(make([]byte, 1)); err == nil {
			t.Error("a connection without a request is open")
		}
		stopped := make(chan bool)
		go func() { stopped <- s.StopWithin(8 * time.Second) }()
		if res, body := readAnswer(t, conn); res.StatusCode != 200 || body != "done" || !res.Close {
			t.Error(res.StatusCode, body, res.Close)
		}
		if clean := <-stopped; !clean || time.Since(start) != 5*time.Second {
			t.Error(clean, time.Since(start))
		}
	})
}

// A connection that has had no request for long does not hold a stop back.
func TestAStopClosesUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, Options{})
		p := newPipes()
		go s.Serve(p)
		old := p.dial()
		<-time.After(300 * time.Millisecond)
		unused := p.dial()
		<-time.After(300 * time.Millisecond)
		start := time.Now()
		if clean := s.Stop(); !clean || time.Since(start) != 200*time.Millisecond {
			t.Error(clean, time.Since(start))
		}
		for _, conn := range []net.Conn{old, unused} {
			if _, err := conn.Read(make([]byte, 1)); err == nil {
				t.Error("an unused connection is open")
			}
		}
	})
}

func TestAStopWaitsForNobodyTooLong(t *testing.T) {
	begun := make(chan struct{}, 3)
	routes := []Route{
		{Method: "PUT", Pattern: "/trickle", Body: BodyRaw, Handler: func(c *gin.Context) error { begun <- struct{}{}; return swallow(c) }},
		{Method: "GET", Pattern: "/program", Handler: func(c *gin.Context) error {
			begun <- struct{}{}
			<-c.Request.Context().Done()
			return context.Cause(c.Request.Context())
		}},
		{Method: "GET", Pattern: "/endless", Handler: func(c *gin.Context) error {
			begun <- struct{}{}
			for {
				if _, err := c.Writer.Write(make([]byte, 1<<16)); err != nil {
					return err
				}
			}
		}},
	}
	for _, end := range []time.Duration{stopEnd, 4 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			begun = make(chan struct{}, 3)
			s := newServer(t, Options{}, routes...)
			p := newPipes()
			go s.Serve(p)
			trickle, program, stuck := p.dial(), p.dial(), p.dial()
			fmt.Fprint(trickle, "PUT /trickle HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\n")
			<-begun
			fmt.Fprint(program, "GET /program HTTP/1.1\r\nHost: localhost\r\n\r\n")
			<-begun
			fmt.Fprint(stuck, "GET /endless HTTP/1.1\r\nHost: localhost\r\n\r\n")
			<-begun
			start := time.Now()
			stopped := make(chan bool)
			go func() { stopped <- s.StopWithin(end) }()
			go func() {
				for range 90 {
					<-time.After(100 * time.Millisecond)
					if _, err := fmt.Fprint(trickle, "x"); err != nil {
						return
					}
				}
			}()
			for name, conn := range map[string]net.Conn{"trickle": trickle, "program": program} {
				if res, body := readAnswer(t, conn); res.StatusCode != 503 || !strings.Contains(body, `"stopping"`) {
					t.Error(name, res.StatusCode, body)
				}
			}
			if clean := <-stopped; !clean || time.Since(start) > end {
				t.Error(clean, time.Since(start))
			}
		})
	}
}

func TestStreams(t *testing.T) {
	events := make(chan Event)
	route := Route{Method: "GET", Pattern: "/stream", Stream: true, Handler: func(c *gin.Context) error {
		return ServeEvents(c, func(ctx context.Context) (Event, error) {
			select {
			case e, ok := <-events:
				if !ok {
					return Event{}, io.EOF
				}
				return e, nil
			case <-ctx.Done():
				return Event{}, ctx.Err()
			}
		})
	}}
	open := func(p *pipes) (net.Conn, *bufio.Reader) {
		conn := p.dial()
		fmt.Fprint(conn, "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
			t.Fatal(res, err)
		}
		return conn, bufio.NewReader(res.Body)
	}
	read := func(r *bufio.Reader) string {
		var all strings.Builder
		for {
			line, err := r.ReadString('\n')
			all.WriteString(line)
			if err != nil || line == "\n" {
				return all.String()
			}
		}
	}
	t.Run("events", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			events = make(chan Event)
			s := newServer(t, Options{}, route)
			p := newPipes()
			go s.Serve(p)
			conn, r := open(p)
			events <- Event{ID: "7", Name: "change", Data: []byte(`{"a":1}`)}
			if got := read(r); got != "id: 7\nevent: change\ndata: {\"a\":1}\n\n" {
				t.Errorf("%q", got)
			}
			events <- Event{Data: []byte("a\nid: forged\r\nb\rc")}
			if got := read(r); got != "data: a\ndata: id: forged\ndata: b\ndata: c\n\n" {
				t.Errorf("%q", got)
			}
			start := time.Now()
			if got := read(r); got != ":\n\n" || time.Since(start) != heartbeat {
				t.Errorf("%q after %v", got, time.Since(start))
			}
			// A client that does not read is cut off; the handler ends.
			events <- Event{Data: []byte("never read")}
			events <- Event{Data: []byte("never read")}
			synctest.Wait()
			<-time.After(writeIdle)
			synctest.Wait()
			if s.running.n != 0 {
				t.Error("the handler waits for a client that is stuck")
			}
			conn.Close()
			conn, r = open(p)
			close(events)
			if got := read(r); got != "" {
				t.Errorf("%q", got)
			}
			conn.Close()
			s.Stop()
		})
	})
	t.Run("stop", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			events = make(chan Event)
			s := newServer(t, Options{}, route)
			p := newPipes()
			go s.Serve(p)
			conn, r := open(p)
			gone, _ := open(p)
			gone.Close()
			start := time.Now()
			go read(r)
			if !s.Stop() || time.Since(start) > time.Second {
				t.Errorf("a stream holds the stop back for %v", time.Since(start))
			}
			conn.Close()
		})
	})
}
