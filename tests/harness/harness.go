// Package harness drives the program itself for the black-box tests: it starts
// bin/umbra on a data directory of its own, speaks HTTP with it, stops or kills
// it, and holds every answer against the OpenAPI document that the server gives.
//
// It is imported by tests alone, and knows the program only from outside.
package harness

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
)

// patience is how long a test waits for the program to do something at all.
const patience = 30 * time.Second

var binary struct {
	once sync.Once
	path string
	err  error
}

// Binary gives the program: $UMBRA_BIN, else one that is built once for this
// test process. Main removes it.
func Binary(t testing.TB) string {
	t.Helper()
	binary.once.Do(func() {
		if binary.path = os.Getenv("UMBRA_BIN"); binary.path != "" {
			return
		}
		dir, err := os.MkdirTemp("", "umbra-bin-")
		if err != nil {
			binary.err = err
			return
		}
		binary.path = filepath.Join(dir, "umbra")
		if out, err := exec.Command("go", "build", "-tags", "nomsgpack", "-o", binary.path, "umbra/cmd/umbra").CombinedOutput(); err != nil {
			binary.err = fmt.Errorf("go build: %w\n%s", err, out)
		}
	})
	if binary.err != nil {
		t.Fatal(binary.err)
	}
	return binary.path
}

// Main is a package's TestMain.
func Main(m *testing.M) int {
	defer func() {
		if os.Getenv("UMBRA_BIN") == "" && binary.path != "" {
			os.RemoveAll(filepath.Dir(binary.path))
		}
	}()
	defer common.end()
	return m.Run()
}

// Options say how a server is started. The zero value is a server on a free
// port of 127.0.0.1 with a new data directory.
type Options struct {
	DataDir string   // empty: a new one
	Config  string   // YAML; empty: no file
	Args    []string // more arguments of serve
	Env     []string // more environment, "NAME=value"
	Listen  string   // empty: 127.0.0.1:0
	Token   string   // sent with every request
	// User runs the server as another user, by its number; 0: as the test's own.
	// It needs root.
	User uint32
	// Wrap, if not nil, changes how each process is started.
	Wrap func(cmd *exec.Cmd)
}

// Server is a running program; with UMBRA_CLUSTER several, which are one service.
type Server struct {
	URL     string // http://HOST:PORT; a made-up one for a unix socket
	Address string // from the ready line; of several: their balancer's
	DataDir string // of several: the first one's
	Client  *http.Client
	Log     *Output // standard error, so far

	opts  Options
	t     testing.TB
	nodes []*process
	fleet *fleet // nil: the program runs alone
	turn  atomic.Uint64
	doc   *document

	program string // for Options.User: a copy that the user can reach
}

// Env is a small, clean environment with a home of its own.
func Env(t testing.TB, more ...string) []string {
	home := t.TempDir()
	return append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + t.TempDir(), "LC_ALL=C", "TZ=UTC"}, more...)
}

// Command is the program with arguments, in a clean environment, not started. A verb
// about the data directory of a cluster's node is about the cluster.
func Command(t testing.TB, env []string, args ...string) *exec.Cmd {
	cmd := exec.Command(Binary(t), args...)
	if i := slices.Index(args, "--data-dir") + 1; i > 0 && i < len(args) && args[0] != "serve" {
		if f := common.of(args[i]); f != nil {
			env = append(f.env(), env...)
		}
	}
	cmd.Env = Env(t, env...)
	cmd.Dir = t.TempDir()
	return cmd
}

// Run runs the program to its end and gives its exit status and outputs.
func Run(t testing.TB, env []string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := Command(t, env, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	err := cmd.Wait()
	timer.Stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		t.Fatalf("umbra %s: %v\n%s", strings.Join(args, " "), err, &errOut)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

// Start starts a server and waits until it is ready. It is stopped at the
// test's end, and the end of its log is shown if the test failed: before what
// the test has to say, which go test holds back until then.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	if opts.DataDir == "" {
		opts.DataDir = filepath.Join(t.TempDir(), "data")
	}
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1:0"
	}
	s := &Server{DataDir: opts.DataDir, opts: opts, t: t, doc: &document{}, fleet: newFleet(t, opts)}
	if s.fleet != nil {
		s.DataDir = s.fleet.home(0)
	}
	s.start()
	t.Cleanup(func() {
		defer func() {
			if t.Failed() {
				showLog(t, s)
			}
		}()
		if s.running() {
			s.Stop()
		}
	})
	return s
}

// logLines is how much of a server's log is shown.
const logLines = 60

// showLog writes the end of a server's log to standard error, and the whole log
// to a file where go test -artifacts keeps them. Not with t.Log: a failed test
// prints that after its message, and whoever sees the end of the output alone
// would not see what failed.
func showLog(t testing.TB, s *Server) {
	where := ""
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		name := filepath.Join(t.ArtifactDir(), fmt.Sprintf("server-%d.log", s.PID()))
		if err := os.WriteFile(name, []byte(s.Log.String()), 0o600); err != nil {
			t.Error(err)
		}
		where = " (whole in " + name + ")"
	}
	fmt.Fprintf(os.Stderr, "%s: log of %s%s:\n%s", t.Name(), s.Address, where, s.Log.Tail(logLines))
}

