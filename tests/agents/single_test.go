package agents

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func shell(name, argument, command string) step {
	return step{shell: true, calls: []toolCall{{name: name, args: map[string]any{argument: command, "description": "a shell", "is_background": false}}}}
}

func tool(name string, args map[string]any) step {
	return step{calls: []toolCall{{name: name, args: args}}}
}

func patch(text string) step {
	return step{calls: []toolCall{{name: "apply_patch", input: "*** Begin Patch\n" + text + "*** End Patch\n"}}}
}

// TestAgents runs each agent alone: an edit by a shell and by a tool, one of each
// that fails, and what sub-agents do. Every change is its session's, as its own
// tool's, no call stays open, and undoing the session leaves the project as it was.
func TestAgents(t *testing.T) {
	const command = "printf 'one\\n' > shell.txt; sed -i s/old/new/ base.txt; mv name.txt renamed.txt"
	const failing = "echo half > failed.txt; exit 3"
	scripts := func(dir string) map[string]map[string][]step {
		codexShell := func(cmd string) step {
			return step{calls: []toolCall{{name: "exec_command", args: map[string]any{"cmd": cmd}}}}
		}
		return map[string]map[string][]step{
			"codex": {"main": {
				codexShell(command),
				patch("*** Add File: written.txt\n+two\n"),
				patch("*** Update File: written.txt\n@@\n-not there\n+three\n"),
				patch("*** Update File: written.txt\n*** Move to: moved.txt\n@@\n-two\n+three\n"),
				codexShell(failing),
				{calls: []toolCall{
					{namespace: "multi_agent_v1", name: "spawn_agent", args: map[string]any{"message": "[script:alice]"}},
					{namespace: "multi_agent_v1", name: "spawn_agent", args: map[string]any{"message": "[script:bob]"}},
				}},
				codexShell("until [ -s alice.txt ] && [ -s bob.txt ]; do sleep 0.05; done"),
			}, "alice": {codexShell("echo alice > alice.txt")}, "bob": {patch("*** Add File: bob.txt\n+bob\n")}},
			"opencode": {"main": {
				shell("bash", "command", command+`; echo "$UMBRA_CALL $UMBRA_TASK" > environment.txt`),
				tool("write", map[string]any{"filePath": dir + "/written.txt", "content": "two\n"}),
				tool("edit", map[string]any{"filePath": dir + "/written.txt", "oldString": "not there", "newString": "x"}),
				shell("bash", "command", failing),
				{calls: []toolCall{
					{name: "task", args: map[string]any{"description": "a", "prompt": "[script:alice]", "subagent_type": "general"}},
					{name: "task", args: map[string]any{"description": "b", "prompt": "[script:bob]", "subagent_type": "general"}},
				}},
			}, "alice": {shell("bash", "command", "echo alice > alice.txt")}, "bob": {tool("write", map[string]any{"filePath": dir + "/bob.txt", "content": "bob\n"})}},
			"gemini-cli": {"main": {
				shell("run_shell_command", "command", command),
				tool("write_file", map[string]any{"file_path": dir + "/written.txt", "content": "two\n"}),
				tool("replace", map[string]any{"file_path": dir + "/written.txt", "instruction": "x", "old_string": "not there", "new_string": "x"}),
				shell("run_shell_command", "command", failing),
			}},
			"qwen-code": {"main": {
				shell("run_shell_command", "command", command),
				tool("write_file", map[string]any{"file_path": dir + "/written.txt", "content": "two\n"}),
				tool("edit", map[string]any{"file_path": dir + "/written.txt", "old_string": "not there", "new_string": "x"}),
				shell("run_shell_command", "command", failing),
				tool("agent", map[string]any{"description": "a", "prompt": "[script:alice]", "subagent_type": "general-purpose"}),
				tool("agent", map[string]any{"description": "b", "prompt": "[script:bob]", "subagent_type": "general-purpose"}),
			}, "alice": {shell("run_shell_command", "command", "echo alice > alice.txt")}, "bob": {tool("write_file", map[string]any{"file_path": dir + "/bob.txt", "content": "bob\n"})}},
		}
	}
	for _, agent := range []string{"codex", "opencode", "gemini-cli", "qwen-code"} {
		t.Run(agent, func(t *testing.T) {
			s := newScene(t, map[string]string{"base.txt": "old\n", "name.txt": "a name\n"}, agent)
			before := s.files(t)
			m := newModel(t, scripts(s.dir), nil)
			s.settings(t, m)
			s.wire(t, agent)
			status, out := s.start(t, m, agent, 4*time.Minute)
			if status != 0 {
				t.Fatalf("status %d:\n%s", status, out)
			}
			after := s.files(t)
			calls := s.calls(t)
			id := session(t, calls, agent)
			for _, c := range calls {
				if c.Ended == nil || c.Status == "open" || c.Status == "lost" {
					t.Errorf("%s %s is %s", c.Tool, c.ID, c.Status)
				}
			}
			had := map[string]entry{}
			for _, e := range s.log(t) {
				if e.Source != "call" && e.Source != "baseline" && e.Source != "shared" {
					t.Errorf("%v is of source %s", e.paths(), e.Source)
				}
				for _, p := range e.paths() {
					had[p] = e
				}
			}
			want := map[string]string{"base.txt": "window", "shell.txt": "window", "renamed.txt": "window", "failed.txt": "window", "written.txt": "exact"}
			subtasks := map[string]bool{}
			if agent == "codex" {
				want["written.txt"], want["moved.txt"] = "declared", "declared"
			}
			if agent == "opencode" {
				want["environment.txt"] = "window"
				if id, task, _ := strings.Cut(strings.TrimSpace(after["environment.txt"]), " "); calls[id].TaskID != task || task == "" {
					t.Errorf("a shell's environment names the call %q of task %q", id, task)
				}
			}
			if agent != "gemini-cli" { // it has no sub-agents here
				want["alice.txt"], want["bob.txt"] = "window", "exact"
			}
			for path, certainty := range want {
				// Codex's own shell is open while its sub-agent Alice is at work, or not yet.
				overlap := agent == "codex" && path == "alice.txt" && had[path].certainty() == "shared"
				if e := had[path]; e.certainty() != certainty && !overlap {
					t.Errorf("%s: %s is %q, want %s", agent, path, e.certainty(), certainty)
				} else if e.SubtaskID != nil {
					subtasks[*e.SubtaskID] = true
				}
			}
			t.Log(agent, len(calls), "calls, subtasks:", slices.Sorted(maps.Keys(subtasks)))
			status, out = s.try(t, "umbra", "undo", "--session", id, "--turns", "1000", "--yes", "--include-shared")
			if now := s.files(t); status != 0 || !maps.Equal(now, before) {
				t.Errorf("undo: status %d: %s\n%s\nwant %s", status, out, describe(now), describe(before))
			}
			if status, out = s.try(t, "umbra", "redo", "--yes"); status != 0 || !maps.Equal(s.files(t), after) {
				t.Errorf("redo: status %d: %s\n%s\nwant %s", status, out, describe(s.files(t)), describe(after))
			}
		})
	}
}

