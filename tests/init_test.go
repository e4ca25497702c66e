package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// files lists a tree: path, mode and content.
func files(t *testing.T, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() && info.Name() == "data" {
			return filepath.SkipDir
		}
		fmt.Fprintf(&b, "%s %v", path, info.Mode())
		if info.Mode().IsRegular() {
			raw, err := os.ReadFile(path)
			fmt.Fprintf(&b, " %q %v", raw, err)
		}
		b.WriteByte('\n')
		return nil
	})
	need.NoError(t, err)
	return b.String()
}

func TestInitAgents(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "UMBRA_DATA_DIR=" + filepath.Join(home, "data")}
	project := filepath.Join(home, "project")
	settings := filepath.Join(home, ".claude", "settings.json")
	for _, dir := range []string{project, filepath.Dir(settings), filepath.Join(home, ".codex")} {
		need.NoError(t, os.Mkdir(dir, 0o755))
	}
	need.NoError(t, os.WriteFile(settings, []byte("{\n  // mine\n  \"model\": \"x\",\n}\n"), 0o600))
	run := func(want int, args ...string) string {
		t.Helper()
		status, out, errOut := harness.Run(t, env, append(append([]string{"init"}, args...), project)...)
		if status != want {
			t.Errorf("init %q: status %d: %s%s", args, status, out, errOut)
		}
		return out
	}
	before := files(t, home)
	if out := run(0, "--dry-run"); !strings.Contains(out, "hook claude-code") || !strings.Contains(out, "+[mcp_servers.umbra]") || strings.Contains(out, "gemini") {
		t.Errorf("dry run: %s", out)
	}
	if now := files(t, home); now != before {
		t.Errorf("a dry run changed files:\n%s\n%s", before, now)
	}
	run(0)
	wired := files(t, home)
	run(0, "--yes")
	if now := files(t, home); now != wired {
		t.Errorf("twice is not once:\n%s\n%s", wired, now)
	}
	status, out, _ := harness.Run(t, env, "doctor", "--json")
	if !strings.Contains(out, "wired; never heard") || status > 1 {
		t.Errorf("doctor does not report the agents: %s", out)
	}
	run(0, "--isolate")
	if now := files(t, home); strings.Count(now, " --isolate\\\"") != strings.Count(wired, " hook ") || strings.Count(now, "hook codex") != strings.Count(wired, "hook codex") {
		t.Errorf("--isolate: %s", now)
	}
	run(0)
	if now := files(t, home); now != wired {
		t.Errorf("without --isolate again:\n%s\n%s", wired, now)
	}
	run(0, "--remove")
	if now := files(t, home); now != before {
		t.Errorf("not as it was:\n%s\n%s", before, now)
	}
	run(0, "--project", "--agent", "opencode", "--agent", "copilot")
	for _, name := range []string{".opencode/plugins/umbra.js", "opencode.json", ".github/hooks/umbra.json"} {
		if _, err := os.Stat(filepath.Join(project, name)); err != nil {
			t.Error(err)
		}
	}
	run(0, "--project", "--agent", "opencode", "--agent", "copilot", "--remove")
	if now := files(t, home); now != before {
		t.Errorf("not as it was:\n%s\n%s", before, now)
	}
	// A file that cannot be parsed is left and named; the others are done.
	need.NoError(t, os.WriteFile(settings, []byte("{"), 0o600))
	if out := run(1, "--json"); !strings.Contains(out, `"left"`) || !strings.Contains(out, settings) || !strings.Contains(out, `"created"`) {
		t.Errorf("a file that cannot be parsed: %s", out)
	}
	for _, args := range [][]string{{"--agent", "x"}, {"--user", "--project"}, {"--autostart", "--no-autostart"}} {
		run(2, args...)
	}
}

