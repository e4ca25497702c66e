package workspace

import (
	"context"
	"fmt"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// captureAside makes a blob of what was displaced.
func (w *Workspace) captureAside(ctx context.Context, out *rootfs.Displaced, s *seen) (gitstore.Blob, error) {
	b, err := w.capture(ctx, wspath.Path(out.Temp), s)
	w.index.dropFile(wspath.Path(out.Temp))
	return b, err
}

// recordLate brings the bytes of what was displaced into history, if it lacks
// them, and removes it: one external commit in which the path has them, and one
// that takes that back, since what stands at the path is newer. The path is
// locked by the caller, who settles the commits.
func (w *Workspace) recordLate(ctx context.Context, p wspath.Path, out *rootfs.Displaced, reason string) (seqs []uint64, err error) {
	info, err := w.fs.Lstat(out.Temp)
	if isAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap(err, out.Temp)
	}
	s := seen{kind: kindOf(info.Mode), info: info}
	if s.kind != KindFile && s.kind != KindSymlink {
		return nil, w.rescue(out)
	}
	s.mode = gitMode(info)
	if err := w.identify(ctx, wspath.Path(out.Temp), &s); err != nil {
		return nil, err
	}
	w.index.dropFile(wspath.Path(out.Temp))
	if w.store.HasBlob(s.id) {
		return nil, errs.Wrap(w.root.Drop(out), out.Temp)
	}
	seqs, err = w.recordBeside(ctx, p, out, &s, reason)
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.BadPath) {
		return seqs, w.rescue(out) // a folder stands there now, or a file above it
	}
	if err != nil {
		return seqs, err
	}
	return seqs, errs.Wrap(w.root.Drop(out), out.Temp)
}

func (w *Workspace) recordBeside(ctx context.Context, p wspath.Path, out *rootfs.Displaced, s *seen, reason string) (seqs []uint64, err error) {
	tip, inTip, err := w.store.Snapshot().Lookup(p)
	if err != nil {
		return nil, err
	}
	if inTip && tip.Mode == object.Dir {
		return nil, &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "A folder stands there.", Path: string(p)}
	}
	b, err := w.captureAside(ctx, out, s)
	if err != nil {
		return nil, err
	}
	defer w.store.Discard(b)
	x := external{path: p, old: tip, mode: s.mode, blob: b, hasBlob: true}
	c, err := w.commitExternals(ctx, []external{x}, message.Message{Reason: reason}, true)
	if err != nil || c.NoChange {
		return nil, err
	}
	seqs = append(seqs, c.Seq)
	e := inverse(x.entry())
	e.Reverts = refs("", c, 1)
	edit := gitstore.Edit{Path: p}
	if inTip {
		edit.Mode, edit.Blob = tip.Mode, gitstore.KnownBlob(tip.ID)
	}
	m := message.Message{Source: message.Rollback, Reverts: []object.ID{c.Commit}, Reason: reason}
	if m.Entries, err = w.messageEntries(ctx, []netEntry{e}); err != nil {
		return seqs, err
	}
	back, err := w.store.Commit(ctx, gitstore.Draft{Edits: []gitstore.Edit{edit}, Message: m, Entries: 1, AllowEmpty: true, Must: true})
	if err != nil {
		w.suspect.Store(true)
		return seqs, err
	}
	return append(seqs, back.Seq), nil
}

// rescue gives what was displaced and cannot be recorded under its own path a
// name that people see; the next scan records it.
func (w *Workspace) rescue(out *rootfs.Displaced) error {
	dir := wspath.Path(out.Temp).Dir()
	for i := range 100 {
		name := dir.Join(fmt.Sprintf("umbra-recovered-%d-%d", out.Info.Ino, i))
		err := w.fs.RenameNoReplace(out.Temp, string(name))
		if err == nil {
			w.warn("a displaced file was kept as %q", name)
			return nil
		}
		if _, lerr := w.fs.Lstat(string(name)); lerr != nil {
			return errs.Wrap(err, out.Temp)
		}
	}
	return errs.New(errs.Unavailable, "not_rescued", "A displaced file could not be kept under a visible name.")
}

// lingering is a displaced file that somebody has still open for writing.
type lingering struct {
	path wspath.Path
	out  *rootfs.Displaced
	file vfs.File // for asking; nil: only its name is left to be removed
}

