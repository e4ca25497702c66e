package materialize

import (
	"context"
	"errors"
	"io/fs"
	"syscall"

	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/plan"
	"umbra/internal/wspath"
)

// Orphan is what was displaced and could not be put back, because a person has
// by now put something else there: its bytes are recorded as the path's.
type Orphan struct {
	Path wspath.Path
	Out  *rootfs.Displaced
}

// Undo takes back what was done on disk, the last first. Where a person was
// there meanwhile, what the person did stays. It goes on after errors and
// gives the first.
func (m *Materializer) Undo(ctx context.Context) (orphans []Orphan, err error) {
	for i := len(m.log) - 1; i >= 0; i-- {
		d := &m.log[i]
		left, uerr := m.undoOne(d)
		if left != nil {
			if herr := m.Disk.Root.Home(left, d.outPath()); herr != nil {
				uerr = errors.Join(uerr, herr)
			} else {
				orphans = append(orphans, Orphan{Path: d.outPath(), Out: left})
			}
		}
		if uerr != nil && err == nil {
			err = uerr
		}
	}
	if serr := m.syncMoves(); err == nil {
		err = serr
	}
	m.log, m.Foreign = nil, nil
	return orphans, err
}

// outPath is where out was.
func (d *done) outPath() wspath.Path {
	if d.act == actMoved {
		return d.to
	}
	return d.path
}

func (m *Materializer) undoOne(d *done) (left *rootfs.Displaced, err error) {
	switch d.act {
	case actPlaced:
		m.Disk.Index.DropFile(d.path)
		return nil, m.unplace(d)
	case actSwapped:
		m.Disk.Index.DropFile(d.path)
		return m.unswap(d)
	case actTaken:
		if d.dir {
			m.Disk.Index.DropTree(d.path)
		} else {
			m.Disk.Index.DropFile(d.path)
		}
		return m.putBack(d.out, d.path)
	case actMoved:
		if d.dir {
			m.Disk.Index.MoveTree(d.to, d.path)
		} else {
			m.Disk.Index.DropFile(d.to)
			m.Disk.Index.DropFile(d.path)
		}
		err := m.Disk.FS.RenameNoReplace(string(d.to), string(d.path))
		if err == nil && d.dir {
			m.followed(d.to, d.path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return d.out, err
		}
		if d.out == nil {
			return nil, nil
		}
		return m.putBack(d.out, d.to)
	case actExchanged:
		err := m.Disk.FS.Exchange(string(d.to), string(d.path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // removed meanwhile by another process
		}
		if err == nil {
			m.exchanged(d.to, d.path, d.dir)
		}
		return nil, err
	case actMade:
		// What a person, or another request, put into it keeps it.
		for _, x := range m.P.Contents.All {
			x.Staged.Leave(d.path)
		}
		Rmdir(m.Disk, d.path)
		return nil, nil
	case actPruned:
		_, err := m.Disk.Root.EnsureDir(d.path)
		return nil, err
	case actChmod:
		m.Disk.Index.DropFile(d.path)
		err := m.Disk.FS.Chmod(string(d.path), d.perm)
		if disk.IsAbsent(err) {
			err = nil
		}
		return nil, err
	}
	return nil, nil
}

// unplace takes away what was put where nothing was.
func (m *Materializer) unplace(d *done) error {
	out, err := m.Disk.Root.Take(d.path)
	if out != nil && err != nil {
		err = m.Disk.Root.Look(out)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return m.reclaim(d, out, func() error {
		_, err := m.putBack(out, d.path)
		return err
	})
}

// reclaim takes our own content back, or gives a user's file its place again.
func (m *Materializer) reclaim(d *done, out *rootfs.Displaced, notOurs func() error) error {
	if d.staged == nil { // a link
		if out.Info.IsSymlink() {
			return m.Disk.Root.Drop(out)
		}
		return notOurs()
	}
	if d.staged.Is(out.Info) {
		d.staged.Reclaim(out)
		return nil
	}
	return notOurs()
}

// unswap exchanges back.
func (m *Materializer) unswap(d *done) (*rootfs.Displaced, error) {
	out, err := m.Disk.Root.SwapBack(d.out, d.path)
	if out != nil && err != nil {
		err = m.Disk.Root.Look(out)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return m.putBack(d.out, d.path)
	}
	if err != nil {
		return d.out, err
	}
	var left *rootfs.Displaced
	err = m.reclaim(d, out, func() error {
		// A person wrote over ours: that stays, and what it displaced is an
		// orphan.
		again, err := m.Disk.Root.SwapBack(out, d.path)
		if errors.Is(err, fs.ErrNotExist) {
			_, err = m.putBack(out, d.path)
			return err
		}
		if err == nil {
			left = again
		}
		return err
	})
	return left, err
}

// putBack gives what was displaced its name again; what cannot have it, because
// something is there, is left over.
func (m *Materializer) putBack(out *rootfs.Displaced, p wspath.Path) (*rootfs.Displaced, error) {
	for range disk.Tries {
		err := m.Disk.Root.PutBack(out, p)
		switch {
		case err == nil:
			return nil, nil
		case errors.Is(err, fs.ErrExist):
			return out, nil
		case !errors.Is(err, fs.ErrNotExist):
			return out, err
		}
		if m.Disk.Root.Look(out) != nil {
			return nil, err // gone by itself
		}
		if _, derr := m.Disk.Root.EnsureDir(p.Dir()); derr != nil {
			return out, derr
		}
	}
	return out, nil
}

// Finish releases displaced files, once all is done and recorded. Those that are
// aside may be removed after the answer.
func (m *Materializer) Finish() {
	// A file that this change set wrote and displaced again is not open for writing
	// by another process.
	m.P.Contents.Close()
	for i := range m.log {
		d := &m.log[i]
		if d.out == nil {
			continue
		}
		if d.out.Info.IsRegular() && d.open != vfs.No {
			m.Keeper.Wait(d.outPath(), d.out, d.open)
			continue
		}
		if d.out.Info.IsDir() {
			m.Keeper.RetireTree(d.out, d.path, d.skipped)
			continue
		}
		m.Keeper.Finish(d.outPath(), d.out)
	}
}

// Touched gives the paths whose files and folders a checkpoint has to sync.
func (m *Materializer) Touched() []wspath.Path {
	out := make([]wspath.Path, 0, len(m.log))
	for i := range m.log {
		d := &m.log[i]
		if d.act == actMoved && d.dir {
			for _, p := range out { // what was done in the folder before has moved along
				if rel, ok := p.Rel(d.path); ok {
					out = append(out, d.to.Join(string(rel)))
				}
			}
		}
		out = append(out, d.path)
		if d.to != "" {
			out = append(out, d.to)
		}
	}
	return out
}

// prune removes a folder if it is still empty. What this request displaced in
// it moves up first: it is kept until all is done.
func (m *Materializer) prune(s *plan.Step) error {
	for i := range m.log {
		out := m.log[i].out
		if out == nil || wspath.Path(out.Temp).Dir() != s.Path {
			continue
		}
		if err := m.Disk.Root.MoveUp(out); err != nil {
			return err
		}
	}
	// Remove takes a file too, which a person may have put there.
	if now, err := m.Disk.Lstat(s.Path); err != nil || now.Kind != op.KindDir {
		return err
	}
	err := m.Disk.FS.Remove(string(s.Path))
	switch {
	case err == nil:
		m.log = append(m.log, done{act: actPruned, path: s.Path})
	case errors.Is(err, syscall.ENOTEMPTY), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EBUSY):
		return nil
	}
	return err
}
