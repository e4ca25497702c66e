package forward

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/telemetry"
)

// Owner is the node that owns a workspace.
type Owner struct {
	Node    string // name
	Address string // where other nodes reach it
	URL     string // where clients do; empty: nowhere
	Life    int64  // of its process; 0: not known
	Epoch   int64  // 0: it does not own it yet, and is the one to claim it
	Pinned  bool   // it has the workspace's directory: no node claims it
	Self    bool
}

// Peer is a live node, this one among them.
type Peer struct {
	Life               int64
	Name, Address, URL string
	Draining           bool
}

// ErrResting says that no live node owns a workspace: the next that gets it
// claims it.
var ErrResting = errors.New("the workspace has no owner")

// Node is this node's part in the cluster.
type Node interface {
	Name() string
	// Key is the cluster's secret, with which nodes sign.
	Key() []byte
	// Peers lists the live nodes, from memory.
	Peers() []Peer
	// Owner returns who owns a workspace: from memory where it is this node, also
	// when ctx has ended. ErrResting; errs.Unavailable with the contract's codes.
	Owner(ctx context.Context, workspace string) (Owner, error)
	// Owners returns the other live nodes that own some of several workspaces, by
	// workspace. Those that this node owns, or no node, are left out.
	Owners(ctx context.Context, workspaces []string) (map[string]Owner, error)
	// Forget says that what Owner returned was wrong.
	Forget(workspace string)
	// ForgetNode is Forget of all workspaces of another node.
	ForgetNode(name string)
	// Lease reports whether this node's lease is held at this moment, and since when
	// it could not be confirmed.
	Lease() (held bool, unconfirmed time.Duration)
	// Handover gives a workspace of this node up.
	Handover(ctx context.Context, workspace string) error
	// Look has the node see at once what another has changed of its row: it is to drain,
	// or not any more.
	Look()
	// Ready returns why this node cannot answer reads, and why it cannot take writes.
	Ready() (reads, writes error)
}

// Options of a Forwarder.
type Options struct {
	Node       Node
	Wait       time.Duration // cluster.wait
	StaleReads bool          // cluster.stale_reads
	// Reach waits until an open workspace of this node has a commit of this number.
	Reach func(ctx context.Context, workspace string, seq uint64) error
	// Enter opens a workspace that this node owns or may claim; nil: not before a handler
	// does.
	Enter func(ctx context.Context, workspace string) error
	// Tip returns the newest commit of a workspace that is open here, from memory; nil:
	// none is.
	Tip func(workspace string) (seq uint64, open bool)
	// Place returns what httpapi.Caller.Sees is asked of a workspace; ok is false where none
	// is known. Nil: callers see all.
	Place func(workspace string) (root string, ok bool)
	// ServerOf returns the node that has a workspace's directory, from the records, where no
	// node owns the workspace: it may be taking the baseline. Begins reports whether this node
	// does, from memory. Nil: none does.
	ServerOf func(workspace string) (node string)
	Begins   func(workspace string) bool
	// Known reports whether a node of a name ever was one of the cluster's; nil: none.
	Known func(ctx context.Context, name string) (bool, error)
	// Live lists the live nodes as the engine has them now; nil: they are Node.Peers.
	Live func(ctx context.Context) ([]Peer, error)
	// Adopt lets a workspace whose node is gone go on in a directory of this node, and
	// returns what umbra cluster adopt prints; Arrive opens one that became this node's.
	// Nil: neither is done here.
	Adopt  func(ctx context.Context, workspace, dir string) (any, error)
	Arrive func(ctx context.Context, workspace string) error
	// Drop removes what this node has of the history of a workspace of another: its owner
	// has purged it. The contents go from files of a layer too, ignored: from those that it
	// shows in place of a deleted directory's. Nil: it has nothing.
	Drop func(ctx context.Context, workspace string, blobs []string, ignored bool) error
	// Held lists the files with some contents that a layer had at this node before another got
	// its workspace. Nil: there are none.
	Held  func(workspace string, blobs []string) ([]HeldFile, error)
	Meter *Meter // nil: nothing is counted
	Log   *slog.Logger
}

// HeldFile is a file of a layer. With a Blob it may have been placed from history.
type HeldFile struct {
	Path []byte // which need not be UTF-8
	Blob string
}

// Meter counts what is forwarded.
type Meter struct {
	Answered, Repeated, Unknown telemetry.Counter
	Took                        *telemetry.Histogram // of an answer's head
}

// NewMeter makes one.
func NewMeter() *Meter {
	return &Meter{Took: telemetry.NewTimes(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)}
}

