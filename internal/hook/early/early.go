// Package early runs `umbra hook` before the rest of the program initializes.
//
// An agent waits for each hook. Most of the time of a short run of umbra is the
// initialization of the packages that the server needs: 13 ms on the machine
// where `umbra version` took 15. Go initializes packages in the order of their
// import paths, each as soon as what it imports is ready (Go spec, "Program
// initialization"). This package imports little, and not net, which is ready late;
// so its init function runs after 4 ms, handles the hook and exits.
//
// What it cannot do, it leaves to the verb of the command line: arguments that
// are not surely right, HTTPS, a server by name, a configuration file.
package early

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/hook"
)

func init() {
	if len(os.Args) < 3 || os.Args[1] != "hook" {
		return
	}
	started := time.Now()
	v, ok := hook.ParseArgs(os.Args[2:])
	if !ok || !Handles(&v) {
		return
	}
	os.Exit(v.Main(os.Stdin, os.Stdout, os.Stderr, started, Sender, hook.StartServer))
}

// Handles reports whether Sender can reach the invocation's server.
func Handles(v *hook.Invocation) bool {
	if v.Server != "" {
		_, err := parse(v.Server)
		return err == nil
	}
	if os.Getenv("UMBRA_CONFIG") != "" {
		return false // it may name another data directory
	}
	s := v.Find()
	if s.Starting {
		return true
	}
	_, err := parse(s.Address)
	return err == nil
}

// target is a server's address.
type target struct {
	family int
	addr   unix.Sockaddr
	host   string // for the Host header
}

var errAddress = errors.New("not an address of a loopback server")

// parse reads http://IP:PORT, http://localhost:PORT or unix:PATH.
func parse(address string) (target, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" || len(path) > 100 { // sockaddr_un(7) has room for 107 bytes and less elsewhere
			return target{}, errAddress
		}
		return target{family: unix.AF_UNIX, addr: &unix.SockaddrUnix{Name: path}, host: "localhost"}, nil
	}
	rest, ok := strings.CutPrefix(strings.TrimSuffix(address, "/"), "http://")
	if !ok || strings.ContainsAny(rest, "/?#@ \r\n") {
		return target{}, errAddress
	}
	host, port := rest, 80
	if i := strings.LastIndexByte(rest, ':'); i >= 0 && !strings.HasSuffix(rest, "]") {
		n, err := strconv.ParseUint(rest[i+1:], 10, 16)
		if err != nil || n == 0 {
			return target{}, errAddress
		}
		host, port = rest[:i], int(n)
	}
	switch host {
	case "[::1]", "[::]":
		sa := &unix.SockaddrInet6{Port: port}
		sa.Addr[15] = 1
		return target{family: unix.AF_INET6, addr: sa, host: "localhost:" + strconv.Itoa(port)}, nil
	case "localhost", "0.0.0.0":
		host = "127.0.0.1"
	}
	parts := strings.Split(host, ".")
	if len(parts) != 4 {
		return target{}, errAddress
	}
	sa := &unix.SockaddrInet4{Port: port}
	for i, s := range parts {
		n, err := strconv.ParseUint(s, 10, 8)
		if err != nil {
			return target{}, errAddress
		}
		sa.Addr[i] = byte(n)
	}
	if sa.Addr[0] != 127 {
		return target{}, errAddress
	}
	return target{family: unix.AF_INET, addr: sa, host: rest}, nil
}

// Sender sends requests as HTTP/1.0, a connection each: such an answer is neither
// chunked nor kept open (RFC 1945).
func Sender(s hook.Server, deadline time.Time) func(method, path string, body []byte) (int, []byte, error) {
	return func(method, path string, body []byte) (int, []byte, error) {
		t, err := parse(s.Address)
		if err != nil {
			return 0, nil, fmt.Errorf("%w: %q: %w", hook.ErrUnreachable, s.Address, err)
		}
		f, err := dial(t, deadline)
		if err != nil {
			return 0, nil, fmt.Errorf("%w at %s: %w", hook.ErrUnreachable, s.Address, err)
		}
		defer f.Close()
		host := t.host
		if s.Own && t.family != unix.AF_UNIX {
			host = "localhost" + host[strings.LastIndexByte(host, ':'):]
		}
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s %s HTTP/1.0\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json\r\nContent-Length: %d\r\n", method, path, host, len(body))
		if s.Token != "" && !strings.ContainsAny(s.Token, "\r\n") {
			fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", s.Token)
		}
		b.WriteString("\r\n")
		b.Write(body)
		if _, err := f.Write(b.Bytes()); err != nil {
			return 0, nil, noAnswer(err)
		}
		return answer(f)
	}
}

func noAnswer(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("no answer within 2 s")
	}
	return fmt.Errorf("no answer: %w", err)
}

// dial connects; all of the connection's use ends at deadline.
func dial(t target, deadline time.Time) (*os.File, error) {
	fd, err := unix.Socket(t.family, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	unix.CloseOnExec(fd)
	err = unix.SetNonblock(fd, true)
	if err == nil {
		err = connect(fd, t.addr, deadline)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "connection")
	if err := f.SetDeadline(deadline); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func connect(fd int, addr unix.Sockaddr, deadline time.Time) error {
	err := unix.Connect(fd, addr)
	if !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
		return err
	}
	for {
		left := time.Until(deadline).Milliseconds()
		if left <= 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(left))
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return err
		}
		code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && code != 0 {
			err = unix.Errno(code)
		}
		return err
	}
}

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 64 << 20

// answer reads a response up to the end of the connection.
func answer(r io.Reader) (status int, body []byte, err error) {
	raw, err := io.ReadAll(io.LimitReader(r, maxAnswer))
	if err != nil {
		return 0, nil, noAnswer(err)
	}
	head, body, ok := bytes.Cut(raw, []byte("\r\n\r\n"))
	lines := strings.Split(string(head), "\r\n")
	words := strings.SplitN(lines[0], " ", 3)
	if !ok || len(words) < 2 || !strings.HasPrefix(words[0], "HTTP/1.") {
		return 0, nil, errors.New("what answers is not an HTTP server")
	}
	if status, err = strconv.Atoi(words[1]); err != nil {
		return 0, nil, errors.New("what answers is not an HTTP server")
	}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch strings.ToLower(name) {
		case "transfer-encoding":
			return 0, nil, errors.New("the answer is not HTTP/1.0")
		case "content-length":
			if n, err := strconv.Atoi(value); err != nil || n != len(body) {
				return 0, nil, errors.New("the answer was cut off")
			}
		}
	}
	return status, body, nil
}
