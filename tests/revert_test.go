package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

const eightLines = "1\n2\n3\n4\n5\n6\n7\n8\n"

var undoFiles = map[string]string{
	"a": eightLines, "b": "b\n", "dir/x": "x\n", "dir/sub/y": "y\n", "dir/skip.log": "ignored\n", "empty/": "", ".gitignore": "*.log\n",
	"link": "-> a", "run.sh": "+x #!/bin/sh\n", "key": "0600 secret\n", "crlf": "1\r\n2\r\n", "bin": "\x00\x01\x02\xff", "void": "", "open": "no newline",
	"out.log": "ignored too\n", "other": "nobody touches this\n",
}

// TestRevertGivesBack: a full revert of the only task leaves what was there
// before it, byte for byte and bit for bit, and untouched files alone. It is
// told before as it is done, is one commit, and can itself be undone.
func TestRevertGivesBack(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	for name, steps := range map[string][]string{
		"a file changed":              {"put a changed", "put a again"},
		"a file made":                 {"put n new", "put deep/er/n new"},
		"made and deleted":            {"put m/n new", "del m/n"},
		"deleted":                     {"del b"},
		"deleted and made again":      {"del b", "put b other"},
		"renamed, edited, renamed":    {"mv b c", "put c edited", "mv c d"},
		"renamed onto another":        {"mv b a"},
		"a chain of names":            {"mv a t", "mv b a", "mv t b"},
		"a swap at once":              {"mv a t | mv b a | mv t b"},
		"a swap, then edits":          {"mv a t | mv b a | mv t b", "put a edited", "put b edited"},
		"three in a ring":             {"mv a t", "mv b a", "mv dir/x b", "mv t dir/x"},
		"case alone":                  {"mv b B"},
		"a folder moved":              {"mv dir moved", "put moved/x edited"},
		"a folder moved deeper":       {"mv dir deep/er/dir"},
		"a folder deleted":            {"del dir/sub", "del dir/x"},
		"folders swapped":             {"mv dir tmp | mv empty dir", "put dir/sub/y z"},
		"an empty folder moved":       {"mv empty n/e"},
		"an empty folder moved along": {"mv dir/sub/y tmp | mv empty dir/sub/y | mv tmp empty", "mv dir/sub tmp"},
		"an empty folder filled":      {"mv empty x | put x/f z"},
		"an empty folder deleted":     {"del empty"},
		"a folder becomes a file":     {"del dir/sub", "put dir/sub file"},
		"a file becomes a folder":     {"del b", "put b/in/it new"},
		"a link becomes a file":       {"del link", "put link file"},
		"a link becomes a folder":     {"del link", "put link/in new"},
		"a link renamed":              {"mv link dir/sub/l"},
		"a link deleted":              {"del link"},
		"modes":                       {"+x a", "-x run.sh", "put run.sh changed"},
		"a private file":              {"put key changed", "mv key k2", "del k2"},
		"a private file, mode":        {"+x key"},
		"line ends":                   {"put crlf 1\n2\n", "put a 1\r\n2\r\n"},
		"bytes":                       {"put bin \xff\x00", "put a \x00"},
		"no newline at the end":       {"put open no newline\n", "put a open"},
		"emptied":                     {"put a ", "put void full"},
		"odd names":                   {"put tab\there x", "put q\"uote\\ x", "put -n x", "put new\nline x", "put é␠ü x", "put %41 x", "put \xff\xfe x", "mv b \xff/b"},
		"an ignored file written":     {"put out.log text", "put new.log text"},
		"all at once":                 {"put n1 x | put b y | del dir/x | mv a dir/x"},
		"a person's too":              {"put a task", "disk put a person", "disk del b", "disk put new/file x"},
		"a person's kinds":            {"disk ln b a", "disk +x a", "disk mv dir moved"},
		"a link made in place":        {"put a task", "disk ln a dir"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := server.on(t, undoFiles)
			k := p.task(t)
			before, was := lay(t, p.dir), times(t, p.dir)
			for _, s := range steps {
				k.step(t, s)
			}
			worked := lay(t, p.dir)
			log := len(k.changes(t, ""))

			dry := k.revert(t, "", map[string]any{"dry_run": true, "include_external": true}).want(t, 200)
			same(t, lay(t, p.dir), worked)
			if n := len(k.changes(t, "")); n != log {
				t.Errorf("a dry run made %d entries", n-log)
			}
			o := dry.obj(t)
			has(t, o, map[string]any{"dry_run": true, "commit": nil})
			if n := len(dry.list(t, "conflicts")); n != 0 {
				t.Fatalf("conflicts: %v", o["conflicts"])
			}
			r := k.revert(t, "", map[string]any{"plan": o["plan"]}).want(t, 200)
			same(t, lay(t, p.dir), before)
			for f, then := range times(t, p.dir) {
				if worked[f] == before[f] && f != "out.log" && !strings.HasPrefix(f, "dir/") && then != was[f] && strings.HasPrefix(before[f], "-") {
					t.Errorf("%q, which is as it was, has a new time", f)
				}
			}
			d := r.obj(t)
			has(t, d, map[string]any{"dry_run": false, "entries_reverted": o["entries_reverted"]})
			if fmt.Sprint(d["files"]) != fmt.Sprint(o["files"]) {
				t.Errorf("planned %v, did %v", o["files"], d["files"])
			}
			made := k.changes(t, "")[log:]
			for _, e := range made {
				has(t, e, map[string]any{"source": "revert", "commit": d["commit"]})
			}
			if again := k.revert(t, "", nil).want(t, 200).obj(t); again["commit"] != nil {
				t.Errorf("a second revert did %v", again)
			}
			if sum := p.call(t, "GET", k.url("/files"), nil).want(t, 200).list(t, "files"); len(sum) != 0 {
				t.Errorf("the task comes to %v", sum)
			}
			k.fsck(t)
		})
	}
}

