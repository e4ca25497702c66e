package blobtest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
)

// StartGateway is like Start, but a real S3 server is behind the server's faults:
// versitygw over a directory.
func StartGateway(t testing.TB) *Server {
	t.Helper()
	socket := Gateway(t)
	transport := &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return start(t, &Server{backend: &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host // the client has signed Host
	}, ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
		panic(http.ErrAbortHandler)
	}}})
}

// gateway returns the path of versitygw, which the go command builds once. Its module is
// one of its own, so that its libraries are not the program's.
var gateway = sync.OnceValues(func() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "tool", "-n", "versitygw")
	build.Dir = filepath.Join(filepath.Dir(string(mod)), "tests", "tools", "s3server")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	var failed strings.Builder
	build.Stderr = &failed
	program, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, &failed)
	}
	return strings.TrimSpace(string(program)), nil
})

// Gateway starts versitygw with the bucket and the credentials of this package, and
// returns the path of its socket. It ends with the test.
func Gateway(t testing.TB) (socket string) {
	t.Helper()
	need.Tool(t, "go")
	program, err := gateway()
	if err != nil {
		need.Missing(t, "versitygw cannot be built: "+err.Error())
	}
	top, err := os.MkdirTemp("", "umbra-s3-") // its path is short, as a socket's has to be
	need.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(top) })
	socket = filepath.Join(top, "socket")
	need.NoError(t, os.MkdirAll(filepath.Join(top, "data", Bucket), 0o755))
	server := exec.Command(program, "--port", socket, "--access", AccessKey, "--secret", SecretKey, "--quiet", "posix", filepath.Join(top, "data"))
	server.Stderr = t.Output()
	exited, err := need.Start(server)
	need.NoError(t, err)
	t.Cleanup(func() {
		_ = server.Process.Kill()
		<-exited
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(time.Minute); ; {
		if c, err := net.Dial("unix", socket); err == nil {
			_ = c.Close()
			return socket
		}
		select {
		case <-tick.C:
		case <-exited:
			t.Fatal("versitygw ended")
		case <-deadline:
			t.Fatal("versitygw does not listen")
		}
	}
}
