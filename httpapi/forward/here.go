package forward

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/witness"
)

// here answers a request by this node's handler. False: nothing was answered, and
// it is to be tried again.
func (f *Forwarder) here(q *request, t target) bool {
	q.short, q.unleased, q.doubtful = false, false, false
	q.owner, q.open = t.owner, false
	q.x.Forwardable = q.forwardable()
	if q.x.Keyed && q.x.Place.Workspace != "" && f.o.Enter != nil {
		// What a former owner has sent to the log is done or refused from then on: the
		// key's mark is there, or never will be.
		ctx := q.x.Context()
		if q.x.Forwardable {
			ctx = witness.Forwardable(ctx, q.x.Place.Workspace)
		}
		if err := f.o.Enter(ctx, q.x.Place.Workspace); errs.Is(err, errs.Unavailable) {
			if q.last = err; errs.CodeOf(err) == "owner_moving" && q.x.Received == nil {
				return false
			}
			q.fail(err)
			return true
		}
	}
	if f.o.Tip != nil && q.x.Place.Workspace != "" {
		q.tip, q.open = f.o.Tip(q.x.Place.Workspace)
	}
	gate := httpapi.Gate{
		Head: func(status int, code string, h http.Header) bool { return f.head(q, t, status, code, h) },
		More: func() bool { held, _ := f.o.Node.Lease(); return held || q.mayBeStale || q.follow || q.x.Changes },
	}
	if q.follow {
		// What was acknowledged before is in the answer, unless the client says what is new enough.
		q.x.Follows = &witness.Following{Min: q.min, Fresh: !q.hasMin, Until: q.until}
		defer func() { q.x.Follows = nil }()
	}
	if q.x.Here(gate) {
		return true
	}
	switch {
	case q.follow && q.down != nil:
		q.fail(q.down)
		return true
	case q.follow:
		q.unfollowed = true
		return false
	case q.doubtful:
		f.o.Meter.Unknown.Add(1)
		q.x.Fail(unknown(nil))
		return true
	case q.short:
		return f.reach(q)
	case q.unleased:
		return f.withoutLease(q)
	}
	f.o.Node.Forget(q.x.Place.Workspace)
	return false
}

// forwardable reports whether the request can still go to another node, that has claimed
// its workspace before this one: its body can be sent again, whatever was read of it.
func (q *request) forwardable() bool {
	body := q.x.Request().ContentLength
	return q.x.Place.Workspace != "" && q.x.Place.Node == "" && !q.follow && body >= 0 && body <= maxHeld
}

// head decides on an answer of this node's handler before it is sent.
func (f *Forwarder) head(q *request, t target, status int, code string, header http.Header) bool {
	x := q.x
	if code == "owner_moving" && !q.follow && x.Received == nil && time.Now().Before(q.until) {
		return false
	}
	if was := x.Place; code == "physical_off" && x.Received == nil && x.Rewind() {
		if x.Locate() == nil && x.Place != was {
			return false // a task of this ID was deleted, and this one is at another node
		}
		x.Place = was
	}
	if q.follow {
		// The records know the task: it was made after what the log has.
		if code == "workspace_missing" || code == "task_not_found" || status >= 500 && code != "seq_not_reached" {
			return false
		}
		if owner := t.owner; owner.Node != "" {
			header.Set("Umbra-Owner", owner.header())
		}
		return true
	}
	if q.doubtful = q.doubts(code); q.doubtful {
		return false
	}
	workspace, seq, wrote, opened := x.Reflects()
	if !opened && q.open && status < 500 && header.Get("Umbra-Seq") == "" {
		// It is made of records alone: of no older state than when it began. An answer
		// that was kept has its own.
		seq, opened = q.tip, true
		header.Set("Umbra-Seq", strconv.FormatUint(seq, 10))
	}
	if q.min > 0 && status < 300 && opened && !wrote && seq < q.min {
		q.short = true
		return false
	}
	if workspace == "" {
		workspace = x.Place.Workspace
	}
	if workspace == "" && !x.Opened() {
		return true
	}
	// The log acknowledges a write. A read is valid only if the lease is still held
	// after it; a refusal because of a condition is a read.
	if status < 500 && !x.Wrote() {
		if held, unconfirmed := f.o.Node.Lease(); !held {
			// What was done to records is done; a refusal may be wrong by now.
			done := x.Changes && status < 300
			if !q.mayBeStale && !done {
				q.unleased = true
				return false
			}
			header.Set("Umbra-Stale", strconv.Itoa(max(1, int(unconfirmed.Seconds()))))
		}
	}
	if workspace == "" {
		return true // it is of several
	}
	over, cancel := context.WithCancel(x.Context())
	cancel() // memory alone
	switch owner, err := f.o.Node.Owner(over, workspace); {
	case err == nil && (owner.Self || x.Place.Node != ""): // the request of a session may be done elsewhere: AtOwner
		header.Set("Umbra-Owner", owner.header())
	case err != nil && q.owner.Self && workspace == x.Place.Workspace:
		header.Set("Umbra-Owner", q.owner.header()) // it was removed, or is a directory's
	}
	return true
}

