package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
	"umbra/internal/witness"
)

// Cluster decides which node answers a request. Its routes are those among nodes.
// httpapi/forward implements it.
type Cluster interface {
	Dialect
	// Receive returns what another node's signature says of a request, nil where no
	// node of the cluster forwarded it. It removes the headers among nodes.
	Receive(r *http.Request) *Received
	// Serve answers a request that was admitted: by x.Here, by another node, or by
	// x.Fail. It answers it in any case.
	Serve(x *Exchange)
	// Pieces asks the other nodes for the entries of a list whose workspaces they own,
	// and returns them by ID (Gather). Owns reports whether this node owns a workspace, from memory
	// alone where ctx has ended.
	Pieces(x *Exchange, of []Piece) (map[string]json.RawMessage, error)
	Owns(ctx context.Context, workspace string) bool
	// Parts asks each other node for the entries of a list of which it alone knows (Others).
	Parts(x *Exchange) (map[string]json.RawMessage, error)
	// Leased returns nil while this node's lease is held: what it has read until then was true.
	Leased() error
	// Ready returns why the node cannot answer reads, and why it cannot take writes.
	Ready() (reads, writes error)
}

// Received is what a node that forwarded a request says of it.
type Received struct {
	Node   string // that forwarded it
	Caller Caller // whom it let in
	// Claim says that the request may claim a workspace that has no owner, Open that
	// it is for a workspace that is open here alone. Else it is for the owner.
	Claim, Open bool
	// Part says that it asks for a part of a list.
	Part bool
	// Refused is why it is not handled at all: nothing was done.
	Refused error
}

// Exchange is one request on its way through a cluster. It is used by the request's
// goroutine.
type Exchange struct {
	Place    Place
	Received *Received // nil: it is a client's
	Changes  bool      // it may change something: it is not sent twice without a key
	Keyed    bool      // it has an Idempotency-Key
	To       string    // the node that answered, if another did
	// Forwardable says that another node can answer the request in place of Here, if that
	// has the workspace by then.
	Forwardable bool
	// Follows makes Here answer from the log that nodes share; nil: by what it owns.
	Follows *witness.Following

	c    *gin.Context
	f    *facts
	s    *Server
	real gin.ResponseWriter
	note *witness.Note // of the present run
}

// receive takes a forwarded request for what its signature says.
func (s *Server) receive(c *gin.Context, f *facts) {
	if s.opts.Cluster != nil {
		f.received = s.opts.Cluster.Receive(c.Request)
	}
	if f.received == nil && f.route != nil && f.route.Internal {
		f.route = nil
	}
}

// callerOf returns the caller that another node has let in.
func (s *Server) callerOf(f *facts) Caller {
	k := f.received.Caller
	k.denied = &f.denied
	if !k.Owner {
		k.policy = &s.policy
	}
	return k
}

// place lets the cluster answer.
func (s *Server) place(c *gin.Context) {
	f := factsOf(c)
	if f.route == nil || f.route.Internal || f.route.AnyHost {
		return
	}
	x := &Exchange{c: c, f: f, s: s, real: c.Writer, Received: f.received,
		Changes: c.Request.Method != http.MethodGet && c.Request.Method != http.MethodHead,
		Keyed:   f.route.Changes && c.Request.Header.Get("Idempotency-Key") != ""}
	f.exchange = x
	if f.body != nil {
		f.body.keep = &kept{}
	}
	if err := x.Locate(); err != nil {
		Fail(c, err)
		return
	}
	s.opts.Cluster.Serve(x)
	c.Abort() // the rest of the chain has run, here or elsewhere
}

// Locate finds the request's Place: what it is about may exist by now, or not any more.
func (x *Exchange) Locate() (err error) {
	if about := x.f.route.About; about != nil {
		x.Place, err = about(x.c)
	}
	return err
}

// next runs the route's handler once the idempotency key is settled.
func (x *Exchange) next(c *gin.Context) {
	if x == nil {
		c.Next()
		return
	}
	x.s.table.dispatch(c)
}

// Gate is asked about an answer that this node has made.
type Gate struct {
	// Head is called before the answer's head is sent, with its status and the code
	// of its error. It may add to the headers. False: the answer is dropped.
	Head func(status int, code string, h http.Header) bool
	// More is called before each later piece of an answer whose length was not said
	// in its head. False: the connection is ended.
	More func() bool
}

