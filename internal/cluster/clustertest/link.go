package clustertest

import (
	"net"
	"strings"
	"sync"
	"testing"
)

// Link is a TCP link between two programs that a test can spoil: all bytes of
// its connections pass through it.
type Link struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond // of the fields below
	target  string
	held    [2]bool // by direction: bytes wait
	refuse  bool
	drop    bool // the next answer ends its connection in its place
	conns   map[net.Conn]bool
	closed  bool
}

// Direction is one way over a link.
type Direction int

// The directions: from the program that connects, and back to it.
const (
	There Direction = iota
	Back
)

// NewLink starts a link to an address, or to a Unix domain socket's path. It ends with the test.
func NewLink(t testing.TB, target string) *Link {
	t.Helper()
	return NewLinkAt(t, "127.0.0.1:0", target)
}

// NewLinkAt is NewLink that takes connections at an address.
func NewLinkAt(t testing.TB, address, target string) *Link {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	k := &Link{listener: l, target: target, conns: map[net.Conn]bool{}}
	k.changed.L = &k.mu
	k.wg.Go(k.accept)
	t.Cleanup(k.close)
	return k
}

// Address is where to connect to.
func (k *Link) Address() string { return k.listener.Addr().String() }

// Hold keeps the bytes of a direction back, as a network that loses packets
// does: nothing is refused, nothing arrives.
func (k *Link) Hold(d Direction) { k.set(func() { k.held[d] = true }) }

// Release lets held bytes pass.
func (k *Link) Release() { k.set(func() { k.held = [2]bool{} }) }

// Refuse ends all connections and takes no new ones, until Accept.
func (k *Link) Refuse() {
	k.set(func() { k.refuse = true })
	k.Cut()
}

// Accept takes connections again.
func (k *Link) Accept() { k.set(func() { k.refuse = false }) }

// Retarget leads new connections to another address.
func (k *Link) Retarget(address string) { k.set(func() { k.target = address }) }

// Cut ends all connections.
func (k *Link) Cut() {
	k.set(func() {
		for c := range k.conns {
			_ = c.Close()
		}
	})
}

// CutBeforeAnswer ends the connection whose answer is the next to arrive, and
// drops the answer: what was asked for is done, and the asker cannot know.
func (k *Link) CutBeforeAnswer() { k.set(func() { k.drop = true }) }

func (k *Link) set(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	k.changed.Broadcast()
}

func (k *Link) close() {
	k.set(func() { k.closed = true })
	_ = k.listener.Close()
	k.Cut()
	k.wg.Wait()
}

func (k *Link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.wg.Go(func() { k.serve(c) })
	}
}

func (k *Link) serve(c net.Conn) {
	defer c.Close()
	k.mu.Lock()
	target, refuse := k.target, k.refuse || k.closed
	k.mu.Unlock()
	if refuse {
		return
	}
	network := "tcp"
	if strings.HasPrefix(target, "/") {
		network = "unix"
	}
	d, err := net.Dial(network, target)
	if err != nil {
		return
	}
	defer d.Close()
	ok := false
	k.set(func() {
		if ok = !k.refuse && !k.closed; ok {
			k.conns[c], k.conns[d] = true, true
		}
	})
	if !ok {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { k.pump(d, c, There) })
	both.Go(func() { k.pump(c, d, Back) })
	both.Wait()
	k.set(func() { delete(k.conns, c); delete(k.conns, d) })
}

func (k *Link) pump(to, from net.Conn, way Direction) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !k.pass(way) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits until bytes of a direction may go on, and reports whether they may.
func (k *Link) pass(way Direction) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.held[way] && !k.closed {
		k.changed.Wait()
	}
	if way == Back && k.drop {
		k.drop = false
		return false
	}
	return !k.closed
}
