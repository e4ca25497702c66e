package workspace

import (
	"context"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/workspace/index"
	"umbra/internal/wspath"
)

// bring makes the disk hold what history says of a path, where it now holds
// have. What a person put there meanwhile stands: a scan records it. The path
// is locked, or nobody else is there yet.
func (w *Workspace) bring(ctx context.Context, path wspath.Path, want gitstore.Entry, have *seen) error {
	c := newContents(w)
	defer c.release()
	p := &plan{w: w, contents: c}
	s := step{path: path, mode: want.Mode, result: &onDisk{}}
	if have.kind != KindNone {
		s.expect = &onDisk{info: have.info, id: have.id, mode: have.mode, racy: index.IsRacy(have.info, w.now())}
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
	case have.kind == KindFile && have.known && have.id == want.ID:
		s.kind, s.perm, s.result = stepChmod, rootfs.ExecBits(have.info.Mode.Perm(), exec), s.expect
	default:
		r, size, err := w.store.OpenBlob(ctx, want.ID)
		if err != nil {
			return err
		}
		defer r.Close()
		s.kind, s.perm = stepPut, w.root.FilePerm(exec)
		if have.kind == KindFile {
			s.perm, s.attrs = rootfs.ExecBits(have.info.Mode.Perm(), exec), path
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
	s, err := w.lstat(e.Path)
	if err != nil || s.kind != KindFile || e.Mode == object.Symlink || e.Mode == object.Dir {
		return err
	}
	if err := w.identify(ctx, e.Path, &s); err != nil {
		return err
	}
	if s.id != e.ID {
		return nil // a person's: it is recorded by a scan
	}
	s.known = false
	if err := w.bring(ctx, e.Path, e, &s); err != nil {
		return err
	}
	f, err := w.fs.Open(string(e.Path))
	if err != nil {
		return errs.Wrap(err, string(e.Path))
	}
	defer f.Close()
	return errs.Wrap(f.Sync(), string(e.Path))
}
