package calls_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"umbra/internal/calls"
	"umbra/internal/state"
)

func (w *world) listed(f calls.Filter, limit int) (out []string) {
	w.t.Helper()
	after := ""
	for {
		list, next, err := w.calls.List(f, after, limit)
		w.ok(err)
		for _, r := range list {
			out = append(out, r.ID)
		}
		if next == "" {
			return out
		}
		after = next
	}
}

// TestLists: calls are listed by workspace, by task, as open ones and as those of the
// last seconds, newest first and page by page, also where an older version of the
// program did not keep the order by workspace and task.
func TestLists(t *testing.T) {
	w := newWorld(t)
	var all, mine []string
	task := ""
	for i := range 7 {
		session := fmt.Sprintf("s%d", i%2)
		b, err := w.calls.Begin(context.Background(), calls.Begin{Agent: "a", Session: session, Cwd: w.root})
		w.ok(err)
		all = append(all, b.ID)
		if i%2 == 0 {
			task, mine = b.Task, append(mine, b.ID)
		}
		if i < 5 {
			w.end(b.ID)
		}
	}
	slices.Reverse(all)
	slices.Reverse(mine)
	r, err := w.calls.Get(all[0], nil)
	w.ok(err)
	yes := true
	check := func(when string, within []string) {
		t.Helper()
		for _, c := range []struct {
			name string
			f    calls.Filter
			want []string
		}{
			{"all", calls.Filter{}, all},
			{"of the workspace", calls.Filter{Workspace: r.Workspace}, all},
			{"of the task", calls.Filter{Task: task}, mine},
			{"of the task elsewhere", calls.Filter{Task: task, Workspace: "x"}, nil},
			{"of another task", calls.Filter{Task: task[:len(task)-1]}, nil},
			{"open", calls.Filter{Open: &yes}, all[:2]},
			{"open of the task", calls.Filter{Open: &yes, Task: task}, mine[:1]},
			{"within a minute", calls.Filter{Within: time.Minute}, within},
		} {
			for _, limit := range []int{1, 2, 100} {
				if got := w.listed(c.f, limit); !slices.Equal(got, c.want) {
					t.Errorf("%s: %s, %d at once: %v, want %v", when, c.name, limit, got, c.want)
				}
			}
		}
	}
	check("at first", all)
	w.ahead.Store(int64(2 * time.Minute))
	check("later", all[:2])
	w.ahead.Store(0)
	w.close()
	db, err := state.Open(w.data + "/state.db")
	w.ok(err)
	w.ok(db.Update(func(tx *state.Tx) error { return tx.DeleteBucket("calls_by") }))
	w.ok(db.Close())
	w.open()
	check("after an older version", all[:2])
}

// TestCalledWithinThirtyDays: for 30 days after a workspace's last call, what changes
// outside of calls belongs to no task; then it is the only executing task's. A wall
// clock that is set, while the server runs or while it does not, does not end the 30
// days.
func TestCalledWithinThirtyDays(t *testing.T) {
	w := newWorld(t)
	b, err := w.calls.Begin(context.Background(), calls.Begin{Agent: "a", Session: "s", Cwd: w.root})
	w.ok(err)
	w.end(b.ID)
	n := 0
	owner := func() string {
		t.Helper()
		n++
		w.write("b", fmt.Sprintln(n))
		ws, err := w.m.Get(context.Background(), b.Workspace)
		w.ok(err)
		defer ws.Release()
		w.ok(ws.RecordThen(context.Background(), func() {}))
		tip := ws.Store().Tip()
		c, err := ws.Store().ReadCommit(context.Background(), tip.Commit)
		w.ok(err)
		return c.Message.TaskID
	}
	const day = 24 * time.Hour
	for _, c := range []struct {
		after time.Duration
		want  string
	}{{0, ""}, {29 * day, ""}, {31 * day, b.Task}, {-31 * day, ""}} {
		w.ahead.Store(int64(c.after))
		if got := owner(); got != c.want {
			t.Errorf("after %s: task %q, want %q", c.after, got, c.want)
		}
	}
	w.close()
	w.ahead.Store(int64(400 * day)) // set while the server does not run, on a system that does
	w.open()
	if got := owner(); got != "" {
		t.Errorf("after a restart with another clock: task %q", got)
	}
}

// TestLostByTime: a call whose time has passed ends as lost, with what it changed; one
// whose time was started again does not.
func TestLostByTime(t *testing.T) {
	w := newWorld(t)
	late, touched := w.begin("one"), ""
	w.write("a", "2\n")
	w.ahead.Store(int64(50 * time.Second))
	touched = w.begin("two")
	w.ahead.Store(int64(70 * time.Second))
	last := w.begin("three")                           // looks at the deadlines
	for until := time.Now().Add(10 * time.Second); ; { // the end is made in the background
		r, err := w.calls.Get(late, nil)
		w.ok(err)
		if r.Status == calls.Lost {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%s is %s", late, r.Status)
		}
		_, err = w.calls.Touch(touched, nil)
		w.ok(err)
	}
	e := w.end(late)
	if e.Status != calls.Lost || len(e.Entries) != 1 || e.Entries[0].Path != "a" || e.Entries[0].CallID != late {
		t.Errorf("%s: %+v", e.Status, e.Entries)
	}
	for _, id := range []string{touched, last} {
		if r, err := w.calls.Get(id, nil); err != nil || r.Status != calls.Open {
			t.Errorf("%s is %s, %v", id, r.Status, err)
		}
	}
}
