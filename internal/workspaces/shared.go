package workspaces

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/sink"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/forklayer"
	"umbra/internal/workspace"
)

// Shared is what several servers that share their virtual workspaces agree on: which
// exist, and which server owns each. Only the owner has a workspace open. All
// methods may be called from any goroutine.
type Shared interface {
	// Create makes a workspace known to all servers: a virtual one without an owner, one
	// with a directory as its Record.Server's. Where the namespace has one already, it
	// returns the ID of that one, which may be one that another server is making.
	Create(ctx context.Context, r Record) (id string, err error)
	// Claim makes this server the owner of a workspace that has a record. It takes it
	// over from another live server, and waits for one that is dying, in bounded time.
	// For a request that can go to that server (witness.Forwardable) it does not:
	// ErrOwnedElsewhere.
	//
	// errs.Unavailable owner_moving, engine_unavailable.
	Claim(ctx context.Context, r Record) (*Held, error)
	// Remove removes a workspace that this server owns, or whose directory it has: its
	// log, and with history its objects. Later claims of it fail.
	Remove(ctx context.Context, id string, history bool) error
	// Copy opens the log of a copy of the history of a workspace whose directory is this
	// server's. remote.ErrNoCopy: it is not known any more, or, with ErrAdopted, it goes
	// on elsewhere.
	Copy(ctx context.Context, id string) (sink.Sink, error)
	// View returns the history of a workspace as its log has it, to be read, and which
	// state that is; nil where that is still known. Without known.Exact it need not be the newest.
	View(ctx context.Context, id string, known Point) (sink.Sink, Point, error)
	// Former reports whether a workspace goes on, from a copy, without the directory that
	// was this server's, and the last commit that went on.
	Former(ctx context.Context, id string) (seq uint64, was bool, err error)
	// Orphaned says that this server has put the later commits of such a workspace aside,
	// in directories of these paths; none: there were no later ones.
	Orphaned(ctx context.Context, id string, dirs []string) error
	// Elsewhere returns the error for a request of a workspace whose directory is
	// another server's.
	Elsewhere(server string) error
}

// Point is a state of a workspace's log. Exact: no older than when it was read.
type Point struct {
	Version, Pos int64
	Exact        bool
}

// ErrAdopted is returned by Shared.Copy for a workspace that goes on without this
// server's directory.
var ErrAdopted = errors.New("workspaces: the workspace was adopted, and goes on elsewhere")

// ErrOwnedElsewhere is within the error of Shared.Claim for a request that can go to the
// server that has the workspace.
var ErrOwnedElsewhere = errors.New("workspaces: another server has the workspace")

// Held is a claim of a workspace.
type Held struct {
	// Sink has the workspace's history, until it is released.
	Sink  sink.Sink
	Epoch int64
	// Lost is closed when another server may own the workspace.
	Lost <-chan struct{}
	// Opened, if set, is called when the workspace is about to be used.
	Opened func()
	// Release lets other servers claim the workspace. Its store is closed.
	Release func(context.Context)
}

// Hooks are called as workspaces come to this server and leave it. A field may be
// nil.
type Hooks struct {
	// Entered is called after a workspace was claimed and opened, before any request
	// has it. Its error fails the opening.
	Entered func(ctx context.Context, w *workspace.Workspace) error
	// Leaving is called before a workspace is released. No request is in it then, and it
	// is closed, or being closed. What belongs to it is written, and removed from memory.
	Leaving func(ctx context.Context, id string)
	// Lost is called where a workspace was lost without being released: what belongs
	// to it is removed from memory, and nothing is written.
	Lost func(id string)
}

// callLeft calls the hooks for a workspace that leaves this server, unless they were called.
func (m *Manager) callLeft(id string, lost bool) {
	h := m.holdingOf(id)
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), releasePatience)
	defer cancel()
	for i := len(m.shared.hooks) - 1; i >= 0 && h.entered; i-- {
		hook := m.shared.hooks[i]
		switch {
		case lost && hook.Lost != nil:
			hook.Lost(id)
		case !lost && hook.Leaving != nil:
			hook.Leaving(ctx, id)
		}
	}
	h.entered = false
}

// sharing is a manager's part in what several servers share.
type sharing struct {
	hooks []Hooks

	mu        sync.Mutex
	held      map[string]*holding
	followers map[string]*follower

	cached atomic.Int64 // bytes of the copies of logs, as they were counted last

	aside sync.Mutex // histories are put aside by one at a time

	heldElsewhere func(id string, blobs []string) ([]forklayer.HeldFile, error) // nil: nothing is
}

// holding is a claim, and how far its workspace was opened.
type holding struct {
	*Held
	entered bool
	over    chan struct{} // closed when the claim ended
}

