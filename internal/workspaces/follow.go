package workspaces

import (
	"context"
	"errors"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/forklayer"
	"umbra/internal/witness"
	"umbra/internal/workspace"
)

// follower reads a workspace that this server does not own from its log. What it reads is
// a generation, which does not change: a newer state of the log is another one.
type follower struct {
	mu  sync.Mutex // one is opened at a time
	now *generation
	n   int

	// lag is how old the state of the log was by which the last request was answered.
	lag atomic.Int64
}

// generation is a workspace as its log had it.
type generation struct {
	w     *workspace.Workspace
	dir   string
	point Point
	asOf  time.Time // every commit that was acknowledged before is in it

	mu   sync.Mutex
	refs int // and one while it is the follower's
	used time.Time
}

const (
	// lookAfter is after how long a follower looks whether the log has more.
	lookAfter = time.Second
	// lookAgain is how often it does while a request waits for a commit.
	lookAgain = 50 * time.Millisecond
)

func (m *Manager) followersDir() string { return filepath.Join(m.opt.DataDir, "followers") }

// follow gives a workspace for reading, as the log has it. Errors: seq_not_reached, those
// of Shared.View.
func (m *Manager) follow(ctx context.Context, id string, want witness.Following) (*workspace.Workspace, error) {
	r, err := m.record(id)
	if err != nil {
		return nil, err
	}
	if r.Fork != nil && r.Fork.Unmade {
		return nil, errMoving() // there is no log yet
	}
	m.shared.mu.Lock()
	f := m.shared.followers[id]
	if f == nil {
		f = &follower{}
		m.shared.followers[id] = f
	}
	m.shared.mu.Unlock()
	for began := time.Now(); ; {
		g, err := m.generation(ctx, f, r, want, began)
		if err != nil && (want.Fresh || !errors.Is(err, sink.ErrMissing)) {
			return nil, errs.Wrap(err, "")
		}
		if err == nil {
			if g.w.Store().Tip().Seq >= want.Min {
				return g.w, nil
			}
			m.unfollow(g)
		}
		want.Fresh = true // a replica may be behind the log, or the object store
		if !time.Now().Before(want.Until) {
			return nil, errs.New(errs.Unavailable, "seq_not_reached", "The workspace has no commit %d yet.", want.Min)
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return nil, errs.Wrap(context.Cause(ctx), "")
		}
	}
}

// generation returns the follower's, after a look at the log where it may be too old.
func (m *Manager) generation(ctx context.Context, f *follower, r Record, want witness.Following, began time.Time) (*generation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g := f.now
	enough := g != nil && g.w.Store().Tip().Seq >= want.Min && (!want.Fresh || g.point.Exact && g.asOf.After(began))
	if !enough || time.Since(g.asOf) > lookAfter {
		if err := m.refresh(ctx, f, r, want); err != nil && !enough {
			return nil, err
		}
		g = f.now
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refs++
	g.used = m.opt.Now()
	f.lag.Store(int64(time.Since(g.asOf)))
	return g, nil
}

// FollowerLag returns how old the states are by which this server answers for
// workspaces that it does not own: the oldest one's age at its last request.
func (m *Manager) FollowerLag() (oldest time.Duration) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	for _, f := range m.shared.followers {
		oldest = max(oldest, time.Duration(f.lag.Load()))
	}
	return oldest
}

// refresh makes the follower's generation what the log has now; f.mu is held.
func (m *Manager) refresh(ctx context.Context, f *follower, r Record, want witness.Following) error {
	known := Point{Version: -1}
	if f.now != nil {
		known = f.now.point
	}
	known.Exact = want.Fresh
	asOf := time.Now()
	to, point, err := m.opt.Shared.View(ctx, r.ID, known)
	if err != nil {
		return err
	}
	if to == nil {
		f.now.asOf, f.now.point = asOf, point
		return nil
	}
	g := &generation{point: point, asOf: asOf, refs: 1, used: m.opt.Now()}
	f.n++
	g.dir = filepath.Join(m.followersDir(), r.ID+"."+strconv.Itoa(f.n))
	if err := m.opt.Host.MkdirAll(g.dir); err != nil {
		return err
	}
	if f.now != nil {
		linkPacks(f.now.dir, g.dir)
	}
	if g.w, err = m.openView(ctx, r, g.dir, to, want); err != nil {
		return errors.Join(err, m.opt.Host.RemoveAll(g.dir))
	}
	g.w.OnRelease(func() { m.unfollow(g) })
	if f.now != nil {
		m.unfollow(f.now)
	}
	f.now = g
	return nil
}

// linkPacks gives a generation the packs that the one before has: those that its log does
// not name are removed when it is opened.
func linkPacks(from, to string) {
	const packs = "repo.git/objects/pack"
	names, err := os.ReadDir(filepath.Join(from, packs))
	if err != nil || os.MkdirAll(filepath.Join(to, packs), 0o700) != nil {
		return // they are fetched
	}
	for _, e := range names {
		_ = os.Link(filepath.Join(from, packs, e.Name()), filepath.Join(to, packs, e.Name()))
	}
	if boot, err := os.ReadFile(filepath.Join(from, "cache")); err == nil {
		_ = os.WriteFile(filepath.Join(to, "cache"), boot, 0o600)
	}
}