// TestRevertOfRevert: each entry of a revert can be undone, and so on.
func TestRevertOfRevert(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k := p.task(t)
	k.step(t, "put a worked")
	for i := range 4 {
		list := k.changes(t, "")
		last := list[len(list)-1]
		o := k.revert(t, fmt.Sprintf("/changes/%v", last["id"]), nil).want(t, 200).obj(t)
		want := []string{eightLines, "worked"}[i%2]
		if got := p.read(t, "a"); got != want || fmt.Sprint(o["entries_reverted"]) != "1" {
			t.Fatalf("undone %d times: %q, %v", i+1, got, o)
		}
		list = k.changes(t, "")
		has(t, list[len(list)-1], map[string]any{"source": "revert", "reverts": fmt.Sprintf("[%v]", last["id"])})
		if o := k.revert(t, fmt.Sprintf("/changes/%v", last["id"]), nil).want(t, 200).obj(t); o["commit"] != nil {
			t.Fatalf("undone twice: %v", o)
		}
	}
	// Now the work is in effect again, and a task's revert takes it back.
	k.revert(t, "", nil).want(t, 200)
	if got := p.read(t, "a"); got != eightLines {
		t.Errorf("after all: %q", got)
	}
}

// TestRevertParts: a subtask, a file, a change.
func TestRevertParts(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	line := func(text string, n int, with string) string {
		lines := strings.SplitAfter(text, "\n")
		lines[n-1] = with + "\n"
		return strings.Join(lines, "")
	}
	one := line(eightLines, 1, "one")
	both := line(one, 8, "eight")
	for name, c := range map[string]struct {
		rest    string
		body    map[string]any
		want    map[string]string // "" is absent
		entries int
	}{
		"the first subtask":         {"/subtasks/s1", nil, map[string]string{"a": line(eightLines, 8, "eight"), "n": "", "b": "s2"}, 2},
		"the second subtask":        {"/subtasks/s2", nil, map[string]string{"a": one, "n": "s1", "b": "b\n", "dir/x": "x\n"}, 3},
		"a file":                    {"/files/a", nil, map[string]string{"a": eightLines, "n": "s1", "b": "s2"}, 2},
		"a file in the body":        {"", map[string]any{"path": "a"}, map[string]string{"a": eightLines, "b": "s2"}, 2},
		"a file by its name before": {"/files/dir/x", nil, map[string]string{"dir/x": "x\n", "moved": "", "a": both}, 1},
		"a file by its name now":    {"/files/moved", nil, map[string]string{"dir/x": "x\n", "moved": "", "a": both}, 1},
		"one change":                {"/changes/1", nil, map[string]string{"a": line(eightLines, 8, "eight"), "n": "s1"}, 1},
		"nothing of a file":         {"/files/other", nil, map[string]string{"a": both}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := server.on(t, undoFiles)
			k := p.task(t)
			k.step(t, "put a "+one, "X-Subtask-Id", "s1")
			k.step(t, "put n s1", "X-Subtask-Id", "s1")
			k.step(t, "put a "+both, "X-Subtask-Id", "s2")
			k.step(t, "put b s2", "X-Subtask-Id", "s2")
			k.step(t, "mv dir/x moved", "X-Subtask-Id", "s2")
			o := k.revert(t, c.rest, c.body).want(t, 200).obj(t)
			if fmt.Sprint(o["entries_reverted"]) != fmt.Sprint(c.entries) || (o["commit"] == nil) != (c.entries == 0) {
				t.Errorf("answered %v", o)
			}
			for f, want := range c.want {
				if want == "" {
					p.absent(t, f)
				} else if got := p.read(t, f); got != want {
					t.Errorf("%s is %q, want %q", f, got, want)
				}
			}
		})
	}
}

