package tests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// secretText holds a secret that gitleaks' rules find, and mark is what of it no file
// of the data directory may have.
const (
	secretMark = "AKIAY3T2ZQ7WJMH5RKPD"
	secretText = "key = \"" + secretMark + "\"\n"
	secretName = "ghp_K8lR3nYx0SuZ5wCo7aqM9tEg4HiD6bF2vX1j"
)

// TestPolicyCalls holds that what a call's tool did against the policy is recorded
// with the rules' names, is named at the end, and is taken back where the owner wants
// that.
func TestPolicyCalls(t *testing.T) {
	for _, after := range []string{"keep", "revert"} {
		t.Run(after, func(t *testing.T) {
			p := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  protected: [\"*.lock\"]\n  secrets: refuse\n  max_file_bytes: 1000\n  after: " + after + "\n"}), dir: t.TempDir()}
			p.fill(t, map[string]string{"go.lock": "1\n", "a": "1\n", "old.lock": "o\n"})
			p.post(t, "/tasks", map[string]any{"task_id": "t", "goal": "g", "workspace": p.dir, "only": []string{"a", "env", "*.lock", "large", "moved"}}).want(t, 201)
			p.post(t, "/calls", map[string]any{"cwd": p.dir, "task_id": "t", "call_id": "c", "tool": "Bash"}).want(t, 201)
			p.shell(t, "echo 2 > go.lock; echo 2 > a; printf '%s' '"+secretText+"' > env; head -c 2000 /dev/zero | tr '\\0' x > large; echo n > other; mv old.lock moved")
			var end struct {
				Policy []struct {
					Path  string
					Rules []string
				}
				TakenBack string `json:"taken_back"`
				Undo      string
				Entries   []struct {
					Path   string
					Policy []string
				}
			}
			p.post(t, "/calls/c/end", map[string]any{}).want(t, 200).into(t, &end)
			var got []string
			for _, x := range end.Policy {
				got = append(got, x.Path+" "+strings.Join(x.Rules, "+"))
			}
			slices.Sort(got)
			if s := strings.Join(got, ", "); s != "env secrets, go.lock protected, large max_file_bytes, moved protected, other only" {
				t.Errorf("%s", s)
			}
			for _, e := range end.Entries {
				if (e.Path == "a") != (len(e.Policy) == 0) {
					t.Errorf("%+v", e)
				}
			}
			if !strings.Contains(end.Undo, "umbra undo --call c") {
				t.Errorf("%q", end.Undo)
			}
			if after == "keep" {
				if p.read(t, "go.lock") != "2\n" || end.TakenBack != "" {
					t.Errorf("%+v", end)
				}
				return
			}
			if p.read(t, "go.lock") != "1\n" || p.read(t, "old.lock") != "o\n" || p.read(t, "a") != "2\n" || end.TakenBack == "" {
				t.Errorf("%+v, %q", end, p.read(t, "go.lock"))
			}
			for _, name := range []string{"env", "large", "other", "moved"} {
				p.absent(t, name)
			}
			var again struct {
				TakenBack string `json:"taken_back"`
			}
			p.post(t, "/calls/c/end", map[string]any{}).want(t, 200).into(t, &again)
			if again.TakenBack != end.TakenBack {
				t.Errorf("%q, then %q", end.TakenBack, again.TakenBack)
			}
			// It can be brought back as any revert can.
			p.post(t, "/workspaces/"+p.workspaceOf(t, "t")+"/commits/"+end.TakenBack+"/revert", map[string]any{}).want(t, 200)
			if p.read(t, "go.lock") != "2\n" {
				t.Error("the revert's revert")
			}
		})
	}
}

func (p *project) workspaceOf(t *testing.T, task string) string {
	t.Helper()
	return p.call(t, "GET", "/tasks/"+task, nil).want(t, 200).str(t, "workspace_id")
}