// TestInitRemovesUninstalled: what init wrote for an agent that was uninstalled since is
// taken out as well; and doctor reports when an agent was heard, wired or not.
func TestInitRemovesUninstalled(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "UMBRA_DATA_DIR=" + filepath.Join(home, "data")}
	project := filepath.Join(home, "project")
	need.NoError(t, os.Mkdir(project, 0o755))
	need.NoError(t, os.WriteFile(filepath.Join(home, ".claude.json"), []byte("{\"mine\": 1}\n"), 0o600))
	before := files(t, home)
	run := func(args ...string) string {
		t.Helper()
		status, out, errOut := harness.Run(t, env, append(append([]string{"init"}, args...), project)...)
		if status != 0 {
			t.Errorf("init %q: status %d: %s%s", args, status, out, errOut)
		}
		return out
	}
	doctor := func(want string) {
		t.Helper()
		_, _, list := examine(t, env)
		for _, f := range list {
			if f.Check == "agents" && f.About == "claude-code" {
				if !strings.HasPrefix(f.Detail, want) {
					t.Errorf("doctor: %q, want %q", f.Detail, want)
				}
				return
			}
		}
		if want != "" {
			t.Errorf("doctor reports no claude-code: %+v", list)
		}
	}
	doctor("")
	run("--agent", "claude-code")
	run("--agent", "copilot", "--project")
	doctor("wired; never heard")
	hookRun(t, env, `{"session_id":"s","cwd":"/","hook_event_name":"SessionStart"}`, "claude-code")
	doctor("wired; last heard 2")
	for _, dir := range []string{filepath.Join(home, ".claude"), filepath.Join(project, ".github")} {
		need.NoError(t, os.RemoveAll(dir))
	}
	run("--remove", "--dry-run")
	if out := run("--remove"); !strings.Contains(out, ".claude.json") || strings.Contains(out, "gemini") {
		t.Errorf("init --remove: %s", out)
	}
	run("--remove", "--project")
	doctor("not wired; last heard 2")
	if now := files(t, home); now != before {
		t.Errorf("not as it was:\n%s\n%s", before, now)
	}
	if out := run("--remove", "--json"); !strings.Contains(out, `"agents":[]`) {
		t.Errorf("nothing to remove: %s", out)
	}
}

// TestHookStartsServer: hooks that come at once start one server.
func TestHookStartsServer(t *testing.T) {
	dir, home := filepath.Join(t.TempDir(), "data"), t.TempDir()
	env := []string{"HOME=" + home, "UMBRA_DATA_DIR=" + dir, "UMBRA_LISTEN=127.0.0.1:0", "PATH=" + os.Getenv("PATH")}
	work := t.TempDir()
	event := func(id string) string {
		return fmt.Sprintf(`{"session_id":"s","cwd":%q,"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":%q}`, work, id)
	}
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() { hookRun(t, env, event(fmt.Sprint("a", n)), "codex", "--autostart") })
	}
	group.Wait()
	started := false
	for n, end := 0, time.Now().Add(30*time.Second); !started && time.Now().Before(end); n++ {
		status, _, _ := hookRun(t, env, event(fmt.Sprint("b", n)), "codex", "--autostart", "--on-failure=block")
		started = status == 0
	}
	log, err := os.ReadFile(filepath.Join(dir, "server.log"))
	if !started || err != nil || strings.Count(string(log), "msg=listening") != 1 {
		t.Errorf("one server was to be started: %v %v\n%s", started, err, log)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "lock"))
	need.NoError(t, err)
	var holder struct{ PID int }
	if err := json.Unmarshal(raw, &holder); err != nil || holder.PID <= 1 {
		t.Fatalf("%v: %s", err, raw)
	}
	need.NoError(t, syscall.Kill(holder.PID, syscall.SIGTERM))
	// The files are in use until it has ended.
	for end := time.Now().Add(30 * time.Second); ; {
		hookRun(t, env, event("c"), "codex") // takes its time
		if raw, err := os.ReadFile(filepath.Join(dir, "lock")); err == nil && strings.TrimSpace(string(raw)) == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the server did not end")
		}
	}
}

func TestServeIdleExit(t *testing.T) {
	status, out, errOut := harness.Run(t, nil, "serve", "--listen", "127.0.0.1:0", "--idle-exit", "300ms")
	if status != 0 || !strings.Contains(out, "umbra listening") || !strings.Contains(errOut, "no request came") {
		t.Errorf("status %d, %q\n%s", status, out, errOut)
	}
	if status, _, _ := harness.Run(t, nil, "serve", "--idle-exit", "-1s"); status != 2 {
		t.Errorf("a negative time: status %d", status)
	}
}

// TestInitAtOnce: several umbra init at once wire each agent once, and are taken out
// again byte for byte.
func TestInitAtOnce(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home, "UMBRA_DATA_DIR=" + filepath.Join(home, "data")}
	project := filepath.Join(home, "project")
	for path, text := range map[string]string{".claude/settings.json": "{\n  // mine\n  \"model\": \"x\",\n}\n", ".codex/config.toml": "a = 1\n", "project/x": ""} {
		need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(home, path)), 0o755))
		need.NoError(t, os.WriteFile(filepath.Join(home, path), []byte(text), 0o600))
	}
	before := files(t, home)
	run := func(args ...string) {
		t.Helper()
		var group sync.WaitGroup
		for range 6 {
			group.Go(func() {
				if status, out, errOut := harness.Run(t, env, append(append([]string{"init"}, args...), project)...); status != 0 {
					t.Errorf("init %q: %d %s%s", args, status, out, errOut)
				}
			})
		}
		group.Wait()
	}
	run()
	if now := files(t, home); strings.Count(now, "PreToolUse") != 2 || strings.Count(now, "[mcp_servers.umbra]") != 1 {
		t.Errorf("wired: %s", now)
	}
	run("--remove")
	if now := files(t, home); now != before {
		t.Errorf("not as it was:\n%s\n%s", before, now)
	}
}
