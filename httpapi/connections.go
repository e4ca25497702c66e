package httpapi

import (
	"context"
	"net"
	"net/http"
	"time"
)

// boundedListener refuses each connection that is accepted while as many are open
// as the server may have, so that neither descriptors nor memory grow with the
// clients. It does not wait until one closes: a client with an answer can retry.
// The connections are counted by connState, which http.Server.Serve calls between
// two calls of Accept, so that each keeps its own type and with it sendfile(2).
type boundedListener struct {
	net.Listener
	s *Server
}

// tooMany is the answer to a connection beyond the bound. It is sent before a
// request was read; a client of HTTPS sees only a closed connection.
const tooMany = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n\r\n" +
	`{"error":"too_many_connections","detail":"Too many connections are open (limits.connections)."}` + "\n"

func (l boundedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		most, count := int64(l.s.opts.MaxConnections), l.s.opts.Requests
		if err != nil || most <= 0 || count.Connections.Load() < most {
			return c, err
		}
		count.RefusedConnections.Add(1)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // an empty buffer takes it at once
		_, _ = c.Write([]byte(tooMany))
		_ = c.Close()
	}
}

// connState counts the connections, and keeps those that were only made, as
// browsers do ahead of need: they hold no request, and do not hold a stop back.
func (s *Server) connState(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.opts.Requests.Connections.Add(1)
	case http.StateClosed, http.StateHijacked:
		s.opts.Requests.Connections.Add(-1)
	}
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if state == http.StateNew {
		s.fresh[conn] = time.Now()
		return
	}
	delete(s.fresh, conn)
	if state != http.StateActive {
		select {
		case s.settled <- struct{}{}:
		default:
		}
	}
}

// closeConnections ends listening, and each connection once it has no request. It reports
// whether all are closed; when cut has a value it waits for no more.
//
// Shutdown looks for connections to close at intervals of up to half a second: it is
// called again whenever there may be one, and never waits.
func (s *Server) closeConnections(cut <-chan time.Time) (all bool) {
	never, cancel := context.WithCancel(context.Background())
	cancel()
	unused := time.NewTimer(0)
	defer unused.Stop()
	for s.http.Shutdown(never) != nil {
		select {
		case <-s.settled:
		case <-unused.C:
			unused.Reset(s.closeFresh())
		case <-cut:
			return false
		}
	}
	return true
}

// closeFresh closes the connections that had no request within stopFresh, and returns
// when the next one is due.
func (s *Server) closeFresh() (next time.Duration) {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	next = stopFresh
	for conn, since := range s.fresh {
		if left := stopFresh - time.Since(since); left > 0 {
			next = min(next, left)
		} else {
			conn.Close()
		}
	}
	return next
}
