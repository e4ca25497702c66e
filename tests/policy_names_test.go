package tests

import (
	"strings"
	"testing"

	"umbra/tests/harness"
)

// TestPolicyNames holds that a name which holds a secret is refused however a path gets
// it, that one which was there before can be changed and given up, and that what a
// command made is marked.
func TestPolicyNames(t *testing.T) {
	const oldName = "ghp_J7kQ2mXw9RtY4vBn6ZpL8sDf3GhC5aE1uW0i"
	p := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  secrets: refuse\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n", "d/b": "b\n", oldName + ".txt": "1\n", "e/" + oldName: "1\n"})
	k := p.task(t)
	refused := func(a *answer, path string) {
		t.Helper()
		got := a.fails(t, 403, "policy_refused")
		if got["rule"] != "secrets" || got["path"] != path || got["secret"] != "github-pat" || !strings.Contains(string(a.Body), "Choose another name") {
			t.Errorf("%v", got)
		}
	}
	refused(k.put(t, secretName, "x\n"), secretName)
	refused(k.put(t, secretName+".txt", "x\n"), secretName+".txt")
	refused(k.put(t, "n/"+secretName+"/x", "x\n"), "n/"+secretName+"/x")
	refused(p.post(t, k.url("/mkdir"), map[string]any{"path": secretName}), secretName)
	refused(p.post(t, k.url("/symlink"), map[string]any{"path": secretName, "target": "a"}), secretName)
	refused(p.post(t, k.url("/move"), map[string]any{"from": "a", "to": secretName}), secretName)
	refused(p.post(t, k.url("/move"), map[string]any{"from": "d", "to": secretName}), secretName+"/b")
	refused(p.post(t, k.url("/move"), map[string]any{"from": oldName + ".txt", "to": oldName + "-" + secretName}), oldName+"-"+secretName)
	k.put(t, oldName+".txt", "2\n").want(t, 200)
	p.post(t, k.url("/move"), map[string]any{"from": oldName + ".txt", "to": oldName + ".md"}).want(t, 200)
	p.call(t, "DELETE", k.file(oldName+".md"), nil).want(t, 200)
	p.post(t, k.url("/move"), map[string]any{"from": "e/" + oldName, "to": "plain"}).want(t, 200)
	p.post(t, k.url("/revert"), map[string]any{}).want(t, 200) // brings the old names back
	if p.read(t, oldName+".txt") != "1\n" || p.read(t, "e/"+oldName) != "1\n" {
		t.Error("the revert did not bring them back")
	}

	if all := k.git(t, "log", "--all", "-p", "--format=%s%b") + k.git(t, "cat-file", "--batch-all-objects", "--batch-check"); strings.Contains(all, secretName) {
		t.Error("history has it")
	}
	p.post(t, "/calls", map[string]any{"cwd": p.dir, "task_id": k.ID, "call_id": "c", "tool": "Bash"}).want(t, 201)
	p.shell(t, "echo 1 > "+secretName)
	if end := string(p.post(t, "/calls/c/end", map[string]any{}).want(t, 200).Body); !strings.Contains(end, `"rules":["secrets"]`) {
		t.Errorf("%s", end)
	}
}

// TestPolicyMessages holds that a message which holds a secret is refused with its
// change, by whatever route it comes, and that warn marks the change.
func TestPolicyMessages(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  secrets: refuse\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"a": "1\n", "b": "1\n"})
	k := p.task(t)
	k.put(t, "b", "2\n").want(t, 200)
	ws := "/workspaces/" + k.str("workspace_id")
	tip := func() any { return p.call(t, "GET", ws, nil).want(t, 200).obj(t)["head"] }
	list, _ := k.hunks(t, "")
	fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	p.post(t, "/tasks", map[string]any{"task_id": "f", "goal": "g", "workspace_id": fork}).want(t, 201)
	p.call(t, "PUT", "/tasks/f/content?path=c", []byte("1\n")).want(t, 201)
	s := p.session(t, "taskId", k.ID)
	held := p.task(t, "hold", true)
	held.put(t, "h", "1\n").want(t, 201)
	waits, _ := held.hunks(t, "")
	p.begin(t, "s", map[string]any{"task_id": held.ID})
	head, said := tip(), "use "+strings.TrimSpace(secretText)
	for name, ask := range map[string]func() *answer{
		"content": func() *answer { return k.put(t, "a", "2\n", "X-Message", said) },
		"move": func() *answer {
			return p.post(t, k.url("/move"), map[string]any{"from": "a", "to": "c"}, "X-Message", said)
		},
		"session": func() *answer { return p.call(t, "PUT", s.fs("upload", "path", "a"), []byte("2\n"), "X-Message", said) },
		"revert":  func() *answer { return p.post(t, k.url("/revert"), map[string]any{}, "X-Message", said) },
		"merge": func() *answer {
			return p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"as": "squash"}, "X-Message", said)
		},
		"checkpoint": func() *answer { return p.post(t, ws+"/checkpoints", map[string]any{"name": "x", "message": said}) },
		"reject": func() *answer {
			return p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID}, "message": said})
		},
		"reject, held": func() *answer {
			return p.post(t, held.url("/review"), map[string]any{"reject": []string{waits[0].ID}, "message": said})
		},
		"restore": func() *answer {
			return p.post(t, ws+"/restore", map[string]any{"to": k.str("base"), "paths": []string{"b"}}, "X-Message", said)
		},
		"accept": func() *answer {
			return p.post(t, k.url("/review"), map[string]any{"accept": []string{list[0].ID}, "message": said})
		},
		"batch": func() *answer {
			return p.post(t, k.url("/batch"), map[string]any{"message": said, "operations": []any{map[string]any{"op": "write", "path": "a", "content": "2\n"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask()
			if a.Status != 403 || !strings.Contains(string(a.Body), "The message would hold a secret (aws-access-token)") || strings.Contains(string(a.Body), secretMark) {
				t.Errorf("%d %s", a.Status, a.Body)
			}
			if got := tip(); got != head {
				t.Error("the head moved")
				head = got
			}
		})
	}
	k.put(t, "a", "2\n", "X-Message", "rotate the access key").want(t, 200)
	k.sync(t)
	p.Stop()
	if list := p.Leaks(secretMark); len(list) > 0 {
		t.Errorf("what was refused is in %v", list)
	}

	w := &project{Server: harness.Start(t, harness.Options{Config: "policy:\n  secrets: warn\n"}), dir: t.TempDir()}
	w.fill(t, map[string]string{"a": "1\n"})
	k = w.task(t)
	k.put(t, "a", "2\n", "X-Message", said).want(t, 200)
	if got := k.changes(t, ""); len(got) != 1 || got[0]["policy"] == nil {
		t.Errorf("%v", got)
	}
}