// TestPolicySecrets holds that a refused secret is nowhere, by whatever route it came,
// and that one which was there before is not judged again.
func TestPolicySecrets(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  secrets: refuse\n  places:\n    - {workspace: none, secrets: \"off\"}\n"}), dir: t.TempDir()}
	const old = "old = \"ghp_J7kQ2mXw9RtY4vBn6ZpL8sDf3GhC5aE1uW0i\"\n"
	p.fill(t, map[string]string{"a": "1\n", "env": old, "pic.png": "x"})
	k := p.task(t)
	refused := func(a *answer, path string) {
		t.Helper()
		got := a.fails(t, 403, "policy_refused")
		if got["rule"] != "secrets" || got["path"] != path || got["secret"] != "aws-access-token" {
			t.Errorf("%v", got)
		}
		if strings.Contains(string(a.Body), secretMark) {
			t.Errorf("the answer has the secret: %s", a.Body)
		}
	}
	refused(p.call(t, "PUT", k.file("a"), []byte("x\n"+secretText)), "a")
	refused(p.call(t, "PUT", k.file("new/deep"), []byte(strings.Repeat("some text\n", 300_000)+secretText)), "new/deep") // of a size that is streamed
	refused(p.post(t, k.url("/edit"), map[string]any{"path": "a", "old_string": "1\n", "new_string": secretText}), "a")
	p.absent(t, "new")
	// It is allowed under a name that gitleaks does not look at, but not moved away.
	p.call(t, "PUT", k.file("pic.png"), []byte("y")).want(t, 200)
	p.call(t, "PUT", k.file("env"), []byte("more\n"+old)).want(t, 200)
	p.post(t, k.url("/move"), map[string]any{"from": "env", "to": "env2"}).want(t, 200)
	if got := p.read(t, "a"); got != "1\n" {
		t.Errorf("%q", got)
	}
	ok, text := k.git(t, "fsck"), k.git(t, "log", "--all", "--format=%s%b")
	if strings.Contains(ok+text, secretMark) {
		t.Error("history has it")
	}
	p.Stop()
	if list := p.Leaks(secretMark); len(list) > 0 {
		t.Errorf("what was refused is in %v", list)
	}
	if len(p.Leaks(old)) == 0 {
		t.Error("what was there before is not found")
	}
}

// TestPolicyIgnored holds that a file which git ignores does not come into history with a
// secret by a request for it that is refused, nor by a move to another name.
func TestPolicyIgnored(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  secrets: refuse\n  protected: [\".env\"]\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{".gitignore": ".env\nlocal\nplain\n", ".env": secretText, "local": secretText, "plain": "1\n", "a": "1\n"})
	k := p.task(t)
	for name, ask := range map[string]func() *answer{
		"write, protected": func() *answer { return k.put(t, ".env", "PORT=1\n") },
		"move":             func() *answer { return p.post(t, k.url("/move"), map[string]any{"from": "local", "to": "b"}) },
		"append":           func() *answer { return p.call(t, "POST", k.url("/append?path=local"), []byte("PORT=1\n")) },
		"chmod": func() *answer {
			return p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "chmod", "path": "local", "mode": "100755"}}})
		},
	} {
		ask().fails(t, 403, "policy_refused")
		if out := k.git(t, "log", "--format=%s", "refs/umbra/head"); strings.Count(out, "\n") > 1 {
			t.Errorf("%s: %s", name, out)
		}
	}
	p.post(t, k.url("/move"), map[string]any{"from": "plain", "to": "c"}).want(t, 200)
	p.Stop()
	if list := p.Leaks(secretMark); len(list) > 0 {
		t.Errorf("what was refused is in %v", list)
	}
}

// TestPolicyWarn holds that a secret is named and let through.
func TestPolicyWarn(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  secrets: warn\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	k.put(t, "a", secretText)
	var log struct {
		Entries []struct {
			Path   string
			Policy []string
		}
	}
	p.call(t, "GET", k.url("/changes"), nil).want(t, 200).into(t, &log)
	if len(log.Entries) != 1 || !slices.Equal(log.Entries[0].Policy, []string{"secrets"}) {
		t.Errorf("%+v", log)
	}
	k.put(t, "a", secretText+"more\n")
	p.call(t, "GET", k.url("/changes"), nil).want(t, 200).into(t, &log)
	if len(log.Entries) != 2 || len(log.Entries[1].Policy) != 0 {
		t.Errorf("%+v", log)
	}
}

// TestPolicySettings holds that a rule that is malformed is wrong use, status 2.
func TestPolicySettings(t *testing.T) {
	for _, text := range []string{"protected: [\"[a\"]", "protected: [\"!a\"]", "secrets: on", "after: undo", "places: [{protected: [a]}]", "places: [{root: /x, workspace: y}]",
		"places: [{root: /x, protected: [\"[a\"]}]", "max_file_bytes: -1", "unknown: 1"} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		need.NoError(t, os.WriteFile(file, []byte("policy:\n  "+text+"\n"), 0o600))
		status, _, said := harness.Run(t, nil, "serve", "--config", file, "--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0")
		if status != 2 || !strings.Contains(said, "policy") {
			t.Errorf("%s: %d %s", text, status, said)
		}
	}
}
