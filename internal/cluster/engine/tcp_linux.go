package engine

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// unacknowledged is how long sent bytes may be on their way before the kernel
// ends a connection, in milliseconds: without a bound it repeats them for minutes.
const unacknowledged = 3000

func giveUpEarly(network, _ string, raw syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, unacknowledged)
	})
	if err != nil {
		return err
	}
	return failed
}
