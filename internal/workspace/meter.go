package workspace

import (
	"context"
	"errors"
	"os"
	"strconv"
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
	// Trace reports a part of a request that began then and ends now; attrs are
	// names and values in turn. May be nil.
	Trace func(ctx context.Context, name string, began time.Time, attrs ...string)
}

// NewMeter makes a meter that counts everything.
func NewMeter() *Meter {
	return &Meter{Store: gitstore.NewMeter(),
		Materialise: telemetry.NewTimes(.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .05, .1, .5, 1, 5),
		Scan:        telemetry.NewTimes(.001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 300)}
}

// step reports a part of a request, if requests are traced.
func (m *Meter) step(ctx context.Context, name string, began time.Time, c gitstore.Committed) {
	if m.Trace != nil {
		m.Trace(ctx, name, began, "umbra.commit", c.Commit.String(), "umbra.seq", strconv.FormatUint(c.Seq, 10))
	}
}

// Figures are measurements of all workspaces. What lags is that of the one that lags
// most.
type Figures struct {
	Known, Open, Missing, Reconciling int           // workspaces
	RefLag, DiskLag, CheckpointLag    uint64        // commits after what stock git sees, what is on disk, what is known to be synced
	Unseen                            time.Duration // since the oldest commit that stock git does not see
	OldestScan                        time.Duration // since the last look at all of a folder that is open
	JournalBytes, PackBytes           int64         // of the open ones
	CacheBytes                        int64         // that are kept of histories, of Limits.CacheBytes
	RefsBehind                        int           // refs that could not be moved yet, so that stock git sees older values
}

// AddTo adds the figures of one workspace.
func (w *Workspace) AddTo(f *Figures) {
	switch {
	case w.disk.Missing():
		f.Missing++
	case w.recon.Busy():
		f.Reconciling++
	}
	st := w.store.Figures()
	f.RefLag = max(f.RefLag, st.Tip-st.Shown)
	f.Unseen = max(f.Unseen, st.Unseen)
	f.JournalBytes += st.Journal
	f.PackBytes += st.Packs
	f.RefsBehind += st.Behind
	if !w.disk.Physical() {
		return // nothing is put onto a disk there
	}
	f.DiskLag = max(f.DiskLag, st.Tip-min(w.Settled(), st.Tip))
	f.CheckpointLag = max(f.CheckpointLag, st.Tip-min(w.progress.SyncedTo(), st.Tip))
	if at := w.recon.ScannedAt(); at > 0 {
		f.OldestScan = max(f.OldestScan, clock.Boot()-at)
	}
}

// probe is what a try writes, in bytes: a block of most file systems.
const probe = 4096

// TryWrite writes a file without a name, or with a temporary one.
//
// errs.Unavailable workspace_not_writable.
func (w *Workspace) TryWrite() error {
	if w.enter() != nil {
		return nil // it is being unloaded
	}
	defer w.leave()
	err := w.disk.Check()
	if err == nil {
		err = w.writeProbe()
	}
	if err == nil {
		return nil
	}
	w.log.Warn("a task executes here, and the directory cannot be written", "error", err)
	return &errs.Error{Kind: errs.Unavailable, Code: "workspace_not_writable", Detail: "A workspace that a task executes on cannot be written.", Err: err}
}

func (w *Workspace) writeProbe() error {
	if w.disk.ReadOnly() {
		return errs.New(errs.Forbidden, "workspace_read_only", "The workspace's directory cannot be written.")
	}
	var f vfs.File
	f, err := w.disk.FS.CreateUnlinked(".", 0o600)
	if errors.Is(err, errors.ErrUnsupported) {
		name := wspath.TempName(0xfffffffe << 32)
		if f, err = w.disk.FS.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			defer w.disk.FS.Remove(name) // one that is left is settled at the next start
		}
	}
	if err != nil {
		return errs.Wrap(err, "")
	}
	_, err = f.WriteAt(make([]byte, probe), 0)
	return errs.Wrap(errors.Join(err, f.Close()), "")
}
