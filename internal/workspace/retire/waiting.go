package retire

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"umbra/gitstore"
	"umbra/internal/clock"
	"umbra/internal/displaced"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/pathlock"
	"umbra/internal/wspath"
)

// lingering is a displaced file that another process may still write to. It waits
// out of reach of directory operations (rootfs.Root.Away).
type lingering struct {
	path wspath.Path // where it was displaced
	out  *rootfs.Displaced
	file vfs.File // to ask for writers; nil: the system does not say
	wait displaced.Waiting
	// known is what it was like when its bytes were last known to be in history.
	known vfs.Info
	next  time.Duration // when to look again, a reading of clock.Boot
	done  bool          // only its name is left to be removed
	// forced is set for a deleted directory that could not be removed yet.
	forced map[string]bool
}

// Ask opens a displaced file to learn whether a process may write to it, and its
// stat data.
func (k *Keeper) Ask(out *rootfs.Displaced) (vfs.Writers, vfs.Info) {
	f, err := k.Disk.Root.Open(out)
	if err != nil {
		return vfs.Unknown, vfs.Info{}
	}
	defer f.Close()
	open := f.Writers()
	info, err := f.Stat()
	if err != nil {
		return vfs.Unknown, info
	}
	return open, info
}

// Wait keeps a displaced file until no process writes to it any more. Its path is
// locked, or it is aside already.
func (k *Keeper) Wait(p wspath.Path, out *rootfs.Displaced, open vfs.Writers) {
	if err := k.Disk.Root.Away(out, p, open == vfs.Yes); err != nil {
		if disk.IsAbsent(err) {
			return
		}
		k.Log.Warn("displaced file waits next to its target", "path", string(p), "error", err)
	}
	k.Linger(p, out)
}

// Linger checks a file again until it can be removed.
func (k *Keeper) Linger(p wspath.Path, out *rootfs.Displaced) {
	l := lingering{path: p, out: out, known: out.Info, wait: displaced.Begin(clock.Boot())}
	if f, err := k.Disk.Root.Open(out); err == nil {
		if f.Writers() == vfs.Unknown {
			f.Close()
		} else {
			l.file = f
		}
	}
	k.lingerOn(l)
}

// retire removes a displaced file whose bytes are in history, or keeps it while a
// process may write to it.
func (k *Keeper) retire(p wspath.Path, out *rootfs.Displaced) error {
	if out.Info.IsRegular() {
		if open, _ := k.Ask(out); open != vfs.No {
			k.Wait(p, out, open)
			return nil
		}
	}
	return errs.Wrap(k.Disk.Root.Drop(out), out.Temp)
}

// Settle records late bytes of the files that no process writes to any
// more, and returns how many are left. last is the one of a stop: what is left
// waits for the next start. One call waits for another that runs. The caller holds
// no path.
func (k *Keeper) Settle(ctx context.Context, last bool) int {
	k.DropNow()
	k.settling.Lock()
	defer k.settling.Unlock()
	k.lmu.Lock()
	list := k.lingers
	k.lingers = nil
	k.lmu.Unlock()
	var left []lingering
	for _, l := range list {
		if !k.settleOne(ctx, &l, last) {
			left = append(left, l)
		}
	}
	k.lmu.Lock()
	left = append(left, k.lingers...) // a deleted directory may have had more
	k.lingers = left
	if last {
		k.lingers = nil
	}
	k.lmu.Unlock()
	if last {
		for i := range left {
			left[i].close()
		}
	}
	return len(left)
}

