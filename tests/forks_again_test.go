package tests

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// What a revert took back of a merge is left out of later ones, which say so, and is merged
// again when that is asked for.
func TestForkMergeAgain(t *testing.T) {
	lines := "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	for _, as := range []string{"replay", "squash"} {
		p := newProject(t, map[string]string{"a": lines, "d/b": "two\n", "gone": "x\n"})
		task := p.task(t)
		ws := "/workspaces/" + task.str("workspace_id")
		fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		in := func(method, rest string, body any, subtask string) {
			t.Helper()
			if a := p.call(t, method, "/tasks/f/"+rest, body, "X-Subtask-Id", subtask); a.Status/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, rest, a.Status, a.Body)
			}
		}
		two := strings.Replace(lines, "2\n", "two\n", 1)
		in("PUT", "content?path=a", []byte(two), "s1")
		in("PUT", "content?path=n/new", []byte("new\n"), "s2")
		in("DELETE", "content?path=gone", nil, "s2")
		in("POST", "move", map[string]any{"from": "d/b", "to": "e/c"}, "s1")
		merge := func(body map[string]any) mergeAnswer {
			t.Helper()
			body["as"] = as
			return p.merge(t, fork, body)
		}
		has := func(why, a, n string) {
			t.Helper()
			if got := p.read(t, "a"); got != a {
				t.Errorf("%s, %s: a has %q", as, why, got)
			}
			if n == "" {
				p.absent(t, "n/new")
			} else if got := p.read(t, "n/new"); got != n {
				t.Errorf("%s, %s: n/new has %q", as, why, got)
			}
		}
		first := merge(map[string]any{})
		if first.Reverted != 0 || first.Merged != 4 {
			t.Fatalf("%+v", first)
		}
		has("merged", two, "new\n")
		p.post(t, "/tasks/"+first.Task_ID+"/revert", map[string]any{}).want(t, 200)
		has("reverted", lines, "")
		for _, dry := range []bool{true, false} {
			if got := merge(map[string]any{"dry_run": dry}); len(got.Files) != 0 || got.Reverted != 4 {
				t.Errorf("%s: %+v", as, got)
			}
		}
		if got := merge(map[string]any{"dry_run": true, "subtasks": []string{"s2"}}); got.Reverted != 2 {
			t.Errorf("%s: %+v", as, got)
		}
		// The fork mends what was wrong, and the parent goes on.
		in("PUT", "content?path=n/new", []byte("mended\n"), "s2")
		task.put(t, "a", strings.Replace(lines, "8\n", "eight\n", 1))
		p.post(t, "/workspaces/"+fork+"/merge", map[string]any{}).fails(t, 409, "merge_conflict")
		status, out, said := p.verb(t, "merge", fork, "--dry-run", "--on-conflict", "skip")
		if status != 0 || !strings.Contains(out, "took them back: 4 commits; --again") {
			t.Errorf("%d %s%s", status, out, said)
		}
		second := merge(map[string]any{"again": true, "paths": []string{"a", "n"}})
		has("again", strings.Replace(two, "8\n", "eight\n", 1), "mended\n")
		if second.Merged != 3 || p.read(t, "d/b") != "two\n" {
			t.Errorf("%s: %+v", as, second)
		}
		if got := merge(map[string]any{"dry_run": true}); len(got.Files) != 0 || got.Reverted != 2 { // gone, and e/c
			t.Errorf("%s: %+v", as, got)
		}
		third := merge(map[string]any{"again": true})
		if len(third.Files) != 3 || p.read(t, "e/c") != "two\n" {
			t.Errorf("%s: %+v", as, third)
		}
		p.absent(t, "gone")
		p.absent(t, "d/b")
		for _, again := range []bool{false, true} {
			if got := merge(map[string]any{"dry_run": true, "again": again}); len(got.Files) != 0 || got.Reverted != 0 {
				t.Errorf("%s: %+v", as, got)
			}
		}
		// It is reverted as any other, and comes once more, also under another name.
		p.post(t, "/tasks/"+second.Task_ID+"/revert", map[string]any{}).want(t, 200)
		has("reverted again", strings.Replace(lines, "8\n", "eight\n", 1), "")
		p.post(t, "/tasks/"+task.ID+"/move", map[string]any{"from": "a", "to": "moved"}).want(t, 200)
		if got := merge(map[string]any{"again": true}); len(got.Files) != 2 || p.read(t, "moved") != strings.Replace(two, "8\n", "eight\n", 1) || p.read(t, "n/new") != "mended\n" {
			t.Errorf("%s: %+v", as, got)
		}
		task.fsck(t)
		p.Stop()
	}
}

