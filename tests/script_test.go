package tests

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// TestScripts drives the program by scripts (testdata/script), as a person
// does. Beside what testscript knows they have
//
//	serve [ARG…]                   start a server on $DATA; its URL is $URL
//	stop                           stop it
//	http METHOD TARGET [BODY [HEADER…]]
//	                               send a request; BODY is a text, or @FILE
//
// $WS is the workspace's folder; the data directory is found by UMBRA_DATA_DIR.
func TestScripts(t *testing.T) {
	need.Tool(t, "git")
	bin := filepath.Dir(harness.Binary(t))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			data, ws := filepath.Join(e.WorkDir, "data"), filepath.Join(e.WorkDir, "ws")
			for name, value := range map[string]string{"DATA": data, "UMBRA_DATA_DIR": data, "WS": ws, "HOME": e.WorkDir, "TZ": "UTC", "LC_ALL": "C",
				"PATH": bin + string(os.PathListSeparator) + os.Getenv("PATH"), "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"} {
				e.Setenv(name, value)
			}
			e.Values[served{}] = &scriptServer{}
			return os.MkdirAll(ws, 0o777)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"serve": scriptServe, "stop": scriptStop, "http": scriptHTTP},
	})
}

type served struct{}

// scriptServer is the server of one script.
type scriptServer struct {
	cmd    *exec.Cmd
	log    *harness.Output
	client *http.Client
}

func serverOf(ts *testscript.TestScript) *scriptServer { return ts.Value(served{}).(*scriptServer) }

const scriptPatience = 30 * time.Second

func scriptServe(ts *testscript.TestScript, neg bool, args []string) {
	s := serverOf(ts)
	if neg || s.cmd != nil {
		ts.Fatalf("serve: once at a time, and it must work")
	}
	all := append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)
	path, err := exec.LookPath(filepath.Join(strings.Split(ts.Getenv("PATH"), string(os.PathListSeparator))[0], "umbra"))
	ts.Check(err)
	cmd := exec.Command(path, all...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TZ", "LC_ALL", "UMBRA_DATA_DIR"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	out := harness.NewOutput()
	s.log = harness.NewOutput()
	cmd.Stdout, cmd.Stderr = out, s.log
	ts.Check(cmd.Start())
	s.cmd = cmd
	ts.Defer(func() {
		if s.cmd != nil {
			s.cmd.Process.Kill()
			s.cmd.Wait()
		}
	})
	line, ok := out.Await(func(text string) bool { return strings.Contains(text, "\n") }, scriptPatience)
	address, found := strings.CutPrefix(strings.TrimSpace(line), "umbra listening on ")
	if !ok || !found {
		ts.Fatalf("no ready line but %q\n%s", line, s.log)
	}
	transport := &http.Transport{}
	if socket, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", socket) }
		ts.Setenv("SOCKET", address)
		address = "http://localhost"
	}
	s.client = &http.Client{Transport: transport, Timeout: scriptPatience}
	ts.Defer(transport.CloseIdleConnections)
	ts.Setenv("URL", address)
}

func scriptStop(ts *testscript.TestScript, neg bool, args []string) {
	s := serverOf(ts)
	if neg || s.cmd == nil || len(args) > 0 {
		ts.Fatalf("stop: no server runs")
	}
	s.client.CloseIdleConnections()
	cmd := s.cmd
	s.cmd = nil
	ts.Check(cmd.Process.Signal(syscall.SIGTERM))
	timer := time.AfterFunc(scriptPatience, func() { cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		ts.Fatalf("the server ended with %v\n%s", err, s.log)
	}
}

func scriptHTTP(ts *testscript.TestScript, neg bool, args []string) {
	s := serverOf(ts)
	if len(args) < 2 || s.cmd == nil {
		ts.Fatalf("usage: http METHOD TARGET [BODY [HEADER…]], with a server")
	}
	var body io.Reader
	if len(args) > 2 {
		text := args[2]
		if name, isFile := strings.CutPrefix(text, "@"); isFile {
			text = ts.ReadFile(name)
		}
		body = strings.NewReader(text)
	}
	req, err := http.NewRequest(args[0], ts.Getenv("URL")+args[1], body)
	ts.Check(err)
	if args[0] == http.MethodPost || args[0] == http.MethodPatch {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range args[min(3, len(args)):] {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := s.client.Do(req)
	ts.Check(err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s", raw)
	if (res.StatusCode >= 300) != neg {
		ts.Fatalf("%s %s: %s\n%s", args[0], args[1], res.Status, raw)
	}
}
