package tests

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/sandbox/luau"
	"umbra/tests/harness"
)

// forbidden is what one rule of TestPolicyTable refuses.
type forbidden struct {
	rule  string
	fresh string // a path where text is refused
	old   string // a file with "1\n", for which text is refused; "": the text is not what is refused
	from  string // a file that must not be copied to fresh
	text  string
	mark  string // of text, and no other's
	says  string
}

// TestPolicyTable holds that each rule is kept by every way to write, in the words
// of its dialect, that no head moves, and that no object of git, and no file of the
// data directory, has what was refused: neither content nor name.
func TestPolicyTable(t *testing.T) {
	const outer = "src = \"ghp_J7kQ2mXw9RtY4vBn6ZpL8sDf3GhC5aE1uW0i\"\n"
	codes, outputs := filepath.Join(t.TempDir(), "code"), filepath.Join(t.TempDir(), "out")
	p := &project{
		dir: folder(t, map[string]string{"a": "1\n", "d/b": "1\n", "d/go.lock": "1\n", "d/l": strings.Repeat("l\n", 700), "d/s": outer, "e/x": "x\n"}),
		Server: harness.Start(t, harness.Options{
			Config: "policy:\n  protected: [\"*.lock\", \"r-protected*\", \"*/r-protected*\"]\n  max_file_bytes: 1000\n  secrets: refuse\nexec:\n  enabled: true\n",
			Args:   []string{"--output-dir", outputs, "--workspace-dir", codes}}),
	}
	k := p.task(t, "only", []string{"/d/**"})
	v := &taskOf{p: p, ID: "v"}
	p.post(t, "/tasks", map[string]any{"task_id": "v", "goal": "v", "kind": "virtual", "workspace": "", "only": []string{"/d/**"}}).want(t, 201).into(t, &v.At)
	v.put(t, "d/b", "1\n").want(t, 201)
	s := p.session(t, "taskId", k.ID)
	tools := &agent{p.Server, t, p.post(t, "/toolsets", map[string]any{"taskId": k.ID, "mounts": []any{physical("/p", "READ_WRITE", p.dir)}}).want(t, 201).str(t, "id")}
	over := connect(t, overHTTP(p.Server, "/"+tools.id, ""), newest)
	stdio, _ := editor(t, newest, p.DataDir, "--mount", "/p="+p.dir, "--task", k.ID)
	scripted := newAgent(t, p.Server, virtual("/n", "READ_WRITE", "n"))
	tip := func(k *taskOf) any {
		return p.call(t, "GET", "/workspaces/"+k.str("workspace_id"), nil).want(t, 200).obj(t)["head"]
	}
	// A command in the task's directory may, though the directory is not among what only names.
	if got := k.run(t, map[string]any{"command": "mkdir d/new; echo 2 > d/new/x; echo 2 > d/y; rm -r d/new d/y; echo y > d/y"}); got.Commit == nil {
		t.Errorf("%+v", got)
	}
	heads := []any{tip(k), tip(v)}

	// The model's text, or the answer, of each way; empty where the rule has no case.
	http := func(want int, a *answer) string {
		if a.Status != want {
			t.Errorf("%s: status %d: %s", a.what, a.Status, a.Body)
		}
		return string(a.Body)
	}
	tool := func(name string, args ...any) string {
		status, text := tools.call(name, args...)
		if status != "error" {
			t.Errorf("%s: %s", name, status)
		}
		return text
	}
	mcp := func(c *mcpClient, name string, args map[string]any) string {
		text, failed := c.call(t, name, args)
		if !failed {
			t.Errorf("%s was done: %s", name, text)
		}
		return text
	}
	batch := func(k *taskOf, ops ...any) string {
		return http(403, p.post(t, k.url("/batch"), map[string]any{"operations": ops}))
	}
	command := func(x forbidden) string {
		return fmt.Sprintf("mkdir -p d; cat > %s <<'END'\n%sEND\n", x.fresh, x.text)
	}
	ways := map[string]func(x forbidden) string{
		"tasks, new":     func(x forbidden) string { return http(403, k.put(t, x.fresh, x.text)) },
		"tasks, virtual": func(x forbidden) string { return http(403, v.put(t, x.fresh, x.text)) },
		"copy": func(x forbidden) string {
			return http(403, p.post(t, k.url("/copy"), map[string]any{"from": x.from, "to": x.fresh}))
		},
		"batch, after another": func(x forbidden) string {
			return batch(k, map[string]any{"op": "write", "path": "d/fine", "content": "2"}, map[string]any{"op": "write", "path": x.fresh, "content": x.text})
		},
		"batch, then moved": func(x forbidden) string {
			return batch(k, map[string]any{"op": "write", "path": x.fresh, "content": x.text}, map[string]any{"op": "rename", "path": x.fresh, "new_path": x.fresh + "-2"})
		},
		"session, write": func(x forbidden) string { return http(403, s.put(t, x.fresh, x.text)) },
		"session, upload": func(x forbidden) string {
			return http(403, p.call(t, "PUT", s.fs("upload", "path", x.fresh), []byte(x.text)))
		},
		"session, copy": func(x forbidden) string { return http(403, s.do(t, "copy", "from", x.from, "to", x.fresh)) },
		"tool, write":   func(x forbidden) string { return tool("write_file", "path", "/p/"+x.fresh, "content", x.text) },
		"MCP over HTTP, write": func(x forbidden) string {
			return mcp(over, "write_file", map[string]any{"path": "/p/" + x.fresh, "content": x.text})
		},
		"MCP on stdio, write": func(x forbidden) string {
			return mcp(stdio, "write_file", map[string]any{"path": "/p/" + x.fresh, "content": x.text})
		},
		"script": func(x forbidden) string {
			if !luau.Embedded() || x.rule == "only" { // a script's files are in a workspace of their own
				return ""
			}
			return string(p.post(t, "/scripts/execute", map[string]any{"script": "file.save(\"" + x.fresh + "\", [[" + x.text + "]])"}).Body)
		},
		"script of a tool": func(x forbidden) string {
			if !luau.Embedded() || x.rule == "only" {
				return ""
			}
			status, text := scripted.call("execute_script", "script", "file.save(\""+x.fresh+"\", [["+x.text+"]])")
			if status != "error" {
				t.Errorf("execute_script: %s", status)
			}
			return text
		},
		"code": func(x forbidden) string {
			if x.rule == "only" { // as for scripts
				return ""
			}
			return http(403, p.call(t, "PUT", "/workspace", map[string]any{"codeId": filepath.Base(x.fresh), "code": "'" + strings.TrimSpace(x.text) + "'"}))
		},
		"code, batch": func(x forbidden) string {
			if x.rule == "only" {
				return ""
			}
			return http(403, p.post(t, "/workspace/batch", map[string]any{"files": []any{map[string]any{"codeId": "fine", "code": "1"}, map[string]any{"codeId": filepath.Base(x.fresh), "code": "'" + strings.TrimSpace(x.text) + "'"}}}))
		},
		"exec over HTTP": func(x forbidden) string {
			return http(403, p.post(t, k.url("/exec"), map[string]any{"command": command(x)}))
		},
		"exec over HTTP, virtual": func(x forbidden) string {
			return http(403, p.post(t, v.url("/exec"), map[string]any{"command": command(x)}))
		},
		"umbra exec": func(x forbidden) string {
			if runtime.GOOS != "linux" {
				return ""
			}
			out, err := p.execCmd(t, "--isolate=require", "--task="+k.ID, "--", "sh", "-c", command(x)).CombinedOutput()
			execSkip(t, string(out))
			if err == nil {
				t.Errorf("umbra exec: %s", out)
			}
			return string(out)
		},
	}
	edits := map[string]func(x forbidden) string{
		"tasks, old": func(x forbidden) string {
			return http(403, k.put(t, x.old, x.text))
		},
		"append": func(x forbidden) string {
			return http(403, p.call(t, "POST", k.url("/append?path="+x.old), []byte(x.text)))
		},
		"edit": func(x forbidden) string {
			return http(403, p.post(t, k.url("/edit"), map[string]any{"path": x.old, "old_string": "1", "new_string": x.text}))
		},
		"session, replace": func(x forbidden) string {
			return http(403, s.do(t, "replace", "path", x.old, "old_string", "1", "new_string", x.text))
		},
		"tool, edit": func(x forbidden) string {
			return tool("edit_file", "path", "/p/"+x.old, "old_string", "1", "new_string", x.text)
		},
		"MCP over HTTP, edit": func(x forbidden) string {
			return mcp(over, "edit_file", map[string]any{"path": "/p/" + x.old, "old_string": "1", "new_string": x.text})
		},
		"MCP on stdio, edit": func(x forbidden) string {
			return mcp(stdio, "edit_file", map[string]any{"path": "/p/" + x.old, "old_string": "1", "new_string": x.text})
		},
	}
	rules := []forbidden{
		{"protected", "d/r-protected", "d/go.lock", "d/b", "mark-of-protected\n", "mark-of-protected", "protected by the rule"},
		{"max_file_bytes", "d/r-max", "d/b", "d/l", strings.Repeat("mark-of-max\n", 100), "mark-of-max", "the policy of this server allows 1000"},
		{"secrets", "d/r-secrets", "d/b", "d/s", secretText, secretMark, "would hold a secret"},
		{"secrets in names", "d/r-" + secretName, "", "d/b", "fine\n", secretName, "The name would hold a secret"},
		{"only", "r-only", "a", "d/b", "mark-of-only\n", "mark-of-only", "may only change paths that match \"/d/**\""},
	}
	for _, x := range rules {
		list := maps.Clone(ways)
		if x.old != "" {
			maps.Copy(list, edits)
		}
		for name, way := range list {
			t.Run(x.rule+", "+name, func(t *testing.T) {
				said := way(x)
				if said == "" {
					return
				}
				if !strings.Contains(strings.ReplaceAll(said, `\"`, `"`), x.says) || strings.Contains(said, secretMark) {
					t.Errorf("it says %s", said)
				}
				if got := []any{tip(k), tip(v)}; !slices.Equal(got, heads) {
					t.Error("a head moved")
					heads = got
				}
			})
		}
	}
	// Permissions that history does not keep are changes too.
	for line, rule := range map[string]string{"chmod 600 d/go.lock": "protected", "chmod 600 a": "only", "chmod 700 e": "only"} {
		if got := p.post(t, k.url("/exec"), map[string]any{"command": line}).fails(t, 403, "policy_refused"); got["rule"] != rule {
			t.Errorf("%s: %v", line, got)
		}
	}
	for name, want := range map[string]string{"a": "1\n", "d/b": "1\n", "d/go.lock": "1\n"} {
		if got := p.read(t, name); got != want {
			t.Errorf("%s has %q", name, got)
		}
	}
	// What a command did is kept until somebody drops it.
	for _, l := range p.call(t, "GET", "/layers", nil).want(t, 200).list(t, "layers") {
		url := "/layers/" + l["layer"].(string)
		http(403, p.post(t, url+"/apply", map[string]any{}))
		p.call(t, "DELETE", url, nil).want(t, 204)
	}
	k.fsck(t)
	v.sync(t)
	p.Stop()
	nothing(t, p, rules, codes, outputs)
}