// Here runs the request's handler. It reports false where the gate dropped the
// answer; it may be called again then, if Rewind says so.
func (x *Exchange) Here(g Gate) (answered bool) {
	c, before := x.c, x.c.Request
	ctx, note := witness.Into(before.Context())
	if x.Follows != nil {
		ctx = witness.Follow(ctx, *x.Follows)
	}
	if x.Forwardable {
		ctx = witness.Forwardable(ctx, x.Place.Workspace)
	}
	c.Request = before.WithContext(ctx)
	x.note, x.f.problem, x.f.idem = note, nil, nil
	w := &gatedWriter{ResponseWriter: x.real, x: x, gate: g, header: http.Header{}, status: http.StatusOK}
	c.Writer = w
	defer func() {
		c.Writer, c.Request = x.real, before
	}()
	x.run()
	w.WriteHeaderNow()
	return !w.dropped
}

// Staying returns the context of a request that no other node of a cluster is asked for once
// its handler runs: its answer says by itself what failed, with the status of one that did not.
// A workspace that another node has claimed meanwhile comes to this one.
func Staying(ctx context.Context) context.Context { return witness.Forwardable(ctx, "") }

func (x *Exchange) run() {
	c := x.c
	if x.s.authorize(c); x.f.problem != nil {
		return
	}
	x.s.idempotent(c)
	if x.f.idem == nil && x.f.problem == nil {
		x.s.table.dispatch(c)
	}
}

// Rewind lets the request be handled again, here or elsewhere, and reports whether
// it can be: its body was not read, or is kept.
func (x *Exchange) Rewind() bool { return x.f.body.rewind() }

// Request returns the request. Its body is read by one goroutine at a time.
func (x *Exchange) Request() *http.Request { return x.c.Request }

// Context ends when the client has disconnected, and when the server waits no longer.
func (x *Exchange) Context() context.Context { return x.c.Request.Context() }

// Caller returns who sends the request.
func (x *Exchange) Caller() Caller { return x.f.caller }

// ID returns the request's id.
func (x *Exchange) ID() string { return x.f.requestID }

// Stopping is closed when the server begins to stop.
func (x *Exchange) Stopping() <-chan struct{} { return x.f.stopping }

// EndInTime ends the request's context when its caller loses access, and when the
// server begins to stop.
func (x *Exchange) EndInTime() { x.s.endInTime(x.c.Request.Context(), x.f) }

// Stream reports whether the route is a long-lived one.
func (x *Exchange) Stream() bool { return x.f.route.Stream }

// Follow says whether the request can be answered from the log that nodes share.
func (x *Exchange) Follow() Follow { return x.f.route.Follow }

// Writer returns the client's answer, for what another node has made.
func (x *Exchange) Writer() http.ResponseWriter { return x.real }

// Fail answers with an error in the shape of the route.
func (x *Exchange) Fail(err error) {
	x.c.Writer = x.real
	Fail(x.c, err)
}

// HasBody reports whether the request has a body, which may be empty.
func (x *Exchange) HasBody() bool { return x.f.body != nil }

// BodyFailed returns what broke the request's body, nil if nothing did.
func (x *Exchange) BodyFailed() error { return x.f.body.failure() }

// Reflects returns the newest commit that the present run's answer reflects:
// witness.Note.Of. An empty workspace of the place means the only one that the
// handler got.
func (x *Exchange) Reflects() (workspace string, seq uint64, wrote, ok bool) {
	if x.note == nil {
		return "", 0, false, false
	}
	return x.note.Of(x.Place.Workspace)
}

// Opened reports whether the present run has got a workspace.
func (x *Exchange) Opened() bool { return x.note != nil && x.note.Opened() }

// Wrote reports whether the present run has made a commit.
func (x *Exchange) Wrote() bool { return x.note != nil && x.note.Wrote() }

// stampSeq sets Umbra-Seq, so that it is kept with an idempotent answer.
func (x *Exchange) stampSeq(h http.Header) {
	if x == nil {
		return
	}
	if _, seq, _, ok := x.Reflects(); ok {
		h.Set("Umbra-Seq", strconv.FormatUint(seq, 10))
	}
}

// stampOnce is stampSeq where the answer is not a kept one.
func (x *Exchange) stampOnce(h http.Header) {
	if h.Get("Umbra-Seq") == "" {
		x.stampSeq(h)
	}
}

// ErrorHeader has the code of an error for the node that forwarded the request,
// since not every dialect's body has it.
const ErrorHeader = "Umbra-Error"

// ErrNotOwner is the answer of a node that may not forward.
func ErrNotOwner() error {
	return &Problem{Status: http.StatusMisdirectedRequest, Kind: errs.Unavailable, Code: "not_owner",
		Detail: "Another node owns the workspace (Umbra-Owner); nothing was done."}
}