// linger keeps a displaced file until nobody writes to it any more.
func (w *Workspace) linger(p wspath.Path, out *rootfs.Displaced) {
	f, err := w.fs.Open(out.Temp)
	if err != nil {
		w.log.Warn("displaced file not watched; it is settled at the next start", "name", out.Temp, "error", err)
		return
	}
	w.lingerOn(lingering{path: p, out: out, file: f})
}

func (w *Workspace) lingerOn(l lingering) {
	w.lmu.Lock()
	w.lingers = append(w.lingers, l)
	w.lmu.Unlock()
	select {
	case w.lingerWake <- struct{}{}:
	default:
	}
}

// maxToDrop bounds how many files wait aside to be removed.
const maxToDrop = 256

// dropSoon removes a displaced file that stands aside, beside what comes next: a
// start knows what to do with it. What waits is gone before a checkpoint that
// covers its change.
func (w *Workspace) dropSoon(l lingering) {
	w.lmu.Lock()
	w.toDrop = append(w.toDrop, l)
	begin := !w.dropping && w.stopBackground != nil
	w.dropping = w.dropping || begin
	full := len(w.toDrop) >= maxToDrop
	w.lmu.Unlock()
	if begin {
		w.background.Go(w.dropWhatComes)
	}
	if full {
		w.dropNow()
	}
}

// dropWhatComes removes what waits until nothing does.
func (w *Workspace) dropWhatComes() {
	for {
		w.lmu.Lock()
		if len(w.toDrop) == 0 {
			w.dropping = false
			w.lmu.Unlock()
			return
		}
		w.lmu.Unlock()
		w.dropNow()
	}
}

// dropNow removes what waits, and ends when all that waited when it was called is
// gone.
func (w *Workspace) dropNow() {
	w.dropMu.Lock()
	defer w.dropMu.Unlock()
	w.lmu.Lock()
	list := w.toDrop
	w.toDrop = nil
	w.lmu.Unlock()
	for _, l := range list {
		if w.lateComer(l) {
			w.linger(l.path, l.out)
		} else {
			w.drop(l)
		}
	}
}

// lateComer looks once more at a file that was as expected when it came out:
// whoever was just opening it by its path may have got it since. Then it is brought
// beside its target, to wait for what is written.
func (w *Workspace) lateComer(l lingering) bool {
	f, err := w.root.Open(l.out)
	if err != nil {
		return false
	}
	open := f.OpenForWriting()
	info, err := f.Stat()
	f.Close()
	if err == nil && !open && sameContent(info, l.out.Info) {
		return false
	}
	if err := w.root.Home(l.out, l.path); err != nil {
		w.log.Error("displaced file not recorded; it is at the next start", "name", l.out.Temp, "error", err)
	}
	return true
}

// drop removes a displaced file.
func (w *Workspace) drop(l lingering) {
	if err := w.root.Drop(l.out); err != nil {
		w.log.Warn("displaced file not removed; it is tried again", "name", l.out.Temp, "error", err)
		w.lingerOn(l)
	}
}

// settleLingers records late bytes of the files that nobody writes to any more,
// and tells how many are left. last takes those that are still open too, as
// they are; their names are left for the next start. One call waits for another
// that runs. The caller holds no path.
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
		if l.file == nil {
			if err := w.root.Drop(l.out); err != nil {
				left = append(left, l)
			}
			continue
		}
		if l.file.OpenForWriting() {
			if !last {
				left = append(left, l)
				continue
			}
			l.file.Close()
			left = append(left, l)
			continue
		}
		l.file.Close()
		if err := w.settleLinger(ctx, l); err != nil {
			w.log.Warn("late bytes of a displaced file not recorded; they are at the next start", "path", string(l.path), "error", err)
		}
	}
	if !last {
		w.lmu.Lock()
		w.lingers = append(w.lingers, left...)
		w.lmu.Unlock()
	}
	return len(left)
}

func (w *Workspace) settleLinger(ctx context.Context, l lingering) error {
	return w.locked(ctx, []wspath.Path{l.path}, func(*pathLock) error {
		seqs, err := w.recordLate(ctx, l.path, l.out, "")
		w.progress.settle(seqs...)
		return err
	})
}
