// Package clients runs the tests of the clients in clients/ against the built
// server: their types, the TypeScript client on Node with packages by lock
// file, and the Python client with the standard library.
package clients

import (
	"archive/zip"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// run runs a program that must end well within some minutes.
func run(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", filepath.Base(name), args, err, out)
	}
}

// abs returns a path from this directory as an absolute one.
func abs(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	need.NoError(t, err)
	return path
}

// installed returns a file of what tests/tools/setup installs.
func installed(t *testing.T, path string) string {
	t.Helper()
	path = abs(t, path)
	if _, err := os.Stat(path); err != nil {
		need.Missing(t, path+" is not installed (tests/tools/setup)")
	}
	return path
}

var compiled sync.Once

// built compiles the TypeScript client and returns its directory.
func built(t *testing.T) string {
	t.Helper()
	need.Tool(t, "node")
	dir := abs(t, "../../clients/typescript")
	tsc := installed(t, filepath.Join(dir, "node_modules/typescript/bin/tsc"))
	compiled.Do(func() { run(t, dir, nil, "node", tsc, "-p", "tsconfig.json") })
	if _, err := os.Stat(filepath.Join(dir, "dist/index.js")); err != nil {
		t.Fatal("the client is not compiled")
	}
	return dir
}

// modern returns a Node of version 22 or newer, which the AI SDK and Mastra
// require: the machine's, else that of the npm package node.
func modern(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("node"); err == nil {
		out, err := exec.Command(path, "--version").Output()
		major, _, _ := strings.Cut(strings.TrimPrefix(string(out), "v"), ".")
		if n, nerr := strconv.Atoi(major); err == nil && nerr == nil && n > 22 {
			return path
		}
	}
	return installed(t, "../mcp/node_modules/.bin/node")
}

// commands is the configuration of a server that runs commands.
const commands = "exec:\n  enabled: true\n"

// suite runs test files of the TypeScript client against a server.
func suite(t *testing.T, s *harness.Server, node string, files ...string) {
	t.Helper()
	writes := "1000" // through a proxy that drops, doubles and cuts
	if os.Getenv("UMBRA_SOAK") != "" {
		writes = "10000"
	}
	args := []string{"--expose-gc", "--test", "--test-concurrency=1", "--test-timeout=120000"}
	for _, f := range files {
		args = append(args, "test/"+f+".test.mjs")
	}
	run(t, built(t), []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "UMBRA_TEST_WRITES=" + writes, "UMBRA_TEST_PROGRAM=" + abs(t, harness.Binary(t))}, node, args...)
}

// TestTypeScript runs the tests of the client's core on the machine's Node.
func TestTypeScript(t *testing.T) {
	suite(t, harness.Start(t, harness.Options{Config: commands}), need.Tool(t, "node"), "core")
}

// TestFrameworks runs the adapters' tests, with the real frameworks.
func TestFrameworks(t *testing.T) {
	built(t)
	node := modern(t)
	s := harness.Start(t, harness.Options{Config: commands})
	for _, name := range []string{"deepagents", "langchain", "ai-sdk", "mastra", "others", "readme"} {
		t.Run(name, func(t *testing.T) { suite(t, s, node, name) })
	}
}

// TestPackaging holds the npm package to what a user gets of it.
func TestPackaging(t *testing.T) {
	need.Tool(t, "npm")
	run(t, built(t), []string{"UMBRA_TEST_DIR=" + t.TempDir()}, modern(t), "--test", "--test-timeout=600000", "test/packaging.test.mjs")
}

// TestWheel builds the Python package's wheel, without a registry, and imports
// the client from it alone.
func TestWheel(t *testing.T) {
	python := ""
	for _, program := range []string{"python3", "/usr/bin/python3"} {
		if exec.Command(program, "-c", "import setuptools, wheel").Run() == nil {
			python = program
			break
		}
	}
	if python == "" {
		need.Missing(t, "Python's setuptools and wheel are not installed (tests/tools/setup)")
	}
	source, out := t.TempDir(), t.TempDir()
	need.NoError(t, os.CopyFS(source, os.DirFS(abs(t, "../../clients/python"))))
	run(t, source, nil, python, "-c", "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])", out)
	wheel := filepath.Join(out, "umbra-0.1.0-py3-none-any.whl")
	archive, err := zip.OpenReader(wheel)
	need.NoError(t, err)
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		if name, ok := strings.CutPrefix(f.Name, "umbra/"); ok {
			names = append(names, name)
		} else if !strings.HasPrefix(f.Name, "umbra-0.1.0.dist-info/") {
			t.Errorf("the wheel has %s", f.Name)
		}
	}
	var want []string
	for _, pattern := range []string{"*.py", "py.typed"} {
		files, err := filepath.Glob(filepath.Join(source, "umbra", pattern))
		need.NoError(t, err)
		for _, f := range files {
			want = append(want, filepath.Base(f))
		}
	}
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("the wheel has %v, not %v", names, want)
	}
	run(t, out, []string{"PYTHONPATH=" + wheel}, python, "-c", "import umbra, umbra.deepagents; umbra.Client('http://127.0.0.1:1')")
}

// TestPython runs the Python client's own tests against a server.
func TestPython(t *testing.T) {
	need.Tool(t, "python3")
	dir, err := filepath.Abs("../../clients/python")
	need.NoError(t, err)
	s := harness.Start(t, harness.Options{Config: commands})
	for _, name := range []string{"tests/test_client.py", "tests/test_deepagents.py", "tests/test_readme.py"} {
		run(t, dir, []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH=" + dir}, "python3", "-m", "unittest", name)
	}
}

// TestOpencode calls the opencode plugin's hooks as opencode does: of the plugin
// as it is in clients/opencode, and as umbra init writes it.
func TestOpencode(t *testing.T) {
	need.Tool(t, "node")
	dir, err := filepath.Abs("../../clients/opencode")
	need.NoError(t, err)
	s := harness.Start(t, harness.Options{})
	env := []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "UMBRA_DATA_DIR=" + t.TempDir()}
	run(t, dir, env, "node", "--test", "--test-timeout=120000", "test/umbra.test.mjs")
	home := t.TempDir()
	program, err := filepath.Abs(harness.Binary(t))
	need.NoError(t, err)
	run(t, home, []string{"HOME=" + home, "XDG_CONFIG_HOME=", "UMBRA_DATA_DIR=" + filepath.Join(home, "data")}, program, "init", "--user", "--yes", "--agent", "opencode", home)
	plugin := filepath.Join(home, ".config", "opencode", "plugins", "umbra.mjs")
	need.NoError(t, os.Rename(filepath.Join(filepath.Dir(plugin), "umbra.js"), plugin))
	// Another server: the session names are the same.
	s = harness.Start(t, harness.Options{})
	env = []string{"UMBRA_TEST_URL=" + s.URL, "UMBRA_TEST_DIR=" + t.TempDir(), "UMBRA_DATA_DIR=" + t.TempDir(), "UMBRA_TEST_PLUGIN=" + plugin}
	run(t, dir, env, "node", "--test", "--test-timeout=120000", "test/umbra.test.mjs")
}