// settleOne does what is due with one file, and reports whether it is gone.
func (k *Keeper) settleOne(ctx context.Context, l *lingering, last bool) (gone bool) {
	if l.done {
		err := k.Disk.Root.Drop(l.out)
		return err == nil || disk.IsAbsent(err)
	}
	now := clock.Boot()
	if now < l.next && !last {
		return false
	}
	if l.forced != nil {
		err := k.Locks.With(ctx, []wspath.Path{l.path}, func(*pathlock.Lock) error {
			return k.removeTree(l.out, l.path, l.forced)
		})
		return err == nil || disk.IsAbsent(err)
	}
	open := vfs.Unknown
	if l.file != nil {
		open = l.file.Writers()
	} else {
		l.next = now + displaced.LookEvery
	}
	if err := k.Disk.Root.Look(l.out); disk.IsAbsent(err) {
		l.close()
		return true
	}
	action := l.wait.Next(open, l.out.Info, now)
	if action == displaced.Wait && last && !disk.SameContent(l.known, l.out.Info) && l.out.Info.Size <= maxAtStop {
		action = displaced.Record // it waits for the next start, but its bytes need not
	}
	if action == displaced.Wait {
		return false
	}
	err := k.Locks.With(ctx, []wspath.Path{l.path}, func(*pathlock.Lock) error {
		seqs, err := k.recordKept(ctx, l, action == displaced.Retire)
		k.Rec.Progress.Settle(seqs...)
		return err
	})
	if err != nil {
		k.Log.Warn("late bytes of a displaced file not recorded yet; tried again", "path", string(l.path), "error", err)
		l.next = clock.Boot() + displaced.LookEvery
		return false
	}
	if action == displaced.Retire {
		l.close()
		return true
	}
	l.known = l.out.Info
	return false
}

// maxAtStop is the size in bytes up to which a stop records a file that is still
// open.
const maxAtStop = 64 << 20

func (l *lingering) close() {
	if l.file != nil {
		l.file.Close()
		l.file = nil
	}
}

// recordKept brings the bytes of a file that waits into history, if it lacks
// them, and removes it if drop. The path is locked.
func (k *Keeper) recordKept(ctx context.Context, l *lingering, drop bool) ([]uint64, error) {
	f, err := k.Disk.Root.Open(l.out)
	if disk.IsAbsent(err) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		switch {
		case !drop:
			return nil, nil
		case disk.SameContent(l.known, l.out.Info):
			return nil, errs.Wrap(k.Disk.Root.Drop(l.out), l.out.Temp)
		}
		return nil, k.rescueKept(l)
	}
	if err != nil {
		return nil, errs.Wrap(err, l.out.Temp)
	}
	defer f.Close()
	var seqs []uint64
	id, err := disk.HashBlob(ctx, f, l.out.Info.Size)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errs.Wrap(err, l.out.Temp)
	}
	now, serr := f.Stat()
	if serr != nil {
		return nil, errs.Wrap(serr, l.out.Temp)
	}
	if err != nil || !disk.SameContent(now, l.out.Info) || !k.Disk.Store.HasBlob(id) {
		b, info, err := k.captureOpen(ctx, f)
		if err != nil {
			return nil, err
		}
		defer k.Disk.Store.Discard(b)
		seqs, err = k.Rec.Beside(ctx, l.path, disk.GitMode(info), b, "")
		if errs.Is(err, errs.Conflict) || errs.Is(err, errs.BadPath) {
			if !drop {
				return seqs, nil
			}
			return seqs, k.rescueKept(l)
		}
		if err != nil {
			return seqs, err
		}
	}
	if !drop {
		return seqs, nil
	}
	return seqs, errs.Wrap(k.Disk.Root.Drop(l.out), l.out.Temp)
}

// rescueKept gives a file that waits a name that people see.
func (k *Keeper) rescueKept(l *lingering) error {
	if err := k.Disk.Root.Home(l.out, l.path); err != nil {
		return errs.Wrap(err, l.out.Temp)
	}
	return k.Rescue(l.out)
}

