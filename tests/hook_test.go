package tests

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// hookRun runs umbra hook with an environment that has only env.
func hookRun(t *testing.T, env []string, input string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.Command(harness.Binary(t), append([]string{"hook"}, args...)...)
	var out, errOut bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, strings.NewReader(input), &out, &errOut
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errOut.String()
}

const hookBegin = `{"session_id":"s","cwd":"/","hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{"command":"x"},"tool_use_id":"u"}`

func TestHookFailsOpen(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	need.NoError(t, err)
	defer silent.Close()
	refused := "UMBRA_SERVER=unix:" + filepath.Join(t.TempDir(), "none")
	for _, c := range []struct{ name, server, input string }{
		{"no server", refused, hookBegin},
		{"silent server", "UMBRA_SERVER=http://" + silent.Addr().String(), hookBegin},
		{"a name that does not resolve", "UMBRA_SERVER=http://umbra.invalid:1", hookBegin},
		{"not JSON", refused, "{"},
		{"empty", refused, ""},
		{"too large", refused, `"` + strings.Repeat("x", 10<<20) + `"`},
	} {
		for _, block := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "data")
			args, want := []string{"codex"}, 0
			if block {
				args, want = append(args, "--on-failure=block"), 2
			}
			start := time.Now()
			status, out, errOut := hookRun(t, []string{c.server, "UMBRA_DATA_DIR=" + dir}, c.input, args...)
			if status != want || out != "" || (errOut != "") != block {
				t.Errorf("%s: status %d, %q, %q", c.name, status, out, errOut)
			}
			if took := time.Since(start); took > time.Minute { // it has two seconds
				t.Errorf("%s took %v", c.name, took)
			}
			log, err := os.ReadFile(filepath.Join(dir, "hooks.log"))
			if err != nil || bytes.Count(log, []byte("\n")) != 1 {
				t.Errorf("%s: log %q, %v", c.name, log, err)
			}
		}
	}
	// What has no meaning for calls needs no server.
	dir := t.TempDir()
	if status, out, _ := hookRun(t, []string{refused, "UMBRA_DATA_DIR=" + dir}, `{"session_id":"s","hook_event_name":"Later"}`, "codex", "--on-failure=block"); status != 0 || out != "" {
		t.Errorf("unknown event: %d %q", status, out)
	}
}

func TestHookLogsElsewhere(t *testing.T) {
	home := t.TempDir()
	file := filepath.Join(home, "file")
	need.NoError(t, os.WriteFile(file, nil, 0o600))
	if status, _, _ := hookRun(t, []string{"HOME=" + home, "UMBRA_DATA_DIR=" + file, "UMBRA_SERVER=unix:/none"}, hookBegin, "codex"); status != 0 {
		t.Error(status)
	}
	if _, err := os.Stat(filepath.Join(home, ".local", "state", "umbra", "hooks.log")); err != nil {
		t.Error(err)
	}
}

func TestHookWrongUse(t *testing.T) {
	for _, args := range [][]string{nil, {"codxe"}, {"codex", "x"}, {"codex", "--on-failure=no"}, {"codex", "--context=x"}, {"codex", "--more"}} {
		status, out, errOut := hookRun(t, []string{"HOME=" + t.TempDir()}, hookBegin, args...)
		if status != 2 || out != "" || errOut == "" {
			t.Errorf("%q: %d %q %q", args, status, out, errOut)
		}
	}
}

// TestHookFindsServer: the named server, else the one whose address is in the
// data directory, with the owner's secret.
func TestHookFindsServer(t *testing.T) {
	var mu sync.Mutex
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		got = append(got, r.URL.Path+" "+r.Header.Get("Authorization"))
		mu.Unlock()
		if !bytes.Contains(body, []byte(`"agent":"codex"`)) && r.URL.Path == "/calls" {
			t.Errorf("body %s", body)
		}
		fmt.Fprint(w, `{}`)
	}))
	defer s.Close()
	dir := t.TempDir()
	if status, _, _ := hookRun(t, []string{"UMBRA_SERVER=" + s.URL, "UMBRA_TOKEN=secret", "UMBRA_DATA_DIR=" + dir}, hookBegin, "codex", "--on-failure=block"); status != 0 {
		t.Error(status)
	}
	for name, text := range map[string]string{"lock": fmt.Sprintf(`{"pid":%d,"address":%q}`, os.Getpid(), s.URL), "owner": "own\n"} {
		need.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if status, _, errOut := hookRun(t, []string{"UMBRA_DATA_DIR=" + dir}, strings.Replace(hookBegin, `"u"`, `"v"`, 1), "codex", "--on-failure=block"); status != 0 {
		t.Error(status, errOut)
	}
	if want := "/calls Bearer secret|/calls Bearer own"; strings.Join(got, "|") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Claude Code gets a fork's directory for an agent that wants one of its own, and gives
// it back when its work is merged.
func TestHookWorktree(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n", "d/b": "b\n"})
	p.task(t)
	hook := func(event string) (int, string, string) {
		t.Helper()
		cmd := harness.Command(t, []string{"UMBRA_DATA_DIR=" + p.DataDir}, "hook", "claude-code")
		cmd.Stdin = strings.NewReader(event)
		var out, said strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &said
		_ = cmd.Run()
		return cmd.ProcessState.ExitCode(), out.String(), said.String()
	}
	status, out, said := hook(`{"session_id":"s","hook_event_name":"WorktreeCreate","name":"fix/the thing","cwd":"` + p.dir + `/d"}`)
	dir := strings.TrimSuffix(out, "\n")
	if data, err := os.ReadFile(filepath.Join(dir, "d/b")); status != 0 || !filepath.IsAbs(dir) || err != nil || string(data) != "b\n" {
		t.Fatalf("%d %q %s: %v", status, out, said, err)
	}
	need.NoError(t, os.WriteFile(filepath.Join(dir, "a"), []byte("agent\n"), 0o644))
	remove := `{"session_id":"s","hook_event_name":"WorktreeRemove","worktree_path":"` + dir + `","cwd":"` + p.dir + `"}`
	if status, _, said := hook(remove); status == 0 || !strings.Contains(said, "unmerged") {
		t.Errorf("%d %s", status, said)
	}
	if _, err := os.Stat(dir); err != nil {
		t.Fatalf("work that was not merged is gone: %v", err)
	}
	if status, out, said := p.verb(t, "forks", "--json"); status != 0 {
		t.Fatalf("%s%s", out, said)
	} else {
		_, id, _ := strings.Cut(out, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		if status, out, said := p.verb(t, "merge", id); status != 0 || p.read(t, "a") != "agent\n" {
			t.Fatalf("%s%s", out, said)
		}
	}
	if status, _, said := hook(remove); status != 0 {
		t.Errorf("%d %s", status, said)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the directory is still there")
	}
	for _, event := range []string{
		`{"hook_event_name":"WorktreeCreate","name":"x","cwd":"/"}`,
		`{"hook_event_name":"WorktreeRemove","worktree_path":"` + p.dir + `"}`,
	} {
		if status, out, _ := hook(event); status == 0 || out != "" {
			t.Errorf("%s: %d %q", event, status, out)
		}
	}
	if p.read(t, "d/b") != "b\n" {
		t.Error("the project is gone")
	}
}
