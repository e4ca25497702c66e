package peer

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// connOwner finds whose socket the other end of a local connection is: for a
// unix socket by SO_PEERCRED, for TCP by the kernel's socket table (asked for the
// one socket, or read where the kernel cannot be asked).
func connOwner(conn net.Conn) (int, error) {
	switch c := conn.(type) {
	case *net.UnixConn:
		return unixOwner(c)
	case *net.TCPConn:
		// The other end's own address is its local one in the table.
		there, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err != nil {
			return 0, errUnknown
		}
		here, err := netip.ParseAddrPort(c.LocalAddr().String())
		if err != nil {
			return 0, errUnknown
		}
		if uid, known, err := diagOwner(there, here); known {
			return uid, err
		}
		if there.Addr().Unmap().Is4() {
			if uid, err := tableOwner("/proc/net/tcp", there, here); err == nil {
				return uid, nil
			}
		}
		// An IPv4 connection of an IPv6 socket is there, mapped.
		return tableOwner("/proc/net/tcp6", there, here)
	}
	return 0, errUnknown
}

func unixOwner(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, errUnknown
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return 0, errUnknown
	}
	return int(cred.Uid), nil
}

// tableOwner reads /proc/net/tcp or tcp6 (proc_net_tcp in the kernel's
// documentation). A socket that its process has closed already is listed with
// user 0 and inode 0: that is no owner, not root.
func tableOwner(file string, local, remote netip.AddrPort) (int, error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, errUnknown
	}
	defer f.Close()
	wide := strings.HasSuffix(file, "6")
	wantLocal, wantRemote := tableAddr(local, wide), tableAddr(remote, wide)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[1] != wantLocal || fields[2] != wantRemote {
			continue
		}
		uid, err := strconv.Atoi(fields[7])
		if err != nil || fields[9] == "0" {
			return 0, errUnknown
		}
		return uid, nil
	}
	return 0, errUnknown
}

// tableAddr writes an address as the table does: 32-bit words in the machine's
// byte order, in hexadecimal.
func tableAddr(a netip.AddrPort, wide bool) string {
	var raw []byte
	if wide {
		b := a.Addr().As16()
		raw = b[:]
	} else {
		b := a.Addr().Unmap().As4()
		raw = b[:]
	}
	var s strings.Builder
	for ; len(raw) > 0; raw = raw[4:] {
		fmt.Fprintf(&s, "%08X", binary.NativeEndian.Uint32(raw))
	}
	fmt.Fprintf(&s, ":%04X", a.Port())
	return s.String()
}
