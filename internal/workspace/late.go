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
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// captureAside makes a blob of what was displaced.
func (w *Workspace) captureAside(ctx context.Context, out *rootfs.Displaced, s *disk.Seen) (gitstore.Blob, error) {
	b, err := w.disk.Capture(ctx, wspath.Path(out.Temp), s)
	w.disk.Index.DropFile(wspath.Path(out.Temp))
	return b, err
}

// recordLate brings the bytes of what was displaced into history, if it lacks
// them, and removes it: one external commit in which the path has them, and one
// that takes that back, since what stands at the path is newer. The path is
// locked by the caller, who settles the commits.
func (w *Workspace) recordLate(ctx context.Context, p wspath.Path, out *rootfs.Displaced, reason string) (seqs []uint64, err error) {
	info, err := w.disk.FS.Lstat(out.Temp)
	if disk.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, errs.Wrap(err, out.Temp)
	}
	s := disk.Seen{Kind: disk.KindOf(info.Mode), Info: info}
	if s.Kind != KindFile && s.Kind != KindSymlink {
		return nil, w.rescue(out)
	}
	s.Mode = disk.GitMode(info)
	if err := w.disk.Identify(ctx, wspath.Path(out.Temp), &s); err != nil {
		return nil, err
	}
	w.disk.Index.DropFile(wspath.Path(out.Temp))
	if w.store.HasBlob(s.ID) {
		return nil, w.retire(p, out)
	}
	b, err := w.captureAside(ctx, out, &s)
	if err != nil {
		return nil, err
	}
	defer w.store.Discard(b)
	seqs, err = w.recordBeside(ctx, p, s.Mode, b, reason)
	if errs.Is(err, errs.Conflict) || errs.Is(err, errs.BadPath) {
		return seqs, w.rescue(out) // a folder stands there now, or a file above it
	}
	if err != nil {
		return seqs, err
	}
	return seqs, w.retire(p, out)
}

// recordBeside records bytes as an older version of a path.
func (w *Workspace) recordBeside(ctx context.Context, p wspath.Path, mode object.Mode, b gitstore.Blob, reason string) (seqs []uint64, err error) {
	tip, inTip, err := w.store.Snapshot().Lookup(p)
	if err != nil {
		return nil, err
	}
	if inTip && tip.Mode == object.Dir {
		return nil, &errs.Error{Kind: errs.Conflict, Code: "is_a_directory", Detail: "The path is a directory.", Path: string(p)}
	}
	x := external{path: p, old: tip, mode: mode, blob: b, hasBlob: true}
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
	if string(dir) == rootfs.KeptDir {
		dir = wspath.Root
	}
	for i := range 100 {
		name := dir.Join(fmt.Sprintf("umbra-recovered-%d-%d", out.Info.Ino, i))
		err := w.disk.FS.RenameNoReplace(out.Temp, string(name))
		if err == nil {
			w.warn("a displaced file was kept as %q", name)
			return nil
		}
		if _, lerr := w.disk.FS.Lstat(string(name)); lerr != nil {
			return errs.Wrap(err, out.Temp)
		}
	}
	return errs.New(errs.Unavailable, "not_rescued", "A displaced file could not be kept under a visible name.")
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
		if !w.lateComer(l) {
			w.drop(l)
		}
	}
}

// lateComer reports whether a process opened a displaced file, or wrote to it,
// after it was compared. Then it waits.
func (w *Workspace) lateComer(l lingering) bool {
	if !l.out.Info.IsRegular() {
		return false
	}
	open, info := w.ask(l.out)
	if open == vfs.No && disk.SameContent(info, l.out.Info) {
		return false
	}
	w.wait(l.path, l.out, open)
	return true
}

// drop removes a displaced file.
func (w *Workspace) drop(l lingering) {
	if err := w.disk.Root.Drop(l.out); err != nil && !disk.IsAbsent(err) {
		w.log.Warn("displaced file not removed; it is tried again", "name", l.out.Temp, "error", err)
		l.done = true
		w.lingerOn(l)
	}
}
