package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

type commandAnswer struct {
	ExitCode       *int `json:"exit_code"`
	Stdout, Stderr string
	Truncated      bool
	TimedOut       bool `json:"timed_out"`
	Commit         *string
	Entries        []callEntry
	Conflicts      []struct{ Path string }
	CallID         *string `json:"call_id"`
	Isolated       bool
	Patch          *string
}

func (k *taskOf) run(t *testing.T, body map[string]any, header ...string) (a commandAnswer) {
	t.Helper()
	k.p.post(t, k.url("/exec"), body, header...).want(t, 200).into(t, &a)
	return a
}

// A command has no descriptor that the server was started with.
func TestExecInheritsNoDescriptor(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	need.NoError(t, os.WriteFile(secret, []byte("s"), 0o600))
	f, err := os.Open(secret)
	need.NoError(t, err)
	defer f.Close()
	open := func(cmd *exec.Cmd) { cmd.ExtraFiles = slices.Repeat([]*os.File{f}, 20) }
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n", Wrap: open}), dir: t.TempDir()}
	k := p.task(t)
	if a := k.run(t, map[string]any{"command": "for fd in /proc/self/fd/*; do readlink $fd; done; echo end"}); strings.Contains(a.Stdout, secret) || !strings.HasSuffix(a.Stdout, "end\n") {
		t.Errorf("%s%s", a.Stdout, a.Stderr)
	}
}

// TestExecOverHTTP runs commands on a directory and on a virtual workspace.
func TestExecOverHTTP(t *testing.T) {
	off := newProject(t, map[string]string{"a": "1\n"})
	k := off.task(t)
	off.post(t, k.url("/exec"), map[string]any{"command": "true"}).fails(t, 403, "exec_disabled")

	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n  output_bytes: 4KiB\n  concurrency: 2\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n", "d/b": "2\n", "gone": "x\n", ".gitignore": "out/\n"})
	k = p.task(t)
	a := k.run(t, map[string]any{"command": "cat; echo err >&2; echo $X $UMBRA_TASK; echo 2 > a; rm gone; mkdir -p out; echo y > out/y; exit 3",
		"stdin": "in\n", "env": map[string]string{"X": "x"}, "subtask_id": "s1"}, "X-Actor", "ann")
	if a.ExitCode == nil || *a.ExitCode != 3 || a.Stdout != "in\nx "+k.ID+"\n" || a.Stderr != "err\n" || a.Commit == nil || len(a.Entries) != 2 || a.CallID == nil {
		t.Errorf("%+v", a)
	}
	if e := a.Entries[0]; e.SubtaskID == nil || *e.SubtaskID != "s1" || e.Source != "call" || *e.TaskID != k.ID {
		t.Errorf("%+v", e)
	}
	if p.read(t, "a") != "2\n" || p.read(t, "out/y") != "y\n" {
		t.Error("not applied")
	}
	p.absent(t, "gone")
	if a := k.run(t, map[string]any{"command": []string{"pwd"}, "cwd": "d"}); a.Stdout != filepath.Join(p.dir, "d")+"\n" || a.Commit != nil {
		t.Errorf("%+v", a)
	}
	if a := k.run(t, map[string]any{"command": []string{"no-such-program"}}); a.ExitCode == nil || *a.ExitCode != 127 {
		t.Errorf("%+v", a)
	}
	if a := k.run(t, map[string]any{"command": "yes | head -c 100000"}); !a.Truncated || len(a.Stdout) != 4096 {
		t.Errorf("%d bytes", len(a.Stdout))
	}
	if a := k.run(t, map[string]any{"command": "echo early > early; sleep 100", "timeout_ms": 1500}); !a.TimedOut || a.ExitCode != nil || p.read(t, "early") != "early\n" {
		t.Errorf("%+v", a)
	}
	if dry := k.run(t, map[string]any{"command": "echo 3 > a", "dry_run": true}); dry.Isolated && (dry.Patch == nil || !strings.Contains(*dry.Patch, "+3\n") || p.read(t, "a") != "2\n") {
		t.Errorf("%+v", dry)
	} else if len(dry.Entries) != 1 || dry.Entries[0].Commit != nil || dry.Entries[0].Seq != nil || time.Since(dry.Entries[0].Timestamp) > time.Hour {
		t.Errorf("a dry run's entries: %+v", dry.Entries)
	}
	for field, body := range map[string]map[string]any{
		"command":    {},
		"cwd":        {"command": "true", "cwd": "nowhere"},
		"timeout_ms": {"command": "true", "timeout_ms": 0},
		"isolate":    {"command": "true", "isolate": "yes"},
		"env":        {"command": "true", "env": map[string]string{"A=B": "x"}},
	} {
		if got := p.post(t, k.url("/exec"), body).fails(t, 400, "invalid_field"); got["field"] != field {
			t.Errorf("%s: %v", field, got)
		}
	}
	p.post(t, k.url("/exec"), map[string]any{"command": "true", "cwd": "../x"}).want(t, 400)

	p.post(t, "/tasks", map[string]any{"task_id": "v", "goal": "try", "kind": "virtual", "workspace": ""}).want(t, 201)
	v := &taskOf{p: p, ID: "v"}
	p.call(t, "PUT", "/tasks/v/content?path=s/run", []byte("#!/bin/sh\necho hi\n"), "X-File-Mode", "100755").want(t, 201)
	a = v.run(t, map[string]any{"command": "./s/run > out; ln -s out link; mv s/run moved; cat out; echo $UMBRA_CALL > /dev/null"})
	if got := (callEnded{Entries: a.Entries}).text(); a.Stdout != "hi\n" || a.Commit == nil || a.CallID == nil || got != "s/run rename exact, link symlink exact, out create exact" {
		t.Errorf("%s %+v", got, a)
	}
	if got := string(p.call(t, "GET", "/tasks/v/content?path=link", nil).want(t, 200).Body); got != "hi\n" {
		t.Errorf("link has %q", got)
	}
	p.call(t, "GET", "/tasks/v/content?path=s/run", nil).want(t, 404)
}

