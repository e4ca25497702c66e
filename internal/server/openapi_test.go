package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/config"
	"umbra/internal/need"
	"umbra/internal/state"
)

// TestEveryRouteIsInTheDocument holds the router of the whole server and its
// OpenAPI document against each other, both ways.
func TestEveryRouteIsInTheDocument(t *testing.T) {
	root := t.TempDir()
	cfg := config.Default()
	cfg.DataDir, cfg.WorkspaceDir, cfg.Output.Dir = filepath.Join(root, "data"), filepath.Join(root, "code"), filepath.Join(root, "output")
	cfg.Auth.Peer = config.PeerAny
	dir, err := state.Acquire(cfg.DataDir)
	need.NoError(t, err)
	deps, err := Build(cfg, dir, slog.New(slog.DiscardHandler))
	need.NoError(t, err)
	t.Cleanup(func() {
		deps.Server.Stop()
		if err := deps.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := dir.Release(); err != nil {
			t.Error(err)
		}
	})
	rec := httptest.NewRecorder()
	deps.Server.ServeHTTP(rec, httptest.NewRequest("GET", "http://127.0.0.1/openapi.json", nil))
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
		t.Fatalf("%v\n%s", err, rec.Body)
	}
	var described []string
	for path, item := range doc.Paths {
		for method, raw := range item {
			if method == "parameters" {
				continue
			}
			described = append(described, strings.ToUpper(method)+" "+path)
			var op struct{ Summary, Description string }
			if err := json.Unmarshal(raw, &op); err != nil || op.Summary == "" || op.Description == "" {
				t.Errorf("%s %s has no summary or no description", method, path)
			}
		}
	}
	if left := deps.Server.Unplaced(); len(left) > 0 {
		t.Errorf("routes that do not say which workspace they are about (Route.About): %v", left)
	}
	routes := deps.Server.Routes()
	for i, rt := range routes {
		routes[i] = strings.ReplaceAll(rt, "...}", "}")
		if !slices.Contains(described, routes[i]) {
			t.Errorf("%s is not in the document", rt)
		}
	}
	for _, op := range described {
		if !slices.Contains(routes, op) {
			t.Errorf("%s is no route", op)
		}
	}
}
