package cluster

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"umbra/internal/cluster/clustertest"
)

// lock keeps a table of the engine from being changed, until it is released.
func (w *world) lock(table string) (release func()) {
	w.t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, w.pair.A.URL())
	if err == nil {
		_, err = c.Exec(ctx, "BEGIN; LOCK TABLE "+table+" IN EXCLUSIVE MODE")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return func() { _ = c.Close(ctx) }
}

// TestKeysOverAKill kills a workspace's owner at each step of a write with an
// idempotency key. Another node then knows the request, and what it did, exactly if
// it was done.
func TestKeysOverAKill(t *testing.T) {
	w := newWorld(t, 1)
	waits := func(n int) func() (bool, error) {
		return func() (bool, error) {
			got := w.pair.A.SQL(`SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'relation'`)
			return got == strconv.Itoa(n), nil
		}
	}
	tip := func() string { return w.pair.A.SQL("SELECT coalesce(max(pos), 0) FROM journal") }
	for i, step := range []struct {
		name string
		// stop has the engine stop the write at a step; reached reports that it is there.
		stop    func() (release func())
		reached func(before string) (bool, error)
		// known: the write was done, or never will be
		done bool
	}{
		{name: "the append is on its way", stop: func() func() { return w.lock("journal") },
			reached: func(string) (bool, error) { return waits(1)() }},
		{name: "the append is not on the standby", stop: func() func() { w.pair.B.Pause(); return w.pair.B.Resume },
			reached: func(string) (bool, error) {
				n := w.pair.A.SQL(`SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query ILIKE '%journal%'`)
				return n != "0", nil
			}},
		{name: "the answer is not kept", stop: func() func() { return w.lock("writer") }, done: true,
			reached: func(before string) (bool, error) {
				at, err := waits(1)()
				return at && tip() != before, err
			}},
	} {
		t.Run(step.name, func(t *testing.T) {
			w.t = t
			name, key := "f"+strconv.Itoa(i), "key-"+strconv.Itoa(i)
			target := "/tasks/" + w.spaces[0].task + "/content?path=" + name
			put := func(m *member, body string) *answer {
				return w.ask(m, "PUT", target, body, "Idempotency-Key", key)
			}
			owner := w.ownerOf(0)
			if a := w.ask(owner, "PUT", target+".before", "x"); a.status/100 != 2 {
				t.Fatalf("%v %d %s", a.err, a.status, a.body)
			}
			before := tip()
			release := step.stop()
			over := make(chan *answer, 1)
			go func() { over <- put(owner, "one") }()
			err := clustertest.Await(3*lease, func() (bool, error) { return step.reached(before) })
			w.kill(owner)
			if step.done {
				// What the engine has got of the answer would still be written.
				w.pair.A.SQL(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'relation'`)
			}
			release()
			if a := <-over; a.err == nil {
				t.Errorf("the killed node answered %d %s", a.status, a.body)
			}
			if err != nil {
				t.Fatalf("the write does not come there: %v", err)
			}
			w.awaitOther(0, owner)
			other := w.any()
			// What was done is known of the key before anybody has sent the request again.
			var reused *answer
			if step.done {
				reused = put(other, "another")
			}
			var first, again struct {
				Commit string `json:"commit"`
			}
			one := put(other, "one")
			two := put(w.any(), "one")
			if one.status != http.StatusCreated || two.status != http.StatusCreated || string(one.body) != string(two.body) || two.header.Get("Idempotent-Replay") != "true" ||
				one.header.Get("Umbra-Seq") != two.header.Get("Umbra-Seq") {
				t.Errorf("the request again: %d %v %s, and %d %v %s", one.status, one.header, one.body, two.status, two.header, two.body)
			}
			if json.Unmarshal(one.body, &first) != nil || json.Unmarshal(two.body, &again) != nil || first != again || first.Commit == "" {
				t.Errorf("%s and %s", one.body, two.body)
			}
			if step.done && one.header.Get("Idempotent-Replay") != "true" {
				t.Error("what was done was done again")
			}
			if reused == nil {
				reused = put(w.any(), "another")
			}
			if reused.status != http.StatusUnprocessableEntity || reused.code() != "idempotency_key_reused" {
				t.Errorf("the key with another request: %v %d %s", reused.err, reused.status, reused.body)
			}
			n := 0
			for _, e := range w.log(other, 0) {
				if e.Path == name {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%d commits", n)
			}
			owner.restart()
		})
	}
}
