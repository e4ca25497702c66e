package recovery

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/filestamp"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/materialize"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// torn reports whether a file is one of a path's versions as a power failure
// leaves it. It must be known to be that version's: by its stamp, or, if a user
// wrote it, by not having been modified since. It must be cut off, or have zeros
// where blocks were never written. Anything else is a user's. v is nil if the path
// is not known.
func (r *recovery) torn(ctx context.Context, p wspath.Path, have *disk.Seen, v *versions) (bool, error) {
	if v == nil {
		v = &versions{}
		other := func(e version) bool { return !filestamp.Is(have.Info.MtimeNs, have.Info.Ino, e.ID) }
		for _, o := range r.paths {
			v.list = append(v.list, slices.DeleteFunc(slices.Clone(o.list), other)...)
		}
	}
	for _, e := range slices.Backward(v.list) {
		if e.Mode != object.Regular && e.Mode != object.Executable {
			continue
		}
		if modifiedSince(have.Info, e.ID, e.until) {
			continue
		}
		if have.Known && have.ID == e.ID {
			// Whole: only its permission bits differ, or it is an older one. Those of a
			// prepared file are the server's, others a user's.
			return have.Info.Mode.Perm() == preparedPerm, nil
		}
		if ok, err := r.tornOf(ctx, p, e.ID); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// modifiedSince reports whether a file that held a blob may have been modified at or
// after a time, in nanoseconds since 1970, by what its own times say. A file of the
// server's is known by its stamp, whatever the times are.
func modifiedSince(info vfs.Info, id object.ID, at int64) bool {
	return !filestamp.Is(info.MtimeNs, info.Ino, id) && max(info.MtimeNs, info.CtimeNs) >= at
}

// preparedPerm are the bits of a file that is prepared (rootfs.Staged).
const preparedPerm = 0o600

// tornOf reports whether a file consists of a version's blocks and zeros.
func (r *recovery) tornOf(ctx context.Context, p wspath.Path, id object.ID) (bool, error) {
	blob, size, err := r.disk.Store.OpenBlob(ctx, id)
	if err != nil {
		return false, err
	}
	defer blob.Close()
	f, info, err := r.disk.OpenRegular(p)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info.Size > size {
		return false, nil
	}
	torn, err := filestamp.Torn(f, info.Size, blob)
	return torn, errs.Wrap(err, string(p))
}

// repair records a torn file, or that one is missing, and puts the tip's bytes in
// its place.
func (r *recovery) repair(ctx context.Context, p wspath.Path, want gitstore.Entry, have *disk.Seen) error {
	var mode object.Mode
	var b gitstore.Blob
	if have.Kind != op.KindNone {
		var err error
		if b, err = r.disk.Capture(ctx, p, have); err != nil {
			return err
		}
		defer r.disk.Store.Discard(b)
		mode = have.Mode
	}
	_, err := r.keeper.Rec.Beside(ctx, p, mode, b, Unclean)
	if errs.Is(err, errs.Conflict) {
		// History has a folder there, or a file above it. The torn file is a part of a
		// committed version, or zeros: nothing is lost with it.
		return r.bring(ctx, p, want, have)
	}
	if err != nil {
		return err
	}
	r.keeper.Warn("%q was torn or lost by an unclean stop; the recorded bytes are put back", p)
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
			if _, err := r.disk.Root.EnsureDir(p); err != nil && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, fs.ErrPermission) {
				return errs.Wrap(err, string(p))
			}
			r.progress.Dirty([]wspath.Path{p})
		}
	}
	for _, p := range slices.Backward(order) {
		if last[p] {
			continue
		}
		materialize.Rmdir(r.disk, p) // a file may be there by now
		r.progress.Dirty([]wspath.Path{p})
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
