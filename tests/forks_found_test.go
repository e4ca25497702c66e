package tests

import (
	"strings"
	"testing"

	"umbra/tests/harness"
)

// What the target had already when it was merged is not merged a second time: the target may
// have changed it since. A merge that finds nothing to do says so once in history.
func TestForkMergeFound(t *testing.T) {
	const lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	line := func(old ...string) string { return strings.NewReplacer(old...).Replace(lines) }
	type steps [][2]string // a file and its content, or "> " and its new name
	for name, x := range map[string]struct {
		here, there steps
		files       int // that the merge changes
		later       steps
	}{
		"all of it":                  {steps{{"a", "one\n"}}, steps{{"a", "one\n"}}, 0, steps{{"a", "two\n"}}},
		"one commit of it":           {steps{{"a", "one\n"}}, steps{{"a", "one\n"}, {"k", "k\n"}}, 1, steps{{"a", "two\n"}}},
		"a name":                     {steps{{"a", "> b"}}, steps{{"a", "> b"}, {"k", "k\n"}}, 1, steps{{"b", "> c"}}},
		"a name, all of it":          {steps{{"a", "> b"}}, steps{{"a", "> b"}}, 0, steps{{"b", "> c"}}},
		"by more commits":            {steps{{"a", "two\n"}}, steps{{"a", "one\n"}, {"a", "two\n"}, {"k", "k\n"}}, 1, steps{{"a", "three\n"}}},
		"in the middle":              {steps{{"a", line("1", "y")}}, steps{{"a", line("1", "x")}, {"a", line("1", "y", "9", "z")}}, 1, steps{{"a", line("1", "w", "9", "z")}}},
		"what comes and goes":        {nil, steps{{"n", "n\n"}, {"n", "> o"}, {"o", ""}}, 0, steps{{"o", "o\n"}}},
		"a path of two in one merge": {steps{{"a", "one\n"}}, steps{{"a", "one\n"}, {"a", "> b"}}, 2, steps{{"b", "two\n"}}},
	} {
		for _, as := range []string{"replay", "squash"} {
			p := newProject(t, map[string]string{"a": lines})
			task := p.task(t)
			fork := p.forks(t, "/workspaces/"+task.str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
			p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
			do := func(id string, list steps) {
				t.Helper()
				for _, s := range list {
					var a *answer
					if to, ok := strings.CutPrefix(s[1], "> "); ok {
						a = p.post(t, "/tasks/"+id+"/move", map[string]any{"from": s[0], "to": to})
					} else if s[1] == "" {
						a = p.call(t, "DELETE", "/tasks/"+id+"/content?path="+s[0], nil)
					} else {
						a = p.call(t, "PUT", "/tasks/"+id+"/content?path="+s[0], []byte(s[1]))
					}
					if a.Status/100 != 2 {
						t.Fatalf("%s: %d %s", name, a.Status, a.Body)
					}
				}
			}
			commits := func() string {
				p.post(t, "/workspaces/"+task.str("workspace_id")+"/sync", map[string]any{}).want(t, 200)
				return harness.Git(t, task.gitDir(), "rev-list", "--count", "refs/heads/shadow")
			}
			do(task.ID, x.here)
			do("f", x.there)
			first := p.merge(t, fork, map[string]any{"as": as})
			if len(first.Files) != x.files || first.Merged != len(x.there) || x.files == 0 && first.Task_ID != "" {
				t.Errorf("%s, %s: %+v", name, as, first)
			}
			n := commits()
			if again := p.merge(t, fork, map[string]any{"as": as}); again.Merged != 0 || commits() != n {
				t.Errorf("%s, %s: merged again: %+v, %s commits after %s", name, as, again, commits(), n)
			}
			if x.files > 0 {
				before := sh(t, p.dir, "cat *")
				p.post(t, "/tasks/"+first.Task_ID+"/revert", map[string]any{}).want(t, 200)
				p.merge(t, fork, map[string]any{"as": as, "again": true})
				if now := sh(t, p.dir, "cat *"); now != before {
					t.Errorf("%s, %s: taken back and merged again it is\n%s\nnot\n%s", name, as, now, before)
				}
			}
			do(task.ID, x.later)
			if got := p.merge(t, fork, map[string]any{"dry_run": true}); len(got.Conflicts) != 0 || len(got.Files) != 0 {
				t.Errorf("%s, %s: a later merge: %+v", name, as, got)
			}
			task.fsck(t)
			p.Stop()
		}
	}
}
