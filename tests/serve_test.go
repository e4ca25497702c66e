package tests

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/tests/harness"
)

func TestReadyLineIsAloneOnStandardOutput(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	s.Do("GET", "/health", nil).Expect(200)
	if !regexp.MustCompile(`^umbra listening on http://127\.0\.0\.1:[1-9][0-9]*\n$`).MatchString(s.Stdout()) {
		t.Errorf("%q", s.Stdout())
	}
	s.Stop()
	if strings.Count(s.Stdout(), "\n") != 1 {
		t.Errorf("%q", s.Stdout())
	}
	if !strings.Contains(s.Log.String(), "level=INFO") {
		t.Errorf("the log: %s", s.Log)
	}
}

func TestANewDataDirectoryNeedsNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ env, dir string }{{"XDG_DATA_HOME=%s/x", "x/umbra"}, {"HOME=%s", ".local/share/umbra"}} {
		base := t.TempDir()
		cmd := harness.Command(t, []string{fmt.Sprintf(c.env, base)}, "serve", "--listen", "127.0.0.1:0")
		out := harness.NewOutput()
		cmd.Stdout = out
		need.NoError(t, cmd.Start())
		out.Await(func(s string) bool { return strings.Contains(s, "\n") }, 20*time.Second)
		if st, err := os.Stat(filepath.Join(base, c.dir)); err != nil || st.Mode() != os.ModeDir|0o700 {
			t.Error(c.env, st, err)
		}
		if raw, err := os.ReadFile(filepath.Join(base, c.dir, "format")); err != nil || string(raw) != fmt.Sprintln(state.Format) {
			t.Errorf("%v: %q %v", c.env, raw, err)
		}
		cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Error(c.env, err)
		}
	}
}

func TestSignalsEndItCleanly(t *testing.T) {
	t.Parallel()
	for _, sig := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := harness.Start(t, harness.Options{})
		idle := s.Dial() // connected and silent: it does not hold the exit back
		half := s.Dial()
		fmt.Fprint(half, "GET /health HTTP/1.1\r\nHost: loc")
		s.Do("GET", "/health", nil).Expect(200)
		s.Signal(sig)
		if status := s.Wait(); status != 0 {
			t.Errorf("%v: exit status %d", sig, status)
		}
		if n, err := idle.Read(make([]byte, 1)); err == nil {
			t.Error("read", n)
		}
		if conn, err := net.Dial("tcp", strings.TrimPrefix(s.First().Address, "http://")); err == nil {
			conn.Close()
			t.Error("somebody still listens")
		}
		s.Restart()
		s.Do("GET", "/readyz", nil).Expect(200)
	}
}

func TestOneServerADataDirectory(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	status, stdout, stderr := harness.Run(t, nil, "serve", "--data-dir", s.DataDir, "--listen", "127.0.0.1:0")
	if status != 1 || stdout != "" || !strings.Contains(stderr, strconv.Itoa(s.PID())) || !strings.Contains(stderr, s.First().Address) {
		t.Errorf("%d %q %s", status, stdout, stderr)
	}
	if !strings.Contains(stderr, fmt.Sprintf("kill %d", s.PID())) || !strings.Contains(stderr, "--data-dir") {
		t.Errorf("it does not say what to do: %s", stderr)
	}
	s.Do("GET", "/health", nil).Expect(200)
	s.Kill() // leaves its lock file; the lock itself went with the process
	s.Restart()
	s.Do("GET", "/health", nil).Expect(200)
}

func TestANewerFormatIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(dir, "format"), []byte("7\n"), 0o600))
	status, stdout, stderr := harness.Run(t, nil, "serve", "--data-dir", dir, "--listen", "127.0.0.1:0")
	if status != 1 || stdout != "" || !strings.Contains(stderr, "7") || !strings.Contains(stderr, "1") {
		t.Errorf("%d %q %s", status, stdout, stderr)
	}
}

