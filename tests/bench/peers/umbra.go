package peers

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"umbra/gitstore"
	"umbra/internal/vfs"
	"umbra/tests/bench/measure"
)

// Server is bin/umbra on a data directory of its own.
type Server struct {
	*Process
	URL  string
	Data string

	env    *measure.Env
	client *http.Client
}

// StartServer starts the server on a data directory, which it makes if need be.
// It runs until Stop, or the Env's end. More arguments follow its own.
func StartServer(ctx context.Context, env *measure.Env, data string, clients int, more ...string) (*Server, error) {
	args := append([]string{"serve", "--listen", "127.0.0.1:0", "--data-dir", data, "--workspace-dir", data + "-code", "--output-dir", data + "-output"}, more...)
	process, address, err := startServer(ctx, env, "umbra", env.Umbra, args...)
	if err != nil {
		return nil, err
	}
	s := &Server{Process: process, URL: address, Data: data, env: env, client: newHTTPClient(clients)}
	// Connections go first, so that a stop need not wait for them.
	env.Defer("connections", func() error { s.client.CloseIdleConnections(); return nil })
	return s, nil
}

// NewServer starts the server on a new data directory.
func NewServer(p Params) (*Server, error) {
	dir, err := p.Env.Dir("umbra")
	if err != nil {
		return nil, err
	}
	return StartServer(p.Ctx, p.Env, filepath.Join(dir, "data"), p.Clients)
}

// Task is a task on a folder, as the server answers it.
type Task struct {
	ID        string `json:"task_id"`
	Workspace string `json:"workspace_id"`
	Folder    string `json:"workspace"`
}

// Open makes a task on a folder; the first on a folder takes the baseline.
func (s *Server) Open(ctx context.Context, folder string) (Task, error) {
	var t Task
	err := s.post(ctx, "/tasks", map[string]any{"goal": "measure", "workspace": folder, "force": true}, &t, http.StatusCreated)
	return t, err
}

// Sync has the server look at the whole folder of a workspace.
func (s *Server) Sync(ctx context.Context, workspace string) error {
	return s.post(ctx, "/workspaces/"+workspace+"/sync", map[string]any{}, nil, http.StatusOK)
}

// Stop ends the server in order.
func (s *Server) Stop() error {
	s.client.CloseIdleConnections()
	return s.Process.Stop()
}

// Changes gives the subject that writes into a task of the server.
func (s *Server) Changes(t Task) *HTTP {
	return &HTTP{name: NameServer, durable: durableUmbra, base: s.URL + "/tasks/" + t.ID + "/content?path=", root: t.Folder, client: s.client, process: s.Process}
}

// Umbra makes the subject: the server's program, a project as its workspace.
func Umbra(p Params) (measure.Subject, error) {
	s, t, err := NewWorkspace(p)
	if err != nil {
		return nil, err
	}
	return s.Changes(t), nil
}

// NewWorkspace starts a server and opens a project with its history.
func NewWorkspace(p Params) (*Server, Task, error) {
	root, err := project(p, "umbra-work")
	if err != nil {
		return nil, Task{}, err
	}
	s, err := NewServer(p)
	if err != nil {
		return nil, Task{}, err
	}
	t, err := s.Open(p.Ctx, root)
	if err != nil || p.History == 0 {
		return s, t, err
	}
	if err := s.Stop(); err != nil {
		return nil, t, err
	}
	if err := AgeWorkspace(p.Ctx, s.Data, t, p.Files, p.History); err != nil {
		return nil, t, err
	}
	s, err = StartServer(p.Ctx, p.Env, s.Data, p.Clients)
	return s, t, err
}

// AgeWorkspace makes the history of a task while no server runs.
func AgeWorkspace(ctx context.Context, data string, t Task, files, commits int) error {
	fs, err := vfs.OS(filepath.Join(data, "workspaces", t.Workspace))
	if err != nil {
		return err
	}
	store, err := gitstore.Open(ctx, gitstore.Options{FS: fs})
	if err != nil {
		return err
	}
	return errors.Join(Age(ctx, store, t.ID, files, commits), store.Close(context.Background()))
}
