package httpapi

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// Listen opens "HOST:PORT" or "unix:PATH". A socket of mode 0600 is made; one
// that a dead server left is replaced, anything else at its place is an error.
// address is how a client names what was opened.
func Listen(listen string) (l net.Listener, address string, err error) {
	path, isUnix := strings.CutPrefix(listen, "unix:")
	if !isUnix {
		l, err := net.Listen(network(listen), listen)
		if err != nil {
			return nil, "", err
		}
		return l, "http://" + l.Addr().String(), nil
	}
	if err := clearSocket(path); err != nil {
		return nil, "", err
	}
	// Never a moment with wider rights: chmod after the bind would leave one.
	old := syscall.Umask(0o177)
	l, err = net.Listen("unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, "", err
	}
	return l, listen, nil
}

// network keeps 0.0.0.0 to IPv4; net would take it for every address there is.
func network(listen string) string {
	host, _, err := net.SplitHostPort(listen)
	if a, parseErr := netip.ParseAddr(host); err == nil && parseErr == nil && a.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// clearSocket removes a socket without a listener.
func clearSocket(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("listen unix %s: there is something else than a socket", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("listen unix %s: another server listens there", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