// reach waits until the workspace has the commit that a client has seen.
func (f *Forwarder) reach(q *request) bool {
	ctx, cancel := context.WithDeadline(q.x.Context(), q.until)
	defer cancel()
	workspace, _, _, _ := q.x.Reflects()
	var err error
	if f.o.Reach != nil {
		err = f.o.Reach(ctx, workspace, q.min)
	}
	switch {
	case err == nil && time.Now().Before(q.until):
		return false
	case q.x.Context().Err() != nil:
		err = context.Cause(q.x.Context())
	case err == nil || ctx.Err() != nil:
		err = errs.New(errs.Unavailable, "seq_not_reached", "The workspace has no commit %d yet.", q.min)
	}
	q.x.Fail(err)
	return true
}

// withoutLease answers what was read without a lease: another node's answer, a
// stale one, or none.
func (f *Forwarder) withoutLease(q *request) bool {
	x := q.x
	if q.read && x.Received == nil && f.askAround(q, target{claim: true}) {
		return true
	}
	switch {
	case q.read && f.o.StaleReads && !q.strict:
		q.mayBeStale = true
		return !x.Rewind()
	case q.read && x.Received == nil && time.Now().Before(q.until):
		q.last = unleased(nil)
		return false // the lease may come back, or another's begin
	}
	q.fail(unleased(nil))
	return true
}

func unleased(err error) error {
	e := errs.New(errs.Unavailable, "engine_unavailable", "This node could not confirm its lease; nothing was done.").With("reason", "unreachable")
	e.Err = err
	return e
}

// redirect is the answer to a client that asked to be sent to the owner.
func redirect(o Owner, r *http.Request) error {
	return &httpapi.Problem{Status: http.StatusTemporaryRedirect, Code: "redirect", Detail: "Another node owns the workspace (Location).",
		Header: http.Header{"Umbra-Owner": {o.header()}, "Location": {strings.TrimSuffix(o.URL, "/") + r.RequestURI}}}
}

// askAround sends a request to the nodes that may be able to answer it: the last
// owner that is known, then the others. One that did not answer is left out for a
// second, so that few requests wait for it.
func (f *Forwarder) askAround(q *request, t target) bool {
	f.mu.Lock()
	last, known := f.known[q.x.Place.Workspace]
	f.mu.Unlock()
	peers := f.o.Node.Peers()
	ask := func(o Owner) bool {
		p := f.peer(o)
		if p.isSilent(time.Now()) {
			return false
		}
		t.owner = o
		ctx, cancel := context.WithCancelCause(q.x.Context())
		defer cancel(nil)
		timer := time.AfterFunc(askPatience, func() { cancel(errPatience) })
		defer timer.Stop()
		done, answered := f.sendWithin(ctx, q, t, func() { timer.Stop() })
		if !answered {
			p.setSilent(time.Now())
		}
		return done
	}
	if known && !last.Self && q.x.Rewind() && ask(last) {
		return true
	}
	for _, p := range peers {
		if p.Name == f.o.Node.Name() || known && p.Address == last.Address || p.Draining && t.claim {
			continue
		}
		// A write is not offered around: where it was lost is not known then.
		if !q.x.Rewind() || q.x.Changes && !q.x.Keyed {
			return false
		}
		if ask(ownerOf(p)) {
			return true
		}
	}
	return false
}

// askPatience is how long a node is waited for that may or may not know more.
const askPatience = 500 * time.Millisecond

var errPatience = errors.New("the node did not answer in time")
