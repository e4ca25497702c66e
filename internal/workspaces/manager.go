package workspaces

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/keyed"
	"umbra/internal/policy"
	"umbra/internal/witness"
	"umbra/internal/workspace"
	"umbra/internal/workspace/host"
	"umbra/internal/workspaces/place"
)

// Options of a manager. The zero value of a field means its default.
type Options struct {
	DataDir string    // host path; workspaces live in <DataDir>/workspaces/<id>
	Host    host.Host // default: host.OS
	Records Records
	Log     *slog.Logger     // default: discarded
	Now     func() time.Time // default: time.Now
	Limits  workspace.Limits
	// Roots are the folders under which a workspace may be opened; empty:
	// anywhere.
	Roots []string
	// OwnFolders are the server's own (data directory, code workspace, output):
	// where one lies inside a workspace it is left out of it.
	OwnFolders []string
	// Foreign reports whether a directory is the data directory of a server that shares
	// workspaces with others, on this machine; nil: none is.
	Foreign func(dir string) bool
	// SeesSame reports whether another server sees the same directories as this one, where
	// several share virtual workspaces; nil: none does.
	SeesSame func(server string) bool
	// IdleAfter is how long an unused workspace stays open if it is not watched; 10
	// minutes.
	IdleAfter time.Duration
	// Watcher reports what changes on disk; nil: only scans find it.
	Watcher workspace.Watcher
	// WatchIdle is how long after its last use a workspace is watched; an hour.
	// While a task is executing or paused it always is.
	WatchIdle time.Duration
	// ScanEvery is the shortest period of scans of a watched workspace; 60 seconds.
	ScanEvery time.Duration
	// CheckpointEvery is how often what was materialised is synced; 5 seconds.
	CheckpointEvery time.Duration
	// Store adjusts the engine's options.
	Store func(*gitstore.Options)
	// Policy judges what requests may change; nil: only tasks' own rules do.
	Policy *policy.Book
	// Meter counts what all workspaces do; nil: nothing is counted.
	Meter *workspace.Meter
	// Shared is where several servers agree whose a virtual workspace is; nil: all are
	// this one's.
	Shared Shared
	// Physical lets directories be workspaces of this server also where virtual ones
	// are shared. They are its alone.
	Physical bool
	// Server is this server's name among those that share workspaces.
	Server string
	// CacheLimit returns how many bytes the copies of logs may have on this disk, where
	// several servers share virtual workspaces, given how many they have; nil: any.
	CacheLimit func(cached int64) int64
	// Foreground leaves checkpoints and putting away to explicit calls, for
	// tests.
	Foreground bool
}