// nothing holds that no object of any repository of the server has the mark or the
// name of what was refused, and no file of the data directory or of the folders the mark.
func nothing(t *testing.T, p *project, rules []forbidden, more ...string) {
	t.Helper()
	repos, err := filepath.Glob(filepath.Join(p.DataDir, "workspaces", "*", "repo.git", "HEAD"))
	if err != nil || len(repos) == 0 {
		t.Fatalf("%v: no repository", err)
	}
	for _, head := range repos {
		cmd := exec.Command("git", "cat-file", "--batch-all-objects", "--batch")
		cmd.Dir = filepath.Dir(head)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", head, err)
		}
		for _, x := range rules {
			if strings.Contains(string(out), x.mark) {
				t.Errorf("%s has what the rule %s refused", cmd.Dir, x.rule)
			}
			if name := filepath.Base(x.fresh); strings.Contains(string(out), name) {
				t.Errorf("%s has the name %s", cmd.Dir, name)
			}
		}
	}
	for _, dir := range append([]string{p.DataDir, p.dir}, more...) {
		for _, x := range rules {
			if x.rule == "secrets" { // the others may be in a log of requests
				if list := need.Leaks(t, dir, x.mark); len(list) > 0 {
					t.Errorf("what was refused is in %v", list)
				}
			}
		}
	}
}