// TestRevertAmongOthers: what another task or a person did to the same file is
// merged, or is a conflict that names who it was and changes nothing.
func TestRevertAmongOthers(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	for name, c := range map[string]struct {
		mine, theirs string
		person       bool
		reason       string // of the conflict; empty: merged
		merged       string
		forced, left string // of a after force, after skip
	}{
		"other lines":           {mine: "put a " + strings.Replace(eightLines, "1", "one", 1), theirs: "put a " + strings.Replace(strings.Replace(eightLines, "1", "one", 1), "8", "eight", 1), merged: strings.Replace(eightLines, "8", "eight", 1)},
		"other lines, a person": {mine: "put a " + strings.Replace(eightLines, "1", "one", 1), theirs: "put a " + strings.Replace(strings.Replace(eightLines, "1", "one", 1), "8", "eight", 1), person: true, merged: strings.Replace(eightLines, "8", "eight", 1)},
		"the mode":              {mine: "put a mine", theirs: "+x a", merged: eightLines},
		"the same line":         {mine: "put a mine\n", theirs: "put a theirs\n", reason: "overlapping", forced: eightLines, left: "theirs\n"},
		"the same, a person":    {mine: "put a mine\n", theirs: "put a theirs\n", person: true, reason: "overlapping", forced: eightLines, left: "theirs\n"},
		"binary":                {mine: "put a \x00mine", theirs: "put a \x00theirs", reason: "binary", forced: eightLines, left: "\x00theirs"},
		"deleted":               {mine: "put a mine", theirs: "del a", reason: "deleted", forced: eightLines, left: "-"},
		"renamed twice":         {mine: "mv a c", theirs: "mv c d", reason: "renamed", forced: eightLines, left: "-"},
		"made again":            {mine: "del a", theirs: "put a theirs", reason: "occupied", forced: eightLines, left: "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, way := range []string{"", "fail", "force", "skip"} {
				p := server.on(t, undoFiles)
				k, other := p.task(t), p.task(t)
				k.step(t, "put b mine too", "X-Actor", "me")
				k.step(t, c.mine, "X-Actor", "me")
				who := map[string]any{"task_id": other.ID, "subtask_id": "s9", "actor": "them"}
				if c.person {
					other.step(t, "disk "+c.theirs)
					who = map[string]any{"task_id": nil, "subtask_id": nil}
				} else {
					other.step(t, c.theirs, "X-Actor", "them", "X-Subtask-Id", "s9")
				}
				before := lay(t, p.dir)
				body := map[string]any{}
				if way != "" {
					body["on_conflict"] = way
				}
				planned := k.revert(t, "", map[string]any{"dry_run": true, "on_conflict": orFail(way)}).want(t, 200)
				same(t, lay(t, p.dir), before)
				r := k.revert(t, "", body)
				if c.reason == "" {
					o := r.want(t, 200).obj(t)
					if got := p.read(t, "a"); got != c.merged {
						t.Errorf("%s: a is %q, want %q", way, got, c.merged)
					}
					if s := fmt.Sprint(o["files"]); !strings.Contains(s, "action:merged") {
						t.Errorf("%s: %s", way, s)
					}
					continue
				}
				var conflicts []map[string]any
				switch way {
				case "force":
					r.want(t, 200)
					if got := p.read(t, "a"); got != c.forced {
						t.Errorf("forced: a is %q, want %q", got, c.forced)
					}
				case "skip":
					conflicts = r.want(t, 200).list(t, "conflicts")
					if c.left == "-" {
						p.absent(t, "a")
					} else if got := p.read(t, "a"); got != c.left {
						t.Errorf("skipped: a is %q, want %q", got, c.left)
					}
				default:
					r.fails(t, 409, "revert_conflict")
					has(t, r.obj(t), map[string]any{"task_id": k.ID})
					conflicts = r.list(t, "conflicts")
					same(t, lay(t, p.dir), before)
				}
				if way == "force" {
					if got := p.read(t, "b"); got != "b\n" {
						t.Errorf("b is %q", got)
					}
					continue
				}
				if len(conflicts) != 1 || fmt.Sprint(conflicts) != fmt.Sprint(planned.list(t, "conflicts")) {
					t.Fatalf("%s: conflicts %v, planned %s", way, conflicts, planned.Body)
				}
				has(t, conflicts[0], map[string]any{"reason": c.reason})
				by, _ := conflicts[0]["changed_by"].(map[string]any)
				has(t, by, who)
				if id := fmt.Sprint(by["commit"]); len(id) != 40 {
					t.Errorf("changed by %v", by)
				}
				if way == "skip" && p.read(t, "b") != "b\n" {
					t.Errorf("the rest was not done: %q", p.read(t, "b"))
				}
			}
		})
	}
}