func (o *Options) setDefaults() {
	if o.Host == nil {
		o.Host = host.OS{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Meter == nil {
		o.Meter = &workspace.Meter{}
	}
	o.Limits.CaptureBytes = cmp.Or(o.Limits.CaptureBytes, 256<<20)
	o.Limits.EditBytes = cmp.Or(o.Limits.EditBytes, 64<<20)
	o.Limits.CacheBytes = cmp.Or(o.Limits.CacheBytes, 64<<20)
	o.IdleAfter = cmp.Or(o.IdleAfter, 10*time.Minute)
	o.WatchIdle = cmp.Or(o.WatchIdle, time.Hour)
	o.CheckpointEvery = cmp.Or(o.CheckpointEvery, 5*time.Second)
}

// Manager knows all workspaces of a data directory. They are opened when they
// are asked for, and unloaded when they were not used for a while. All
// methods may be called from any goroutine.
type Manager struct {
	opt       Options
	places    place.Rules
	attribute func(workspaceID string) string
	owners    atomic.Pointer[func(workspaceID string) workspace.Owners]
	busy      func(workspaceID string) (busy, executing bool)
	keeper    Keeper

	putting keyed.Mutex // a workspace's record is written by one at a time
	making  sync.Mutex  // which workspaces there are is settled by one at a time
	made    []*making   // those whose baseline is being taken; making
	staging staging
	kept    *gitstore.Caches // of all stores
	random  func([]byte)     // of ids
	shared  sharing

	mu         sync.Mutex
	records    map[string]Record // of those that are open or resident
	unfinished map[string]Record // whose baseline was cut off
	begun      map[string]Begun  // whose baseline is being taken
	coming     map[string]bool   // whose record may be stored before the maker has opened it
	open       map[string]*handle
	stopped    bool

	ctx        context.Context // of background work
	stop       context.CancelFunc
	background sync.WaitGroup
}

// handle is one workspace that is open, being opened, or being unloaded.
type handle struct {
	ready   chan struct{}        // closed when w or err is set
	read    chan struct{}        // closed when atOnce is set, or else with ready
	atOnce  *workspace.Workspace // for Read
	w       *workspace.Workspace
	err     error
	refs    int
	used    time.Time
	closing chan struct{} // set while it is unloaded; closed after
	unused  chan struct{} // if set, closed once refs is 0
}

// NewManager reads the resident records; it opens no workspace.
func NewManager(opt Options) (*Manager, error) {
	opt.setDefaults()
	m := &Manager{opt: opt, places: place.Rules{Host: opt.Host, DataDir: opt.DataDir, Roots: opt.Roots, Own: opt.OwnFolders, Foreign: opt.Foreign, Log: opt.Log},
		kept: gitstore.NewCaches(opt.Limits.CacheBytes), records: make(map[string]Record), unfinished: make(map[string]Record), begun: make(map[string]Begun), coming: make(map[string]bool), open: make(map[string]*handle), attribute: func(string) string { return "" },
		busy:   func(string) (bool, bool) { return false, false },
		random: random,
		shared: sharing{held: make(map[string]*holding), followers: make(map[string]*follower)}}
	all, _, err := opt.Records.List(Resident, "", 0)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if m.elsewhere(r) {
			continue
		}
		if r.Unfinished {
			m.unfinished[r.ID] = r
		} else {
			m.records[r.ID] = r
		}
	}
	m.dropStale()
	if opt.Shared != nil {
		if err := opt.Host.RemoveAll(m.followersDir()); err != nil {
			return nil, err
		}
	}
	if err := m.renewStubs(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.ctx, m.stop = ctx, cancel
	if !opt.Foreground {
		m.background.Go(func() { m.putAwayIdle(ctx) })
		if opt.Shared != nil {
			m.background.Go(func() { m.trimCaches(ctx) })
		}
	}
	return m, nil
}

// SetAttribute sets fn, which returns the task to which external changes of a
// workspace belong: its only executing one, or "". To be called before the first
// request.
func (m *Manager) SetAttribute(fn func(workspaceID string) string) { m.attribute = fn }

func random(b []byte) { _, _ = rand.Read(b) } // which never fails

func errUnknown() error {
	return errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
}

// Get gives a workspace, opening it if need be. The caller calls Release.
func (m *Manager) Get(ctx context.Context, id string) (*workspace.Workspace, error) {
	return witnessed(ctx)(m.get(ctx, id, false))
}

// witnessed notes in the context which commit a workspace was got at.
func witnessed(ctx context.Context) func(*workspace.Workspace, error) (*workspace.Workspace, error) {
	return func(w *workspace.Workspace, err error) (*workspace.Workspace, error) {
		if err == nil {
			witness.Opened(ctx, w.ID(), w.Store(), w.Store().Tip().Seq)
		}
		return w, err
	}
}

func (m *Manager) get(ctx context.Context, id string, toRead bool) (*workspace.Workspace, error) {
	if want, ok := witness.Follows(ctx); ok && m.opt.Shared != nil {
		return m.follow(ctx, id, want)
	}
	for {
		r, known, err := m.Lookup(id)
		if err == nil && known && m.elsewhere(r) {
			err = m.opt.Shared.Elsewhere(r.Server)
		}
		if err != nil {
			return nil, err
		}
		m.mu.Lock()
		if m.stopped {
			m.mu.Unlock()
			return nil, errs.New(errs.Unavailable, "stopping", "The server is stopping.")
		}
		if !known {
			m.mu.Unlock()
			return nil, errUnknown()
		}
		h := m.open[id]
		if h != nil && h.closing != nil {
			wait := h.closing
			m.mu.Unlock()
			if err := await(ctx, wait); err != nil {
				return nil, err
			}
			continue
		}
		first := h == nil
		if first {
			h = newHandle()
			m.open[id] = h
		}
		h.refs++
		if first && toRead {
			m.background.Go(func() { m.bringUp(witness.AsForwardable(m.ctx, ctx), id, h) }) // which outlives the caller's
		}
		m.mu.Unlock()
		if toRead {
			if w, err := m.early(ctx, h); !again(ctx, err) {
				return w, err
			}
			continue
		}
		if first {
			m.bringUp(ctx, id, h)
		} else if err := await(ctx, h.ready); err != nil {
			m.releaseHandle(h)
			return nil, err
		}
		if again(ctx, h.err) {
			continue
		}
		if h.err != nil {
			return nil, h.err
		}
		if h.w.FolderIsBack() {
			m.releaseHandle(h)
			if err := m.putAway(ctx, id, nil, false); err != nil {
				m.opt.Log.Warn("workspace not unloaded cleanly", "workspace", id, "error", err)
			}
			continue
		}
		return h.w, nil
	}
}

// again reports whether a request that waited for what another one opened looks again: it
// was made elsewhere, or is left to another server, to which this request cannot go.
func again(ctx context.Context, err error) bool {
	_, goes := witness.IsForwardable(ctx)
	return errors.Is(err, errMadeElsewhere) || !goes && errors.Is(err, ErrOwnedElsewhere)
}

// bringUp opens a workspace for all who wait for it: not with the caller's
// context, and a recovery that was begun is ended.
func (m *Manager) bringUp(ctx context.Context, id string, h *handle) {
	if m.opt.Shared != nil {
		done, err := m.takeOver(ctx, id)
		if err != nil {
			m.opened(id, h, nil, err)
			return
		}
		defer done()
	}
	m.awake(id)
	rec, err := m.hold(id)
	if err != nil { // forgotten meanwhile
		m.opened(id, h, nil, err)
		return
	}
	w, err := m.openRecord(context.WithoutCancel(ctx), rec, h)
	m.opened(id, h, w, err)
}

func await(ctx context.Context, ch <-chan struct{}) error {
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return errs.Wrap(context.Cause(ctx), "")
	}
}

// opened publishes an opened workspace, or the error, to those that wait for it.
func (m *Manager) opened(id string, h *handle, w *workspace.Workspace, err error) {
	if err != nil {
		m.leave(id, false, nil)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.w, h.err = w, err
	if err != nil {
		delete(m.open, id)
		m.letGoLocked(id)
	}
	if h.atOnce == nil {
		if err == nil {
			m.own(w, h)
		}
		close(h.read)
	}
	close(h.ready)
}

// own makes a workspace one of the manager's.
func (m *Manager) own(w *workspace.Workspace, h *handle) {
	w.OnRelease(func() { m.releaseHandle(h) })
	w.OnAdopt(func(ctx context.Context, allow func(root string) error) (workspace.SyncResult, error) {
		return m.adopt(ctx, w.ID(), allow)
	})
}

func (m *Manager) releaseHandle(h *handle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.used = m.opt.Now()
	h.dropRef()
}

// dropRef ends one use of a workspace; the caller holds the manager's mu.
func (h *handle) dropRef() {
	if h.refs--; h.refs == 0 && h.unused != nil {
		close(h.unused)
		h.unused = nil
	}
}

// putAwayIdle unloads idle workspaces until ctx ends.
func (m *Manager) putAwayIdle(ctx context.Context) {
	tick := time.NewTicker(max(min(m.opt.IdleAfter, virtualIdle)/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			m.noteUses()
			m.PutAway(ctx, m.opt.Now().Add(-m.opt.IdleAfter))
			m.dropFollowers(m.opt.Now().Add(-m.opt.IdleAfter), "")
		}
	}
}

// virtualIdle is how long an unused workspace without a directory stays open: it is opened
// again in milliseconds, and there may be a thousand forks.
const virtualIdle = time.Minute

// PutAway unloads the workspaces that were not used since a time and need not be
// watched; without a directory and of this server alone, since a later one.
func (m *Manager) PutAway(ctx context.Context, since time.Time) {
	later := since.Add(max(0, m.opt.IdleAfter-virtualIdle))
	m.mu.Lock()
	var ids []string
	for id, h := range m.open {
		unused := h.w != nil && h.refs == 0 && h.closing == nil
		if unused && (h.used.Before(since) || h.w.Virtual() && m.opt.Shared == nil && h.used.Before(later)) && !m.stays(id, h) {
			ids = append(ids, id)
		}
	}
	m.mu.Unlock()
	for _, id := range ids {
		if err := m.putAway(ctx, id, nil, true); err != nil {
			m.opt.Log.Warn("workspace not unloaded cleanly", "workspace", id, "error", err)
		}
	}
}

// closing says how a workspace is unloaded.
type closing struct {
	idle bool  // only if it has no users
	why  error // that its users get
	// drain waits for the users first, as long as the context lasts.
	drain bool
	// keepTail leaves what is in the log of a shared workspace there.
	keepTail bool
}

// putAway unloads one workspace, if it is open; idle: only if it has no users.
// why is the error that its users get.
func (m *Manager) putAway(ctx context.Context, id string, why error, idle bool) error {
	return m.putAwayWith(ctx, id, closing{idle: idle, why: why})
}

func (m *Manager) putAwayWith(ctx context.Context, id string, c closing) error {
	if c.idle {
		m.mu.Lock() // an open fork uses it
	} else {
		m.putAwayForks(ctx, id, c)
	}
	h := m.open[id]
	if h == nil || (c.idle && h.refs > 0) {
		m.mu.Unlock()
		return nil
	}
	if h.closing != nil {
		wait := h.closing
		m.mu.Unlock()
		return await(ctx, wait)
	}
	h.closing = make(chan struct{})
	used := h.used
	m.mu.Unlock()
	<-h.ready
	var err error
	var late <-chan struct{}
	if h.w != nil {
		unused := c.drain && m.awaitUnused(ctx, h, c.why)
		if log := h.w.Store().Held(); log != nil && c.keepTail {
			log.KeepTail()
		} else if log != nil {
			log.LendLast()
			if c.drain {
				log.Hurry()
			}
		}
		rest := Rest{DiskBytes: h.w.Store().DiskBytes(), Warnings: h.w.Warnings(), Head: headOf(h.w)}
		var recording sync.WaitGroup
		record := func(rest *Rest) {
			m.changeRecord(id, func(r *Record) bool {
				if r.Kind == VirtualKind && !h.w.Virtual() || m.elsewhere(*r) {
					return false // it was adopted
				}
				if rest != nil || unused {
					r.Rest = rest
				}
				if r.LastUsed = m.opt.Now().UTC(); c.idle {
					r.Watched = false
					r.LastUsed = used.UTC()
				}
				return true
			})
		}
		// Nothing changes any more: what is written of it elsewhere need not wait for the
		// last seal.
		if unused = unused && m.holdingOf(id) != nil && !m.lost(id, h.w); unused {
			ahead := rest
			recording.Go(func() { record(&ahead) })
			recording.Go(func() { m.callLeft(id, false) })
		}
		late, err = h.w.CloseWithin(ctx, c.why)
		lost, now := late != nil || m.lost(id, h.w), &rest
		head := rest.Head
		if rest.Head = headOf(h.w); err != nil {
			now = nil
		}
		if !lost && (!unused || err != nil || rest.Head != head) {
			recording.Wait()
			recording.Go(func() { record(now) })
		}
		if !unused {
			recording.Go(func() { m.callLeft(id, lost) })
		}
		m.leave(id, lost, &recording)
		recording.Wait()
	}
	if late != nil { // until then it is not opened again here
		go func() { <-late; m.gone(id, h) }()
		return err
	}
	m.gone(id, h)
	return err
}

// headOf returns the newest commit of a workspace; empty: it has none.
func headOf(w *workspace.Workspace) string {
	if tip := w.Store().Tip(); tip.Seq > 0 {
		return tip.Commit.String()
	}
	return ""
}

func (m *Manager) gone(id string, h *handle) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.open[id] == h { // not if it could not be opened: what is there is another's by now
		delete(m.open, id)
		m.letGoLocked(id)
	}
	close(h.closing)
}

// Close puts all workspaces away. Callers that still use one get errors.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.stopped = true
	ids := slices.Collect(maps.Keys(m.open))
	m.mu.Unlock()
	m.stop()
	m.background.Wait()
	errsOf := make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { errsOf[i] = m.putAway(ctx, id, nil, false) })
	}
	wg.Wait()
	m.dropFollowers(m.opt.Now().Add(time.Hour), "")
	return errors.Join(append(errsOf, m.closeStaging())...)
}