// What a fork made and renamed since is merged again as a whole, whatever kind the merges are.
func TestForkMergeAgainRenamed(t *testing.T) {
	for _, kinds := range [][]string{{"squash", "squash", "replay"}, {"squash", "replay", "squash"}, {"replay", "squash", "squash"}} {
		p := newProject(t, map[string]string{"a": "a\n"})
		task := p.task(t)
		fork := p.forks(t, "/workspaces/"+task.str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		for _, path := range []string{"d/new", "n"} {
			p.call(t, "PUT", "/tasks/f/content?path="+path, []byte("new\n")).want(t, 201)
		}
		for _, x := range [][2]string{{"d", "e"}, {"n", "m"}, {"m", "l"}, {"a", "b"}} {
			p.post(t, "/tasks/f/move", map[string]any{"from": x[0], "to": x[1]}).want(t, 200)
		}
		p.call(t, "PUT", "/tasks/f/content?path=e/new", []byte("newer\n")).want(t, 200)
		for i, as := range kinds {
			got := p.merge(t, fork, map[string]any{"as": as, "again": i > 0})
			const want = "./b:a ./e/new:newer ./l:new"
			if has := strings.Join(strings.Fields(sh(t, p.dir, "find . -name .git -prune -o -type f -print | LC_ALL=C sort | xargs grep -H ''")), " "); has != want || got.Merged != 7 {
				t.Errorf("%v, %d: the parent has %s: %+v", kinds, i, has, got)
			}
			if again := p.merge(t, fork, map[string]any{"again": true, "dry_run": true}); len(again.Files) != 0 || again.Merged != 0 {
				t.Errorf("%v, %d: merged once more: %+v", kinds, i, again)
			}
			p.post(t, "/tasks/"+got.Task_ID+"/revert", map[string]any{}).want(t, 200)
			if left := p.merge(t, fork, map[string]any{"dry_run": true}); len(left.Files) != 0 || left.Reverted != 7 {
				t.Errorf("%v, %d: reverted: %+v", kinds, i, left)
			}
		}
		task.fsck(t)
		p.Stop()
	}
}

// A file that a fork deleted, and to whose place it moved another one, is merged again: the
// move back that a revert of the merge made is of the other file.
func TestForkMergeAgainReplaced(t *testing.T) {
	for _, as := range []string{"squash", "replay"} {
		p := newProject(t, map[string]string{"a": "a\n", "d/z": "z\n"})
		task := p.task(t)
		fork := p.forks(t, "/workspaces/"+task.str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		p.call(t, "DELETE", "/tasks/f/content?path=d/z", nil).want(t, 200)
		p.post(t, "/tasks/f/move", map[string]any{"from": "a", "to": "d/z"}).want(t, 200)
		for i := range 3 {
			got := p.merge(t, fork, map[string]any{"as": as, "again": i > 0})
			if has := sh(t, p.dir, "grep -rH . --exclude-dir .git ."); len(got.Conflicts) > 0 || strings.TrimSpace(has) != "./d/z:a" {
				t.Errorf("%s, %d: %+v; there is %s", as, i, got, has)
			}
			p.post(t, "/tasks/"+got.Task_ID+"/revert", map[string]any{}).want(t, 200)
			if p.read(t, "d/z") != "z\n" || p.read(t, "a") != "a\n" {
				t.Errorf("%s, %d: reverted: %q and %q", as, i, p.read(t, "d/z"), p.read(t, "a"))
			}
		}
		task.fsck(t)
		p.Stop()
	}
}

// What a fork deleted after it had renamed it, and what it did to other files at the names that
// these had, is merged again as it was merged first.
func TestForkMergeAgainEnded(t *testing.T) {
	p := &project{Server: harness.Start(t, harness.Options{})}
	for i, x := range []struct {
		parent, fork []string // path: delete it; from to: move; +path: edit
		want         string
	}{
		{nil, []string{"a c", "c"}, "b=b d=d"},
		{nil, []string{"+d", "b c", "d b", "b"}, "a=a c=b"},
		{[]string{"b"}, []string{"+a", "b", "d b"}, "a=a+ b=d"},
		{[]string{"a c"}, []string{"a", "d c", "+c"}, "b=b c=d+"},
	} {
		for _, as := range [][]string{{"squash", "squash", "replay"}, {"replay", "squash", "replay"}} {
			k := p.task(t, "kind", "virtual", "workspace", "")
			body := func(name string) string { return "1\n2\n3\n" + name + "\n4\n5\n6\n" }
			for _, name := range []string{"a", "b", "d"} {
				k.put(t, name, body(name)).want(t, 201)
			}
			fork := p.forks(t, "/workspaces/"+k.str("workspace_id"), map[string]any{"kind": "virtual"})[0]["id"].(string)
			f := p.post(t, "/tasks", map[string]any{"workspace": fork, "goal": "try"}).want(t, 201).str(t, "task_id")
			do := func(task string, ops []string) {
				for _, op := range ops {
					if from, to, ok := strings.Cut(op, " "); ok {
						p.post(t, "/tasks/"+task+"/move", map[string]any{"from": from, "to": to}).want(t, 200)
					} else if name, ok := strings.CutPrefix(op, "+"); ok {
						was := string(p.call(t, "GET", "/tasks/"+task+"/content?path="+name, nil).want(t, 200).Body)
						p.call(t, "PUT", "/tasks/"+task+"/content?path="+name, []byte(was+"+\n")).want(t, 200)
					} else {
						p.call(t, "DELETE", "/tasks/"+task+"/content?path="+op, nil).want(t, 200)
					}
				}
			}
			do(k.ID, x.parent)
			do(f, x.fork)
			for j := range as {
				a := p.post(t, "/workspaces/"+fork+"/merge", map[string]any{"as": as[j], "again": j > 0})
				var has []string
				for _, name := range []string{"a", "b", "c", "d"} {
					if a := p.call(t, "GET", k.file(name), nil); a.Status == 200 {
						lines := strings.Split(string(a.Body), "\n")
						has = append(has, name+"="+lines[3]+strings.Join(lines[7:], ""))
					}
				}
				if got := strings.Join(has, " "); got != x.want || a.Status != 200 {
					t.Errorf("%d, %v, %d: %q, not %q: %s", i, as, j, got, x.want, a.Body)
					break
				}
				p.post(t, "/tasks/"+a.str(t, "task_id")+"/revert", map[string]any{}).want(t, 200)
			}
		}
	}
}

// What a merge moved along in the parent comes to another fork as a whole, also after a revert.
func TestForkRebaseOfMovedAlong(t *testing.T) {
	for _, as := range []string{"replay", "squash"} {
		p := newProject(t, map[string]string{"a": "a\n"})
		task := p.task(t)
		ws := "/workspaces/" + task.str("workspace_id")
		other := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "o", "workspace": other, "goal": "try"}).want(t, 201)
		task.put(t, "d/x", "x\n")
		fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": fork, "goal": "try"}).want(t, 201)
		p.post(t, "/tasks/f/move", map[string]any{"from": "d", "to": "e"}).want(t, 200)
		task.put(t, "d/new", "new\n")
		p.merge(t, fork, map[string]any{"as": as})
		for i := range 2 {
			var done mergeAnswer
			p.post(t, "/workspaces/"+other+"/rebase", map[string]any{"as": as, "again": i > 0, "on_conflict": "skip"}).want(t, 200).into(t, &done)
			for path, want := range map[string]string{"e/x": "x\n", "e/new": "new\n"} {
				if got := p.call(t, "GET", "/tasks/o/content?path="+path, nil); string(got.Body) != want {
					t.Errorf("%s, %d: the fork has %d %q at %s: %+v", as, i, got.Status, got.Body, path, done)
				}
			}
			p.post(t, "/tasks/"+done.Task_ID+"/revert", map[string]any{}).want(t, 200)
		}
		p.Stop()
	}
}

