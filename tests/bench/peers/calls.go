package peers

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"umbra/tests/bench/measure"
)

// post sends a JSON body and reads the answer into a value; nil: it is not read.
func (s *Server) post(ctx context.Context, path string, body, into any, statuses ...int) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	var read func([]byte) error
	if into != nil {
		read = func(answer []byte) error { return json.Unmarshal(answer, into) }
	}
	return expect(s.client, req, read, statuses...)
}

// Begin begins a call of an agent's session and returns its id; more is added to the
// request.
func (s *Server) Begin(ctx context.Context, folder, session string, more map[string]any) (string, error) {
	body := map[string]any{"agent": "bench", "agent_session": session, "cwd": folder}
	for k, v := range more {
		body[k] = v
	}
	var begun struct {
		ID string `json:"call_id"`
	}
	err := s.post(ctx, "/calls", body, &begun, http.StatusCreated)
	return begun.ID, err
}

// End ends a call.
func (s *Server) End(ctx context.Context, id string) error {
	return s.post(ctx, "/calls/"+id+"/end", map[string]any{}, nil, http.StatusOK)
}

// Healthz sends the request that asks the least of the server.
func (s *Server) Healthz(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/healthz", nil)
	if err != nil {
		return err
	}
	return expect(s.client, req, nil, http.StatusOK)
}

// Timed runs a program in a directory with some standard input, and returns how long
// that took, from before its start to its end.
func Timed(ctx context.Context, dir string, env []string, input []byte, argv ...string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, env, bytes.NewReader(input)
	start := time.Now()
	err := quietly(cmd)
	return time.Since(start), err
}

//go:embed hook.cjs
var nodeHook []byte

// NodeHook writes a hook in Node that begins and ends calls as umbra hook does, and
// returns its command. ErrMissing: Node is not installed.
func (s *Server) NodeHook(env *measure.Env) ([]string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errors.Join(ErrMissing, err)
	}
	dir, err := env.Dir("node-hook")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "hook.cjs")
	return []string{node, file, s.URL}, os.WriteFile(file, nodeHook, 0o600)
}
