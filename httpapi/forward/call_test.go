package forward

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/access"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/witness"
)

// called is what came of a call.
type called struct {
	By, Value, Caller, ID string
	Roots                 []string
	sent                  bool
	err                   error
	seq                   uint64
	steps                 int
}

// call has a node call another one for a request of its own.
func (n *fakeNode) call(body string, keyed bool) (c called) {
	n.w.t.Helper()
	ctx, note := witness.Into(n.w.t.Context())
	raw, sent, err := n.f.Call(ctx, httpapi.OwnerCall{Workspace: body[:1], Path: workPath, Body: []byte(body), RequestID: "my-id", Keyed: keyed, Reads: !strings.Contains(body, "="),
		Caller: httpapi.Caller{Token: "alice", Scope: access.Write, Roots: []string{"/r"}}, Progress: func(p httpapi.Progress) {
			if p.Step == "begun" {
				c.steps++
			}
		}})
	if c.sent, c.err = sent, err; sent && err == nil {
		c.err = httpapi.OwnerAnswered(ctx, raw, &c)
	}
	_, c.seq, _, _ = note.Of("")
	return c
}

// A call is carried out by the owner, with the caller's rights; where there is none, or this
// node is it, it is not sent.
func TestCall(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one")
	if c := n1.call("a=two", false); c.err != nil || c.By != "n2" || c.Value != "two" || c.Caller != "alice" || c.ID != "my-id" || len(c.Roots) != 1 || c.seq != 2 || c.steps != 1 {
		t.Errorf("%+v", c)
	}
	if c := n1.call("a", true); c.err != nil || c.Value != "two" || c.seq != 2 {
		t.Errorf("%+v", c)
	}
	w.set("b", "", "one")
	w.set("c", "n1", "one")
	for _, ws := range []string{"b", "c"} {
		if c := n1.call(ws, true); c.sent || c.err != nil {
			t.Errorf("%s: %+v", ws, c)
		}
	}
	n1.ask("POST", workPath, "a=x").want(t, http.StatusNotFound, "not_found") // for a client there is no such route
	// It moves before anything is done.
	moves := 0
	n2.before = func(*gin.Context, string) error {
		if moves++; moves == 1 {
			return errs.New(errs.Unavailable, "owner_moving", "It moves.")
		}
		return nil
	}
	if c := n1.call("a=three", false); c.err != nil || c.Value != "three" || moves != 2 || c.seq != 3 {
		t.Errorf("%+v after %d attempts", c, moves)
	}
	n2.before = func(*gin.Context, string) error { return errs.New(errs.Conflict, "task_ended", "It has ended.") }
	if c := n1.call("a=no", false); errs.CodeOf(c.err) != "task_ended" || !errs.Is(c.err, errs.Conflict) {
		t.Errorf("%+v", c)
	}
	n2.before = nil
	// What was read without a lease is no answer; what was written is.
	w.locked(func() { n2.lease = false })
	if c := n1.call("a", true); errs.CodeOf(c.err) != "engine_unavailable" {
		t.Errorf("%+v", c)
	}
	if c := n1.call("a=four", false); c.err != nil || c.seq != 4 {
		t.Errorf("%+v", c)
	}
}

// An owner that does not answer: what may be done twice is sent again, and the outcome of the
// rest is unknown.
func TestCallLost(t *testing.T) {
	w := newWorld(t, "n1", "n2")
	n1, n2 := w.nodes[0], w.nodes[1]
	w.set("a", "n2", "one")
	var lose atomic.Int64 // how many answers
	var refuse atomic.Bool
	n2.before = func(*gin.Context, string) error {
		if refuse.Load() && lose.Load() < 1 {
			return errs.New(errs.Unavailable, "blobs_unavailable", "The store is away.")
		}
		return nil
	}
	n2.after = func(*gin.Context) {
		if lose.Add(-1) >= 0 {
			panic(http.ErrAbortHandler)
		}
	}
	lose.Store(1)
	if c := n1.call("a=two", false); errs.CodeOf(c.err) != "outcome_unknown" || !c.sent {
		t.Errorf("%+v", c)
	}
	lose.Store(1)
	if c := n1.call("a=three", true); c.err != nil || c.Value != "three" {
		t.Errorf("%+v", c)
	}
	// Sent, lost, and then refused: the first may have been done.
	lose.Store(1)
	refuse.Store(true)
	if c := n1.call("a=four", true); errs.CodeOf(c.err) != "outcome_unknown" {
		t.Errorf("%+v", c)
	}
	// Of a read nothing is uncertain.
	lose.Store(1)
	if c := n1.call("a", false); errs.CodeOf(c.err) != "blobs_unavailable" {
		t.Errorf("%+v", c)
	}
	w.locked(func() {
		if got := len(w.values["a"]); got != 5 {
			t.Errorf("%d values: %v", got, w.values["a"])
		}
	})
}

// mistaken is a node that takes another one for the owner.
type mistaken struct {
	*fakeNode
	other **fakeNode
}

func (m mistaken) Owner(context.Context, string) (Owner, error) {
	o := *m.other
	return Owner{Node: o.name, Address: o.address, Life: o.life, Epoch: 1}, nil
}

// Two nodes that take each other for the owner send nothing on: after Options.Wait the call
// fails, and nothing was done.
func TestCallNoLoop(t *testing.T) {
	w := newWorld(t)
	var n1, n2 *fakeNode
	n1 = w.start("n1", func(o *Options) { o.Node = mistaken{o.Node.(*fakeNode), &n2} })
	n2 = w.start("n2", func(o *Options) { o.Node = mistaken{o.Node.(*fakeNode), &n1} })
	w.set("a", "", "one")
	for _, n := range []*fakeNode{n1, n2} {
		if c := n.call("a=two", false); errs.CodeOf(c.err) != "owner_moving" {
			t.Errorf("%s: %+v", n.name, c)
		}
	}
	if n1.handled["a"]+n2.handled["a"] != 0 {
		t.Errorf("it was done: %v %v", n1.handled, n2.handled)
	}
}

// Before a purge the other nodes are asked for files that no history has, 200 contents at a
// time; one that does not answer fails it.
func TestHeld(t *testing.T) {
	w := newWorld(t)
	n1 := w.start("n1")
	contents := make([]string, 201)
	for i := range contents {
		contents[i] = fmt.Sprint(i)
	}
	var got []string
	n2 := w.start("n2", func(o *Options) {
		o.Held = func(ws string, blobs []string) ([]HeldFile, error) {
			got = append(got, blobs...)
			return []HeldFile{{Path: []byte(ws + "/\xff"), Blob: blobs[0]}}, nil
		}
	})
	list, err := n1.f.Held("a", contents)
	if need.NoError(t, err); len(list) != 2 || string(list[0].Path) != "a/\xff" || list[0].Blob != "0" || list[1].Blob != "200" || !slices.Equal(got, contents) {
		t.Errorf("%q of %d contents", list, len(got))
	}
	n2.server.Stop()
	if _, err := n1.f.Held("a", contents); errs.CodeOf(err) != "node_unreachable" {
		t.Errorf("%v", err)
	}
}