func (s *Server) start() {
	s.t.Helper()
	s.Log = NewOutput()
	config := ""
	if s.opts.Config != "" {
		config = filepath.Join(s.t.TempDir(), "config.yaml")
		if err := os.WriteFile(config, []byte(s.opts.Config), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	s.nodes = nil
	if s.fleet == nil {
		s.nodes = append(s.nodes, s.launch(s.DataDir, s.opts.Listen, config, s.opts.Env, s.opts.Args))
	} else {
		s.fleet.launch(s, config)
	}
	for _, p := range s.nodes {
		if err := p.awaitReady(); err != nil {
			for _, p := range s.nodes {
				_ = p.cmd.Process.Kill()
				<-p.exited
			}
			s.t.Fatalf("%v\n%s", err, s.Log.Tail(logLines))
		}
	}
	s.Address = s.nodes[0].address
	if s.fleet != nil {
		s.Address = s.fleet.balance(s)
	}
	s.URL = s.Address
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}
	if path, isUnix := strings.CutPrefix(s.Address, "unix:"); isUnix {
		s.URL = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	s.Client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.t.Cleanup(transport.CloseIdleConnections)
}

func (s *Server) running() bool {
	return slices.ContainsFunc(s.nodes, (*process).running)
}

// PID is the process's id; of several, the first one's.
func (s *Server) PID() int { return s.nodes[0].cmd.Process.Pid }

// Signal sends a signal, to each of several.
func (s *Server) Signal(sig os.Signal) {
	s.t.Helper()
	for _, p := range s.nodes {
		if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			s.t.Fatal(err)
		}
	}
}

// Wait waits for the process's end, for as long as a busy machine may take for the
// ten seconds of a stop, and gives its exit status (-1: killed by a signal); of
// several the first that is not 0.
func (s *Server) Wait() (status int) {
	s.t.Helper()
	for _, p := range s.nodes {
		select {
		case <-p.exited:
		case <-time.After(patience):
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // for the stacks in the log
			<-p.exited
			s.t.Errorf("the server did not end in time: its goroutines are in its log")
		}
		status = cmp.Or(status, p.cmd.ProcessState.ExitCode())
	}
	return status
}

// Stop stops the server as a person does; it must exit with 0.
func (s *Server) Stop() {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	if status := s.Wait(); status != 0 {
		s.t.Errorf("exit status %d after SIGTERM", status)
	}
}

// Kill ends the server with SIGKILL, where it has not ended by itself.
func (s *Server) Kill() {
	s.t.Helper()
	for _, p := range s.nodes {
		if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			s.t.Fatal(err)
		}
	}
	for _, p := range s.nodes {
		<-p.exited
	}
}

// Restart starts the server again on the same data directory, after Stop or
// Kill. A port that was free before may have changed.
func (s *Server) Restart() {
	s.t.Helper()
	if s.running() {
		s.t.Fatal("the server still runs")
	}
	s.start()
}

// First is the server to which DataDir belongs, asked directly: the owner's secret in
// it is that one's.
func (s *Server) First() *Server { return s.Each()[0] }

// Each is the server, or each of several nodes, asked directly.
func (s *Server) Each() (list []*Server) {
	if s.fleet == nil {
		return []*Server{s}
	}
	for i, p := range s.nodes {
		list = append(list, &Server{URL: p.address, Address: p.address, DataDir: s.fleet.home(i), Client: s.Client, Log: s.Log,
			opts: s.opts, t: s.t, nodes: s.nodes[i : i+1], doc: s.doc})
	}
	return list
}

// Leaks is need.Leaks in the data directories.
func (s *Server) Leaks(text string) (found []string) {
	s.t.Helper()
	for _, dir := range s.DataDirs() {
		found = append(found, need.Leaks(s.t, dir, text)...)
	}
	return found
}

// DataDirs are the data directories of all nodes, or the one of a single server.
func (s *Server) DataDirs() []string {
	if s.fleet == nil {
		return []string{s.DataDir}
	}
	var list []string
	for i := range s.fleet.fronts {
		list = append(list, s.fleet.home(i))
	}
	return list
}

// Find returns the path of a file of the data directory; of several nodes', of the one that has it.
func (s *Server) Find(names ...string) string {
	s.t.Helper()
	for _, dir := range s.DataDirs() {
		path := filepath.Join(append([]string{dir}, names...)...)
		if _, err := os.Lstat(path); err == nil {
			return path
		}
	}
	s.t.Fatalf("no data directory has %s", filepath.Join(names...))
	return ""
}

// Stdout is what the program wrote to standard output so far.
func (s *Server) Stdout() string { return s.nodes[0].stdout.String() }

// Dial opens a bare connection to the server; of several, to the next.
func (s *Server) Dial() net.Conn {
	s.t.Helper()
	to := s.nodes[s.turn.Add(1)%uint64(len(s.nodes))].address
	network, address := "tcp", strings.TrimPrefix(strings.TrimPrefix(to, "http://"), "https://")
	if path, isUnix := strings.CutPrefix(to, "unix:"); isUnix {
		network, address = "unix", path
	}
	conn, err := net.Dial(network, address)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// Raw sends a request as it stands and gives the answer's status and body.
func (s *Server) Raw(request string) (status int, body string) {
	s.t.Helper()
	conn := s.Dial()
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := conn.Write([]byte(request)); err != nil {
		s.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(res.Body); err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, b.String()
}
