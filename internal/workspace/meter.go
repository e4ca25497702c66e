package workspace

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/telemetry"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Meter counts what workspaces do. Its parts may be nil: they count nothing then.
type Meter struct {
	Store       *gitstore.Meter
	Materialise *telemetry.Histogram // nanoseconds of putting one commit onto the disk
	Scan        *telemetry.Histogram // nanoseconds of looking at a whole folder
	// Trace tells of a part of a request that began then and ends now; attrs are
	// names and values in turn. Nil: nobody traces.
	Trace func(ctx context.Context, name string, began time.Time, attrs ...string)
}

// NewMeter makes a meter that counts everything.
func NewMeter() *Meter {
	return &Meter{Store: gitstore.NewMeter(),
		Materialise: telemetry.NewTimes(.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .1, .5, 1, 5),
		Scan:        telemetry.NewTimes(.001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 300)}
}

// step tells of a part of a request, where somebody traces.
func (m *Meter) step(ctx context.Context, name string, began time.Time, c gitstore.Committed) {
	if m.Trace != nil {
		m.Trace(ctx, name, began, "umbra.commit", c.Commit.String(), "umbra.seq", strconv.FormatUint(c.Seq, 10))
	}
}

// Figures tell how all workspaces stand. What lags is that of the one that lags
// most.
type Figures struct {
	Known, Open, Missing, Reconciling int           // workspaces
	RefLag, DiskLag, CheckpointLag    uint64        // commits after what stock git sees, what is on disk, what is known to be synced
	Unseen                            time.Duration // since the oldest commit that stock git does not see
	OldestScan                        time.Duration // since the last look at all of a folder that is open
	JournalBytes, PackBytes           int64         // of the open ones
	CacheBytes                        int64         // that are kept of histories, of Limits.CacheBytes
}

// Figures gives them, without opening a workspace and without waiting for one.
func (m *Manager) Figures() Figures {
	f := Figures{CacheBytes: m.kept.Used()}
	m.mu.Lock()
	f.Known = len(m.records)
	open := m.inUseLocked()
	m.mu.Unlock()
	f.Open = len(open)
	for _, w := range open {
		w.addTo(&f)
	}
	return f
}

// inUseLocked gives the workspaces that are open and stay so; mu is held.
func (m *Manager) inUseLocked() []*Workspace {
	open := make([]*Workspace, 0, len(m.open))
	for _, h := range m.open {
		if h.w != nil && h.closing == nil {
			open = append(open, h.w)
		}
	}
	return open
}

func (w *Workspace) addTo(f *Figures) {
	switch {
	case w.missing.Load():
		f.Missing++
	case w.scanning.Load() > 0 || w.suspect.Load() || w.waits.Load():
		f.Reconciling++
	}
	st := w.store.Figures()
	f.RefLag = max(f.RefLag, st.Tip-st.Shown)
	f.Unseen = max(f.Unseen, st.Unseen)
	f.JournalBytes += st.Journal
	f.PackBytes += st.Packs
	if w.virtual != nil {
		return // nothing is put onto a disk there
	}
	f.DiskLag = max(f.DiskLag, st.Tip-min(w.Settled(), st.Tip))
	f.CheckpointLag = max(f.CheckpointLag, st.Tip-min(w.progress.synced.Load(), st.Tip))
	if at := w.scannedAt(); at > 0 {
		f.OldestScan = max(f.OldestScan, clock.Boot()-at)
	}
}

// Writable tells whether the workspaces that a task executes on can be written,
// by trying: their folder is there and takes a few bytes. It tries the open ones,
// beside each other.
//
// errs.Unavailable workspace_not_writable, naming no folder.
func (m *Manager) Writable(ctx context.Context) error {
	m.mu.Lock()
	open := m.inUseLocked()
	m.mu.Unlock()
	results := make([]error, len(open))
	var all sync.WaitGroup
	for i, w := range open {
		if _, executing := m.busy(w.id); executing && w.virtual == nil {
			all.Go(func() { results[i] = w.tryWrite() })
		}
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	if err := await(ctx, done); err != nil {
		// A disk that does not answer cannot be written.
		return errs.New(errs.Unavailable, "workspace_not_writable", "A workspace's disk does not answer.")
	}
	return errors.Join(results...)
}

// probe is what a try writes, in bytes: a block of most file systems.
const probe = 4096

// tryWrite writes a file without a name, or one of our own for a moment.
func (w *Workspace) tryWrite() error {
	if w.enter() != nil {
		return nil // it is being put away
	}
	defer w.leave()
	err := w.checkFolder()
	if err == nil {
		err = w.writeProbe()
	}
	if err == nil {
		return nil
	}
	w.log.Warn("a task executes here, and the folder cannot be written", "error", err)
	return &errs.Error{Kind: errs.Unavailable, Code: "workspace_not_writable", Detail: "A workspace that a task executes on cannot be written.", Err: err}
}

func (w *Workspace) writeProbe() error {
	if w.readOnly() {
		return errs.New(errs.Forbidden, "workspace_read_only", "The workspace's folder cannot be written.")
	}
	var f vfs.File
	f, err := w.fs.CreateUnlinked(".", 0o600)
	if errors.Is(err, errors.ErrUnsupported) {
		name := wspath.TempName(0xfffffffe << 32)
		if f, err = w.fs.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			defer w.fs.Remove(name) // one that is left is settled at the next start
		}
	}
	if err != nil {
		return errs.Wrap(err, "")
	}
	_, err = f.WriteAt(make([]byte, probe), 0)
	return errs.Wrap(errors.Join(err, f.Close()), "")
}
