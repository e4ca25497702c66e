package recovery

import (
	"context"
	"io/fs"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/retire"
	"umbra/internal/wspath"
)

// temps settles the temporary files that a stop left, in a folder and all below
// it: what was prepared is dropped, what was displaced is recorded.
func (r *recovery) temps(ctx context.Context, dir wspath.Path) error {
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
		path := dir.Join(e.Name)
		if string(path) == rootfs.KeptDir {
			continue // its files wait
		}
		if digits, ok := wspath.ParseTemp(e.Name); ok {
			// A power failure after the checkpoint that covers its change could bring it
			// back, and its path would not be known then.
			r.progress.Dirty([]wspath.Path{path})
			if err := r.temp(ctx, dir, path, digits, entries); err != nil {
				return err
			}
			continue
		}
		if e.Type.IsDir() && e.Name != ".git" && !r.disk.IsOwn(path) {
			if err := r.temps(ctx, path); err != nil {
				return err
			}
		}
	}
	return nil
}

// temp settles one.
func (r *recovery) temp(ctx context.Context, dir, temp wspath.Path, digits uint64, entries []vfs.DirEntry) error {
	info, err := r.disk.FS.Lstat(string(temp))
	if err != nil {
		if retire.Unlistable(err) {
			return nil
		}
		return errs.Wrap(err, string(temp))
	}
	out := &rootfs.Displaced{Temp: string(temp), Info: info}
	if info.IsDir() {
		return r.tempDir(ctx, out, digits)
	}
	if rootfs.IsMaking(digits) || info.Ino == digits {
		return errs.Wrap(r.disk.Root.Drop(out), string(temp)) // never exchanged
	}
	owner, sameFile, err := r.displacer(dir, digits, info.Ino, entries)
	if err != nil {
		return err
	}
	if sameFile {
		return errs.Wrap(r.disk.Root.Drop(out), string(temp)) // a second name of a file that is there
	}
	if home := r.homes[temp]; home != "" {
		owner = home
	}
	if owner == "" {
		owner = r.takenFrom(dir, digits)
	}
	if owner == "" {
		return r.nobodys(ctx, out)
	}
	if v := r.paths[owner]; v != nil && !r.same && info.IsRegular() {
		// The version before, as the power cut left it.
		if torn, err := r.torn(ctx, temp, &disk.Seen{Kind: op.KindFile, Info: info}, v); err != nil || torn {
			if err == nil {
				err = r.disk.Root.Drop(out)
			}
			return errs.Wrap(err, string(temp))
		}
	}
	_, err = r.keeper.RecordLate(ctx, owner, out, "")
	if reason, fatal := disk.SkipReason(err); err != nil && !fatal {
		r.keeper.Warn("a displaced file of %q could not be recorded (%s); it is kept", owner, reason)
		return r.keeper.Rescue(out)
	}
	return err
}

// displacer finds the file in a folder that has an inode.
func (r *recovery) displacer(dir wspath.Path, digits, own uint64, entries []vfs.DirEntry) (owner wspath.Path, sameFile bool, err error) {
	for _, e := range entries {
		if wspath.IsTemp(e.Name) || e.Type.IsDir() {
			continue
		}
		info, err := r.disk.FS.Lstat(string(dir.Join(e.Name)))
		if disk.IsAbsent(err) {
			continue
		}
		if err != nil {
			return "", false, errs.Wrap(err, string(dir))
		}
		if info.Ino == own {
			return "", true, nil
		}
		if info.Ino == digits {
			owner = dir.Join(e.Name)
		}
	}
	return owner, false, nil
}

// takenFrom finds the path that a file was taken from, among those that changed
// since.
func (r *recovery) takenFrom(dir wspath.Path, digits uint64) wspath.Path {
	for p := range r.paths {
		if p.Dir() == dir && rootfs.TakenFrom(digits, p.Base()) {
			return p
		}
	}
	return ""
}