// execEvents begins a command with a key, and returns its events as they come.
func (p *project) execEvents(t *testing.T, ctx context.Context, k *taskOf, key string, body map[string]any) *http.Response {
	t.Helper()
	raw, err := json.Marshal(body)
	need.NoError(t, err)
	r, err := http.NewRequestWithContext(ctx, "POST", p.URL+k.url("/exec"), bytes.NewReader(raw))
	need.NoError(t, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Idempotency-Key", key)
	res, err := http.DefaultClient.Do(r)
	need.NoError(t, err)
	return res
}

// TestExecEvents reads a command's output as it comes, and ends one by leaving.
func TestExecEvents(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	ask := func(ctx context.Context, key, command string) *http.Response {
		t.Helper()
		return p.execEvents(t, ctx, k, key, map[string]any{"command": command})
	}
	const first = "echo one; echo two >&2; echo x >> a"
	res := ask(t.Context(), "first", first)
	all, err := io.ReadAll(res.Body)
	res.Body.Close()
	text := string(all)
	if err != nil || !strings.Contains(text, "event: stdout\ndata: {\"text\":\"one\\n\"}") || !strings.Contains(text, "event: stderr\ndata: {\"text\":\"two\\n\"}") ||
		!strings.Contains(text, "event: end\ndata: {\"exit_code\":0,") {
		t.Errorf("%v %s", err, text)
	}
	// A repeated request is answered from the record.
	res = ask(t.Context(), "first", first)
	again, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || string(again) != text || res.Header.Get("Idempotent-Replay") != "true" || p.read(t, "a") != "1\nx\n" {
		t.Errorf("%v %s %q", err, again, p.read(t, "a"))
	}
	mark, stay := filepath.Join(t.TempDir(), "pid"), filepath.Join(t.TempDir(), "stay")
	need.NoError(t, os.WriteFile(stay, nil, 0o600))
	second := "echo $$ > " + mark + "; echo left > a; echo begun; test ! -e " + stay + " || sleep 1000"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res = ask(ctx, "second", second)
	if _, err := res.Body.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(mark)
	need.NoError(t, err)
	cancel()
	res.Body.Close()
	eventually(t, func() bool {
		_, err := os.Stat("/proc/" + strings.TrimSpace(string(pid)))
		return err != nil
	})
	// What it changed until then stays in its layer, if it had one; its call has ended.
	var calls struct {
		Calls []struct {
			CallID string `json:"call_id"`
			Status string
		}
	}
	eventually(t, func() bool {
		p.call(t, "GET", "/calls", nil).want(t, 200).into(t, &calls)
		return calls.Calls[0].Status != "open"
	})
	var left struct{ Layers []struct{ Layer string } }
	p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &left)
	if got := calls.Calls[0]; len(left.Layers) == 1 && (left.Layers[0].Layer != got.CallID || got.Status != "cancelled" || p.read(t, "a") != "1\nx\n") {
		t.Errorf("%+v %+v, a has %q", got, left, p.read(t, "a"))
	}
	for _, l := range left.Layers {
		p.post(t, "/layers/"+l.Layer+"/apply", map[string]any{}).want(t, 200)
		if got := p.read(t, "a"); got != "left\n" {
			t.Errorf("a has %q", got)
		}
	}
	// It was not answered, and may have done anything: the same request does not run again.
	need.NoError(t, os.Remove(stay))
	a := p.post(t, k.url("/exec"), map[string]any{"command": second}, "Idempotency-Key", "second")
	a.fails(t, 409, "command_interrupted")
	var last struct {
		CallID string `json:"call_id"`
	}
	if a.into(t, &last); last.CallID != calls.Calls[0].CallID {
		t.Errorf("%s, want %s", a.Body, calls.Calls[0].CallID)
	}
	res = ask(t.Context(), "third", second)
	all, err = io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil || !strings.Contains(string(all), "event: end\ndata: {\"exit_code\":0,") {
		t.Errorf("%v %s", err, all)
	}
}

