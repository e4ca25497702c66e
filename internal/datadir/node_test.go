package datadir

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestNodesDirectory: the data directory of a cluster's node is not taken for a server's.
func TestNodesDirectory(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, CheckSingle(dir))
	need.NoError(t, os.WriteFile(filepath.Join(dir, NodeFile), []byte("{}"), 0o600))
	if _, err := Repair(t.Context(), dir, nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "a cluster's node") {
		t.Errorf("repair: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state.db")); err == nil {
		t.Error("records were made")
	}
}