// releasePatience bounds what a release waits for.
const releasePatience = 2 * time.Second

// AddHooks adds hooks. It is to be called before the first request. Entered of the
// first is called first, Leaving and Lost of the last.
func (m *Manager) AddHooks(h Hooks) { m.shared.hooks = append(m.shared.hooks, h) }

// errMoving is for requests of a workspace that is being released, or was lost.
func errMoving() error {
	return &errs.Error{Kind: errs.Unavailable, Code: "owner_moving", Err: sink.ErrRefused,
		Detail: "The workspace is moving to another server; retry."}
}

// errMadeElsewhere has those look again who wait for a workspace that was being made
// here, and was made by another server.
var errMadeElsewhere = errors.New("workspaces: made by another server")

// shares reports whether other servers may own a workspace.
func (m *Manager) shares(r Record) bool { return m.opt.Shared != nil && r.Kind == VirtualKind }

// elsewhere reports whether a workspace's directory is another server's.
func (m *Manager) elsewhere(r Record) bool {
	return m.opt.Shared != nil && r.Kind != VirtualKind && r.Server != m.opt.Server
}

// takeOver claims a workspace that several servers share, and what it is a fork of
// first: so those that belong together are at one server, and two servers that want
// them do not wait for each other. done is called once the workspace is open.
func (m *Manager) takeOver(ctx context.Context, id string) (done func(), err error) {
	done = func() {}
	r, err := m.record(id)
	if err != nil || !m.shares(r) {
		return done, err
	}
	if r.Fork != nil && r.Fork.Linked {
		base, err := m.Get(ctx, r.Fork.Of)
		if err != nil {
			return nil, err
		}
		done = base.Release
	}
	if err := m.acquire(ctx, r); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// acquire claims a workspace.
func (m *Manager) acquire(ctx context.Context, r Record) error {
	held, err := m.opt.Shared.Claim(ctx, r)
	if err != nil {
		return errs.Wrap(err, "")
	}
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	m.shared.held[r.ID] = &holding{Held: held, over: make(chan struct{})}
	return nil
}

func (m *Manager) holdingOf(id string) *holding {
	if m.opt.Shared == nil {
		return nil
	}
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	return m.shared.held[id]
}

// Epoch returns the epoch of this server's claim of a workspace, 0 where it has none,
// and 1 for a workspace that no other server can own.
func (m *Manager) Epoch(id string) int64 {
	if h := m.holdingOf(id); h != nil {
		return h.Epoch
	}
	if r, ok := m.Record(id); !ok || m.shares(r) {
		return 0
	}
	return 1
}

// lost reports whether another server may own the workspace.
func (h *holding) lost() bool {
	select {
	case <-h.Lost:
		return true
	default:
		return false
	}
}

// enter calls the hooks for a workspace that is open and that nothing uses yet.
func (m *Manager) enter(ctx context.Context, w *workspace.Workspace) error {
	h := m.holdingOf(w.ID())
	if h == nil {
		return nil
	}
	h.entered = true
	if h.Opened != nil {
		h.Opened()
	}
	for _, hook := range m.shared.hooks {
		if hook.Entered != nil {
			if err := hook.Entered(ctx, w); err != nil {
				return err
			}
		}
	}
	return nil
}

// leave ends the claim of a workspace whose store is closed, once its record is written;
// it does nothing where there is none.
func (m *Manager) leave(id string, fenced bool, recording *sync.WaitGroup) {
	h := m.holdingOf(id)
	if h == nil {
		return
	}
	if recording != nil {
		recording.Wait()
	}
	m.callLeft(id, fenced || h.lost())
	m.shared.mu.Lock()
	delete(m.shared.held, id)
	m.shared.mu.Unlock()
	close(h.over)
	releasing, cancel := context.WithTimeout(context.Background(), releasePatience)
	defer cancel()
	h.Release(releasing)
}

// guardShared closes a workspace whose claim is over, or whose store can take no more
// writes: the next request claims it again.
func (m *Manager) guardShared(w *workspace.Workspace) {
	h := m.holdingOf(w.ID())
	if h == nil || m.opt.Foreground {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped {
		return
	}
	m.background.Go(func() {
		select {
		case <-m.ctx.Done():
			return
		case <-h.over:
			return
		case <-h.Lost:
			w.Store().Held().Fence()
		case <-w.Store().Held().Stopped():
		}
		m.opt.Log.Warn("a workspace is closed: it is not certain that it is this server's", "workspace", w.ID(), "error", w.Store().Held().Cause())
		if err := m.putAway(context.Background(), w.ID(), errMoving(), false); err != nil {
			m.opt.Log.Warn("workspace not unloaded cleanly", "workspace", w.ID(), "error", err)
		}
	})
}

// lost reports whether a workspace was lost: its claim is over, or its store found
// another owner.
func (m *Manager) lost(id string, w *workspace.Workspace) bool {
	h := m.holdingOf(id)
	return h != nil && (h.lost() || errors.Is(w.Store().Held().Cause(), sink.ErrFenced))
}

// awaitUnused waits until the requests that use a workspace have ended, and reports
// whether they did before ctx ended. Those that wait for commits end now.
func (m *Manager) awaitUnused(ctx context.Context, h *handle, why error) bool {
	m.mu.Lock()
	if h.refs == 0 {
		m.mu.Unlock()
		return true
	}
	unused := make(chan struct{})
	h.unused = unused
	m.mu.Unlock()
	h.w.EndStreams(why)
	select {
	case <-unused:
		return true
	case <-ctx.Done():
		return false
	}
}

// exclusively claims a workspace that no request has open until done is called; why
// is the error that those get which have it open now.
func (m *Manager) exclusively(ctx context.Context, id string, why error) (done func(), err error) {
	for done == nil {
		if err := m.putAway(ctx, id, why, false); err != nil {
			return nil, err
		}
		if done, err = m.claim(ctx, id); err != nil {
			return nil, err
		}
	}
	return done, nil
}

// detachShared makes a store of its own of a fork that several servers share.
func (m *Manager) detachShared(ctx context.Context, id string) error {
	w, err := m.Get(ctx, id)
	if err != nil {
		return err
	}
	err = w.Store().Absorb(ctx)
	w.Release()
	if err != nil {
		return errs.Wrap(err, "")
	}
	if err := m.setAlone(id); err != nil {
		return err
	}
	return m.putAway(ctx, id, nil, false)
}

// forgetShared is Forget of a workspace that several servers share. It is removed
// from what they share first: a namespace must not lead to it any more once its
// record is gone.
func (m *Manager) forgetShared(ctx context.Context, r Record, history bool) error {
	done, err := m.exclusively(ctx, r.ID, errUnknown())
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer done()
	if err := m.opt.Shared.Remove(ctx, r.ID, history); err != nil {
		return errs.Wrap(err, "")
	}
	if err := m.dropRecord(r.ID); err != nil {
		return err
	}
	return errs.Wrap(m.opt.Host.RemoveAll(m.dirOf(r.ID)), "")
}

// openShared is OpenVirtual where several servers share virtual workspaces.
func (m *Manager) openShared(ctx context.Context, namespace []string) (*workspace.Workspace, error) {
	for {
		if namespace != nil {
			r, known, err := m.FindVirtual(namespace)
			if err != nil {
				return nil, err
			}
			if known {
				return m.Get(ctx, r.ID)
			}
		}
		r := m.newVirtual(namespace)
		id, err := m.opt.Shared.Create(ctx, r)
		if err != nil {
			return nil, errs.Wrap(err, "")
		}
		// One that another server, or request, is making, or did not finish.
		r.ID = id
		if w, err := m.makeShared(ctx, r); w != nil || err != nil {
			return w, err
		}
	}
}

// makeShared makes a workspace that has been created and has no record. It returns
// nil where it has one by now.
func (m *Manager) makeShared(ctx context.Context, r Record) (*workspace.Workspace, error) {
	h := newHandle()
	h.refs = 1
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		return nil, errs.New(errs.Unavailable, "stopping", "The server is stopping.")
	}
	if other := m.open[r.ID]; other != nil {
		m.mu.Unlock()
		return nil, await(ctx, other.ready)
	}
	m.open[r.ID] = h
	m.mu.Unlock()
	w, err := m.makeFirst(context.WithoutCancel(ctx), r)
	if w == nil {
		m.opened(r.ID, h, nil, cmp.Or(err, errMadeElsewhere))
		return nil, err
	}
	m.startBackground(w, r, 0)
	m.opened(r.ID, h, w, nil)
	return w, nil
}

// makeFirst claims a new workspace and takes its baseline; nil if another server has
// done that.
func (m *Manager) makeFirst(ctx context.Context, r Record) (w *workspace.Workspace, err error) {
	if err := m.acquire(ctx, r); err != nil {
		return nil, err
	}
	if _, found, err := m.opt.Records.Get(r.ID); found || err != nil {
		return nil, errs.Wrap(err, "")
	}
	if w, err = m.load(ctx, r); err != nil {
		return nil, err
	}
	if w.Store().Tip().Seq == 0 {
		err = w.Baseline(ctx, nil)
	}
	if err == nil {
		err = m.enter(ctx, w)
	}
	if err == nil {
		err = m.putRecord(r)
	}
	if err != nil {
		return nil, errors.Join(err, w.Close(ctx, nil))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[r.ID] = r
	return w, nil
}

// Family returns the workspace at the root of the forks that a workspace belongs to:
// they are at one server.
func (m *Manager) Family(id string) string {
	for {
		r, ok := m.Record(id)
		if !ok || r.Fork == nil || !r.Fork.Linked {
			return id
		}
		id = r.Fork.Of
	}
}

// Yield closes a workspace with its family, so that another server can claim them,
// after the requests that use it have ended, as far as they do until ctx ends. Later
// ones wait, and find its next owner. With seal the log is put into the object store
// first, in part while requests go on.
func (m *Manager) Yield(ctx context.Context, id string, seal bool) error {
	if m.opt.Shared == nil {
		return nil
	}
	root := m.Family(id)
	if seal {
		var sealing sync.WaitGroup
		for _, member := range m.openFamily(root) {
			if store, release := m.store(member); store != nil {
				sealing.Go(func() {
					defer release()
					if err := store.SealAhead(ctx); err != nil {
						m.opt.Log.Warn("the log was not sealed; its next owner does it", "workspace", member, "error", err)
					}
				})
			}
		}
		sealing.Wait()
	}
	return m.putAwayWith(ctx, root, closing{why: errMoving(), drain: true, keepTail: !seal})
}

// openFamily returns the workspaces that are open of a root and its forks.
func (m *Manager) openFamily(root string) []string {
	m.mu.Lock()
	ids := slices.Collect(maps.Keys(m.open))
	m.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { return m.Family(id) != root })
}

// Held returns the workspaces that this server has claimed, without forks whose
// parent it has too.
func (m *Manager) Held() (roots []string) {
	m.shared.mu.Lock()
	ids := slices.Collect(maps.Keys(m.shared.held))
	m.shared.mu.Unlock()
	seen := make(map[string]bool)
	for _, id := range ids {
		if root := m.Family(id); !seen[root] {
			seen[root] = true
			roots = append(roots, root)
		}
	}
	return roots
}

// Pinned reports whether a workspace has a directory, of this server, where several
// share virtual ones.
func (m *Manager) Pinned(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.records[id]
	return ok && m.pinned(r)
}

func (m *Manager) pinned(r Record) bool {
	return m.opt.Shared != nil && r.Kind != VirtualKind && r.Server == m.opt.Server
}

// copyOf opens the log of the copy of a workspace with a directory. One that was adopted
// is closed, and is from then on what its record says.
func (m *Manager) copyOf(ctx context.Context, id string) (sink.Sink, error) {
	if err := m.awaitMade(ctx, id); err != nil {
		return nil, err
	}
	to, err := m.opt.Shared.Copy(ctx, id)
	if errors.Is(err, ErrAdopted) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.stopped {
			m.background.Go(func() { m.giveUp(id) }) // the store waits for its copier
		}
	}
	return to, err
}

