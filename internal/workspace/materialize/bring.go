package materialize

import (
	"context"
	"errors"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/index"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/plan"
	"umbra/internal/wspath"
)

// Bring makes the disk hold what history says of a path, where it now holds
// have. What a person put there meanwhile stays: a scan records it. The path
// is locked, or nothing else runs yet.
func (t *Target) Bring(ctx context.Context, path wspath.Path, want gitstore.Entry, have *disk.Seen) error {
	c := content.New(t.Disk, t.Keeper.DropLater)
	defer c.Release()
	p := &plan.Plan{Contents: c}
	s := plan.Step{Path: path, Mode: want.Mode, Result: &plan.OnDisk{}}
	if have.Kind != op.KindNone {
		s.Expect = &plan.OnDisk{Info: have.Info, ID: have.ID, Mode: have.Mode, Racy: index.IsRacy(have.Info, t.Disk.Now())}
	}
	exec := want.Mode == object.Executable
	switch {
	case want.Mode == 0:
		s.Kind = plan.StepTake
	case want.Mode == object.Symlink:
		data, err := t.Disk.Store.ReadBlob(ctx, want.ID, wspath.MaxTarget)
		if err != nil {
			return err
		}
		s.Kind, s.Content = plan.StepPut, c.FromLink(string(data))
	case have.Kind == op.KindFile && have.Known && have.ID == want.ID:
		s.Kind, s.Perm, s.Result = plan.StepChmod, rootfs.ExecBits(have.Info.Mode.Perm(), exec), s.Expect
	default:
		r, size, err := t.Disk.Store.OpenBlob(ctx, want.ID)
		if err != nil {
			return err
		}
		defer r.Close()
		s.Kind, s.Perm = plan.StepPut, t.Disk.Root.FilePerm(exec)
		if have.Kind == op.KindFile {
			s.Perm, s.Attrs = rootfs.ExecBits(have.Info.Mode.Perm(), exec), path
		}
		if s.Content, err = c.FromStore(ctx, path, want.ID, r, size); err != nil {
			return err
		}
	}
	p.Steps = []plan.Step{s}
	m := t.Begin(p)
	err := m.Run(ctx)
	t.Rec.Progress.Dirty(m.Touched())
	if err == nil && len(m.Foreign) == 0 {
		m.Finish()
		return nil
	}
	orphans, uerr := m.Undo(ctx)
	for _, o := range orphans {
		seqs, rerr := t.Keeper.Adopt(ctx, o.Path, o.Out)
		t.Rec.Progress.Settle(seqs...)
		uerr = errors.Join(uerr, rerr)
	}
	if err == nil {
		err = uerr
	}
	return errs.Wrap(err, string(path))
}

// Rewrite puts the tip's bytes of a file again, whatever the stat data say.
func (t *Target) Rewrite(ctx context.Context, e gitstore.Entry) error {
	s, err := t.Disk.Lstat(e.Path)
	if err != nil || s.Kind != op.KindFile || e.Mode == object.Symlink || e.Mode == object.Dir {
		return err
	}
	if err := t.Disk.Identify(ctx, e.Path, &s); err != nil {
		return err
	}
	if s.ID != e.ID {
		return nil // a user's: it is recorded by a scan
	}
	s.Known = false
	if err := t.Bring(ctx, e.Path, e, &s); err != nil {
		return err
	}
	f, err := t.Disk.FS.Open(string(e.Path))
	if err != nil {
		return errs.Wrap(err, string(e.Path))
	}
	defer f.Close()
	return errs.Wrap(f.Sync(), string(e.Path))
}
