package early

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/hook"
	"umbra/internal/need"
)

func TestSender(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	echo := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/big" {
			w.WriteHeader(http.StatusTeapot)
			_, _ = io.WriteString(w, big)
			return
		}
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.Host+" "+r.Header.Get("Authorization")+" "+r.Header.Get("Content-Type")+" "+string(body))
	})
	tcp := httptest.NewServer(echo)
	defer tcp.Close()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	need.NoError(t, err)
	onSocket := &httptest.Server{Listener: l, Config: &http.Server{Handler: echo}}
	onSocket.Start()
	defer onSocket.Close()
	host := strings.TrimPrefix(tcp.URL, "http://")
	port := host[strings.LastIndexByte(host, ':'):]
	for _, c := range []struct {
		server hook.Server
		want   string
	}{
		{hook.Server{Address: tcp.URL, Token: "t"}, "POST /calls " + host + " Bearer t application/json {}"},
		{hook.Server{Address: tcp.URL + "/", Own: true}, "POST /calls localhost" + port + "  application/json {}"},
		{hook.Server{Address: "http://0.0.0.0" + port, Own: true}, "POST /calls localhost" + port + "  application/json {}"},
		{hook.Server{Address: "unix:" + socket, Own: true}, "POST /calls localhost  application/json {}"},
	} {
		send := Sender(c.server, time.Now().Add(30*time.Second))
		status, body, err := send("POST", "/calls", []byte("{}"))
		if err != nil || status != 200 || string(body) != c.want {
			t.Errorf("%+v: %d %q %v, want %q", c.server, status, body, err, c.want)
		}
		if status, body, err := send("POST", "/big", nil); err != nil || status != http.StatusTeapot || string(body) != big {
			t.Errorf("%+v: %d, %d bytes, %v", c.server, status, len(body), err)
		}
	}
}

func TestSenderWithoutServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer l.Close()
	// It listens and never answers.
	silent := Sender(hook.Server{Address: "http://" + l.Addr().String()}, time.Now().Add(50*time.Millisecond))
	if _, _, err := silent("POST", "/calls", nil); err == nil || errors.Is(err, hook.ErrUnreachable) {
		t.Errorf("a silent server: %v", err)
	}
	for _, address := range []string{"unix:" + filepath.Join(t.TempDir(), "none"), "https://127.0.0.1:1", "http://127.0.0.1:1"} {
		_, _, err := Sender(hook.Server{Address: address}, time.Now().Add(30*time.Second))("POST", "/calls", nil)
		if !errors.Is(err, hook.ErrUnreachable) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestAnswers(t *testing.T) {
	for text, want := range map[string]bool{
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}":               true,
		"HTTP/1.1 200 OK\r\n\r\n{}":                                    true,
		"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\n{}":               false,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}": false,
		"HTTP/1.0 x\r\n\r\n":                                           false,
		"SSH-2.0\r\n\r\n":                                              false,
		"":                                                             false,
	} {
		if _, _, err := answer(strings.NewReader(text)); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestParse(t *testing.T) {
	for address, want := range map[string]bool{
		"http://127.0.0.1:8080": true, "http://localhost:1/": true, "http://[::1]:80": true, "http://[::]:80": true, "unix:/a": true,
		"https://127.0.0.1:1": false, "http://10.0.0.1:1": false, "http://example.com:1": false, "http://127.0.0.1:1/x": false,
		"http://127.0.0.1:0": false, "http://127.0.0.1:70000": false, "unix:": false, "": false, "http://u@127.0.0.1:1": false,
	} {
		if _, err := parse(address); (err == nil) != want {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestImportsAreEarly holds the package to imports that are ready before the
// program's heavy ones: with net in the list, its init would run after those.
func TestImportsAreEarly(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		goTool = filepath.Join(os.Getenv("GOROOT"), "bin", "go")
	}
	out, err := exec.Command(goTool, "list", "-deps", "umbra/internal/hook/early").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, late := range []string{"net", "net/url", "net/http", "crypto/tls"} {
		if slices.Contains(strings.Fields(string(out)), late) {
			t.Errorf("imports %s", late)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, body, err := answer(strings.NewReader(string(raw)))
		if err == nil && len(body) > len(raw) {
			t.Fatal("a body from nowhere")
		}
	})
}