func orFail(way string) string {
	if way == "" {
		return "fail"
	}
	return way
}

// TestRevertPlans: a plan is done as it was told, or not at all.
func TestRevertPlans(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	for name, c := range map[string]struct {
		between string
		stale   bool
	}{
		"nothing":                     {"", false},
		"another file":                {"put other x", false},
		"the file":                    {"put a theirs", true},
		"the file, by a person":       {"disk put a theirs", true},
		"the file's mode":             {"+x a", true},
		"the file is gone":            {"del a", true},
		"a file where one comes back": {"put b theirs", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := server.on(t, undoFiles)
			k, other := p.task(t), p.task(t)
			k.step(t, "put a mine")
			k.step(t, "del b")
			plan := k.revert(t, "", map[string]any{"dry_run": true}).want(t, 200).str(t, "plan")
			if c.between != "" {
				other.step(t, c.between)
			}
			before := lay(t, p.dir)
			r := k.revert(t, "", map[string]any{"plan": plan})
			if c.stale {
				has(t, r.fails(t, 409, "plan_stale"), map[string]any{"task_id": k.ID})
				same(t, lay(t, p.dir), before)
				return
			}
			r.want(t, 200)
			if p.read(t, "a") != eightLines || p.read(t, "b") != "b\n" {
				t.Error("not undone")
			}
			k.revert(t, "", map[string]any{"plan": plan}).fails(t, 409, "plan_stale")
		})
	}
	p := server.on(t, undoFiles)
	k := p.task(t)
	k.step(t, "put a mine")
	plan := k.revert(t, "/files/a", map[string]any{"dry_run": true}).want(t, 200).str(t, "plan")
	k.revert(t, "", map[string]any{"plan": plan}).fails(t, 409, "plan_stale")         // one of another route
	p.task(t).revert(t, "", map[string]any{"plan": plan}).fails(t, 409, "plan_stale") // of another task
	for _, bad := range []string{"", "x", "n.", "n.zz", "q." + strings.Repeat("0", 64)} {
		k.revert(t, "", map[string]any{"plan": bad}).fails(t, 400, "invalid_plan")
	}
}

