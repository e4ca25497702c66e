package retire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// CaptureAside makes a blob of what was displaced.
func (k *Keeper) CaptureAside(ctx context.Context, out *rootfs.Displaced, s *disk.Seen) (gitstore.Blob, error) {
	b, err := k.Disk.Capture(ctx, wspath.Path(out.Temp), s)
	k.Disk.Index.DropFile(wspath.Path(out.Temp))
	return b, err
}

// RecordLate brings the bytes of what was displaced into history, if it lacks
// them, and removes it: one external commit in which the path has them, and one
// that takes that back, since the file at the path is newer. The path is
// locked by the caller, who settles the commits.
func (k *Keeper) RecordLate(ctx context.Context, p wspath.Path, out *rootfs.Displaced, reason string) (seqs []uint64, err error) {
	info, err := k.Disk.FS.Lstat(out.Temp)
	if disk.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap(err, out.Temp)
	}
	s := disk.Seen{Kind: disk.KindOf(info.Mode), Info: info}
	if s.Kind != op.KindFile && s.Kind != op.KindSymlink {
		return nil, k.Rescue(out)
	}
	s.Mode = disk.GitMode(info)
	if err := k.Disk.Identify(ctx, wspath.Path(out.Temp), &s); err != nil {
		return nil, err
	}
	k.Disk.Index.DropFile(wspath.Path(out.Temp))
	if k.Disk.Store.HasBlob(s.ID) {
		return nil, k.retire(p, out)
	}
	b, err := k.CaptureAside(ctx, out, &s)
	if err != nil {
		return nil, err
	}
	defer k.Disk.Store.Discard(b)
	seqs, err = k.Rec.Beside(ctx, p, s.Mode, b, reason)
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.BadPath) {
		return seqs, k.Rescue(out) // a directory is there now, or a file above it
	}
	if err != nil {
		return seqs, err
	}
	return seqs, k.retire(p, out)
}

// Adopt is RecordLate for what no longer has a place; what cannot be recorded, as on a full
// disk, gets a name that people see.
func (k *Keeper) Adopt(ctx context.Context, p wspath.Path, out *rootfs.Displaced) (seqs []uint64, err error) {
	seqs, err = k.RecordLate(ctx, p, out, "")
	if err != nil && k.Rescue(out) == nil {
		err = nil
	}
	return seqs, err
}

// Rescue gives what was displaced and cannot be recorded under its own path a
// name that people see; the next scan records it.
func (k *Keeper) Rescue(out *rootfs.Displaced) error {
	dir := wspath.Path(out.Temp).Dir()
	if string(dir) == rootfs.KeptDir {
		dir = wspath.Root
	}
	for i := range 100 {
		name := dir.Join(fmt.Sprintf("umbra-recovered-%d-%d", out.Info.Ino, i))
		err := k.Disk.FS.RenameNoReplace(out.Temp, string(name))
		if err == nil {
			k.Warn("a displaced file was kept as %q", name)
			return nil
		}
		if _, lerr := k.Disk.FS.Lstat(string(name)); lerr != nil {
			return errs.Wrap(err, out.Temp)
		}
	}
	return errs.New(errs.Unavailable, "not_rescued", "A displaced file could not be kept under a visible name.")
}

func (k *Keeper) lingerOn(l lingering) {
	k.lmu.Lock()
	k.lingers = append(k.lingers, l)
	k.lmu.Unlock()
	select {
	case k.lingerWake <- struct{}{}:
	default:
	}
}

// MaxToDrop bounds how many files wait aside to be removed, but for one of each
// writer. A disk that syncs many files, as for a checkpoint, may take a second for what
// else removes a hundred: as many as are written meanwhile may wait.
const MaxToDrop = 2048

// How many files are removed at a time, next to requests and by a request that finds
// MaxToDrop waiting. The latter waits for no more than these.
const (
	dropBatch = 16
	dropShare = 2
)

// dropSoon removes a displaced file in aside, concurrently with what comes next: a
// start knows what to do with it. What waits is gone before a checkpoint that
// covers its change.
func (k *Keeper) dropSoon(l lingering) {
	k.lmu.Lock()
	k.toDrop = append(k.toDrop, l)
	begin := !k.dropping && k.Go != nil
	k.dropping = k.dropping || begin
	full := len(k.toDrop) > MaxToDrop
	k.lmu.Unlock()
	if begin {
		k.Go(k.dropWhatComes)
	}
	if full {
		k.dropOldest(dropShare)
	}
}

// dropWhatComes removes what waits until nothing does.
func (k *Keeper) dropWhatComes() {
	for {
		k.lmu.Lock()
		if len(k.toDrop) == 0 {
			k.dropping = false
			k.lmu.Unlock()
			return
		}
		k.lmu.Unlock()
		k.dropOldest(dropBatch)
	}
}

// dropOldest removes up to n of the files that have waited longest, and returns how
// many it took.
func (k *Keeper) dropOldest(n int) int {
	k.dropMu.RLock()
	defer k.dropMu.RUnlock()
	k.lmu.Lock()
	n = min(n, len(k.toDrop))
	list := k.toDrop[:n:n]
	k.toDrop = k.toDrop[n:]
	k.lmu.Unlock()
	for _, l := range list {
		if !k.lateComer(l) {
			k.drop(l)
		}
	}
	return n
}

// DropNow removes what waits, and ends when all that waited when it was called is
// gone.
func (k *Keeper) DropNow() {
	k.lmu.Lock()
	waiting := len(k.toDrop)
	k.lmu.Unlock()
	for waiting > 0 {
		n := k.dropOldest(dropBatch)
		if n == 0 {
			break
		}
		waiting -= n
	}
	// What others have taken is gone when they are through.
	k.dropMu.Lock()
	defer k.dropMu.Unlock()
}

// lateComer reports whether a process opened a displaced file, or wrote to it,
// after it was compared. Then it waits.
func (k *Keeper) lateComer(l lingering) bool {
	if !l.out.Info.IsRegular() {
		return false
	}
	open, info := k.Ask(l.out)
	if open == vfs.No && disk.SameContent(info, l.out.Info) {
		return false
	}
	k.Wait(l.path, l.out, open)
	return true
}

// drop removes a displaced file.
func (k *Keeper) drop(l lingering) {
	if err := k.Disk.Root.Drop(l.out); err != nil && !disk.IsAbsent(err) {
		k.Log.Warn("displaced file not removed; it is tried again", "name", l.out.Temp, "error", err)
		l.done = true
		k.lingerOn(l)
	}
}

// Prepared reports whether a temporary name in a folder leads to a file that
// was never exchanged.
func (k *Keeper) Prepared(at, name string) bool {
	digits, ok := wspath.ParseTemp(name)
	if !ok {
		return false
	}
	info, err := k.Disk.FS.Lstat(at)
	return rootfs.IsMaking(digits) || err == nil && info.Ino == digits
}

// Unlistable reports whether a folder cannot be looked into, for a reason that
// is not a failure of the server.
func Unlistable(err error) bool { return disk.IsAbsent(err) || errors.Is(err, fs.ErrPermission) }