// Two forks' tasks have subtasks of one id: a revert of one merge's leaves the other's.
func TestForkMergesOfOneSubtask(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "b": "b\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	var merged []mergeAnswer
	var forks []string
	for i, line := range []string{"2", "8"} {
		fork := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
		id := fmt.Sprintf("f%d", i)
		p.post(t, "/tasks", map[string]any{"task_id": id, "workspace": fork, "goal": "try"}).want(t, 201)
		data := strings.Replace("1\n2\n3\n4\n5\n6\n7\n8\n9\n", line+"\n", "of "+id+"\n", 1)
		p.call(t, "PUT", "/tasks/"+id+"/content?path=a", []byte(data), "X-Subtask-Id", "tests").want(t, 200)
		p.call(t, "PUT", "/tasks/"+id+"/content?path=n"+id, []byte("new\n"), "X-Subtask-Id", "tests").want(t, 201)
		forks = append(forks, fork)
	}
	for _, fork := range forks {
		merged = append(merged, p.merge(t, fork, map[string]any{}))
	}
	const both = "1\nof f0\n3\n4\n5\n6\n7\nof f1\n9\n"
	if got := p.read(t, "a"); got != both || merged[0].Task_ID == merged[1].Task_ID {
		t.Fatalf("%q, %+v", got, merged)
	}
	p.post(t, "/tasks/"+merged[0].Task_ID+"/subtasks/tests/revert", map[string]any{}).want(t, 200)
	if got := p.read(t, "a"); got != "1\n2\n3\n4\n5\n6\n7\nof f1\n9\n" {
		t.Errorf("a has %q", got)
	}
	p.absent(t, "nf0")
	if got := p.read(t, "nf1"); got != "new\n" {
		t.Errorf("nf1 has %q", got)
	}
}

