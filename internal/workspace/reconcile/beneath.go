package reconcile

import (
	"context"
	"os"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Beneath is the directory that shows through that of a workspace where this one has
// nothing of its own: an overlay covers it. It changes by itself, and its changes are
// none of the workspace's: they are put back.
type Beneath interface {
	// Own reports whether the workspace's own directory decides what is at a path. gone
	// says that nothing is there.
	Own(ctx context.Context, p wspath.Path, gone bool) (bool, error)
	// Shared reports whether the directory beneath keeps a path out of its history too:
	// ignored files are shared.
	Shared(ctx context.Context, p wspath.Path) (bool, error)
	// Removed reports whether the directory that has a path was removed beneath: the kernel
	// lists nothing in it then, also of the workspace's own files, until Refresh.
	Removed(p wspath.Path) bool
	// Refresh has the kernel look again at what is beneath, as far as no process uses
	// it: it keeps what it found at a name.
	Refresh() error
}

// restore is a path that shows what the directory beneath has become.
type restore struct {
	want gitstore.Entry // Mode 0: nothing
	have disk.Seen
}

// through reports whether a path differs from history because of what is beneath. The
// path is locked.
func (b *scanBatch) through(ctx context.Context, p wspath.Path, tip gitstore.Entry, now disk.Seen) (bool, error) {
	if b.r.Beneath == nil {
		return false, nil
	}
	if own, err := b.r.Beneath.Own(ctx, p, now.Kind == op.KindNone); err != nil || own {
		return false, errs.Wrap(err, string(p))
	}
	if tip.Mode == 0 {
		if shared, err := b.r.Beneath.Shared(ctx, p); err != nil || shared {
			return false, err
		}
	}
	tip.Path = p
	b.back = append(b.back, restore{tip, now})
	return true, nil
}

// putBack restores what through found. The paths are locked. Removals come first: a file may be
// where history has a directory.
func (b *scanBatch) putBack(ctx context.Context) error {
	for _, gone := range []bool{true, false} {
		for i := range b.back {
			x := &b.back[i]
			if (x.want.Mode == 0) != gone {
				continue
			}
			if !gone {
				// What went may have been there, as a file with several names is another
				// one once it is in the overlay.
				if now, err := b.lstat(x.want.Path); err == nil && now.Kind != op.KindDir && now.Kind != op.KindSpecial {
					x.have = now
				}
			}
			if err := b.r.restore(ctx, x.want, &x.have); err != nil {
				return err
			}
			if gone {
				b.prune(x.want.Path)
			}
		}
	}
	b.back = nil
	return nil
}

// prune removes the directories of a path that went, which history does not have.
func (b *scanBatch) prune(p wspath.Path) {
	for dir := p.Dir(); !dir.IsRoot(); dir = dir.Dir() {
		if _, there, err := b.tip.Lookup(dir); there || err != nil || b.r.Disk.FS.Remove(string(dir)) != nil {
			return // or it is not empty
		}
		clear(b.real)
	}
}

// restore makes a path hold what history has, where it holds what is beneath.
func (r *Reconciler) restore(ctx context.Context, want gitstore.Entry, have *disk.Seen) error {
	if have.Kind == op.KindFile {
		// In the overlay first: a file of several names becomes another one by that.
		if err := r.pull(want.Path); err != nil {
			return err
		}
		now, err := r.Disk.Lstat(want.Path)
		if err != nil || now.Kind != op.KindFile {
			return err
		}
		*have = now
	}
	if have.Kind != op.KindNone {
		if err := r.Disk.Identify(ctx, want.Path, have); err != nil {
			_, fatal := disk.SkipReason(err)
			if fatal {
				return err
			}
			return nil
		}
	}
	if have.Mode == want.Mode && have.ID == want.ID {
		return nil
	}
	for range disk.Tries {
		err := r.Bring(ctx, want.Path, want, have)
		if err != nil && (errs.Is(err, errs.Forbidden) || errs.Is(err, errs.Conflict)) {
			r.Log.Warn("a change beneath the workspace is seen in it", "path", want.Path, "error", err)
			return nil
		}
		if err != nil || have.Kind != op.KindFile {
			return err
		}
		// A file of the overlay's becomes another one when that beneath goes, and was put back
		// as a user's then. It is the overlay's own now, and would be recorded.
		now, err := r.Disk.Lstat(want.Path)
		if err != nil || now.Kind != op.KindFile {
			return err
		}
		err = r.Disk.Identify(ctx, want.Path, &now)
		if _, fatal := disk.SkipReason(err); err != nil && fatal {
			return err
		}
		if err != nil || now.ID != have.ID || now.Mode != have.Mode {
			return nil
		}
		*have = now
	}
	return nil
}

// pull has the overlay take a file over from beneath, as it does when it is opened for
// writing.
func (r *Reconciler) pull(p wspath.Path) error {
	f, err := r.Disk.FS.OpenFile(string(p), os.O_WRONLY, 0)
	if err != nil {
		return disk.IgnoreAbsent(err)
	}
	return errs.Wrap(f.Close(), string(p))
}

// Keep makes files that changed beneath the workspace what they are in its history,
// durably above what is beneath: the kernel may show either version for a time. paths
// are those that changed, each with all that is under it.
func (r *Reconciler) Keep(ctx context.Context, paths []wspath.Path) error {
	if r.Beneath == nil {
		return nil
	}
	tip := r.Disk.Store.Snapshot()
	for _, p := range paths {
		e, ok, err := tip.Lookup(p)
		if err != nil {
			return err
		}
		if !ok || e.Mode == object.Dir || r.Beneath.Removed(p) { // what the kernel knows of directories may be wrong now
			if err := r.Beneath.Refresh(); err != nil {
				return errs.Wrap(err, "")
			}
			break
		}
	}
	for _, p := range paths {
		e, ok, err := tip.Lookup(p)
		if err != nil {
			return err
		}
		if ok && e.Mode != object.Dir {
			e.Path = p
			err = r.keep(ctx, e)
		} else if ok {
			err = tip.Walk(p, func(e gitstore.Entry) error { return r.keep(ctx, e) })
		}
		if err != nil {
			return err
		}
	}
	_, err := r.LookAt(ctx, paths, SyncOptions{Attribute: true}) // what is there and should not be
	return err
}

func (r *Reconciler) keep(ctx context.Context, e gitstore.Entry) error {
	lock, err := r.Locks.Acquire(ctx, []wspath.Path{e.Path})
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer lock.Release()
	if own, err := r.Beneath.Own(ctx, e.Path, false); err != nil || own {
		return errs.Wrap(err, string(e.Path))
	}
	now, err := r.Disk.LstatDirect(e.Path)
	if err != nil || now.Kind != op.KindFile {
		return nil // a scan compares it
	}
	return r.restore(ctx, e, &now)
}