// captureOpen makes a blob of an open file's bytes.
func (k *Keeper) captureOpen(ctx context.Context, f vfs.File) (gitstore.Blob, vfs.Info, error) {
	for range disk.Tries {
		before, err := f.Stat()
		if err != nil {
			return gitstore.Blob{}, before, errs.Wrap(err, "")
		}
		b, err := k.Disk.Store.StreamBlob(ctx, f, before.Size)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			continue // it shrank
		}
		if err != nil {
			return b, before, errs.Wrap(err, "")
		}
		after, err := f.Stat()
		if err == nil && disk.SameContent(before, after) && before.CtimeNs == after.CtimeNs {
			return b, after, nil
		}
		k.Disk.Store.Discard(b)
	}
	return gitstore.Blob{}, vfs.Info{}, disk.ErrChanging("")
}

// RetireTree removes a directory that was taken away. A file in it that a process
// may still write to, or that was written to since it was compared, waits first.
// The directory's path is locked.
func (k *Keeper) RetireTree(out *rootfs.Displaced, was wspath.Path, skipped []op.Skip) {
	forced := make(map[string]bool, len(skipped))
	for _, s := range skipped {
		forced[s.Path] = true
	}
	if err := k.removeTree(out, was, forced); err != nil {
		k.Log.Warn("deleted directory not removed; it is tried again", "name", out.Temp, "error", err)
		k.lingerOn(lingering{path: was, out: out, forced: forced})
	}
}

// errLink is returned for a symbolic link that no history has.
var errLink = errors.New("a symbolic link was made in a deleted directory")

// removeTree removes a directory that was at a path. One in which a link was made meanwhile
// stays under a visible name, for a scan to record.
func (k *Keeper) removeTree(out *rootfs.Displaced, was wspath.Path, forced map[string]bool) error {
	err := k.clearTree(out.Temp, was, forced)
	if errors.Is(err, errLink) {
		return k.Rescue(out)
	}
	return err
}

// clearTree removes a directory that was at a path. A file is removed as soon as it was
// compared, and a directory only if it is empty then: a process whose working directory it
// is may create files in it meanwhile.
func (k *Keeper) clearTree(dir string, was wspath.Path, forced map[string]bool) error {
	entries, err := k.Disk.FS.ReadDir(dir)
	if err != nil {
		if Unlistable(err) { // forced, or Drop fails too
			return k.Disk.Root.Drop(&rootfs.Displaced{Temp: dir, Info: vfs.Info{Mode: fs.ModeDir}})
		}
		return err
	}
	for _, e := range entries {
		at, path := dir+"/"+e.Name, was.Join(e.Name)
		switch {
		case forced[string(path)] || k.Prepared(at, e.Name):
			err = k.Disk.Root.Drop(&rootfs.Displaced{Temp: at, Info: vfs.Info{Mode: e.Type}})
		case e.Type.IsDir():
			err = k.clearTree(at, path, forced)
		case e.Type.IsRegular():
			err = k.clearFile(at, path)
		case e.Type&fs.ModeSymlink != 0:
			var ok bool
			if ok, err = k.linkRecorded(at); err == nil && !ok {
				return errLink
			} else if err == nil {
				err = k.Disk.FS.Remove(at)
			}
		default:
			err = k.Disk.FS.Remove(at)
		}
		if err != nil && !disk.IsAbsent(err) {
			return err
		}
	}
	return k.Disk.FS.Remove(dir)
}

// clearFile removes a file of a deleted directory, or has it wait.
func (k *Keeper) clearFile(at string, path wspath.Path) error {
	d := &rootfs.Displaced{Temp: at}
	open, info := k.Ask(d)
	if open == vfs.No {
		id, known := k.Disk.Index.Lookup(path, info)
		recorded := known && k.Disk.Store.HasBlob(id)
		if !recorded {
			ok, err := k.fileRecorded(context.Background(), at, path)
			recorded = err == nil && ok
		}
		if recorded {
			return k.Disk.FS.Remove(at)
		}
	}
	if err := k.Disk.Root.Look(d); err != nil {
		return err
	}
	if err := k.Disk.Root.Away(d, path, open == vfs.Yes); err != nil {
		return err
	}
	k.Linger(path, d)
	return nil
}
