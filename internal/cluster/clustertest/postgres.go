// Package clustertest is what tests of a cluster share: real PostgreSQL servers
// of this machine, a primary with a synchronous standby, which can be killed,
// paused, promoted and lost, and TCP links that can be delayed and cut.
//
// Only tests import it. Everything that it starts ends with its test, or with
// the test's process.
package clustertest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
)

// patience is how long a server may take for anything.
const patience = 60 * time.Second

// Options say which servers are started. The zero value is a primary that
// waits for none.
type Options struct {
	Standby  bool     // a second server, which the primary waits for
	Wire     bool     // the standby reaches the primary through a Link
	Settings []string // more lines of postgresql.conf, on both
}

// Pair is a primary and, if it was asked for, its standby, named a and b.
type Pair struct {
	A, B *Server // B is nil without a standby
	Wire *Link   // from the standby to the primary; nil: without Options.Wire
}

// Server is one PostgreSQL server.
type Server struct {
	Name string
	Port int

	t       testing.TB
	bin     string
	dir     string
	who     *syscall.Credential // nil: the test's own user
	wire    *Link               // to the primary, when it is the standby
	process *os.Process
	log     *syncBuffer
	exited  <-chan struct{}
	paused  []int
	db      string // of SQL; empty: postgres
}

// Start starts a primary, and its standby. Without PostgreSQL the test is left
// out, or fails where CI=true.
func Start(t testing.TB, opts Options) *Pair {
	t.Helper()
	bin, who := installation(t)
	top, err := os.MkdirTemp("", "umbra-pg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if who != nil {
		if err := os.Chown(top, int(who.Uid), int(who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	server := func(name string) *Server {
		s := &Server{Name: name, Port: freePort(t), t: t, bin: bin, dir: filepath.Join(top, name), who: who, log: &syncBuffer{}}
		t.Cleanup(func() {
			s.Kill()
			if t.Failed() {
				t.Logf("PostgreSQL %s:\n%s", name, s.log.tail(40))
			}
		})
		return s
	}
	p := &Pair{A: server("a")}
	p.A.run("initdb", "-D", p.A.dir, "-U", "umbra", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
	shared := append([]string{
		"listen_addresses = '127.0.0.1'", "unix_socket_directories = ''", "max_connections = 200",
		"shared_buffers = 32MB", "wal_sender_timeout = 5s", "wal_receiver_timeout = 5s", "hot_standby_feedback = on",
	}, opts.Settings...)
	p.A.configure(append(shared, fmt.Sprintf("port = %d", p.A.Port), "cluster_name = 'a'")...)
	p.A.Start()
	if !opts.Standby {
		return p
	}
	p.B = server("b")
	if opts.Wire {
		p.Wire = NewLink(t, p.A.Address())
		p.A.wire, p.B.wire = p.Wire, p.Wire
	}
	p.B.Follow(p.A)
	return p
}

// Follow makes the server, which does not run, the synchronous standby of a
// primary, from a new copy of its files, and waits until the primary waits for it.
// What the server had is lost.
func (s *Server) Follow(primary *Server) {
	s.t.Helper()
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Fatal(err)
	}
	host, port, err := net.SplitHostPort(primary.Address())
	if s.wire != nil {
		s.wire.Retarget(primary.Address())
		host, port, err = net.SplitHostPort(s.wire.Address())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	slot := s.Name + strconv.FormatInt(time.Now().UnixNano(), 36)
	s.run("pg_basebackup", "-h", host, "-p", port, "-U", "umbra", "-D", s.dir, "-R", "-X", "stream", "-C", "-S", slot, "-c", "fast", "-N")
	// What ALTER SYSTEM set on the primary came along; later lines of the file win
	// over the first, not over that.
	s.configureAuto(fmt.Sprintf("port = %d", s.Port), fmt.Sprintf("cluster_name = '%s'", s.Name),
		fmt.Sprintf("synchronous_standby_names = 'ANY 1 (%s)'", primary.Name))
	s.Start()
	primary.Set("synchronous_standby_names", fmt.Sprintf("ANY 1 (%s)", s.Name))
	primary.AwaitStandby()
}

// AwaitStandby waits until a standby is connected that commits wait for.
func (s *Server) AwaitStandby() {
	s.t.Helper()
	s.Await("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'", "1")
}

// installation finds PostgreSQL's programs and, for root, the user as whom they
// run: they refuse root.
func installation(t testing.TB) (string, *syscall.Credential) {
	t.Helper()
	bin := ""
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		bin = filepath.Dir(found[len(found)-1])
	} else if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err != nil {
			t.Fatal(err)
		}
		bin = filepath.Dir(path)
	} else {
		need.Missing(t, "PostgreSQL is not installed: initdb is neither on PATH nor below /usr/lib/postgresql")
	}
	if os.Geteuid() != 0 {
		return bin, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return bin, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: true}
	}
	need.Missing(t, "PostgreSQL does not run as root, and there is no user postgres or nobody")
	return "", nil
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// Address is the server's host and port.
func (s *Server) Address() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// URL names the database of the server, at another address if one is given: a
// Link's.
func (s *Server) URL(at ...string) string {
	if len(at) == 0 {
		at = []string{s.Address()}
	}
	return "postgres://umbra@" + strings.Join(at, ",") + "/postgres?sslmode=disable"
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = filepath.Dir(s.dir)
	// A home of its own: else root's .pgpass is in the standby's settings.
	cmd.Env = []string{"PATH=" + s.bin + ":" + os.Getenv("PATH"), "HOME=" + filepath.Dir(s.dir), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: s.who}
	return cmd
}

func (s *Server) run(name string, args ...string) string {
	s.t.Helper()
	out, err := s.try(name, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *Server) try(name string, args ...string) (string, error) {
	cmd := s.command(name, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	cmd.WaitDelay = time.Second // for a child that keeps its output open
	if err := cmd.Start(); err != nil {
		return "", err
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, out.String(), problems.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (s *Server) configure(lines ...string)     { s.addTo("postgresql.conf", lines...) }
func (s *Server) configureAuto(lines ...string) { s.addTo("postgresql.auto.conf", lines...) }

func (s *Server) addTo(file string, lines ...string) {
	s.t.Helper()
	f, err := os.OpenFile(filepath.Join(s.dir, file), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("\n" + strings.Join(lines, "\n") + "\n"); err != nil {
		s.t.Fatal(err)
	}
}

// Start starts a server that does not run, and waits until it takes connections.
func (s *Server) Start() {
	s.t.Helper()
	_ = os.Remove(filepath.Join(s.dir, "postmaster.pid")) // of one that was killed
	cmd := s.command("postgres", "-D", s.dir)
	cmd.Stdout, cmd.Stderr = s.log, s.log
	exited, err := need.Start(cmd)
	if err != nil {
		s.t.Fatal(err)
	}
	s.process, s.exited, s.paused = cmd.Process, exited, nil
	s.await("to take connections", func() (bool, error) {
		select {
		case <-exited:
			return false, fmt.Errorf("PostgreSQL %s ended:\n%s", s.Name, s.log.tail(40))
		default:
		}
		_, err := s.psql("SELECT 1")
		return err == nil, nil
	})
}

// Kill ends all processes of the server at once, as a power failure of its
// machine would, but what it wrote is kept.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	for _, pid := range s.freeze() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	select {
	case <-s.exited:
		s.process = nil
	case <-time.After(patience):
		s.t.Fatalf("PostgreSQL %s was killed, and something keeps its output open:\n%s", s.Name, s.log.tail(40))
	}
}

// Stop shuts the server down properly.
func (s *Server) Stop() {
	s.t.Helper()
	if s.process == nil {
		return
	}
	s.Resume()
	_ = s.process.Signal(syscall.SIGINT) // fast shutdown
	select {
	case <-s.exited:
		s.process = nil
	case <-time.After(patience):
		s.t.Fatalf("PostgreSQL %s did not stop", s.Name)
	}
}

// Pause stops all processes of the server where they are.
func (s *Server) Pause() { s.paused = s.freeze() }

// Resume lets a paused server go on.
func (s *Server) Resume() {
	for _, pid := range s.paused {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	s.paused = nil
}

// freeze stops the postmaster first, so that it starts no more processes, then
// its children, each of which is in a process group of its own.
func (s *Server) freeze() []int {
	_ = syscall.Kill(s.process.Pid, syscall.SIGSTOP)
	pids := append([]int{s.process.Pid}, children(s.process.Pid)...)
	for _, pid := range pids[1:] {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	return pids
}

func children(parent int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var out []int
	for _, name := range stats {
		raw, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		// proc_pid_stat(5): "pid (name) state ppid …"; a name may hold spaces.
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// Promote makes the standby the primary. It is one when Promote returns.
func (s *Server) Promote() {
	s.t.Helper()
	s.run("pg_ctl", "-D", s.dir, "promote", "-w")
}

// Set changes a setting of the server, and waits until new sessions have it.
func (s *Server) Set(name, value string) {
	s.t.Helper()
	quoted := strings.ReplaceAll(value, "'", "''")
	s.SQL(fmt.Sprintf("ALTER SYSTEM SET %s = '%s'", name, quoted))
	s.SQL("SELECT pg_reload_conf()")
	s.Await(fmt.Sprintf("SELECT setting FROM pg_settings WHERE name = '%s'", name), value)
}

// SQL runs statements by psql, as another client would, without waiting for the
// standby, and returns the rows, columns separated by "|".
func (s *Server) SQL(query string) string {
	s.t.Helper()
	out, err := s.psql(query)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

func (s *Server) psql(query string) (string, error) {
	return s.try("psql", "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-U", "umbra", "-X", "-A", "-t", "-q",
		"-v", "ON_ERROR_STOP=1", "-c", "SET synchronous_commit = local", "-c", query, cmp.Or(s.db, "postgres"))
}

// AwaitCommit runs a statement each 20 ms, as a client that waits for the standby, until
// it is done.
func (s *Server) AwaitCommit(statement string) {
	s.t.Helper()
	s.await("to take a commit", func() (bool, error) {
		_, err := s.try("psql", "-h", "127.0.0.1", "-p", strconv.Itoa(s.Port), "-U", "umbra", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", statement, cmp.Or(s.db, "postgres"))
		return err == nil, nil
	})
}

// In returns the server, for SQL in another database.
func (s *Server) In(database string) *Server {
	c := *s
	c.db = database
	return &c
}

// Await waits until a query has an answer.
func (s *Server) Await(query, want string) {
	s.t.Helper()
	s.await(query+" to be "+want, func() (bool, error) {
		got, err := s.psql(query)
		return err == nil && got == want, nil
	})
}

func (s *Server) await(what string, ok func() (bool, error)) {
	s.t.Helper()
	if err := Await(patience, ok); err != nil {
		s.t.Fatalf("PostgreSQL %s, waiting for %s: %v\n%s", s.Name, what, err, s.log.tail(20))
	}
}

// Await asks until the answer is yes, an error comes, or the time is over.
func Await(within time.Duration, ok func() (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); time.Now().Before(end); <-tick.C {
		if done, err := ok(); done || err != nil {
			return err
		}
	}
	return errors.New("it took too long")
}

// Database makes an empty database on the primary for one test, so that tests
// can share servers, and returns its URL at the given addresses.
func (s *Server) Database(t testing.TB, at ...string) string {
	t.Helper()
	name := "t" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if _, err := s.psql("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(s.URL(at...), "/postgres?", "/"+name+"?", 1)
}

// Drop removes a database, with those who are connected to it.
func (s *Server) Drop(name string) {
	_, _ = s.psql("DROP DATABASE " + name + " WITH (FORCE)") // it goes with the server
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(b.buf.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