// What a sibling merged first and brought along is not merged a second time: the target has
// changed it since.
func TestForkMergeByWay(t *testing.T) {
	for _, as := range []string{"replay", "squash"} {
		p := newProject(t, map[string]string{"a": "1\n2\n3\n"})
		task := p.task(t)
		ws := task.str("workspace_id")
		made := p.forks(t, "/workspaces/"+ws, map[string]any{"kind": "virtual", "count": 2})
		first, second := made[0]["id"].(string), made[1]["id"].(string)
		p.post(t, "/tasks", map[string]any{"task_id": "f", "workspace": first, "goal": "try"}).want(t, 201)
		p.call(t, "PUT", "/tasks/f/content?path=a", []byte("1\ntwo\n3\n")).want(t, 200)
		merge := func(from, into string) (m mergeAnswer) {
			t.Helper()
			p.post(t, "/workspaces/"+from+"/merge", map[string]any{"into": into, "as": as}).want(t, 200).into(t, &m)
			return m
		}
		merge(first, second)
		if got := merge(second, ws); got.Merged != 1 || p.read(t, "a") != "1\ntwo\n3\n" {
			t.Fatalf("%s: %+v", as, got)
		}
		task.put(t, "a", "1\nzwei\n3\n")
		if got := merge(first, ws); len(got.Files) != 0 || got.Merged != 0 || p.read(t, "a") != "1\nzwei\n3\n" {
			t.Errorf("%s: %+v, a has %q", as, got, p.read(t, "a"))
		}
		// Back where it came from it is the fork's own.
		if got := merge(ws, first); got.Merged != 1 {
			t.Errorf("%s: %+v", as, got)
		}
		if a := p.call(t, "GET", "/tasks/f/content?path=a", nil); string(a.Body) != "1\nzwei\n3\n" {
			t.Errorf("%s: the fork has %q", as, a.Body)
		}
	}
}

// What was merged, taken back and merged again stays in the fork when that is brought up to
// date, whenever that is; so does the shape of directories.
func TestForkRebaseAfterAgain(t *testing.T) {
	for _, as := range []string{"replay", "squash"} {
		for _, between := range []bool{false, true} {
			p := newProject(t, map[string]string{"d/x": "x\n", "d/y": "y\n", "f": "f\n", "g": "g\nlong enough\n"})
			task := p.task(t)
			dir := filepath.Join(t.TempDir(), "copy")
			fork := p.forks(t, "/workspaces/"+task.str("workspace_id"), map[string]any{"kind": "copy", "path": dir})[0]["id"].(string)
			const list = "find . -name .git -prune -o -type f -print | LC_ALL=C sort | xargs grep -H ''"
			has := func(why, dir, want string) {
				t.Helper()
				if got := sh(t, dir, list); got != want {
					t.Errorf("%s, between %v, %s:\n%s\nnot\n%s", as, between, why, got, want)
				}
			}
			rebase := func() {
				t.Helper()
				p.post(t, "/workspaces/"+fork+"/rebase", map[string]any{"as": as}).want(t, 200)
			}
			before := sh(t, p.dir, list)
			sh(t, dir, "rm -r d; echo file > d; rm f; mkdir f; echo in > f/in; mv g tmp; mkdir g; mv tmp g/g")
			after := sh(t, dir, list)
			first := p.merge(t, fork, map[string]any{"as": as})
			has("merged", p.dir, after)
			p.post(t, "/tasks/"+first.Task_ID+"/revert", map[string]any{}).want(t, 200)
			has("reverted", p.dir, before)
			if between {
				rebase()
				has("rebased after the revert", dir, before)
			}
			p.merge(t, fork, map[string]any{"as": as, "again": true})
			has("merged again", p.dir, after)
			rebase()
			has("rebased", dir, after)
			if got := p.merge(t, fork, map[string]any{"dry_run": true, "again": true}); len(got.Files) != 0 {
				t.Errorf("%s, between %v: merged once more it would change %+v", as, between, got.Files)
			}
			has("at the end", p.dir, after)
			p.Stop()
		}
	}
}
