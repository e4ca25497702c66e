package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/internal/clock"
	"umbra/internal/displaced"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
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

// lingerState has the displaced files of a workspace that wait.
type lingerState struct {
	settling   sync.Mutex // held to settle lingers, before lmu
	dropMu     sync.Mutex // held to remove what waits for it, before lmu
	lmu        sync.Mutex
	lingers    []lingering
	toDrop     []lingering // aside
	dropping   bool        // toDrop will be checked again
	lingerWake chan struct{}
}

// ask opens a displaced file to learn whether a process may write to it, and its
// stat data.
func (w *Workspace) ask(out *rootfs.Displaced) (vfs.Writers, vfs.Info) {
	f, err := w.disk.Root.Open(out)
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

// wait keeps a displaced file until no process writes to it any more. Its path is
// locked, or it is aside already.
func (w *Workspace) wait(p wspath.Path, out *rootfs.Displaced, open vfs.Writers) {
	if err := w.disk.Root.Away(out, p, open == vfs.Yes); err != nil {
		if disk.IsAbsent(err) {
			return
		}
		w.log.Warn("displaced file waits next to its target", "path", string(p), "error", err)
	}
	w.linger(p, out)
}

// linger looks at a file again until it can be removed.
func (w *Workspace) linger(p wspath.Path, out *rootfs.Displaced) {
	l := lingering{path: p, out: out, known: out.Info, wait: displaced.Begin(clock.Boot())}
	if f, err := w.disk.Root.Open(out); err == nil {
		if f.Writers() == vfs.Unknown {
			f.Close()
		} else {
			l.file = f
		}
	}
	w.lingerOn(l)
}

// retire removes a displaced file whose bytes are in history, or keeps it while a
// process may write to it.
func (w *Workspace) retire(p wspath.Path, out *rootfs.Displaced) error {
	if out.Info.IsRegular() {
		if open, _ := w.ask(out); open != vfs.No {
			w.wait(p, out, open)
			return nil
		}
	}
	return errs.Wrap(w.disk.Root.Drop(out), out.Temp)
}

// settleLingers records late bytes of the files that no process writes to any
// more, and returns how many are left. last is the one of a stop: what is left
// waits for the next start. One call waits for another that runs. The caller holds
// no path.
func (w *Workspace) settleLingers(ctx context.Context, last bool) int {
	w.dropNow()
	w.settling.Lock()
	defer w.settling.Unlock()
	w.lmu.Lock()
	list := w.lingers
	w.lingers = nil
	w.lmu.Unlock()
	var left []lingering
	for _, l := range list {
		if !w.settleOne(ctx, &l, last) {
			left = append(left, l)
		}
	}
	if last {
		for _, l := range left {
			if l.file != nil {
				l.file.Close()
			}
		}
		return len(left)
	}
	w.lmu.Lock()
	w.lingers = append(w.lingers, left...)
	w.lmu.Unlock()
	return len(left)
}

// settleOne does what is due with one file, and reports whether it is gone.
func (w *Workspace) settleOne(ctx context.Context, l *lingering, last bool) (gone bool) {
	if l.done {
		err := w.disk.Root.Drop(l.out)
		return err == nil || disk.IsAbsent(err)
	}
	now := clock.Boot()
	if now < l.next && !last {
		return false
	}
	if l.forced != nil {
		err := w.locked(ctx, []wspath.Path{l.path}, func(*pathLock) error {
			if err := w.clearTree(l.out.Temp, l.path, l.forced); err != nil {
				return err
			}
			return w.disk.Root.Drop(l.out)
		})
		return err == nil || disk.IsAbsent(err)
	}
	open := vfs.Unknown
	if l.file != nil {
		open = l.file.Writers()
	} else {
		l.next = now + displaced.LookEvery
	}
	if err := w.disk.Root.Look(l.out); disk.IsAbsent(err) {
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
	err := w.locked(ctx, []wspath.Path{l.path}, func(*pathLock) error {
		seqs, err := w.recordKept(ctx, l, action == displaced.Retire)
		w.progress.settle(seqs...)
		return err
	})
	if err != nil {
		w.log.Warn("late bytes of a displaced file not recorded yet; tried again", "path", string(l.path), "error", err)
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
func (w *Workspace) recordKept(ctx context.Context, l *lingering, drop bool) ([]uint64, error) {
	f, err := w.disk.Root.Open(l.out)
	if disk.IsAbsent(err) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		switch {
		case !drop:
			return nil, nil
		case disk.SameContent(l.known, l.out.Info):
			return nil, errs.Wrap(w.disk.Root.Drop(l.out), l.out.Temp)
		}
		return nil, w.rescueKept(l)
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
	if err != nil || !disk.SameContent(now, l.out.Info) || !w.store.HasBlob(id) {
		b, info, err := w.captureOpen(ctx, f)
		if err != nil {
			return nil, err
		}
		defer w.store.Discard(b)
		seqs, err = w.recordBeside(ctx, l.path, disk.GitMode(info), b, "")
		if errs.Is(err, errs.Conflict) || errs.Is(err, errs.BadPath) {
			if !drop {
				return seqs, nil
			}
			return seqs, w.rescueKept(l)
		}
		if err != nil {
			return seqs, err
		}
	}
	if !drop {
		return seqs, nil
	}
	return seqs, errs.Wrap(w.disk.Root.Drop(l.out), l.out.Temp)
}

// rescueKept gives a file that waits a name that people see.
func (w *Workspace) rescueKept(l *lingering) error {
	if err := w.disk.Root.Home(l.out, l.path); err != nil {
		return errs.Wrap(err, l.out.Temp)
	}
	return w.rescue(l.out)
}

// captureOpen makes a blob of an open file's bytes.
func (w *Workspace) captureOpen(ctx context.Context, f vfs.File) (gitstore.Blob, vfs.Info, error) {
	for range disk.Tries {
		before, err := f.Stat()
		if err != nil {
			return gitstore.Blob{}, before, errs.Wrap(err, "")
		}
		b, err := w.store.StreamBlob(ctx, f, before.Size)
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
		w.store.Discard(b)
	}
	return gitstore.Blob{}, vfs.Info{}, disk.ErrChanging("")
}

// retireTree removes a directory that was taken away. A file in it that a process
// may still write to, or that was written to since it was compared, waits first.
// The directory's path is locked.
func (w *Workspace) retireTree(out *rootfs.Displaced, was wspath.Path, skipped []Skip) {
	forced := make(map[string]bool, len(skipped))
	for _, s := range skipped {
		forced[s.Path] = true
	}
	if err := w.clearTree(out.Temp, was, forced); err != nil {
		w.log.Warn("deleted directory not removed; it is tried again", "name", out.Temp, "error", err)
		w.lingerOn(lingering{path: was, out: out, forced: forced})
		return
	}
	w.drop(lingering{path: was, out: out})
}

func (w *Workspace) clearTree(dir string, was wspath.Path, forced map[string]bool) error {
	entries, err := w.disk.FS.ReadDir(dir)
	if err != nil {
		if unlistable(err) {
			return nil // forced, or Drop fails too
		}
		return err
	}
	for _, e := range entries {
		at, path := dir+"/"+e.Name, was.Join(e.Name)
		if forced[string(path)] || w.prepared(at, e.Name) {
			continue
		}
		if e.Type.IsDir() {
			if err := w.clearTree(at, path, forced); err != nil {
				return err
			}
			continue
		}
		if !e.Type.IsRegular() {
			continue
		}
		d := &rootfs.Displaced{Temp: at}
		open, info := w.ask(d)
		if open == vfs.No {
			if id, known := w.disk.Index.Lookup(path, info); known && w.store.HasBlob(id) {
				continue
			}
			if ok, err := w.fileRecorded(context.Background(), at, path); err == nil && ok {
				continue
			}
		}
		if err := w.disk.Root.Look(d); err != nil {
			if disk.IsAbsent(err) {
				continue
			}
			return err
		}
		if err := w.disk.Root.Away(d, path, open == vfs.Yes); err != nil {
			return err
		}
		w.linger(path, d)
	}
	return nil
}
