package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// torn reports whether a file is one of its versions as a power cut leaves it:
// cut off, or with zeros where blocks were never written.
func (r *recovery) torn(ctx context.Context, p wspath.Path, have *seen, v *versions) (bool, error) {
	if have.info.Size == 0 {
		return true, nil
	}
	return r.tornOne(ctx, p, v)
}

// tornOfAny is torn for a displaced file of which nothing tells where it stood.
// What is a part of a version that history has, or zeros, is nobody's loss.
func (r *recovery) tornOfAny(ctx context.Context, at wspath.Path, have *seen) (bool, error) {
	if have.info.Size == 0 {
		return true, nil
	}
	near := func(q wspath.Path, _ *versions) bool { return q.IsUnder(at.Dir()) }
	if ok, err := r.tornOfOthers(ctx, at, near); ok || err != nil {
		return ok, err
	}
	return r.tornOfOthers(ctx, at, func(q wspath.Path, v *versions) bool { return !near(q, v) })
}

func (r *recovery) tornOfOthers(ctx context.Context, p wspath.Path, which func(wspath.Path, *versions) bool) (bool, error) {
	n := 0
	for q, other := range r.paths {
		if !which(q, other) {
			continue
		}
		if n++; n > maxTornPaths {
			break
		}
		if ok, err := r.tornOne(ctx, p, other); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// maxTornPaths bounds how many paths' versions a torn file is compared with.
const maxTornPaths = 1000

func (r *recovery) tornOne(ctx context.Context, p wspath.Path, v *versions) (bool, error) {
	for i := len(v.list) - 1; i >= 0; i-- {
		e := v.list[i]
		if e.Mode == 0 || e.Mode == object.Symlink || e.Mode == object.Dir {
			continue
		}
		ok, err := r.tornOf(ctx, p, e.ID)
		if err != nil || ok {
			return ok, err
		}
	}
	return false, nil
}

// tornOf compares block by block: each block is the version's, or zeros.
func (r *recovery) tornOf(ctx context.Context, p wspath.Path, id object.ID) (bool, error) {
	blob, size, err := r.w.store.OpenBlob(ctx, id)
	if err != nil {
		return false, err
	}
	defer blob.Close()
	f, info, err := r.w.openRegular(p)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info.Size > size {
		return false, nil
	}
	const block = 512 // the smallest that a disk writes
	disk, ours := make([]byte, 64<<10), make([]byte, 64<<10)
	for off := int64(0); off < info.Size; {
		n, err := f.ReadAt(disk[:min(int64(len(disk)), info.Size-off)], off)
		if n == 0 {
			return false, errs.Wrap(err, string(p))
		}
		if _, err := io.ReadFull(blob, ours[:n]); err != nil {
			return false, errs.Wrap(err, string(p))
		}
		for i := 0; i < n; i += block {
			end := min(i+block, n)
			if string(disk[i:end]) != string(ours[i:end]) && !zeros(disk[i:end]) {
				return false, nil
			}
		}
		off += int64(n)
	}
	return true, nil
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// repair records a torn file, or that one is missing, and puts the tip's bytes in
// its place.
func (r *recovery) repair(ctx context.Context, p wspath.Path, want gitstore.Entry, have *seen) error {
	w := r.w
	x := external{path: p, old: want}
	if have.kind != KindNone {
		b, err := w.capture(ctx, p, have)
		if err != nil {
			return err
		}
		defer w.store.Discard(b)
		x.mode, x.blob, x.hasBlob = have.mode, b, true
	}
	c, err := w.commitExternals(ctx, []external{x}, message.Message{Reason: unclean}, true)
	if errs.Is(err, errs.Conflict) {
		// History has a folder there, or a file above it. What is torn is a part
		// of a version that it has, or zeros: nothing is lost with it.
		return r.bring(ctx, p, want, have)
	}
	if err != nil {
		return err
	}
	if !c.NoChange {
		e := inverse(x.entry())
		e.Reverts = refs("", c, 1)
		edit := gitstore.Edit{Path: p, Mode: want.Mode}
		if want.Mode != 0 {
			edit.Blob = gitstore.KnownBlob(want.ID)
		}
		m := message.Message{Source: message.Rollback, Reverts: []object.ID{c.Commit}, Reason: unclean}
		if m.Entries, err = w.messageEntries(ctx, []netEntry{e}); err != nil {
			return err
		}
		if _, err := w.store.Commit(ctx, gitstore.Draft{Edits: []gitstore.Edit{edit}, Message: m, Entries: 1, AllowEmpty: true, Must: true}); err != nil {
			return err
		}
	}
	w.warn("%q was torn or lost by an unclean stop; the recorded bytes are put back", p)
	return r.bring(ctx, p, want, have)
}

// folders makes and removes the empty folders that the commits since made and
// removed.
func (r *recovery) folders() error {
	last := make(map[wspath.Path]bool)
	var order []wspath.Path
	for _, d := range r.dirs {
		if _, ok := last[d.path]; !ok {
			order = append(order, d.path)
		}
		last[d.path] = d.made
	}
	slices.Sort(order)
	for _, p := range order {
		if last[p] {
			if _, err := r.w.root.EnsureDir(p); err != nil && !errors.Is(err, syscall.ENOTDIR) {
				return errs.Wrap(err, string(p))
			}
			r.w.progress.dirty([]wspath.Path{p})
		}
	}
	for _, p := range slices.Backward(order) {
		if last[p] {
			continue
		}
		r.w.rmdir(p) // a file may stand there by now
		r.w.progress.dirty([]wspath.Path{p})
	}
	return nil
}

// ctxErr gives a walk's reason to stop.
func ctxErr(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return errs.Wrap(err, "")
	}
	return nil
}

// unlistable reports whether a folder cannot be looked into, for a reason that
// is no failure of ours.
func unlistable(err error) bool { return isAbsent(err) || errors.Is(err, fs.ErrPermission) }