// TestRevertExternal: a user's changes that belong to the task are left, and
// listed, unless the revert includes them.
func TestRevertExternal(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k := p.task(t)
	k.step(t, "put b task")
	k.step(t, "disk put a person")
	k.step(t, "disk put new person")
	for _, body := range []map[string]any{{"dry_run": true}, {"dry_run": true, "include_external": false}} {
		dry := k.revert(t, "", body).want(t, 200)
		left := map[string]any{}
		for _, x := range dry.list(t, "external") {
			left[fmt.Sprint(x["path"])] = fmt.Sprint(x["entry"], " ", x["at"] != nil)
		}
		has(t, left, map[string]any{"a": "2 true", "new": "3 true"})
		if n := len(dry.list(t, "files")); n != 1 {
			t.Errorf("%d files, want 1: %s", n, dry.Body)
		}
	}
	dry := k.revert(t, "", map[string]any{"dry_run": true, "include_external": true}).want(t, 200)
	if n := len(dry.list(t, "external")); n != 0 {
		t.Errorf("%d external changes left", n)
	}
	sources := map[string]any{}
	for _, f := range dry.list(t, "files") {
		sources[fmt.Sprint(f["path"])] = f["source"]
	}
	has(t, sources, map[string]any{"a": "external", "new": "external", "b": "api"})
	if done := k.revert(t, "", nil).want(t, 200); len(done.list(t, "external")) != 2 {
		t.Errorf("external changes left: %s", done.Body)
	}
	if p.read(t, "a") != "person" || p.read(t, "new") != "person" || p.read(t, "b") != "b\n" {
		t.Error("the person's were not left")
	}
	k.revert(t, "", map[string]any{"include_external": true}).want(t, 200)
	if p.read(t, "a") != eightLines {
		t.Error("the person's were not undone")
	}
	p.absent(t, "new")
	// What a person does while nobody has looked is recorded before anything is
	// judged, and is in history.
	k.step(t, "put b again")
	p.byHand(t, "put b unseen")
	k.revert(t, "", nil).fails(t, 409, "revert_conflict")
	k.revert(t, "", map[string]any{"include_external": true}).want(t, 200)
	if got := p.read(t, "b"); got != "b\n" {
		t.Errorf("b is %q", got)
	}
	seen := false
	for _, e := range k.changes(t, "?path=b") {
		if e["source"] == "external" {
			data := p.call(t, "GET", k.file("b")+"&at="+fmt.Sprint(e["id"]), nil).want(t, 200)
			seen = seen || string(data.Body) == "unseen"
		}
	}
	if !seen {
		t.Error("what the person wrote is in no history")
	}
}

// TestRevertRefusals: what is not there, and what is not understood.
func TestRevertRefusals(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k := p.task(t)
	k.step(t, "put a mine", "X-Subtask-Id", "s1")
	before := lay(t, p.dir)
	for _, c := range []struct {
		url, body string
		status    int
		code      string
	}{
		{"/tasks/nobody/revert", `{}`, 404, "task_not_found"},
		{"/tasks/nobody/files/a/revert", `{}`, 404, "task_not_found"},
		{k.url("/changes/99/revert"), `{}`, 404, "change_not_found"},
		{k.url("/changes/0/revert"), `{}`, 404, "change_not_found"},
		{k.url("/changes/x/revert"), `{}`, 404, "change_not_found"},
		{k.url("/subtasks/none/revert"), `{}`, 404, "subtask_not_found"},
		{k.url("/files/no/such/revert"), `{}`, 404, "file_not_found"},
		{k.url("/files/..%2fx/revert"), `{}`, 400, "bad_path"},
		{k.url("/files/.git%2fconfig/revert"), `{}`, 400, "bad_path"},
		{k.url("/revert"), `{"path":"no/such"}`, 404, "file_not_found"},
		{k.url("/revert"), `{"path":"../x"}`, 400, "bad_path"},
		{k.url("/files/a/revert"), `{"path":"a"}`, 400, "unknown_field"},
		{k.url("/revert"), `{"on_conflict":"maybe"}`, 400, "invalid_field"},
		{k.url("/revert"), `{"on_conflict":7}`, 400, ""},
		{k.url("/revert"), `{"dry_run":"yes"}`, 400, ""},
		{k.url("/revert"), `{"plan":7}`, 400, ""},
		{k.url("/revert"), `{`, 400, ""},
		{k.url("/revert"), `{} {}`, 400, ""},
		{k.url("/revert"), `{"dry_run":true,"dry_run":false}`, 400, ""},
		{k.url("/revert"), `[]`, 400, ""},
	} {
		r := p.call(t, "POST", c.url, []byte(c.body), "Content-Type", "application/json")
		if c.code == "" {
			if r.Status != c.status {
				t.Errorf("%s %s: %d %s", c.url, c.body, r.Status, r.Body)
			}
			continue
		}
		o := r.fails(t, c.status, c.code)
		if id := o["task_id"]; !strings.Contains(c.url, "nobody") && id != k.ID {
			t.Errorf("%s: the error's task is %v", c.url, id)
		}
	}
	p.call(t, "POST", k.url("/revert"), []byte("x=1"), "Content-Type", "application/x-www-form-urlencoded").want(t, 415)
	same(t, lay(t, p.dir), before)
	p.call(t, "POST", k.url("/revert"), nil).want(t, 200) // the body is optional
	if p.read(t, "a") != eightLines {
		t.Error("not undone")
	}
}

