// Package agents runs real coding agents against the built server: their own
// tools, shells and hooks, as `umbra init` wires them. A scripted model on
// loopback says what they do (model_test.go); they have a temporary home, an
// environment of their own, and no account.
package agents

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// packages are the npm packages of the agents. opencode is the program that its
// package would copy when it is installed: no script of a package is run.
var packages = map[string][]string{
	"codex":      {"@openai/codex"},
	"opencode":   {"opencode-ai", "@opencode-ai/plugin", opencodePackage},
	"gemini-cli": {"@google/gemini-cli"},
	"qwen-code":  {"@qwen-code/qwen-code"},
}

// opencodePackage has the program that needs no AVX2.
const opencodePackage = "opencode-linux-x64-baseline"

// installed returns the folder of the agent's packages, and leaves the test out
// if they are not those of the lock file.
func installed(t *testing.T, agents ...string) string {
	t.Helper()
	need.Tool(t, "node")
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		need.Missing(t, "the lock file has the agents' programs for Linux on x86-64")
	}
	raw, err := os.ReadFile("package-lock.json")
	need.NoError(t, err)
	type pack struct{ Version string }
	var lock struct{ Packages map[string]pack }
	need.NoError(t, json.Unmarshal(raw, &lock))
	for _, a := range agents {
		for _, name := range packages[a] {
			name = "node_modules/" + name
			var has pack
			raw, err := os.ReadFile(filepath.Join(name, "package.json"))
			if err != nil || json.Unmarshal(raw, &has) != nil || has.Version != lock.Packages[name].Version {
				need.Missing(t, name+" is not installed as the lock file says (tests/tools/setup)")
			}
		}
	}
	dir, err := filepath.Abs("node_modules")
	need.NoError(t, err)
	return dir
}

// scene is a home, a project in it, and a server on the home's data directory.
type scene struct {
	*harness.Server
	home, dir, packages string
	env                 []string
	ws                  string // the workspace's ID, once an agent had a call
}

// newScene makes the project from files, commits it, and wires the agents.
func newScene(t *testing.T, files map[string]string, agents ...string) *scene {
	t.Helper()
	packages := installed(t, agents...)
	home, err := filepath.EvalSymlinks(t.TempDir())
	need.NoError(t, err)
	s := &scene{home: home, dir: filepath.Join(home, "project"), packages: packages}
	path := filepath.Dir(harness.Binary(t))
	if path, err = filepath.Abs(path); err != nil {
		t.Fatal(err)
	}
	s.env = []string{"PATH=" + path + ":" + os.Getenv("PATH"), "HOME=" + home,
		"TMPDIR=" + t.TempDir(), "TERM=dumb", "LC_ALL=C.UTF-8", "TZ=UTC", "NO_PROXY=127.0.0.1", "SYNC=" + t.TempDir()}
	for name, text := range files {
		s.put(t, name, text)
	}
	s.run(t, "git", "init", "-q")
	s.run(t, "git", "add", ".")
	s.run(t, "git", "-c", "user.name=p", "-c", "user.email=p@localhost", "commit", "-qm", "start")
	s.Server = harness.Start(t, harness.Options{DataDir: filepath.Join(home, ".local", "share", "umbra")})
	return s
}

// wire wires the agents as a user does. Their own settings are there before.
func (s *scene) wire(t *testing.T, agents ...string) {
	t.Helper()
	args := []string{"init", "--user", "--yes", "--no-autostart"}
	for _, a := range agents {
		args = append(args, "--agent", a)
	}
	s.run(t, "umbra", append(args, s.dir)...)
}

// endStarted ends the server that a hook started, and waits until it has closed its files.
func (s *scene) endStarted(t *testing.T) {
	t.Helper()
	dir := filepath.Join(s.home, ".local", "share", "umbra")
	for range 600 {
		holder, held, err := state.FindHolder(dir)
		need.NoError(t, err)
		if !held {
			return
		}
		_ = syscall.Kill(holder.PID, syscall.SIGTERM) // again does no harm
		<-time.After(50 * time.Millisecond)
	}
	t.Error("the server did not end")
}

func (s *scene) put(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(s.dir, name)
	need.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	need.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

// configure writes a file of an agent's own settings into the home.
func (s *scene) configure(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(s.home, name)
	need.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	need.NoError(t, os.WriteFile(name, []byte(text), 0o600))
}

// try runs a program in the project with the scene's environment.
func (s *scene) try(t *testing.T, name string, args ...string) (status int, out string) {
	t.Helper()
	return s.tryWithin(t, 5*time.Minute, nil, name, args...)
}

func (s *scene) tryWithin(t *testing.T, limit time.Duration, env []string, name string, args ...string) (status int, out string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, entry := range s.env {
		if path, ok := strings.CutPrefix(entry, "PATH="); ok && !filepath.IsAbs(name) {
			for _, dir := range filepath.SplitList(path) {
				if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
					name = filepath.Join(dir, name)
					break
				}
			}
		}
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = s.dir, append(append([]string{}, s.env...), env...)
	cmd.WaitDelay = 10 * time.Second
	raw, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Errorf("%s: %v", name, err)
		return -1, ""
	}
	return cmd.ProcessState.ExitCode(), string(raw)
}