func TestWrongUseIsStatus2(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		need.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer taken.Close()
	for _, c := range []struct {
		env  []string
		args []string
		want string
	}{
		{nil, []string{"serve", "--config", write("a.yaml", "color: red\n")}, "color"},
		{nil, []string{"serve", "--config", write("b.toml", "[limits.rate]\nper_moon = 3\n")}, "limits.rate.per_moon"},
		{nil, []string{"serve", "--config", write("c.yaml", "limits: {write_bytes: many}\n")}, "limits.write_bytes"},
		{nil, []string{"serve", "--config", write("d.yaml", "a: [\n")}, "d.yaml"},
		{nil, []string{"serve", "--config", filepath.Join(dir, "none.yaml")}, "none.yaml"},
		{[]string{"UMBRA_LOG_LEVEL=loud"}, []string{"serve"}, "log.level"},
		{[]string{"UMBRA_CONFIG=" + filepath.Join(dir, "a.yaml")}, []string{"serve"}, "color"},
		{nil, []string{"serve", "--listen", "0.0.0.0:0"}, "0.0.0.0:0"},
		{nil, []string{"serve", "--listen", ":0"}, "listen"},
		{nil, []string{"serve", "--listen", "nonsense"}, "nonsense"},
		{nil, []string{"serve", "--listen", taken.Addr().String()}, taken.Addr().String()},
		{nil, []string{"serve", "--listen", "unix:" + write("file", "mine")}, "file"},
		{nil, []string{"serve", "--nonsense"}, "nonsense"},
		{nil, []string{"serve", "more"}, "more"},
		{nil, []string{"sing"}, "sing"},
	} {
		env := append([]string{"XDG_DATA_HOME=" + t.TempDir()}, c.env...)
		status, stdout, stderr := harness.Run(t, env, c.args...)
		if status != 2 || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("umbra %s: %d %q %s", strings.Join(c.args, " "), status, stdout, stderr)
		}
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(raw) != "mine" {
		t.Error("the file in the socket's place is gone", err)
	}
	if status, stdout, _ := harness.Run(t, nil, "version"); status != 0 || !strings.HasPrefix(stdout, "umbra ") {
		t.Error(status, stdout)
	}
}

func TestSettingsComeInTheirOrder(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{Config: "log: {format: json}\nlisten: 192.0.2.1:1\ndata_dir: /nonexistent\nlimits: {rate: {per_ip: 2}}\n", Env: []string{"UMBRA_LIMITS_RATE_PER_IP=3"}})
	statuses := ""
	for range 4 {
		statuses += fmt.Sprint(s.Do("GET", "/health", nil).Status, " ")
	}
	// One was spent on reading the document.
	if statuses != "200 200 429 429 " && statuses != "200 200 200 429 " {
		t.Error(statuses)
	}
	r := s.Do("GET", "/health", nil).ExpectError(429, "rate_limited")
	if n, err := strconv.Atoi(r.Header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
		t.Error(r.Header)
	}
	s.Do("GET", "/healthz", nil).Expect(200)
	if !strings.HasPrefix(s.Log.String(), "{") {
		t.Error(s.Log)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s := harness.Start(t, harness.Options{Listen: "unix:" + path})
	if s.Address != "unix:"+path || s.Stdout() != "umbra listening on unix:"+path+"\n" {
		t.Errorf("%q", s.Stdout())
	}
	if st, err := os.Lstat(path); err != nil || st.Mode() != os.ModeSocket|0o600 {
		t.Error(st, err)
	}
	s.Do("GET", "/health", nil).Expect(200)
	if status, _, stderr := harness.Run(t, nil, "serve", "--data-dir", t.TempDir(), "--listen", "unix:"+path); status != 2 || !strings.Contains(stderr, path) {
		t.Error(status, stderr)
	}
	s.Do("GET", "/health", nil).Expect(200)
	s.Kill() // its socket stays
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	s.Do("GET", "/health", nil).Expect(200)
	s.Stop()
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket outlives its server")
	}
}

func TestAHeadIsBounded(t *testing.T) {
	t.Parallel()
	s := harness.Start(t, harness.Options{})
	conn := s.Dial()
	start := time.Now()
	fmt.Fprint(conn, "GET /health HTTP/1.1\r\nX-Slow: ")
	need.NoError(t, conn.SetReadDeadline(start.Add(3*time.Minute)))
	if _, err := io.ReadAll(conn); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < 8*time.Second {
		t.Error("cut off after", took)
	}
}