func describe(files map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "%s=%q ", name, files[name])
	}
	return b.String()
}

// TestIsolatedShells: with `umbra init --isolate` a shell command runs in a layer of
// its call where the agent lets its hook rewrite it: what it changes is exact, also
// beside a person who writes meanwhile, and the agent reads its output and status.
func TestIsolatedShells(t *testing.T) {
	const command = `printf 'it'"'"'s\n' > shell.txt; sed -i s/old/new/ base.txt; echo "$0" > "$SYNC/shell"; : > "$SYNC/begun"; until [ -e "$SYNC/person" ]; do sleep 0.05; done`
	for _, agent := range []string{"codex", "opencode", "gemini-cli", "qwen-code"} {
		t.Run(agent, func(t *testing.T) {
			s := newScene(t, map[string]string{"base.txt": "old\n", "person.txt": "old\n"}, agent)
			var sync string
			for _, v := range s.env {
				if dir, ok := strings.CutPrefix(v, "SYNC="); ok {
					sync = dir
				}
			}
			script := map[string][]step{
				"codex":      {{calls: []toolCall{{name: "exec_command", args: map[string]any{"cmd": command}}}}},
				"opencode":   {shell("bash", "command", command)},
				"gemini-cli": {shell("run_shell_command", "command", command)},
				"qwen-code":  {shell("run_shell_command", "command", command)},
			}[agent]
			m := newModel(t, map[string]map[string][]step{agent: {"main": script}}, nil)
			s.settings(t, m)
			s.run(t, "umbra", "init", "--user", "--yes", "--no-autostart", "--isolate", "--agent", agent, s.dir)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 2000 {
					if _, err := os.Stat(filepath.Join(sync, "begun")); err == nil {
						break
					}
					<-time.After(20 * time.Millisecond)
				}
				s.put(t, "person.txt", "new\n")
				if err := os.WriteFile(filepath.Join(sync, "person"), nil, 0o644); err != nil {
					t.Error(err)
				}
			}()
			status, out := s.start(t, m, agent, 2*time.Minute)
			<-done
			if status != 0 {
				t.Fatalf("status %d:\n%s", status, out)
			}
			files := s.files(t)
			if files["base.txt"] != "new\n" || files["shell.txt"] != "it's\n" || files["person.txt"] != "new\n" {
				t.Errorf("%s\n%s", describe(files), out)
			}
			for id, c := range s.calls(t) {
				if c.Status != "ok" {
					t.Errorf("%s %s is %s", c.Tool, id, c.Status)
				}
			}
			had := map[string]entry{}
			for _, e := range s.log(t) {
				had[e.Path] = e
			}
			exact := map[string]string{"base.txt": "exact", "shell.txt": "exact", "person.txt": ""}
			if agent == "qwen-code" { // this version runs what the model wrote
				exact = map[string]string{"base.txt": "window", "shell.txt": "window", "person.txt": "window"}
			}
			for path, certainty := range exact {
				if e := had[path]; e.certainty() != certainty {
					t.Errorf("%s is %q of source %s, want %q", path, e.certainty(), e.Source, certainty)
				}
			}
		})
	}
}
