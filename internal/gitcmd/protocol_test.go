package gitcmd

import (
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/need"
)

// A repository's own config does not allow a transport that runs a program.
func TestRepositoryConfigAllowsNoTransport(t *testing.T) {
	need.Tool(t, "git")
	dir := filepath.Join(t.TempDir(), "r.git")
	need.NoError(t, os.Mkdir(dir, 0o700))
	marker := filepath.Join(t.TempDir(), "ran")
	for i, args := range [][]string{
		{"init", "-q", "--bare"},
		{"config", "protocol.ext.allow", "always"},
		{"fetch", "-q", "ext::touch " + marker},
	} {
		cmd, err := Command(t.Context(), dir, args...)
		need.NoError(t, err)
		if err := Run(cmd); (err != nil) != (i == 2) {
			t.Fatalf("git %v: %v", args, err)
		}
	}
	if _, err := os.Lstat(marker); err == nil {
		t.Error("git ran the program of an ext transport")
	}
}