// TestRevertStates: an ended or paused task's work can be undone; a missing
// folder cannot be written.
func TestRevertStates(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	for _, status := range []string{"paused", "completed", "failed", "cancelled"} {
		k := p.task(t)
		k.step(t, "put a "+status)
		p.call(t, "PATCH", k.url(""), map[string]any{"status": status}).want(t, 200)
		k.revert(t, "", nil).want(t, 200)
		if got := p.read(t, "a"); got != eightLines {
			t.Errorf("%s: %q", status, got)
		}
		if status == "paused" {
			p.call(t, "PATCH", k.url(""), map[string]any{"status": "cancelled"}).want(t, 200)
		}
	}
	k := p.task(t)
	k.step(t, "put a x")
	need.NoError(t, os.Rename(p.dir, p.dir+".away"))
	t.Cleanup(func() { os.RemoveAll(p.dir + ".away") })
	k.revert(t, "", nil).fails(t, 409, "workspace_missing")
	need.NoError(t, os.Rename(p.dir+".away", p.dir))
	k.revert(t, "", nil).want(t, 200)
}

// TestRevertIsOneCommit: with trailers that git reads, done once for one key,
// also over a restart.
func TestRevertIsOneCommit(t *testing.T) {
	t.Parallel()
	p := newServer(t).on(t, undoFiles)
	k := p.task(t)
	k.step(t, "put a x | del b | mv dir/x y")
	k.step(t, "put n x")
	n := k.git(t, "rev-list", "--count", "refs/umbra/head")
	first := k.revert(t, "", nil, "Idempotency-Key", "once", "X-Actor", "me").want(t, 200)
	p.crash()
	again := k.revert(t, "", nil, "Idempotency-Key", "once", "X-Actor", "me").want(t, 200)
	if string(again.Body) != string(first.Body) || again.head("Idempotent-Replay") != "true" {
		t.Errorf("answered %s\nthen %s", first.Body, again.Body)
	}
	if m := k.git(t, "rev-list", "--count", "refs/umbra/head"); fmt.Sprint(n, " ", m) != fmt.Sprint(n, " ", plusOne(t, n)) {
		t.Errorf("%s commits, then %s", n, m)
	}
	text := k.git(t, "log", "-1", "--format=%(trailers:only,unfold)", "refs/umbra/head")
	for _, want := range []string{"Source: revert", "Task-Id: " + k.ID, "Actor: me", "Reverts: "} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if c := strings.Count(text, "\nReverts-Entry: ") + strings.Count(text, "Reverts-Entry: "+k.ID+" "); c < 4 {
		t.Errorf("too few entries named in\n%s", text)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "n")); !os.IsNotExist(err) {
		t.Error("n is there")
	}
}

func plusOne(t *testing.T, n string) string {
	t.Helper()
	var v int
	if _, err := fmt.Sscan(n, &v); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(v + 1)
}
