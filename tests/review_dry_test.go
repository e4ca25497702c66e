package tests

import (
	"reflect"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// TestDryRunsSayWhatWouldBe holds dry runs of a review, and of a revert, against what is
// done then: where a path is another file's or a directory's by now, of the task or not,
// recorded or not.
func TestDryRunsSayWhatWouldBe(t *testing.T) {
	cases := map[string]struct {
		agent, person string
		hunk          string // the beginning of its text
		status        int
	}{
		"free":                         {agent: "del a", hunk: "delete a", status: 200},
		"made again":                   {agent: "del a", person: "echo theirs > a", hunk: "delete a", status: 409},
		"an ignored directory now":     {agent: "del a", person: "echo a > .gitignore; mkdir -p a/b; echo theirs > a/b/c", hunk: "delete a", status: 409},
		"a link now":                   {agent: "del a", person: "ln -s nowhere a", hunk: "delete a", status: 409},
		"the directory a file now":     {agent: "del d/a", person: "rm -rf d; echo theirs > d", hunk: "delete d/a", status: 409},
		"moved, an ignored file now":   {agent: "mv a b", person: "echo a > .gitignore; echo theirs > a", hunk: "modify b", status: 409},
		"written, a directory now":     {agent: "put a", person: "rm a; mkdir a; echo theirs > a/b", hunk: "delete a", status: 409},
		"the task's own file":          {agent: "mv a b, put a", hunk: "rename a", status: 409},
		"the task's own directory":     {agent: "del a, put a/b", hunk: "delete a", status: 409},
		"the task's own file above":    {agent: "del d/a, rmdir d, put d", hunk: "delete d/a", status: 409},
		"the task's own, both go":      {agent: "mv a b, put a", hunk: "", status: 200},
		"the task's own file, swapped": {agent: "mv a b, mv x a", hunk: "rename a", status: 409},
	}
	p := newProject(t, map[string]string{"x": "x\n"})
	for name, c := range cases {
		for _, way := range []string{"review", "revert"} {
			if way == "revert" && strings.HasPrefix(name, "the task's own") {
				continue // no conflict where all is taken back
			}
			t.Run(way+" "+name, func(t *testing.T) {
				p := &project{Server: p.Server, dir: t.TempDir()}
				p.fill(t, map[string]string{"a": "mine\n", "d/a": "mine\n", "x": "x\n"})
				k := p.task(t)
				for step := range strings.SplitSeq(c.agent, ", ") {
					part := strings.Fields(step)
					switch part[0] {
					case "del":
						p.call(t, "DELETE", k.file(part[1]), nil).want(t, 200)
					case "rmdir":
						p.shell(t, "rm -rf "+part[1])
					case "mv":
						p.post(t, k.url("/move"), map[string]any{"from": part[1], "to": part[2]}).want(t, 200)
					case "put":
						k.put(t, part[1], "changed\n")
					}
				}
				if c.person != "" {
					p.shell(t, c.person)
				}
				body := map[string]any{}
				if way == "review" {
					k.sync(t)
					list, _ := k.hunks(t, "")
					var ids []string
					for _, h := range list {
						if strings.HasPrefix(h.Text, c.hunk) {
							ids = append(ids, h.ID)
						}
					}
					body["reject"] = ids
					if len(ids) == 0 {
						t.Fatalf("%+v", list)
					}
				}
				before := treeOf(t, p.dir)
				body["dry_run"] = true
				dry := p.post(t, k.url("/"+way), body)
				if after := treeOf(t, p.dir); !reflect.DeepEqual(before, after) {
					t.Errorf("a dry run changed the disk: %v, %v", before, after)
				}
				delete(body, "dry_run")
				done := p.post(t, k.url("/"+way), body)
				said, did := dry.obj(t), done.obj(t)
				if reasons(said) != reasons(did) || done.Status != c.status ||
					// The dry run of a revert lists conflicts, that of a review is refused.
					way == "review" && (dry.Status != done.Status || said["error"] != did["error"]) {
					t.Errorf("the dry run: %d %s\ndone: %d %s", dry.Status, dry.Body, done.Status, done.Body)
				}
				for _, field := range []string{"files", "rejected", "accepted"} {
					if done.Status == 200 && !reflect.DeepEqual(said[field], did[field]) {
						t.Errorf("%s: %v, then %v", field, said[field], did[field])
					}
				}
			})
		}
	}
}

// reasons are an answer's conflicts, without who made them.
func reasons(of map[string]any) (out string) {
	list, _ := of["conflicts"].([]any)
	for _, x := range list {
		c, _ := x.(map[string]any)
		path, _ := c["path"].(string)
		reason, _ := c["reason"].(string)
		out += path + " " + reason + "; "
	}
	return out
}

// TestDryRunsOfWhatIsRefused holds that the dry run of a revert, a restore and a review is
// refused by the policy as they are.
func TestDryRunsOfWhatIsRefused(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{Config: "policy: {protected: ['*.lock']}\n"}), dir: t.TempDir()}
	p.fill(t, map[string]string{"go.lock": "1\n", "a": "1\n"})
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	base := p.call(t, "GET", ws+"/commits/head", nil).want(t, 200).str(t, "commit")
	p.shell(t, "echo 2 > go.lock; echo 2 > a")
	k.sync(t)
	theirs := p.call(t, "GET", ws+"/commits/head", nil).want(t, 200).str(t, "commit")
	other := p.task(t)
	for _, dry := range []bool{true, false} {
		p.post(t, ws+"/commits/"+theirs+"/revert", map[string]any{"dry_run": dry}, "X-Task-Id", other.ID).fails(t, 403, "policy_refused")
		p.post(t, ws+"/restore", map[string]any{"to": base, "task_id": other.ID, "paths": []string{"go.lock"}, "dry_run": dry}).fails(t, 403, "policy_refused")
		p.post(t, ws+"/restore", map[string]any{"to": base, "task_id": other.ID, "paths": []string{"a"}, "dry_run": true}).want(t, 200)
		p.post(t, ws+"/commits/"+theirs+"/revert", map[string]any{"dry_run": true}).want(t, 200)
	}
	if p.read(t, "go.lock") != "2\n" {
		t.Error(p.read(t, "go.lock"))
	}
}