// Figures returns what was counted: answers of other nodes that were passed on,
// requests that were sent again, and writes of unknown outcome.
func (m *Meter) Figures() (answered, repeated, unknown uint64, took *telemetry.Histogram) {
	return m.Answered.Load(), m.Repeated.Load(), m.Unknown.Load(), m.Took
}

// Forwarder implements httpapi.Cluster. It is safe for concurrent use.
type Forwarder struct {
	o      Options
	run    string
	number atomic.Uint64
	seen   replays

	mu    sync.Mutex
	peers map[process]*peer
	known map[string]Owner // the last owner of workspaces, for when the engine is away

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// maxKnown bounds how many owners are remembered.
const maxKnown = 10_000

// New makes one; Close ends it.
func New(o Options) *Forwarder {
	if o.Meter == nil {
		o.Meter = NewMeter()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Forwarder{o: o, run: newRun(), peers: map[process]*peer{}, known: map[string]Owner{}}
	ctx, cancel := context.WithCancel(context.Background())
	f.stop = cancel
	f.wg.Go(func() { f.watch(ctx) })
	return f
}

// Close ends what is on its way.
func (f *Forwarder) Close() {
	f.stop()
	f.wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, p := range f.peers {
		p.end()
		delete(f.peers, key)
	}
}

// Ready is Node.Ready, for the reads that this node answers: without Options.StaleReads
// those alone that a lease is held for.
func (f *Forwarder) Ready() (reads, writes error) {
	reads, writes = f.o.Node.Ready()
	if held, _ := f.o.Node.Lease(); reads == nil && !held && !f.o.StaleReads {
		reads = cmp.Or(writes, unleased(nil))
	}
	return reads, writes
}

// Receive takes what another node's signature says of a request.
func (f *Forwarder) Receive(r *http.Request) *httpapi.Received {
	c, ok := verify(f.o.Node.Key(), r)
	if !ok {
		return nil
	}
	rec := &httpapi.Received{Node: c.Node, Claim: c.Claim, Open: c.Open, Part: c.Part,
		Caller: httpapi.Caller{Token: c.Token, Scope: c.Scope, Roots: c.Roots, Owner: c.Owner}}
	// A number counts for one run of this program: another one does not know which
	// were used.
	if c.To != f.run || !f.seen.use(c.Sender, c.Number) {
		p := &httpapi.Problem{Status: http.StatusMisdirectedRequest, Kind: errs.Unavailable, Code: "not_owner", Detail: "The request was signed for another run of this node.",
			Header: http.Header{runHeader: {f.run}}}
		rec.Refused = p
		return rec
	}
	if c.Remote != "" {
		r.RemoteAddr = c.Remote
	}
	return rec
}

// request is an exchange with what its headers ask for.
type request struct {
	x                        *httpapi.Exchange
	read                     bool
	direct, redirect, strict bool
	min                      uint64 // Umbra-Min-Seq
	node                     string // Umbra-Node
	until                    time.Time
	mayBeStale               bool // the others were tried
	hasMin                   bool
	follow                   bool  // this run is answered from the log
	unfollowed               bool  // the log has not what it takes
	down                     error // why the owner cannot answer; nil where it may

	owner           Owner // of the place, where that is this node and claimed it before
	tip             uint64
	open            bool  // tip is that of the workspace when its handler began
	short, unleased bool  // why this node's answer was dropped
	last            error // what is answered once the time is over
	// uncertain says that the write was sent to a node that did not answer: from then
	// on a refusal no longer means that nothing was done.
	uncertain, doubtful bool
}

// refusals are the codes that say that nothing was done, or that the outcome is unknown.
var refusals = []string{"not_owner", "owner_moving", "engine_unavailable", "replication_off", "blobs_unavailable", "node_down", "stopping"}

// doubts reports whether an answer with a code would claim something about an
// earlier sending whose outcome is unknown.
func (q *request) doubts(code string) bool { return q.uncertain && slices.Contains(refusals, code) }

// fail answers with an error.
func (q *request) fail(err error) {
	if q.doubts(errs.CodeOf(err)) {
		err = unknown(err)
	}
	q.x.Fail(err)
}

// nodeName is what a node may be called (cluster.node).
var nodeName = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

func (f *Forwarder) parse(x *httpapi.Exchange) (*request, error) {
	h := x.Request().Header
	q := &request{x: x, read: !x.Changes, direct: h.Get("Umbra-Direct") == "1", redirect: h.Get("Umbra-Redirect") == "1", strict: h.Get("Umbra-Strict") == "1",
		node: h.Get("Umbra-Node"), until: time.Now().Add(f.o.Wait), last: moving()}
	if s := h.Get("Umbra-Min-Seq"); s != "" && q.read {
		n, err := strconv.ParseUint(s, 10, 63)
		if err != nil {
			return nil, errs.New(errs.Invalid, "invalid_parameter", "Umbra-Min-Seq must be a commit's number.").With("field", "Umbra-Min-Seq")
		}
		// Every node that does not own may answer it: this one does, by the owner.
		q.min, q.hasMin, q.direct = n, true, false
	}
	if q.node != "" && !nodeName.MatchString(q.node) {
		return nil, errs.New(errs.Invalid, "invalid_parameter", "Umbra-Node must be a node's name.").With("field", "Umbra-Node")
	}
	return q, nil
}

// target is where a request is to be answered.
type target struct {
	here        bool
	owner       Owner
	claim, open bool
}

// Serve answers a request: here where this node owns the workspace, or no node does;
// else by its owner. While ownership moves it waits, for Options.Wait at most.
func (f *Forwarder) Serve(x *httpapi.Exchange) {
	q, err := f.parse(x)
	if err != nil {
		x.Fail(err)
		return
	}
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		t, err := f.target(q)
		switch {
		case err == nil && t.here:
			if f.here(q, t) {
				return
			}
		case err == nil:
			if f.send(q, t) {
				return
			}
		case x.Received != nil:
			q.fail(err) // the node that forwarded it looks again
			return
		case errs.CodeOf(err) == "owner_moving":
			q.last = err
		case !unavailable(err), x.Place.Workspace == "":
			q.fail(err)
			return
		default:
			// The engine does not say who owns it: who does knows.
			if f.askAround(q, target{open: true}) {
				return
			}
			q.last = err
		}
		if !x.Rewind() {
			q.fail(q.last)
			return
		}
		select {
		case <-time.After(pause):
		case <-x.Context().Done():
			x.Fail(context.Cause(x.Context()))
			return
		}
		if time.Now().After(q.until) {
			q.fail(q.last)
			return
		}
		if x.Place == (httpapi.Place{}) {
			if err := x.Locate(); err != nil {
				q.fail(err)
				return
			}
		}
	}
}

func moving() error {
	return errs.New(errs.Unavailable, "owner_moving", "The workspace is moving to another node; nothing was done.")
}

// unavailable reports whether an error means that the engine is away.
func unavailable(err error) bool {
	code := errs.CodeOf(err)
	return code == "engine_unavailable" || code == "outcome_unknown" || errs.Is(err, errs.Canceled)
}

// target finds where a request is to be answered.
func (f *Forwarder) target(q *request) (target, error) {
	x, self := q.x, f.o.Node.Name()
	if x.Received != nil {
		return f.targetOfReceived(q)
	}
	if f.hidden(x) {
		x.Place = httpapi.Place{}
		return target{here: true}, nil
	}
	switch place := x.Place; {
	case place.Node == self, place.Node == "" && place.Workspace == "" && (q.node == "" || q.node == self || q.read):
		return target{here: true}, nil
	case place.Node != "":
		if p, ok := f.byName(x.Context(), place.Node); ok {
			return target{owner: ownerOf(p), open: true}, nil
		}
		return target{here: true}, nil // which knows no session of a node that is gone
	case place.Workspace == "":
		return f.named(q)
	}
	owner, err := f.owner(q)
	q.down = nil
	if errs.CodeOf(err) == "node_down" {
		q.down = err
	}
	q.follow = !(err == nil && owner.Self) && q.mayFollow(owner)
	switch {
	case q.follow:
		return target{here: true, owner: owner}, nil
	case errors.Is(err, ErrResting):
		return f.unowned(q)
	case err != nil:
		return target{}, err
	case owner.Self:
		return target{here: true, owner: owner}, nil
	case q.direct && (owner.Epoch > 0 || owner.Pinned):
		return target{}, notOwner(owner)
	case q.redirect && owner.URL != "":
		return target{}, redirect(owner, x.Request())
	}
	return target{owner: owner, claim: owner.Epoch == 0 && !owner.Pinned}, nil
}

// unowned is target for a workspace that no node owns: this one claims it, unless another has
// its directory.
func (f *Forwarder) unowned(q *request) (target, error) {
	if f.o.ServerOf == nil {
		return target{here: true}, nil
	}
	p, ok := f.byName(q.x.Context(), f.o.ServerOf(q.x.Place.Workspace))
	switch {
	case !ok || p.Name == f.o.Node.Name():
		return target{here: true}, nil
	case q.direct:
		return target{}, notOwner(ownerOf(p))
	}
	return target{owner: ownerOf(p), open: true}, nil
}

// hidden reports whether the caller may not know of the workspace: the handler answers that
// it does not exist, and no header has its owner or its newest commit.
func (f *Forwarder) hidden(x *httpapi.Exchange) bool {
	if f.o.Place == nil || len(x.Caller().Roots) == 0 || x.Place.Workspace == "" {
		return false
	}
	root, ok := f.o.Place(x.Place.Workspace)
	return ok && !x.Caller().Sees(root)
}

// mayFollow reports whether a request may be answered from the log, though this node does
// not own the workspace: a read whose client says how new it has to be, or whose owner
// is gone, and clones of what any node may own.
func (q *request) mayFollow(owner Owner) bool {
	switch how := q.x.Follow(); {
	case q.unfollowed || how == httpapi.FollowNever:
		return false
	case q.down != nil:
		return true
	case how == httpapi.FollowClones:
		return !owner.Pinned
	}
	return q.hasMin
}

// targetOfReceived is target for what another node has forwarded: it is answered
// here, or not at all.
func (f *Forwarder) targetOfReceived(q *request) (target, error) {
	x := q.x
	if x.Place.Workspace == "" || x.Place.Node != "" {
		return target{here: true}, nil
	}
	ctx := x.Context()
	if x.Received.Open {
		over, cancel := context.WithCancel(ctx)
		cancel() // memory alone
		ctx = over
	} else if held, _ := f.o.Node.Lease(); !held && x.Received.Claim {
		return target{}, unleased(nil)
	}
	owner, err := f.o.Node.Owner(ctx, x.Place.Workspace)
	switch {
	case err == nil && owner.Self:
		return target{here: true, owner: owner}, nil
	case errors.Is(err, ErrResting) && x.Received.Claim:
		return target{here: true}, nil
	case err != nil && f.o.Begins != nil && f.o.Begins(x.Place.Workspace):
		return target{here: true}, nil
	case err == nil:
		return target{}, notOwner(owner)
	case errors.Is(err, ErrResting), x.Received.Open:
		return target{}, httpapi.ErrNotOwner()
	}
	return target{}, err
}

// owner returns the owner of a request's workspace, and remembers it.
func (f *Forwarder) owner(q *request) (Owner, error) {
	ctx, ws := q.x.Context(), q.x.Place.Workspace
	if held, _ := f.o.Node.Lease(); !held {
		// The engine is probably away: a read need not wait for it.
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		ctx = short
	}
	owner, err := f.o.Node.Owner(ctx, ws)
	if err != nil && q.x.Context().Err() != nil {
		return owner, context.Cause(q.x.Context())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil && !owner.Self:
		if len(f.known) >= maxKnown {
			for k := range f.known {
				delete(f.known, k)
				break
			}
		}
		f.known[ws] = owner
	case err == nil || errors.Is(err, ErrResting):
		delete(f.known, ws)
	}
	return owner, err
}

// named is the target of a request that makes something on the node that the
// client names.
func (f *Forwarder) named(q *request) (target, error) {
	if p, ok := f.byName(q.x.Context(), q.node); ok {
		return target{owner: ownerOf(p), claim: true}, nil
	}
	known := false
	if f.o.Known != nil {
		var err error
		if known, err = f.o.Known(q.x.Context(), q.node); err != nil {
			return target{}, err
		}
	}
	if known {
		return target{}, errs.New(errs.Unavailable, "node_down", "The node does not run.").With("node", q.node)
	}
	return target{}, errs.New(errs.NotFound, "node_not_found", "The cluster has no node of this name.").With("node", q.node)
}

// byName returns the live node of a name, also one that came since the last beat.
func (f *Forwarder) byName(ctx context.Context, name string) (Peer, bool) {
	if name == "" {
		return Peer{}, false
	}
	is := func(p Peer) bool { return p.Name == name }
	list := f.o.Node.Peers()
	if !slices.ContainsFunc(list, is) {
		list, _ = f.live(ctx) // without the engine it is not known
	}
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	return Peer{}, false
}

// live returns the live nodes as the engine has them now, with those that came since the last
// beat.
func (f *Forwarder) live(ctx context.Context) ([]Peer, error) {
	if f.o.Live == nil {
		return f.o.Node.Peers(), nil
	}
	return f.o.Live(ctx)
}

func ownerOf(p Peer) Owner { return Owner{Node: p.Name, Address: p.Address, URL: p.URL, Life: p.Life} }

// header is the value of Umbra-Owner.
func (o Owner) header() string {
	v := `"` + o.Node + `"`
	if o.Epoch > 0 {
		v += ";epoch=" + strconv.FormatInt(o.Epoch, 10)
	}
	if o.URL != "" {
		v += `;url="` + o.URL + `"`
	}
	return v
}

func notOwner(o Owner) error {
	err := httpapi.ErrNotOwner()
	if p, ok := errors.AsType[*httpapi.Problem](err); ok {
		p.Header = http.Header{"Umbra-Owner": {o.header()}}
	}
	return err
}