// TestExecServerKilled kills the server while a command runs: nothing of it is in the
// workspace, its layer is listed, and is applied as a whole once the command has ended.
func TestExecServerKilled(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n", "d/b": "2\n"})
	outside := t.TempDir()
	need.NoError(t, os.Symlink(outside, filepath.Join(p.dir, "out")))
	k := p.task(t)
	p.post(t, k.url("/exec"), map[string]any{"command": "true", "cwd": "out"}).fails(t, 400, "invalid_field")
	if a := k.run(t, map[string]any{"command": "true"}); !a.Isolated {
		need.Missing(t, "no layer")
	}
	mark := filepath.Join(outside, "pid")
	res := p.execEvents(t, t.Context(), k, "k", map[string]any{"command": "echo 3 > a; rm d/b; echo $$ > " + mark + ".new; mv " + mark + ".new " + mark + "; exec sleep 1000"})
	defer res.Body.Close()
	eventually(t, func() bool { _, err := os.Stat(mark); return err == nil })
	p.Kill()
	p.Restart()
	if p.read(t, "a") != "1\n" || p.read(t, "d/b") != "2\n" {
		t.Error("a part of the command's changes is in the workspace")
	}
	var list struct {
		Layers []struct {
			Layer   string
			Running bool
		}
	}
	eventually(t, func() bool {
		p.call(t, "GET", "/layers", nil).want(t, 200).into(t, &list)
		return len(list.Layers) == 1 && !list.Layers[0].Running
	})
	pid, err := os.ReadFile(mark)
	need.NoError(t, err)
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Error("the layer is free, and its command still runs")
	}
	p.post(t, "/layers/"+list.Layers[0].Layer+"/apply", map[string]any{}).want(t, 200)
	if p.read(t, "a") != "3\n" {
		t.Error("not applied")
	}
	p.absent(t, "d/b")
}

