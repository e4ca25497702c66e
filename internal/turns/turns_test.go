package turns

import (
	"encoding/json"
	"strings"
	"testing"

	"umbra/internal/need"
)

const twoTurns = `[
{"call_id":"c3","task_id":"T","subtask_id":"p2","agent":"codex","agent_session":"s","prompt_id":"p2","status":"open","begun":"2026-11-23T10:00:03Z","ended":null},
{"call_id":"c2","task_id":"T","subtask_id":"p1","agent":"codex","agent_session":"s","prompt_id":"p1","status":"ok","begun":"2026-11-23T10:00:02Z","ended":"2026-11-23T10:00:02.5Z"},
{"call_id":"c1","task_id":"T","subtask_id":"p1","agent":"codex","agent_session":"s","prompt_id":"p1","status":"ok","begun":"2026-11-23T10:00:01Z","ended":"2026-11-23T10:00:01.5Z"}]`

// log entries, oldest first.
var steps = []string{
	`{"id":1,"seq":2,"task_id":"T","operation":"create","path":"a","commit":"k2","source":"call","call_id":"c1","certainty":"declared"}`,
	`{"id":2,"seq":3,"task_id":"T","operation":"modify","path":"a","commit":"k3","source":"call","call_id":"c2","certainty":"window"}`,
	`{"id":null,"seq":4,"task_id":null,"operation":"create","path":"b","commit":"k4","source":"shared","call_id":null,"certainty":"shared","claimants":["c2","c3"]}`,
	`{"id":3,"seq":5,"task_id":"T","operation":"create","path":"c","commit":"k5","source":"call","call_id":"c3","certainty":"exact"}`,
	// undo of p2 with its shared change, of p1, and a redo of the latter
	`{"id":4,"seq":6,"task_id":"T","subtask_id":"umbra-undo-1","operation":"delete","path":"c","commit":"k6","source":"revert","reverts":[3]}`,
	`{"id":5,"seq":6,"task_id":"T","subtask_id":"umbra-undo-1","operation":"delete","path":"b","commit":"k6","source":"revert","reverts":[null],"reverts_entries":[{"task_id":null,"id":4}]}`,
	`{"id":6,"seq":7,"task_id":"T","subtask_id":"umbra-undo-2","operation":"delete","path":"a","commit":"k7","source":"revert","reverts":[2,1]}`,
	`{"id":null,"seq":8,"task_id":null,"operation":"create","path":"a","commit":"k8","source":"revert","reverts":[6],"reverts_entries":[{"task_id":"T","id":6}]}`,
}

func after(t *testing.T, n int) *History {
	t.Helper()
	var calls []Call
	need.NoError(t, json.Unmarshal([]byte(twoTurns), &calls))
	var entries []Entry
	for i := n - 1; i >= 0; i-- {
		var e Entry
		need.NoError(t, json.Unmarshal([]byte(steps[i]), &e))
		entries = append(entries, e)
	}
	return build(calls, entries)
}

func text(h *History) string {
	var parts []string
	for _, x := range h.Turns {
		s := deref(x.Prompt)
		for _, f := range x.Files {
			s += " " + f.Path + ":" + f.Certainty
		}
		if x.Undone {
			s += " undone"
		}
		parts = append(parts, s+" ["+strings.Join(x.InEffect(), " ")+"]")
	}
	for _, u := range h.Undos {
		parts = append(parts, u.Name+" "+strings.Join(u.Commits, ","))
	}
	return strings.Join(parts, "; ")
}

func TestBuild(t *testing.T) {
	for n, want := range map[int]string{
		0: "p2 []; p1 []",
		4: "p2 b:shared c:exact [c3]; p1 a:window b:shared [c2 c1]",
		6: "p2 b:shared c:exact undone []; p1 a:window b:shared [c2 c1]; umbra-undo-1 k6",
		7: "p2 b:shared c:exact undone []; p1 a:window b:shared undone []; umbra-undo-2 k7; umbra-undo-1 k6",
		8: "p2 b:shared c:exact undone []; p1 a:window b:shared [c2 c1]; umbra-undo-1 k6",
	} {
		if got := text(after(t, n)); got != want {
			t.Errorf("after %d: %s\nwant %s", n, got, want)
		}
	}
	h := after(t, 4)
	if h.Turns[0].Ended != nil || h.Turns[1].Ended == nil || *h.Turns[1].Certainty != "shared" {
		t.Errorf("%+v %+v", h.Turns[0], h.Turns[1])
	}
	if list := h.Candidates(Filter{Agent: "other"}); len(list) != 0 {
		t.Errorf("%d turns of another agent", len(list))
	}
	if list := after(t, 7).Candidates(Filter{}); len(list) != 0 {
		t.Errorf("%d turns are in effect, want none", len(list))
	}
	if got := h.Turns[0].Routes(); len(got) != 1 || got[0] != "/tasks/T/subtasks/p2/revert" {
		t.Error(got)
	}
}
