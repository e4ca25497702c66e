package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"

	"umbra/internal/errs"
)

// errPeerUnknown means that the system does not report the owner of a connection.
var errPeerUnknown = errors.New("the owner of the connection cannot be found out")

// peer is what is known of a connection's other end. It is asked for once, with
// the first request: accepting a connection does not wait for it.
type peer struct {
	conn net.Conn
	once sync.Once
	uid  int
	err  error

	asked sync.Once
	other bool // remote
}

type peerKey struct{}

// withPeer is an http.Server's ConnContext.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return context.WithValue(ctx, peerKey{}, &peer{conn: conn})
}

func peerOf(ctx context.Context) *peer {
	p, _ := ctx.Value(peerKey{}).(*peer)
	return p
}

// owner gives the user id of the process at the other end.
func (p *peer) owner() (int, error) {
	p.once.Do(func() { p.uid, p.err = connOwner(p.conn) })
	return p.uid, p.err
}

// remote reports whether the connection comes from another machine, of whose
// users nothing can be known.
func (p *peer) remote() bool {
	there, ok := p.conn.RemoteAddr().(*net.TCPAddr)
	here, ok2 := p.conn.LocalAddr().(*net.TCPAddr)
	if !ok || !ok2 {
		return false
	}
	p.asked.Do(func() { p.other = fromElsewhere(here.IP, there.IP, net.InterfaceAddrs) })
	return p.other
}

// fromElsewhere reports whether a TCP connection's other end is on another
// machine. What reaches loopback never is, whatever address it was bound to:
// any local process may bind to any address of the machine. Where the machine's
// addresses cannot be listed it is not either.
func fromElsewhere(here, there net.IP, addresses func() ([]net.Addr, error)) bool {
	if here.IsLoopback() || there.IsLoopback() || there.Equal(here) {
		return false
	}
	list, err := addresses()
	if err != nil {
		return false
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(there) {
			return false
		}
	}
	return true
}

// allowPeer lets in the user that runs the server, and root.
func (s *Server) allowPeer(r *http.Request) error {
	p := peerOf(r.Context())
	if !s.checkPeer || p == nil || p.remote() || s.tokens.On() {
		return nil
	}
	uid, err := p.owner()
	if err == nil && (uid == 0 || uid == os.Geteuid()) {
		return nil
	}
	return &Problem{Status: http.StatusForbidden, Kind: errs.Forbidden, Code: "other_user", Err: err,
		Detail: "Only processes of the user that runs the server may call it."}
}

// ownUser reports whether a request is known to come from the user that runs the
// server, or root: allowPeer has let it in. One that came by no connection is a
// test's.
func (s *Server) ownUser(r *http.Request) bool {
	p := peerOf(r.Context())
	return p == nil || s.checkPeer && !p.remote()
}

// peerKnowable tries on a connection of our own whether connOwner works here.
func peerKnowable() bool {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return false
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return false
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		return false
	}
	defer server.Close()
	uid, err := connOwner(server)
	return err == nil && uid == os.Geteuid()
}
