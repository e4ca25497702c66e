package tests

import "testing"

// Work of the parent's that came to a fork by way of another is the parent's own: it is not
// brought back to it after a revert. What a squash has besides it is.
func TestForkMergeBySibling(t *testing.T) {
	for _, as := range []string{"replay", "squash"} {
		t.Run(as, func(t *testing.T) {
			p := newProject(t, map[string]string{"a": "one\n", "b": "one\n"})
			task := p.task(t)
			ws := "/workspaces/" + task.str("workspace_id")
			old := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
			p.post(t, "/tasks", map[string]any{"task_id": "parents", "workspace": p.dir, "goal": "work"}).want(t, 201)
			p.call(t, "PUT", "/tasks/parents/content?path=a", []byte("two\n")).want(t, 200)
			p.call(t, "PUT", "/tasks/parents/content?path=c", []byte("new\n")).want(t, 201)
			young := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
			p.post(t, "/tasks", map[string]any{"task_id": "young", "workspace": young, "goal": "work"}).want(t, 201)
			p.call(t, "PUT", "/tasks/young/content?path=own", []byte("own\n")).want(t, 201)
			p.merge(t, young, map[string]any{"into": old, "as": as})
			p.post(t, "/tasks/parents/revert", map[string]any{}).want(t, 200)
			m := p.merge(t, old, map[string]any{})
			if got := testJSON(m.Files); got != `[{"Path":"own","Action":"created"}]` {
				t.Errorf("merged is %s", got)
			}
			if p.read(t, "a") != "one\n" || p.read(t, "own") != "own\n" {
				t.Errorf("a has %q, own %q", p.read(t, "a"), p.read(t, "own"))
			}
			p.absent(t, "c")
			p.call(t, "DELETE", "/workspaces/"+old, nil).want(t, 204)
		})
	}
}

// A squash of a fork's own work and of what it has of the parent's is not the parent's alone:
// its own part is merged, also when the parent changed its files since, and is not deleted
// without force.
func TestForkMergeSquashedRebase(t *testing.T) {
	p := newProject(t, map[string]string{"a": "one\n"})
	task := p.task(t)
	ws := "/workspaces/" + task.str("workspace_id")
	into := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	from := p.forks(t, ws, map[string]any{"kind": "virtual"})[0]["id"].(string)
	task.put(t, "parents", "one\n")
	p.post(t, "/tasks", map[string]any{"task_id": "from", "workspace": from, "goal": "work"}).want(t, 201)
	p.call(t, "PUT", "/tasks/from/content?path=own", []byte("own\n")).want(t, 201)
	p.post(t, "/workspaces/"+from+"/rebase", map[string]any{}).want(t, 200)
	p.merge(t, from, map[string]any{"into": into, "as": "squash"})
	task.put(t, "parents", "two\n")
	p.call(t, "DELETE", "/workspaces/"+into, nil).fails(t, 409, "unmerged")
	m := p.merge(t, into, map[string]any{})
	if got := testJSON(m.Files); got != `[{"Path":"own","Action":"created"}]` || p.read(t, "own") != "own\n" || p.read(t, "parents") != "two\n" {
		t.Errorf("merged is %s", got)
	}
	if m := p.merge(t, into, map[string]any{}); len(m.Files) > 0 {
		t.Errorf("merged again is %s", testJSON(m.Files))
	}
	p.call(t, "DELETE", "/workspaces/"+into, nil).want(t, 204)
}
