package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/internal/sandbox/luau"
	"umbra/tests/harness"
)

// TestPolicyDialects holds that each rule is kept in every dialect, in its words, and
// that nothing of what was refused is on disk or in the data directory.
func TestPolicyDialects(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	codes := filepath.Join(t.TempDir(), "code")
	p := &project{dir: folder(t, map[string]string{"a": "1\n", "go.lock": "1\n", "d/x": "x\n", "d/go.lock": "l\n"}), Server: harness.Start(t, harness.Options{
		Config: "policy:\n  protected: [\"*.lock\", \"/locked.lock.ts\", \"locked.*\"]\n  max_file_bytes: 1000\n  secrets: refuse\n", Args: []string{"--output-dir", out, "--workspace-dir", codes}})}
	k := p.task(t)
	s := p.session(t)
	a := newAgent(t, p.Server, physical("/p", "READ_WRITE", p.dir))
	large := strings.Repeat("large ", 200)
	for _, rule := range []struct{ name, path, text, says string }{
		{"protected", "new.lock", "x\n", "is protected by the rule"},
		{"max_file_bytes", "large", large, "the policy of this server allows 1000"},
		{"secrets", "env", secretText, "would hold a secret in line 1 (aws-access-token)"},
	} {
		t.Run(rule.name, func(t *testing.T) {
			check := func(what, body string, status int, fields map[string]any) {
				t.Helper()
				if strings.Contains(body, secretMark) {
					t.Errorf("%s: the answer has the secret: %s", what, body)
				}
				if !strings.Contains(body, rule.says) || status != 403 || fields != nil && (fields["rule"] != rule.name || fields["path"] != rule.path || fields["error"] != "policy_refused" && fields["code"] != "policy_refused") {
					t.Errorf("%s: %d %s", what, status, body)
				}
				p.absent(t, rule.path)
			}
			tasks := func(what string, r *answer) {
				t.Helper()
				check(what, string(r.Body), r.Status, r.obj(t))
			}
			// Tasks.
			tasks("content", p.call(t, "PUT", k.file(rule.path), []byte(rule.text)))
			tasks("batch", p.post(t, k.url("/batch"), map[string]any{"operations": []any{
				map[string]any{"op": "write", "path": "fine", "content": "1"}, map[string]any{"op": "write", "path": rule.path, "content": rule.text}}}))
			p.absent(t, "fine")
			// Sessions.
			r := s.put(t, rule.path, rule.text)
			check("session", string(r.Body), r.Status, nil)
			// Tools, whose error text is for a model.
			if status, text := a.call("write_file", "path", "/p/"+rule.path, "content", rule.text); status != "error" || !strings.Contains(text, rule.says) || strings.Contains(text, secretMark) {
				t.Errorf("tool: %s %s", status, text)
			}
			p.absent(t, rule.path)
			// Code.
			code := p.call(t, "PUT", "/workspace", map[string]any{"codeId": strings.TrimSuffix(rule.path, ".lock"), "code": rule.text})
			if rule.name != "protected" {
				check("code", string(code.Body), code.Status, nil)
			}
			// Scripts.
			if luau.Embedded() {
				script := p.post(t, "/scripts/execute", map[string]any{"script": "file.save(\"" + rule.path + "\", [[" + rule.text + "]])"})
				if script.Status/100 == 2 || !strings.Contains(string(script.Body), rule.says) {
					t.Errorf("script: %d %s", script.Status, script.Body)
				}
				if _, err := os.Lstat(filepath.Join(out, rule.path)); err == nil {
					t.Error("the script saved it")
				}
			} else {
				need.Missing(t, luau.ErrNotEmbedded.Error())
			}
		})
	}
	// What is there cannot be changed, moved over or away, deleted or replaced by a link.
	refused := func(path string, r *answer) {
		t.Helper()
		if got := r.fails(t, 403, "policy_refused"); got["rule"] != "protected" || got["path"] != path {
			t.Errorf("%v", got)
		}
	}
	refused("go.lock", p.call(t, "DELETE", k.file("go.lock"), nil))
	refused("d/go.lock", p.call(t, "DELETE", k.file("d")+"&recursive=true", nil))
	refused("e/go.lock", p.post(t, k.url("/move"), map[string]any{"from": "d", "to": "e"}))
	refused("e/go.lock", p.post(t, k.url("/copy"), map[string]any{"path": "d", "new_path": "e", "recursive": true}))
	refused("go.lock", p.post(t, k.url("/move"), map[string]any{"from": "a", "to": "go.lock", "overwrite": true}))
	// Through a link the file itself is meant.
	p.shell(t, "ln -s go.lock link; ln -s d dir")
	refused("go.lock", p.call(t, "PUT", k.file("link"), []byte("2\n")))
	refused("d/go.lock", p.call(t, "PUT", k.file("dir/go.lock"), []byte("2\n")))
	// A fork has its parent's rules, and what it could not have done does not come by a merge.
	fork := p.post(t, "/workspaces/"+k.str("workspace_id")+"/forks", map[string]any{"kind": "virtual"}).want(t, 201).list(t, "forks")[0]
	p.post(t, "/tasks", map[string]any{"task_id": "f", "goal": "g", "workspace_id": fork["id"]}).want(t, 201)
	refused("go.lock", p.call(t, "PUT", "/tasks/f/content?path=go.lock", []byte("2\n")))
	p.post(t, "/tasks", map[string]any{"task_id": "g", "goal": "g", "workspace_id": fork["id"], "allow": []string{"go.lock"}}).want(t, 201)
	p.call(t, "PUT", "/tasks/g/content?path=go.lock", []byte("2\n")).want(t, 200)
	if p.read(t, "go.lock") != "1\n" || p.read(t, "d/go.lock") != "l\n" {
		t.Error("something was changed")
	}
	k.fsck(t)
	p.Stop()
	for _, dir := range []string{p.DataDir, p.dir, codes} {
		if list := need.Leaks(t, dir, secretMark); len(list) > 0 {
			t.Errorf("what was refused is in %v", list)
		}
	}
}