// awaitMade waits until a workspace is not being made any more.
func (m *Manager) awaitMade(ctx context.Context, id string) error {
	for {
		m.mu.Lock()
		coming := m.coming[id]
		m.mu.Unlock()
		if !coming {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// changedElsewhere reports whether the record of a workspace that was this server's by a
// record in memory is another one by now: it was adopted.
func (m *Manager) changedElsewhere(r Record) bool {
	if !m.pinned(r) {
		return false
	}
	kept, found, err := m.opt.Records.Get(r.ID)
	return err != nil || found && (kept.Kind != r.Kind || kept.Server != r.Server)
}

// giveUp closes a workspace that was adopted.
func (m *Manager) giveUp(id string) {
	m.opt.Log.Warn("a workspace was adopted while this server was away: its directory is recorded no more", "workspace", id)
	m.mu.Lock()
	delete(m.records, id)
	m.mu.Unlock()
	ctx := context.Background()
	if err := m.putAway(ctx, id, errMoving(), false); err != nil {
		m.opt.Log.Warn("workspace not unloaded cleanly", "workspace", id, "error", err)
	}
	for _, hook := range m.shared.hooks {
		if hook.Lost != nil {
			hook.Lost(id)
		}
	}
	if err := m.PutAside(ctx, id); err != nil {
		m.opt.Log.Error("the commits of a workspace that was adopted were not put aside", "workspace", id, "error", err)
	}
}

// shareStore makes the history that several servers share that of a store. The
// workspace's directory is a cache, which is made where it is missing.
func (m *Manager) shareStore(ctx context.Context, id string, so *gitstore.Options) error {
	h := m.holdingOf(id)
	if h == nil {
		return nil
	}
	if err := m.PutAside(ctx, id); err != nil {
		return err
	}
	so.Sink, so.Boot = h.Sink, clock.BootID()
	return m.opt.Host.MkdirAll(m.dirOf(id))
}
