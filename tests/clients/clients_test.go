// Package clients runs the tests of the clients in clients/ against the built
// server: their types, the TypeScript client on Node with packages by lock
// file, and the Python client with the standard library.
package clients

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// run runs a program that must end well within some minutes.
func run(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(name), args, err, out)
	}
}

// built compiles the TypeScript client.
func built(t *testing.T) string {
	t.Helper()
	need.Tool(t, "node")
	dir, err := filepath.Abs("../../clients/typescript")
	if err != nil {
		t.Fatal(err)
	}
	tsc := filepath.Join(dir, "node_modules", "typescript", "bin", "tsc")
	if _, err := os.Stat(tsc); err != nil {
		need.Missing(t, "the packages of clients/typescript are not installed (tests/tools/setup)")
	}
	run(t, dir, nil, "node", tsc, "-p", "tsconfig.json")
	return dir
}

// TestTypeScript runs the client's own tests against a server.
func TestTypeScript(t *testing.T) {
	dir := built(t)
	s := harness.Start(t, harness.Options{})
	tests, err := filepath.Glob(filepath.Join(dir, "test", "*.test.mjs"))
	if err != nil || len(tests) == 0 {
		t.Fatal("no tests", err)
	}
	run(t, dir, []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir()}, "node", append([]string{"--test", "--test-concurrency=1", "--test-timeout=120000"}, tests...)...)
}

// TestPython runs the Python client's own tests against a server.
func TestPython(t *testing.T) {
	need.Tool(t, "python3")
	dir, err := filepath.Abs("../../clients/python")
	if err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{})
	for _, name := range []string{"tests/test_client.py", "tests/test_deepagents.py"} {
		run(t, dir, []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + dir}, "python3", "-m", "unittest", name)
	}
}

// TestOpencode calls the opencode plugin's hooks as opencode does: of the plugin
// as it is in clients/opencode, and as umbra init writes it.
func TestOpencode(t *testing.T) {
	need.Tool(t, "node")
	dir, err := filepath.Abs("../../clients/opencode")
	if err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, harness.Options{})
	env := []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "UMBRA_DATA_DIR=" + t.TempDir()}
	run(t, dir, env, "node", "--test", "--test-timeout=120000", "test/umbra.test.mjs")
	home := t.TempDir()
	program, err := filepath.Abs(harness.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	run(t, home, []string{"HOME=" + home, "XDG_CONFIG_HOME=", "UMBRA_DATA_DIR=" + filepath.Join(home, "data")}, program, "init", "--user", "--yes", "--agent", "opencode", home)
	plugin := filepath.Join(home, ".config", "opencode", "plugins", "umbra.mjs")
	if err := os.Rename(filepath.Join(filepath.Dir(plugin), "umbra.js"), plugin); err != nil {
		t.Fatal(err)
	}
	// Another server: the session names are the same.
	s = harness.Start(t, harness.Options{})
	env = []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "UMBRA_DATA_DIR=" + t.TempDir(), "UMBRA_TEST_PLUGIN=" + plugin}
	run(t, dir, env, "node", "--test", "--test-timeout=120000", "test/umbra.test.mjs")
}
