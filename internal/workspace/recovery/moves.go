package recovery

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"syscall"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/moves"
	"umbra/internal/rearrange"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// renamed is what a commit renamed of directories.
type renamed struct {
	seq uint64
	net []wspath.Move
}

// netMoves gives the directories that a commit's request renamed.
func netMoves(m *message.Message) (list []wspath.Move) {
	if list = op.FolderMoves(m); len(list) > 0 {
		return wspath.NetMoves(list)
	}
	for i := range m.Entries {
		from, isDir := dirEntry(m.Entries[i].OldPath)
		if to, ok := dirEntry(m.Entries[i].Path); ok && isDir {
			list = append(list, wspath.Move{From: from, To: to})
		}
	}
	return list
}

// moveDirs finishes the renames of directories, or those that undo them.
func (r *recovery) moveDirs(ctx context.Context) error {
	list, err := moves.Read(r.disk.Files, r.from)
	if err != nil {
		return errs.Wrap(err, moves.Dir)
	}
	for _, x := range r.renamed {
		if r.undone[x.seq] || slices.ContainsFunc(list, func(rec moves.Record) bool { return rec.Seq == x.seq }) {
			continue
		}
		// The crash came before the first rename. This start may crash too.
		rec := moves.Record{Seq: x.seq}
		if rec.Steps, err = r.stepsOf(x.net); err != nil {
			return err
		}
		if len(rec.Steps) == 0 {
			continue
		}
		if err := moves.Write(r.disk.Files, rec); err != nil {
			return errs.Wrap(err, moves.Dir)
		}
		list = append(list, rec)
	}
	slices.SortFunc(list, func(a, b moves.Record) int { return int(a.Seq) - int(b.Seq) })
	for _, rec := range moves.Unfinished(list) {
		if rec.Seq > r.tip.Seq {
			continue
		}
		steps := rec.Steps
		if r.undone[rec.Seq] {
			steps = moves.Inverse(steps)
		}
		for _, s := range steps {
			if !r.undone[rec.Seq] && (r.changedSince(s.From, rec.Seq) || r.changedSince(s.To, rec.Seq)) {
				continue
			}
			if err := r.relocate(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// changedSince reports whether a later commit changed something at a name that a rename
// led from or to. That began when the rename was durable, so it is done: a directory with
// the inode number of the renamed one is another, if that was removed since.
func (r *recovery) changedSince(at wspath.Path, seq uint64) bool {
	for p, v := range r.paths {
		if v.seq > seq && p.Within(at) {
			return true
		}
	}
	return slices.ContainsFunc(r.dirs, func(d dirChange) bool { return d.seq > seq && d.path.Within(at) })
}

// stepsOf makes the steps of renames that were not begun. A server before this
// one kept no record of those that it had done: then a name that exists says so.
func (r *recovery) stepsOf(net []wspath.Move) (steps []moves.Step, err error) {
	var objects []rearrange.Object
	var inos []uint64
	for _, x := range net {
		s, reached, err := r.look(x.From)
		if err != nil || !reached {
			return nil, err
		}
		if is, reached, err := r.look(x.To); err != nil || !reached || s.Kind != op.KindDir || !r.recorded && is.Kind != op.KindNone {
			return nil, err
		}
		objects = append(objects, rearrange.Object{From: x.From, To: x.To, Dir: true, Ref: len(inos)})
		inos = append(inos, s.Info.Ino)
	}
	order, ok := rearrange.Order(objects, nil, r.disk.Root.TempIn)
	if !ok {
		return nil, nil // file by file
	}
	for _, s := range order {
		x := moves.Step{Swap: s.Kind == rearrange.Exchange, Ino: inos[s.Ref], From: s.From, To: s.To}
		if x.Swap {
			x.Other = inos[s.Over]
		}
		steps = append(steps, x)
	}
	return steps, nil
}

// relocate does one step if it was lost: if the directory is where the step found
// it.
func (r *recovery) relocate(ctx context.Context, s moves.Step) error {
	from, reached, err := r.look(s.From)
	if err != nil || !reached || from.Kind == op.KindNone || from.Info.Ino != s.Ino {
		return err
	}
	to, reached, err := r.look(s.To)
	if err != nil || !reached {
		return err
	}
	if s.Swap && to.Kind != op.KindNone && to.Info.Ino == s.Other && !r.disk.Root.NoExchange() {
		err := r.disk.FS.Exchange(string(s.From), string(s.To))
		if errors.Is(err, errors.ErrUnsupported) {
			return nil // file by file
		}
		r.progress.Dirty([]wspath.Path{s.From, s.To})
		return errs.Wrap(err, string(s.To))
	}
	if to.Kind != op.KindNone {
		if err := r.vacate(ctx, s.To); err != nil {
			return err
		}
	}
	switch _, err := r.disk.Root.EnsureDir(s.To.Dir()); {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrPermission):
		return nil // a file of another process is in its place, or it is closed: file by file
	case err != nil:
		return errs.Wrap(err, string(s.To))
	}
	err = r.disk.FS.RenameNoReplace(string(s.From), string(s.To))
	if errors.Is(err, fs.ErrExist) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EXDEV) || errors.Is(err, fs.ErrPermission) {
		return nil // file by file
	}
	r.progress.Dirty([]wspath.Path{s.From, s.To})
	return errs.Wrap(err, string(s.To))
}

// vacate makes room for a directory: what is there was removed or renamed by the
// same change set, and that was lost.
func (r *recovery) vacate(ctx context.Context, p wspath.Path) error {
	s, err := r.disk.LstatDirect(p)
	if err != nil || s.Kind == op.KindDir && r.disk.FS.Remove(string(p)) == nil {
		return err
	}
	if s.Kind == op.KindDir {
		_, err := r.disk.Root.Take(p) // temps decides about what is in it
		return errs.Wrap(err, string(p))
	}
	if v := r.paths[p]; v != nil {
		return r.finish(ctx, p, v, true)
	}
	return nil
}