// openView opens what a log has, for reading. A directory is missing there.
func (m *Manager) openView(ctx context.Context, r Record, dir string, to sink.Sink, want witness.Following) (*workspace.Workspace, error) {
	log := m.opt.Log.With("workspace", r.ID)
	c := workspace.Config{ID: r.ID, Root: r.Root, Dir: dir, Host: m.opt.Host, Dev: r.Dev, Ino: r.Ino, Absent: r.Kind != VirtualKind, Back: func() bool { return false },
		Owners: workspace.NoOwners{}, OnlyTask: func() string { return "" }, Unforked: func() error { return nil }, Limits: m.opt.Limits, Meter: m.opt.Meter, Log: log, Now: m.opt.Now}
	c.Store = gitstore.Options{Sink: to, Boot: clock.BootID(), Log: log, Now: m.opt.Now, Foreground: true, Meter: m.opt.Meter.Store, Caches: m.kept}
	if r.Fork != nil && r.Fork.Linked {
		at, err := object.ParseID(r.Fork.At)
		if err != nil {
			return nil, errs.New(errs.Internal, "", "the record of fork %s is damaged", r.ID)
		}
		base, err := m.follow(ctx, r.Fork.Of, witness.Following{Fresh: want.Fresh, Until: want.Until})
		if err != nil {
			return nil, err
		}
		c.Base = base.Release
		c.Store.Base = &gitstore.Base{Store: base.Store(), At: at, Alternate: path.Join("../../..", filepath.Base(filepath.Dir(base.GitDir())), "repo.git/objects")}
	}
	release := func() {
		if c.Base != nil {
			c.Base()
		}
	}
	files, err := m.opt.Host.Open(dir)
	if err != nil {
		release()
		return nil, err
	}
	c.Store.FS = files
	w, err := workspace.Open(ctx, c)
	if err != nil {
		release()
		return nil, err
	}
	w.Quiet()
	return w, nil
}

// unfollow gives up a hold on a generation; the last one removes it.
func (m *Manager) unfollow(g *generation) {
	g.mu.Lock()
	g.refs--
	last := g.refs == 0
	g.mu.Unlock()
	if !last {
		return
	}
	if err := errors.Join(g.w.Abandon(context.Background()), m.opt.Host.RemoveAll(g.dir)); err != nil {
		m.opt.Log.Warn("a copy of a workspace was not removed cleanly", "workspace", g.w.ID(), "error", err)
	}
}

// Purged are contents that a purge took out of a history. Ignored: out of ignored files that
// layers show in place of a deleted directory's, too.
type Purged struct {
	Blobs   []string // their IDs
	Ignored bool
}

// SetHeldElsewhere sets how a purge finds the files of a layer at servers that had its workspace
// before (HeldFiles). It is to be called before the first request.
func (m *Manager) SetHeldElsewhere(find func(id string, blobs []string) ([]forklayer.HeldFile, error)) {
	m.shared.heldElsewhere = find
}

// HeldFiles is forklayer.Mounted's, of a layer that this server may have had before.
func (m *Manager) HeldFiles(id string, blobs []string) ([]forklayer.HeldFile, error) {
	r, _ := m.Record(id)
	if r.Fork == nil || r.Fork.Kind != LayerKind {
		return nil, nil
	}
	return m.layerOf(r).HeldFiles(blobs)
}

// DropCopies removes what this server has of the history of a workspace of another one, and
// the files with purged contents that its layer had here. errs.Unavailable busy: a request
// reads it.
func (m *Manager) DropCopies(_ context.Context, id string, purged Purged) (err error) {
	m.dropFollowers(m.opt.Now().Add(time.Hour), m.Family(id))
	r, _ := m.Record(id)
	if _, other := os.Stat(filepath.Join(m.dirOf(id), remote.BootFile)); other == nil || m.shares(r) { // else it is no copy
		_, err = m.dropCache(id, purged)
	}
	if left, _ := filepath.Glob(filepath.Join(m.followersDir(), id+".*")); err == nil && len(left) > 0 {
		err = errs.New(errs.Unavailable, "busy", "Requests still read the workspace.")
	}
	return errs.Wrap(err, "")
}

// dropFollowers closes what was not used since a time: of a family, or, if it is empty, of all.
func (m *Manager) dropFollowers(since time.Time, family string) {
	m.shared.mu.Lock()
	all := maps.Clone(m.shared.followers)
	m.shared.mu.Unlock()
	for id, f := range all {
		f.mu.Lock()
		if g := f.now; g != nil && (family == "" || m.Family(id) == family) {
			g.mu.Lock()
			idle := g.used.Before(since)
			g.mu.Unlock()
			if idle {
				m.unfollow(g)
				f.now = nil
				f.lag.Store(0)
			}
		}
		f.mu.Unlock()
	}
}
