package peer

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"umbra/internal/need"
)

func pair(t testing.TB, network, address string) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen(network, address)
	need.NoError(t, err)
	defer l.Close()
	client, err = net.Dial(network, l.Addr().String())
	need.NoError(t, err)
	server, err = l.Accept()
	need.NoError(t, err)
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

func TestConnOwner(t *testing.T) {
	for network, address := range map[string]string{"tcp4": "127.0.0.1:0", "tcp6": "[::1]:0", "tcp": ":0", "unix": filepath.Join(t.TempDir(), "s")} {
		_, server := pair(t, network, address)
		uid, err := connOwner(server)
		if err != nil || uid != os.Geteuid() {
			t.Errorf("%s: %d, %v", network, uid, err)
		}
		if network == "unix" {
			continue
		}
		there, here := netip.MustParseAddrPort(server.RemoteAddr().String()), netip.MustParseAddrPort(server.LocalAddr().String())
		if uid, known, err := diagOwner(there, here); known && (err != nil || uid != os.Geteuid()) {
			t.Errorf("%s: diag: %d, %v", network, uid, err)
		}
		file := "/proc/net/tcp"
		if !there.Addr().Unmap().Is4() {
			file += "6"
		}
		if uid, err := tableOwner(file, there, here); err != nil || uid != os.Geteuid() {
			t.Errorf("%s: %s: %d, %v", network, file, uid, err)
		}
	}
	if !Knowable() {
		t.Error("Linux knows whose a connection is")
	}
}

func TestAClosedSocketIsNobodys(t *testing.T) {
	client, server := pair(t, "tcp", "127.0.0.1:0")
	there, here := netip.MustParseAddrPort(server.RemoteAddr().String()), netip.MustParseAddrPort(server.LocalAddr().String())
	client.Close()
	if uid, err := connOwner(server); !errors.Is(err, errUnknown) {
		t.Errorf("user %d, %v", uid, err)
	}
	if uid, err := tableOwner("/proc/net/tcp", there, here); !errors.Is(err, errUnknown) {
		t.Errorf("table: user %d, %v", uid, err)
	}
	// No connection, but a listener on the port that is asked for.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer l.Close()
	listener := netip.MustParseAddrPort(l.Addr().String())
	if uid, known, err := diagOwner(listener, here); known && err == nil {
		t.Errorf("a listener's user %d", uid)
	}
}

func BenchmarkConnOwner(b *testing.B) {
	_, server := pair(b, "tcp", "127.0.0.1:0")
	for b.Loop() {
		if _, err := connOwner(server); err != nil {
			b.Fatal(err)
		}
	}
}

// A process without free descriptors cannot find the owner; that is no answer, and is
// not kept for the connection.
func TestOwnerWithoutDescriptors(t *testing.T) {
	_, server := pair(t, "tcp", "127.0.0.1:0")
	p := &Peer{conn: server}
	var limit syscall.Rlimit
	need.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	need.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 0, Max: limit.Max}))
	_, err := p.Owner()
	need.NoError(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit))
	if !OutOfDescriptors(err) {
		t.Errorf("without descriptors: %v", err)
	}
	if uid, err := p.Owner(); err != nil || uid != os.Geteuid() {
		t.Errorf("with descriptors again: %d, %v", uid, err)
	}
}
