package tests

import (
	"fmt"
	"strings"
	"testing"

	"umbra/tests/harness"
)

// TestReviewHold holds that rejections wait until no call of the task is open, also
// over a restart, and that the agent is told.
func TestReviewHold(t *testing.T) {
	for _, kind := range []string{"task", "settings"} {
		t.Run(kind, func(t *testing.T) {
			o := harness.Options{}
			if kind == "settings" {
				o.Config = "review:\n  hold: true\n"
			}
			p := &project{Server: harness.Start(t, o), dir: t.TempDir()}
			p.fill(t, map[string]string{"a": numbered(40), "b": "b\n"})
			made := p.post(t, "/tasks", map[string]any{"task_id": "t", "goal": "g", "workspace": p.dir, "hold": kind == "task"}).want(t, 201).obj(t)
			if made["hold"] == true != (kind == "task") {
				t.Errorf("%v", made["hold"])
			}
			k := &taskOf{p: p, ID: "t", At: made}
			begin := func(id string) *answer {
				return p.post(t, "/calls", map[string]any{"cwd": p.dir, "task_id": "t", "agent": "x", "agent_session": "s", "call_id": id, "tool": "Bash"}).want(t, 201)
			}
			begin("c1")
			p.shell(t, "sed -i 's/^line 5$/five/; s/^line 20$/twenty/; s/^line 35$/last/' a; echo B > b")
			p.post(t, "/calls/c1/end", map[string]any{}).want(t, 200)
			list, _ := k.hunks(t, "")
			if len(list) != 4 {
				t.Fatalf("%+v", list)
			}
			begin("c2")
			p.shell(t, "sed -i 's/^last$/really last/' a")
			body := map[string]any{"reject": []string{list[0].ID, list[2].ID, list[3].ID}, "accept": []string{list[1].ID}, "message": "leave five alone"}
			p.post(t, k.url("/review"), body).fails(t, 409, "hunk_changed") // what the call does is recorded first
			body["reject"] = []string{list[0].ID, list[3].ID}
			body["dry_run"] = true
			if dry := p.post(t, k.url("/review"), body).want(t, 200).obj(t); fmt.Sprint(dry["held"]) != "2" || len(dry["rejected"].([]any)) != 0 || len(dry["accepted"].([]any)) != 1 {
				t.Errorf("%v", dry)
			}
			delete(body, "dry_run")
			done := p.post(t, k.url("/review"), body).want(t, 202).obj(t)
			if fmt.Sprint(done["held"]) != "2" || done["commit"] == nil || len(done["rejected"].([]any)) != 0 {
				t.Errorf("%v", done)
			}
			if !strings.Contains(p.read(t, "a"), "five") {
				t.Error("it did not wait")
			}
			now, _ := k.hunks(t, "")
			if !now[0].Held || now[0].Status != "open" || now[1].Held || now[1].Status != "accepted" {
				t.Errorf("%+v", now)
			}
			p.Stop()
			p.Restart()
			if !strings.Contains(p.read(t, "a"), "five") {
				t.Error("it did not wait over a restart")
			}
			p.shell(t, "echo B2 > b") // one of them becomes another
			p.post(t, "/calls/c2/end", map[string]any{}).want(t, 200)
			if got := p.read(t, "a"); strings.Contains(got, "five") || !strings.Contains(got, "twenty") || !strings.Contains(got, "really last") || p.read(t, "b") != "B2\n" {
				t.Errorf("%q", got)
			}
			var result struct {
				Others []struct{ Path, Operation, Message string }
			}
			begin("c3").into(t, &result)
			if len(result.Others) != 1 || result.Others[0].Path != "a" || result.Others[0].Operation != "rejected" || result.Others[0].Message != "leave five alone" {
				t.Errorf("%+v", result)
			}
			p.post(t, "/calls/c3/end", map[string]any{}).want(t, 200)
			// Without an open call nothing waits.
			now, _ = k.hunks(t, "?status=open")
			p.post(t, k.url("/review"), map[string]any{"reject": []string{now[len(now)-1].ID}}).want(t, 200)
			if p.read(t, "b") != "b\n" {
				t.Error("it waits")
			}
			k.fsck(t)
		})
	}
}

// TestReviewTools holds that a model that works by tools hears of a rejection once, with
// its next call, and one that may not read does not.
func TestReviewTools(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	p := &project{Server: s, dir: folder(t, map[string]string{"a": "1\n", "b": "2\n"})}
	a := newAgent(t, s, physical("/p", "READ_WRITE", p.dir))
	a.gives("write_file", "path", "/p/a", "content", "x\n")
	a.gives("write_file", "path", "/p/b", "content", "y\n")
	task := a.Do("GET", "/toolsets/"+a.id, nil).Expect(200).Text("taskId")
	k := &taskOf{p: p, ID: task}
	list, _ := k.hunks(t, "?path=a")
	p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID}, "message": "leave it"}).want(t, 200)
	_, text := a.call("read_file", "path", "/p/b")
	if !strings.HasPrefix(text, "y\n") || !strings.Contains(text, `A reviewer rejected changes of yours and took them back, in /p/a (the reviewer says: "leave it").`) {
		t.Errorf("%q", text)
	}
	if _, text = a.call("read_file", "path", "/p/b"); text != "y\n" {
		t.Errorf("%q", text)
	}
	list, _ = k.hunks(t, "?path=b")
	p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID}}).want(t, 200)
	p.Stop()
	p.Restart()
	if _, text = a.call("edit_file", "path", "/p/b", "old_string", "y", "new_string", "z"); !strings.Contains(text, "Error") || !strings.Contains(text, "rejected changes of yours and took them back, in /p/b") {
		t.Errorf("%q", text)
	}
}
