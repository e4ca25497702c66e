package workspace

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/index"
	"umbra/internal/wspath"
)

// bring makes the disk hold what history says of a path, where it now holds
// have. What a person put there meanwhile stands: a scan records it. The path
// is locked, or nobody else is there yet.
func (w *Workspace) bring(ctx context.Context, path wspath.Path, want gitstore.Entry, have *disk.Seen) error {
	c := newContents(w)
	defer c.release()
	p := &plan{w: w, contents: c}
	s := step{path: path, mode: want.Mode, result: &onDisk{}}
	if have.Kind != KindNone {
		s.expect = &onDisk{info: have.Info, id: have.ID, mode: have.Mode, racy: index.IsRacy(have.Info, w.now())}
	}
	exec := want.Mode == object.Executable
	switch {
	case want.Mode == 0:
		s.kind = stepTake
	case want.Mode == object.Symlink:
		data, err := w.store.ReadBlob(ctx, want.ID, wspath.MaxTarget)
		if err != nil {
			return err
		}
		s.kind, s.content = stepPut, c.fromLink(string(data))
	case have.Kind == KindFile && have.Known && have.ID == want.ID:
		s.kind, s.perm, s.result = stepChmod, rootfs.ExecBits(have.Info.Mode.Perm(), exec), s.expect
	default:
		r, size, err := w.store.OpenBlob(ctx, want.ID)
		if err != nil {
			return err
		}
		defer r.Close()
		s.kind, s.perm = stepPut, w.disk.Root.FilePerm(exec)
		if have.Kind == KindFile {
			s.perm, s.attrs = rootfs.ExecBits(have.Info.Mode.Perm(), exec), path
		}
		if s.content, err = c.fromStore(ctx, path, want.ID, r, size); err != nil {
			return err
		}
	}
	p.steps = []step{s}
	m := &materialiser{w: w, p: p}
	err := m.run(ctx)
	w.progress.dirty(m.touched())
	if err == nil && len(m.foreign) == 0 {
		m.finish()
		return nil
	}
	orphans, uerr := m.undo(ctx)
	for _, o := range orphans {
		seqs, rerr := w.recordLate(ctx, o.path, o.out, "")
		w.progress.settle(seqs...)
		if rerr != nil {
			w.log.Warn("displaced file not recorded; it is at the next start", "name", o.out.Temp, "error", rerr)
		}
	}
	if err == nil {
		err = uerr
	}
	return errs.Wrap(err, string(path))
}

// rewriteEntry puts the tip's bytes of a file anew, whatever the stat data say.
func (w *Workspace) rewriteEntry(ctx context.Context, e gitstore.Entry) error {
	s, err := w.disk.Lstat(e.Path)
	if err != nil || s.Kind != KindFile || e.Mode == object.Symlink || e.Mode == object.Dir {
		return err
	}
	if err := w.disk.Identify(ctx, e.Path, &s); err != nil {
		return err
	}
	if s.ID != e.ID {
		return nil // a person's: it is recorded by a scan
	}
	s.Known = false
	if err := w.bring(ctx, e.Path, e, &s); err != nil {
		return err
	}
	f, err := w.disk.FS.Open(string(e.Path))
	if err != nil {
		return errs.Wrap(err, string(e.Path))
	}
	defer f.Close()
	return errs.Wrap(f.Sync(), string(e.Path))
}
