package tests

import (
	"slices"
	"strings"
	"testing"
)

// TestReviewRest holds that what is rejected as the rest of a task includes what others
// had deleted of it: to reject that deletion does not bring it back. Single hunks are
// decided on alone.
func TestReviewRest(t *testing.T) {
	base := numbered(30)
	with := strings.Replace(base, "line 15\n", "line 15\nof b\n", 1)
	with = strings.Replace(with, "line 3\n", "line 3\nseen\n", 1)
	without := strings.Replace(with, "of b\n", "", 1)
	begin := func(t *testing.T) (p *project, a, b *taskOf) {
		p = newProject(t, map[string]string{"f": base})
		a, b = p.task(t), p.task(t)
		b.put(t, "f", with)
		b.put(t, "made", "m\n")
		b.put(t, "bytes", "\x00\x01")
		b.put(t, "empty", "")
		a.put(t, "f", without)
		for _, name := range []string{"made", "bytes", "empty"} {
			p.call(t, "DELETE", a.file(name), nil).want(t, 200)
		}
		return p, a, b
	}
	paths := func(t *testing.T, k *taskOf) string {
		list, _ := k.hunks(t, "")
		var out []string
		for _, h := range list {
			out = append(out, h.Path)
		}
		return strings.Join(out, " ")
	}
	t.Run("the rest", func(t *testing.T) {
		p, a, b := begin(t)
		if got := paths(t, b) + ", " + paths(t, a); got != "f, bytes empty f made" {
			t.Fatalf("%s", got)
		}
		done := p.post(t, b.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if list, _ := a.hunks(t, ""); len(list) != 0 {
			t.Errorf("%+v", list)
		}
		p.post(t, a.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if got := p.read(t, "f"); got != base {
			t.Errorf("%q", got)
		}
		p.absent(t, "made")
		// What takes the rejection back brings these hunks back too.
		p.post(t, "/workspaces/"+b.str("workspace_id")+"/commits/"+done.str(t, "commit")+"/revert", map[string]any{}).want(t, 200)
		if got := paths(t, a); got != "bytes empty f made" {
			t.Errorf("%s", got)
		}
		b.fsck(t)
	})
	t.Run("what no hunk shows", func(t *testing.T) {
		p, a, b := begin(t)
		list, _ := b.hunks(t, "")
		p.post(t, b.url("/review"), map[string]any{"accept": []string{list[0].ID}}).want(t, 200)
		first := p.post(t, b.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if again := p.post(t, b.url("/review"), map[string]any{"reject_rest": true}).want(t, 200).obj(t); first.obj(t)["commit"] == nil || again["commit"] != nil {
			t.Errorf("%s, then %v", first.Body, again)
		}
		p.post(t, a.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if got := p.read(t, "f"); got != without {
			t.Errorf("%q", got)
		}
	})
	t.Run("accepted, then deleted by another", func(t *testing.T) {
		p := newProject(t, map[string]string{"f": base})
		a, b := p.task(t), p.task(t)
		b.put(t, "f", with)
		b.put(t, "made", "m\n")
		b.put(t, "empty", "")
		list, _ := b.hunks(t, "")
		var ids []string
		for _, h := range list {
			if h.Path != "f" || strings.Contains(h.Text, "of b") {
				ids = append(ids, h.ID)
			}
		}
		p.post(t, b.url("/review"), map[string]any{"accept": ids}).want(t, 200)
		b.put(t, "f", strings.Replace(with, "line 25\n", "line 25\nlater\n", 1))
		a.put(t, "f", base)
		for _, name := range []string{"made", "empty"} {
			p.call(t, "DELETE", a.file(name), nil).want(t, 200)
		}
		p.post(t, b.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		p.post(t, a.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if got := p.read(t, "f"); got != strings.Replace(base, "line 15\n", "line 15\nof b\n", 1) || p.read(t, "made") != "m\n" || p.read(t, "empty") != "" {
			t.Errorf("%q", got)
		}
		b.fsck(t)
	})
	t.Run("single hunks", func(t *testing.T) {
		p, a, b := begin(t)
		list, _ := b.hunks(t, "")
		p.post(t, b.url("/review"), map[string]any{"reject": []string{list[0].ID}}).want(t, 200)
		if got := paths(t, a); got != "bytes empty f made" {
			t.Errorf("%s", got)
		}
		p.post(t, a.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if got := p.read(t, "f"); got != strings.Replace(base, "line 15\n", "line 15\nof b\n", 1) || p.read(t, "made") != "m\n" {
			t.Errorf("%q", got)
		}
		list, _ = b.hunks(t, "")
		if len(list) != 4 || slices.ContainsFunc(list, func(h hunk) bool { return h.Status != "open" }) {
			t.Errorf("%+v", list)
		}
	})
	t.Run("an undone task", func(t *testing.T) {
		p, a, b := begin(t)
		p.post(t, b.url("/revert"), map[string]any{}).want(t, 200)
		p.post(t, a.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if got := p.read(t, "f"); got != base {
			t.Errorf("%q", got)
		}
		p.absent(t, "made")
	})
	t.Run("held", func(t *testing.T) {
		p, a, b := begin(t)
		p.post(t, "/tasks", map[string]any{"task_id": "held", "goal": "g", "workspace": p.dir, "hold": true}).want(t, 201)
		h := &taskOf{p: p, ID: "held"}
		h.put(t, "g", "one\ntwo\nthree\n")
		h.put(t, "g2", "of it\n")
		p.call(t, "DELETE", a.file("g2"), nil).want(t, 200)
		p.post(t, "/calls", map[string]any{"cwd": p.dir, "task_id": "held", "call_id": "c", "tool": "Edit"}).want(t, 201)
		p.post(t, h.url("/review"), map[string]any{"reject_rest": true}).want(t, 202)
		p.post(t, "/calls/c/end", map[string]any{}).want(t, 200)
		p.absent(t, "g")
		if got := paths(t, a); strings.Contains(got, "g2") {
			t.Errorf("%s", got)
		}
		_ = b
	})
}
