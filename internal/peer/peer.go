// Package peer finds out which user is at the other end of a local connection: for a
// unix socket by its credentials, for TCP by the kernel's table of sockets.
package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
)

// errUnknown means that the system does not report the owner of a connection.
var errUnknown = errors.New("the owner of the connection cannot be found out")

// Peer is what is known of a connection's other end. It is asked for once, with
// the first request: accepting a connection does not wait for it.
type Peer struct {
	conn net.Conn

	mu    sync.Mutex
	found bool // uid and err stay
	uid   int
	err   error

	asked sync.Once
	other bool // Remote
}

type key struct{}

// With adds a connection's Peer to its context. It is an http.Server's ConnContext.
func With(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return context.WithValue(ctx, key{}, &Peer{conn: conn})
}

// Of returns the Peer in a request's context, or nil.
func Of(ctx context.Context) *Peer {
	p, _ := ctx.Value(key{}).(*Peer)
	return p
}

// Owner returns the user ID of the process at the other end. An error for which
// OutOfDescriptors is true holds for this call alone.
func (p *Peer) Owner() (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.found {
		p.uid, p.err = connOwner(p.conn)
		p.found = !OutOfDescriptors(p.err)
	}
	return p.uid, p.err
}

// OutOfDescriptors reports whether the owner could not be asked for because no file
// can be opened.
func OutOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Remote reports whether the connection comes from another machine, of whose
// users nothing can be known.
func (p *Peer) Remote() bool {
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

// Knowable tries on a connection of our own whether Owner works here.
func Knowable() bool {
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