func (s *scene) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	status, out := s.try(t, name, args...)
	if status != 0 {
		t.Fatalf("%s %q: status %d\n%s", name, args, status, out)
	}
	return out
}

// files returns the project's files and their bytes.
func (s *scene) files(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(s.dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == ".git" {
			return filepath.SkipDir
		}
		if d.IsDir() {
			return nil
		}
		raw, err := os.ReadFile(name)
		rel, _ := filepath.Rel(s.dir, name)
		out[filepath.ToSlash(rel)] = string(raw)
		return err
	})
	need.NoError(t, err)
	return out
}

// settings writes the agents' own settings: the model, and nothing that asks.
func (s *scene) settings(t *testing.T, m *model) {
	t.Helper()
	// Codex offers apply_patch only for a model that it has metadata of.
	s.configure(t, ".codex/config.toml", `model = "gpt-5.5"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "`+m.url+`/codex/v1"
wire_api = "responses"

[analytics]
enabled = false
`)
	s.configure(t, ".config/opencode/opencode.json", `{
  "$schema": "https://opencode.ai/config.json",
  "autoupdate": false,
  "share": "disabled",
  "model": "scripted/m",
  "small_model": "scripted/m",
  "permission": "allow",
  "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted",
    "options": {"baseURL": "`+m.url+`/opencode/v1", "apiKey": "x"}, "models": {"m": {"name": "m"}}}}
}
`)
	s.configure(t, ".gemini/settings.json", `{
  "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": false}},
  "general": {"disableAutoUpdate": true, "disableUpdateNag": true, "enableAutoUpdate": false},
  "privacy": {"usageStatisticsEnabled": false},
  "telemetry": {"enabled": false}
}
`)
	s.configure(t, ".qwen/settings.json", `{
  "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": false}},
  "general": {"disableAutoUpdate": true, "enableAutoUpdate": false},
  "privacy": {"usageStatisticsEnabled": false},
  "telemetry": {"enabled": false}
}
`)
	// opencode asks a registry for this package unless it finds it.
	plugin := filepath.Join(s.home, ".config", "opencode", "node_modules", "@opencode-ai", "plugin")
	need.NoError(t, os.MkdirAll(filepath.Dir(plugin), 0o755))
	need.NoError(t, os.Symlink(filepath.Join(s.packages, "@opencode-ai", "plugin"), plugin))
	var has struct{ Version string }
	if raw, err := os.ReadFile(filepath.Join(s.packages, "@opencode-ai", "plugin", "package.json")); err == nil {
		_ = json.Unmarshal(raw, &has)
	}
	s.configure(t, ".config/opencode/package.json", `{"dependencies":{"@opencode-ai/plugin":"`+has.Version+`"}}`)
	s.configure(t, ".config/opencode/package-lock.json", `{"lockfileVersion":3,"packages":{"":{"dependencies":{"@opencode-ai/plugin":"`+has.Version+`"}}}}`)
}

// start runs an agent with one prompt until it has no more to do.
func (s *scene) start(t *testing.T, m *model, agent string, limit time.Duration) (status int, out string) {
	t.Helper()
	return s.startScript(t, m, agent, "main", limit)
}

// startScript is like start, with another script than "main".
func (s *scene) startScript(t *testing.T, m *model, agent, script string, limit time.Duration) (status int, out string) {
	t.Helper()
	prompt := "go [script:" + script + "]"
	bin := func(name string) string { return filepath.Join(s.packages, ".bin", name) }
	switch agent {
	case "codex":
		return s.tryWithin(t, limit, nil, bin("codex"), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", prompt)
	case "opencode":
		return s.tryWithin(t, limit, []string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"},
			filepath.Join(s.packages, opencodePackage, "bin", "opencode"), "run", prompt)
	case "gemini-cli":
		return s.tryWithin(t, limit, []string{"GEMINI_API_KEY=x", "GOOGLE_GEMINI_BASE_URL=" + m.url + "/gemini-cli", "GEMINI_CLI_TRUST_WORKSPACE=true", "CI=1"},
			bin("gemini"), "--approval-mode", "yolo", "--model", "gemini-2.5-flash", "--prompt", prompt)
	case "qwen-code":
		return s.tryWithin(t, limit, []string{"OPENAI_API_KEY=x", "OPENAI_BASE_URL=" + m.url + "/qwen-code/v1", "OPENAI_MODEL=m", "CI=1"},
			bin("qwen"), "--yolo", "--auth-type", "openai", "--prompt", prompt)
	}
	t.Fatal("no such agent: " + agent)
	return 0, ""
}
