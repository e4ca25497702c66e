package recovery

import (
	"context"
	"io/fs"

	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/plan"
	"umbra/internal/workspace/progress"
	"umbra/internal/workspace/retire"
	"umbra/internal/wspath"
)

// asides settles what a stop left in the folder aside: what was prepared and never
// exchanged is dropped, and so is what is in the workspace or in history. What
// is left is brought to where it was, and settled with the temporary files there.
func (r *recovery) asides(ctx context.Context, left []rootfs.Aside) error {
	left, err := r.drop(left, func(a rootfs.Aside) (bool, error) { return a.Prepared(), nil })
	if err != nil || len(left) == 0 {
		return err
	}
	for p := range r.paths {
		info, err := r.disk.FS.Lstat(string(p))
		if err != nil {
			info = vfs.Info{}
		}
		if left, err = r.meet(left, p, info); err != nil {
			return err
		}
	}
	left, err = r.drop(left, func(a rootfs.Aside) (bool, error) { return r.inHistory(ctx, a) })
	if err != nil || len(left) == 0 {
		return err
	}
	if !r.same {
		// Of a change that the checkpoint covers it was removed before; the power cut
		// has undone that, and may have torn it. (The folder is not synced with each
		// checkpoint: all writers would wait for that.)
		checkpoint, err := r.disk.Files.Lstat(progress.CheckpointFile)
		if err != nil && !disk.IsAbsent(err) {
			return errs.Wrap(err, progress.CheckpointFile)
		}
		if left, err = r.drop(left, func(a rootfs.Aside) (bool, error) { return a.Info.CtimeNs < checkpoint.MtimeNs, nil }); err != nil {
			return err
		}
	}
	// The stop came before the change was in history: the whole workspace is looked
	// through.
	if left, err = r.search(ctx, left); err != nil {
		return err
	}
	for _, a := range left {
		if err := r.bringHome(a, wspath.Root.Join("x")); err != nil { // no path's: it is made visible there
			return err
		}
	}
	return nil
}

// drop removes those of which is says so, and gives the others.
func (r *recovery) drop(left []rootfs.Aside, is func(rootfs.Aside) (bool, error)) (others []rootfs.Aside, err error) {
	for _, a := range left {
		ok, err := is(a)
		if ok && err == nil && r.same && !a.Prepared() && a.Info.IsRegular() {
			open, _ := r.keeper.Ask(a.Displaced)
			ok = open != vfs.Yes // then it waits, once its path is known
		}
		switch {
		case err != nil:
			return nil, err
		case !ok:
			others = append(others, a)
		default:
			if err := r.disk.Root.Drop(a.Displaced); err != nil {
				return nil, errs.Wrap(err, a.Temp)
			}
		}
	}
	return others, nil
}

// meet settles those that were displaced at a path, or by the file that is
// there, or are that file, and gives the others.
func (r *recovery) meet(left []rootfs.Aside, p wspath.Path, at vfs.Info) (others []rootfs.Aside, err error) {
	left, err = r.drop(left, func(a rootfs.Aside) (bool, error) { return at.Ino != 0 && a.Info.Ino == at.Ino, nil })
	if err != nil {
		return nil, err
	}
	for _, a := range left {
		if !a.From(p) && (at.Ino == 0 || !a.By(at.Ino)) {
			others = append(others, a)
			continue
		}
		if err := r.bringHome(a, p); err != nil {
			return nil, err
		}
		r.homes[wspath.Path(a.Temp)] = p
	}
	return others, nil
}

// bringHome brings a file to where it was. One that cannot come there, since the
// folder may not be written or is on another file system by now, stays for the
// next start.
func (r *recovery) bringHome(d rootfs.Aside, p wspath.Path) error {
	err := r.disk.Root.Home(d.Displaced, p)
	if _, fatal := disk.SkipReason(err); err != nil && !fatal {
		r.keeper.Log.Error("displaced file not recorded; it is at the next start", "name", d.Temp, "error", err)
		return nil
	}
	return errs.Wrap(err, d.Temp)
}

// inHistory reports whether history has the bytes of a displaced file.
func (r *recovery) inHistory(ctx context.Context, d rootfs.Aside) (bool, error) {
	if !d.Info.IsRegular() {
		return false, nil
	}
	f, err := r.disk.Root.Open(d.Displaced)
	if err != nil {
		if _, fatal := disk.SkipReason(err); fatal {
			return false, errs.Wrap(err, d.Temp)
		}
		return false, nil
	}
	defer f.Close()
	id, err := disk.HashBlob(ctx, f, d.Info.Size)
	if err != nil {
		return false, errs.Wrap(err, d.Temp)
	}
	return r.disk.Store.HasBlob(id), nil
}

// files walks the files and links in a directory.
func (r *recovery) files(ctx context.Context, dir wspath.Path, fn func(wspath.Path) error) error {
	if err := ctxErr(ctx); err != nil {
		return err
	}
	entries, err := r.disk.FS.ReadDir(string(dir))
	if err != nil {
		if retire.Unlistable(err) {
			return nil
		}
		return errs.Wrap(err, string(dir))
	}
	for _, e := range entries {
		p := dir.Join(e.Name)
		switch {
		case wspath.IsTemp(e.Name), e.Name == ".git", r.disk.IsOwn(p):
		case e.Type.IsDir():
			err = r.files(ctx, p, fn)
		case e.Type.IsRegular(), e.Type&fs.ModeSymlink != 0:
			err = fn(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// search meets all files that are in the workspace.
func (r *recovery) search(ctx context.Context, left []rootfs.Aside) ([]rootfs.Aside, error) {
	err := r.files(ctx, wspath.Root, func(p wspath.Path) error {
		if len(left) == 0 {
			return plan.ErrStop
		}
		info, err := r.disk.FS.Lstat(string(p))
		if disk.IsAbsent(err) {
			return nil
		}
		if err == nil {
			left, err = r.meet(left, p, info)
		}
		return err
	})
	if err == plan.ErrStop {
		err = nil
	}
	return left, err
}
