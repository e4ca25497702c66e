package object_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

// run runs git in dir, away from everybody's configuration.
func run(dir string, stdin []byte, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent")
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func git(t testing.TB, dir string, stdin []byte, args ...string) string {
	t.Helper()
	out, err := run(dir, stdin, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// repo makes an empty bare repository with one blob, and gives the blob's id.
func repo(t testing.TB) (string, object.ID) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "r.git")
	git(t, "", nil, "init", "-q", "--bare", dir)
	return dir, parseID(t, git(t, dir, []byte("x"), "hash-object", "-w", "--stdin"))
}

func parseID(t testing.TB, s string) object.ID {
	t.Helper()
	id, err := object.ParseID(s)
	need.NoError(t, err)
	return id
}

// rawTree encodes entries as they come, right or wrong.
func rawTree(entries ...object.Entry) []byte {
	var b []byte
	for _, e := range entries {
		b = append(b, strings.TrimLeft(e.Mode.String(), "0")+" "+e.Name+"\x00"...)
		b = append(b, e.ID[:]...)
	}
	return b
}

// write stores any bytes as an object, whatever git thinks of them.
func write(t testing.TB, dir, kind string, data []byte) object.ID {
	t.Helper()
	return parseID(t, git(t, dir, data, "hash-object", "-w", "-t", kind, "--literally", "--stdin"))
}