// Forget drops a workspace: later calls and its waiters get an error. The
// folder is untouched; the repository stays unless its deletion is asked for.
func (m *Manager) Forget(ctx context.Context, id string, deleteHistory bool) error {
	m.making.Lock()
	defer m.making.Unlock()
	rec, err := m.record(id)
	if err != nil {
		return err
	}
	if err := m.CheckUnforked(id); err != nil {
		return err
	}
	for _, x := range m.made {
		if x.fork != nil && x.fork.Of == id {
			return workspace.ErrHasForks("A fork of this workspace is being made.", []string{})
		}
	}
	if m.shares(rec) {
		return m.forgetShared(ctx, rec, deleteHistory)
	}
	if m.opt.Shared != nil {
		if m.elsewhere(rec) {
			return m.opt.Shared.Elsewhere(rec.Server)
		}
		if err := m.opt.Shared.Remove(ctx, id, deleteHistory); err != nil {
			return errs.Wrap(err, "")
		}
	}
	if err := m.dropRecord(id); err != nil {
		return err
	}
	err = m.putAway(ctx, id, errUnknown(), false)
	if deleteHistory {
		err = errors.Join(err, m.removeFiles(rec))
	}
	return errs.Wrap(err, "")
}

// dropRecord forgets a record, for good.
func (m *Manager) dropRecord(id string) error {
	defer m.putting.Lock(id)()
	if err := m.opt.Records.Delete(id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.records, id)
	return nil
}

// GitDir gives the host path of a workspace's repository, also where that
// cannot be opened.
func (m *Manager) GitDir(id string) string { return filepath.Join(m.dirOf(id), "repo.git") }

func (m *Manager) dirOf(id string) string { return filepath.Join(m.opt.DataDir, "workspaces", id) }