// nobodys settles a displaced file whose path is unknown.
func (r *recovery) nobodys(ctx context.Context, out *rootfs.Displaced) error {
	s := disk.Seen{Kind: disk.KindOf(out.Info.Mode), Info: out.Info}
	if s.Kind == op.KindFile || s.Kind == op.KindSymlink {
		s.Mode = disk.GitMode(out.Info)
		err := r.disk.Identify(ctx, wspath.Path(out.Temp), &s)
		r.disk.Index.DropFile(wspath.Path(out.Temp))
		if err == nil && r.disk.Store.HasBlob(s.ID) {
			if open, _ := r.keeper.Ask(out); s.Kind == op.KindFile && open == vfs.Yes {
				return r.keeper.Rescue(out)
			}
			return errs.Wrap(r.disk.Root.Drop(out), out.Temp)
		}
		if err == nil && s.Kind == op.KindFile && !r.same {
			if torn, err := r.torn(ctx, wspath.Path(out.Temp), &disk.Seen{Kind: s.Kind, Info: s.Info}, nil); err != nil || torn {
				if err == nil {
					err = r.disk.Root.Drop(out)
				}
				return errs.Wrap(err, out.Temp)
			}
		}
	}
	return r.keeper.Rescue(out)
}

// tempDir settles a folder that was taken away: it goes if all that is in it is
// in history, else it is kept under a visible name.
func (r *recovery) tempDir(ctx context.Context, out *rootfs.Displaced, digits uint64) error {
	was := r.folderTakenFrom(wspath.Path(out.Temp).Dir(), digits)
	ok, err := r.dirRecorded(ctx, out.Temp, was)
	if err != nil {
		if _, fatal := disk.SkipReason(err); fatal {
			return err
		}
		ok = false
	}
	if !ok {
		return r.keeper.Rescue(out)
	}
	if was != "" && r.same { // a process may have files in it open
		r.keeper.RetireTree(out, was, nil)
		return nil
	}
	return errs.Wrap(r.disk.Root.Drop(out), out.Temp)
}

// folderTakenFrom finds the folder that was taken away, by what changed in it
// since.
func (r *recovery) folderTakenFrom(dir wspath.Path, digits uint64) wspath.Path {
	for p := range r.paths {
		for at := p; !at.IsRoot(); at = at.Dir() {
			if at.Dir() == dir && rootfs.TakenFrom(digits, at.Base()) {
				return at
			}
		}
	}
	return ""
}

// dirRecorded reports whether history has the bytes of all files in a folder
// that was at was (empty: not known). After a power cut also what is a torn
// form of them.
func (r *recovery) dirRecorded(ctx context.Context, dir string, was wspath.Path) (bool, error) {
	entries, err := r.disk.FS.ReadDir(dir)
	if err != nil {
		return false, errs.Wrap(err, dir)
	}
	for _, e := range entries {
		at, before := dir+"/"+e.Name, wspath.Path("")
		if was != "" {
			before = was.Join(e.Name)
		}
		ok := false
		switch {
		case e.Type.IsRegular() && r.keeper.Prepared(at, e.Name):
			ok = true
		case e.Type.IsDir():
			ok, err = r.dirRecorded(ctx, at, before)
		case e.Type&fs.ModeSymlink != 0:
			var target string
			if target, err = r.disk.FS.Readlink(at); err == nil {
				ok = r.disk.Store.HasBlob(object.Hash(object.Blob, []byte(target)))
			}
		case e.Type.IsRegular():
			ok, err = r.fileRecorded(ctx, wspath.Path(at), before)
		}
		if err != nil || !ok {
			return false, errs.Wrap(err, at)
		}
	}
	return true, nil
}

func (r *recovery) fileRecorded(ctx context.Context, at, was wspath.Path) (bool, error) {
	id, info, err := r.disk.HashFile(ctx, at)
	if err != nil || r.disk.Store.HasBlob(id) || r.same {
		return err == nil && r.disk.Store.HasBlob(id), err
	}
	return r.torn(ctx, at, &disk.Seen{Kind: op.KindFile, Info: info}, r.paths[was])
}
