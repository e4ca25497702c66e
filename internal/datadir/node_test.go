package datadir

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodesDirectory: the data directory of a cluster's node is not taken for a server's.
func TestNodesDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := CheckSingle(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, NodeFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(t.Context(), dir, nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "a cluster's node") {
		t.Errorf("repair: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state.db")); err == nil {
		t.Error("records were made")
	}
}
