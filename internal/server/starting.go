package server

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"umbra/httpapi/forward"
)

// lobby answers on the server's address while a node of a cluster waits for the
// engine and the store: probes learn that it lives and is not ready, and everybody
// else that nothing was done.
type lobby struct {
	http  *http.Server
	l     deadlineListener
	ended chan struct{}
}

// deadlineListener is what Listen of package httpapi returns.
type deadlineListener interface {
	net.Listener
	SetDeadline(t time.Time) error
}

// openLobby answers on l until leave, or until l is closed. secure is nil for plain
// HTTP. Without a listener that can be handed on it returns nil.
func openLobby(l net.Listener, secure *tls.Config) *lobby {
	d, ok := l.(deadlineListener)
	if !ok {
		return nil
	}
	b := &lobby{l: d, ended: make(chan struct{}), http: &http.Server{Handler: http.HandlerFunc(answerStarting),
		ReadHeaderTimeout: lobbyPatience, WriteTimeout: lobbyPatience, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}}
	b.http.SetKeepAlivesEnabled(false) // the next request is the server's
	b.http.Protocols = new(http.Protocols)
	b.http.Protocols.SetHTTP1(true)
	go func() {
		defer close(b.ended)
		if secure != nil {
			b.http.TLSConfig = secure.Clone()
			_ = b.http.ServeTLS(lent{d}, "", "")
		} else {
			_ = b.http.Serve(lent{d})
		}
	}()
	return b
}

// lobbyPatience bounds how long a client of the lobby may take to send its request, and
// to take the answer.
const lobbyPatience = 5 * time.Second

// leave hands the listener on: connections that come from now on are the next
// server's. Those of before are answered once, and end within twice lobbyPatience.
func (b *lobby) leave() error {
	if b == nil {
		return nil
	}
	if err := b.l.SetDeadline(time.Unix(1, 0)); err != nil {
		return fmt.Errorf("the listener was not handed on: %w", err)
	}
	<-b.ended
	// Nothing is shut down: that would close what has not sent its request yet.
	return b.l.SetDeadline(time.Time{})
}

// lent is a listener that stays open, and whose deadline ends its use.
type lent struct{ deadlineListener }

func (l lent) Accept() (net.Conn, error) {
	c, err := l.deadlineListener.Accept()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = http.ErrServerClosed
	}
	return c, err
}

func (l lent) Close() error { return nil }

func answerStarting(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if forward.Signed(r) { // the other node looks for the owner again
		w.WriteHeader(http.StatusMisdirectedRequest)
		return
	}
	switch r.URL.Path {
	case "/healthz":
		plainText(w, http.StatusOK, "ok\n")
	case "/readyz":
		w.Header().Set("Retry-After", "1")
		plainText(w, http.StatusServiceUnavailable, "not ready: starting\n")
	default:
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		id := rand.Text()
		w.Header().Set("X-Request-Id", id)
		w.WriteHeader(http.StatusServiceUnavailable)
		// A client that is gone needs no answer.
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "starting", "detail": "The node starts; nothing was done.", "request_id": id})
	}
}

func plainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that is gone needs no answer
}