// TestExecOnVirtualBesideWriters: what others change meanwhile is merged, and what
// cannot be is kept; a dry run changes nothing.
func TestExecOnVirtualBesideWriters(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n"}), dir: t.TempDir()}
	p.post(t, "/tasks", map[string]any{"task_id": "v", "goal": "try", "kind": "virtual", "workspace": ""}).want(t, 201)
	v := &taskOf{p: p, ID: "v"}
	put := func(name, text string) { p.call(t, "PUT", "/tasks/v/content?path="+name, []byte(text)) }
	get := func(name string) string {
		a := p.call(t, "GET", "/tasks/v/content?path="+name, nil)
		if a.Status == 404 {
			return "-"
		}
		return string(a.Body)
	}
	for name, text := range map[string]string{"merged": "1\n2\n3\n4\n5\n6\n", "both": "old\n", "gone": "old\n", "mine": "old\n"} {
		put(name, text)
	}
	if dry := v.run(t, map[string]any{"command": "echo 3 > mine", "dry_run": true}); dry.Patch == nil || !strings.Contains(*dry.Patch, "+3\n") || dry.Commit != nil || get("mine") != "old\n" {
		t.Errorf("%+v", dry)
	}
	meet := t.TempDir()
	ready, goOn := filepath.Join(meet, "ready"), filepath.Join(meet, "go")
	done := make(chan error, 1)
	go func() {
		for range 3000 {
			if _, err := os.Stat(ready); err == nil {
				break
			}
			<-time.After(10 * time.Millisecond)
		}
		put("merged", "1\n2\n3\n4\n5\nsix\n")
		put("both", "theirs\n")
		put("new", "theirs\n")
		p.call(t, "DELETE", "/tasks/v/content?path=gone", nil)
		done <- os.WriteFile(goOn, nil, 0o644)
	}()
	a := v.run(t, map[string]any{"command": "sed -i s/1/one/ merged; for f in both gone new mine; do echo mine > $f; done; : > " + ready + "; until [ -e " + goOn + " ]; do sleep 0.05; done"})
	need.NoError(t, <-done)
	if len(a.Conflicts) != 3 || a.CallID == nil {
		t.Fatalf("%+v", a)
	}
	for name, want := range map[string]string{"merged": "one\n2\n3\n4\n5\nsix\n", "both": "theirs\n", "new": "theirs\n", "gone": "-", "mine": "mine\n"} {
		if got := get(name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	var task struct {
		Workspace string `json:"workspace_id"`
	}
	p.call(t, "GET", "/tasks/v", nil).want(t, 200).into(t, &task)
	var ws struct {
		GitDir string `json:"git_dir"`
	}
	p.call(t, "GET", "/workspaces/"+task.Workspace, nil).want(t, 200).into(t, &ws)
	if got := harness.Git(t, ws.GitDir, "ls-tree", "-r", "--name-only", "refs/umbra/conflicts/"+*a.CallID); strings.TrimSpace(got) != "both\ngone\nnew" {
		t.Errorf("kept: %q", got)
	}
	p.post(t, "/calls/"+*a.CallID+"/revert", map[string]any{}).want(t, 200)
	if get("mine") != "old\n" || get("merged") != "1\n2\n3\n4\n5\nsix\n" {
		t.Errorf("undone: %q %q", get("mine"), get("merged"))
	}
}

// TestExecLimits: the settings' time, and how many commands run at once.
func TestExecLimits(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n  timeout: 2s\n  concurrency: 1\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	began := time.Now()
	if a := k.run(t, map[string]any{"command": "sleep 600", "timeout_ms": 600_000}); !a.TimedOut || time.Since(began) > time.Minute {
		t.Errorf("exec.timeout: %+v", a)
	}
}

// TestExecConcurrency: a command waits for another's end, and not for longer than 10 s.
func TestExecConcurrency(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "exec:\n  enabled: true\n  concurrency: 1\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	// The command leaves one that ignores SIGTERM; all end with it.
	mark := filepath.Join(t.TempDir(), "pid")
	if a := k.run(t, map[string]any{"command": "setsid sh -c \"trap '' TERM; echo \\$\\$ > " + mark + "; while :; do sleep 1; done\" & until [ -s " + mark + " ]; do sleep 0.05; done"}); a.ExitCode == nil || *a.ExitCode != 0 {
		t.Errorf("%+v", a)
	}
	pid, err := os.ReadFile(mark)
	need.NoError(t, err)
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Error("a process that the command left is alive")
	}
	dir := t.TempDir()
	first := make(chan *harness.Response, 1)
	go func() {
		first <- p.Do("POST", k.url("/exec"), map[string]any{"command": "until [ -e " + dir + "/go ]; do : > " + dir + "/begun; sleep 0.05; done"})
	}()
	eventually(t, func() bool { _, err := os.Stat(filepath.Join(dir, "begun")); return err == nil })
	began := time.Now()
	a := p.post(t, k.url("/exec"), map[string]any{"command": "true"})
	a.fails(t, 429, "too_many_commands")
	if took := time.Since(began); took < 9*time.Second {
		t.Errorf("refused after %v", took)
	}
	second := make(chan *harness.Response, 1)
	go func() { second <- p.Do("POST", k.url("/exec"), map[string]any{"command": "echo second > a"}) }()
	need.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
	if a, b := <-first, <-second; a.Status != 200 || b.Status != 200 || p.read(t, "a") != "second\n" {
		t.Errorf("%d %s, %d %s", a.Status, a.Body, b.Status, b.Body)
	}
}