// TestPolicyExec holds that nothing of a layer is in the workspace when one of its
// files is refused, whether git ignores it or not.
func TestPolicyExec(t *testing.T) {
	p := &project{dir: folder(t, map[string]string{"a": "1\n", ".gitignore": "ignored\n*.secret\n", "go.lock": "1\n"}), Server: harness.Start(t, harness.Options{
		Config: "policy:\n  protected: [\"*.lock\", \"*.secret\"]\n  secrets: refuse\n"})}
	k := p.task(t)
	for _, line := range []string{
		"echo 2 > a; echo 2 > go.lock; echo x > ignored",
		"echo 2 > a; printf '%s' '" + secretText + "' > env; echo x > ignored",
		"echo x > ignored; echo s > my.secret",
	} {
		cmd := p.execCmd(t, "--isolate=require", "--task="+k.ID, "--", "sh", "-c", line)
		out, err := cmd.CombinedOutput()
		execSkip(t, string(out))
		if err == nil || !strings.Contains(string(out), "policy") || strings.Contains(string(out), secretMark) {
			t.Errorf("%s: %v %s", line, err, out)
		}
		if p.read(t, "a") != "1\n" || p.read(t, "go.lock") != "1\n" {
			t.Errorf("%s: something came through", line)
		}
		for _, name := range []string{"ignored", "env", "my.secret"} {
			p.absent(t, name)
		}
	}
	status, list, said := p.verb(t, "exec", "--layers")
	if status != 0 || strings.Count(list, "call") < 3 {
		t.Errorf("%d %s %s", status, list, said)
	}
	k.fsck(t)
}

// TestPolicyCheck holds what umbra policy check prints, and its exit statuses.
func TestPolicyCheck(t *testing.T) {
	p := &project{dir: folder(t, map[string]string{"a": "1\n", "go.lock": "1\n", "env": "x\n" + secretText, "d/b": "b\n"}), Server: harness.Start(t, harness.Options{
		Config: "policy:\n  protected: [\"*.lock\"]\n  secrets: refuse\n"})}
	p.post(t, "/tasks", map[string]any{"task_id": "t", "goal": "g", "workspace": p.dir, "only": []string{"/d/**"}}).want(t, 201)
	for _, x := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, 1, "env:2: secrets: "},
		{[]string{"a", "d"}, 0, "nothing of 2 files"},
		{[]string{"new.lock"}, 1, "new.lock: protected: "},
		{[]string{"--task", "t", "a"}, 1, "a: only: "},
		{[]string{"--task", "t", "d"}, 0, "nothing of 1 file "},
		{[]string{"--json", "go.lock"}, 1, `"rule":"protected"`},
		{[]string{"--nonsense"}, 2, ""},
		{[]string{"/etc/passwd"}, 2, ""},
	} {
		status, out, said := p.verb(t, append([]string{"policy", "check"}, x.args...)...)
		if status != x.status || !strings.Contains(out, x.says) || strings.Contains(out, secretMark) {
			t.Errorf("%v: %d %s %s", x.args, status, out, said)
		}
	}
}
