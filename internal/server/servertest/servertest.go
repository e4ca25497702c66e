// Package servertest runs the whole server inside a test, for the tests that are
// next to each HTTP dialect: real services on a data directory, without a network.
package servertest

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/config"
	"umbra/internal/server"
	"umbra/internal/state"
)

// Server is a server with one workspace, whose a.txt has the lines one and two, and
// a task that has changed the second line.
type Server struct {
	t       testing.TB
	handler http.Handler

	// Names are the values of what is in a request's target and body, and in the wanted part
	// of an answer, in braces: root (the workspace's directory), ws and task (their
	// ids), and those that a test adds.
	Names map[string]string
}

// New starts a server; change adapts its configuration. It ends with the test.
func New(t testing.TB, change ...func(*config.Config)) *Server {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "project")
	s := &Server{t: t, Names: map[string]string{"root": root}}
	cfg := config.Default()
	cfg.DataDir, cfg.WorkspaceDir, cfg.Output.Dir = filepath.Join(dir, "data"), filepath.Join(dir, "code"), filepath.Join(dir, "output")
	cfg.Auth.Peer = config.PeerAny
	for _, c := range change {
		c(&cfg)
	}
	s.check(os.Mkdir(root, 0o700))
	s.check(os.WriteFile(filepath.Join(root, "a.txt"), []byte("one\n2\n"), 0o600))
	data, err := state.Acquire(cfg.DataDir)
	s.check(err)
	t.Cleanup(func() { s.check(data.Release()) })
	built, err := server.Build(cfg, data, slog.New(slog.DiscardHandler))
	s.check(err)
	t.Cleanup(func() {
		built.Server.Stop()
		s.check(built.Close(context.Background()))
	})
	s.handler = built.Server
	var made struct {
		ID        string `json:"task_id"`
		Workspace string `json:"workspace_id"`
	}
	s.Into(&made, "POST", "/tasks", `{"goal":"a test","workspace":"{root}"}`)
	s.Names["task"], s.Names["ws"] = made.ID, made.Workspace
	s.Into(&struct{}{}, "PUT", "/tasks/{task}/content?path=a.txt", "one\ntwo\n")
	return s
}

func (s *Server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) fill(text string) string {
	for name, value := range s.Names {
		text = strings.ReplaceAll(text, "{"+name+"}", value)
	}
	return text
}

// Do sends a request. A body that begins with a brace is JSON. Headers are
// "Name: value".
func (s *Server) Do(method, target, body string, headers ...string) *httptest.ResponseRecorder {
	var r io.Reader
	if body != "" {
		r = strings.NewReader(s.fill(body))
	}
	req := httptest.NewRequestWithContext(s.t.Context(), method, "http://127.0.0.1"+s.fill(target), r)
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	rec := httptest.NewRecorder()
	s.handler.ServeHTTP(rec, req)
	return rec
}

// Into sends a request that must succeed, and decodes the answer.
func (s *Server) Into(out any, method, target, body string, headers ...string) {
	s.t.Helper()
	rec := s.Do(method, target, body, headers...)
	if rec.Code/100 != 2 {
		s.t.Fatalf("%s %s: %d %s", method, target, rec.Code, rec.Body)
	}
	s.check(json.Unmarshal(rec.Body.Bytes(), out))
}

// Case is a request, and what its answer must have.
type Case struct {
	Request string // method and target
	Body    string
	Headers []string
	Status  int
	Code    string // the error's code
	Has     string // a part of the body
}

// Check sends requests one after another.
func (s *Server) Check(cases []Case) {
	s.t.Helper()
	for _, c := range cases {
		method, target, _ := strings.Cut(c.Request, " ")
		rec := s.Do(method, target, c.Body, c.Headers...)
		got := rec.Body.String()
		if rec.Code != c.Status || c.Code != "" && !strings.Contains(got, `"`+c.Code+`"`) || !strings.Contains(got, s.fill(c.Has)) {
			s.t.Errorf("%s %s: %d %s, want %d %s %s", c.Request, c.Body, rec.Code, got, c.Status, c.Code, c.Has)
		}
	}
}
