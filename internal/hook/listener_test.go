package hook

import (
	"errors"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"umbra/internal/need"
)

// TestListensForUser: a process of another user that listens at the default address is not
// asked.
func TestListensForUser(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	port := l.Addr().(*net.TCPAddr).Port
	if !listensForUser(port, os.Getuid()) {
		t.Error("a listener of this user's is another's")
	}
	if runtime.GOOS == "linux" && os.Getuid() != 0 && listensForUser(port, os.Getuid()+1) {
		t.Error("a listener of this user's is another user's too")
	}
	need.NoError(t, l.Close())
	if runtime.GOOS == "linux" && listensForUser(port, os.Getuid()) {
		t.Error("nothing listens, and yet something does")
	}
}

// TestGuessedServer: a server that nothing names is not the one of a data directory that is
// named, gets no token, and opens no workspace.
func TestGuessedServer(t *testing.T) {
	t.Setenv("UMBRA_SERVER", "")
	t.Setenv("UMBRA_TOKEN", "secret")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("UMBRA_DATA_DIR", t.TempDir())
	v, _ := Invocation{Agent: "codex"}.Complete()
	if s := v.Find(); !s.Guessed || s.Address != "" || s.Token != "" {
		t.Errorf("with a data directory: %+v", s)
	}
	if s, err := v.reach(time.Time{}, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("with a data directory: %+v, %v", s, err)
	}
	t.Setenv("UMBRA_DATA_DIR", "")
	v, _ = Invocation{Agent: "codex"}.Complete()
	if s := v.Find(); !s.Guessed || s.Address != DefaultServer || s.Token != "" {
		t.Errorf("with the default one: %+v", s)
	}
	if got := string(onlyKnown("/calls", []byte(`{"agent":"codex"}`))); got != `{"open":false,"agent":"codex"}` {
		t.Error(got)
	}
	if got := string(onlyKnown("/calls/x/end", []byte(`{"status":"ok"}`))); got != `{"status":"ok"}` {
		t.Error(got)
	}
}
