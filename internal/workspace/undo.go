package workspace

import (
	"context"
	"errors"
	"io/fs"

	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// orphan is what was displaced and could not be put back, because a person has
// by now put something else there: its bytes are recorded as the path's.
type orphan struct {
	path wspath.Path
	out  *rootfs.Displaced
}

// undo takes back what was done on disk, the last first. Where a person was
// there meanwhile, what the person did stands. It goes on after errors and
// gives the first.
func (m *materialiser) undo(ctx context.Context) (orphans []orphan, err error) {
	for i := len(m.log) - 1; i >= 0; i-- {
		d := &m.log[i]
		left, uerr := m.undoOne(d)
		if left != nil {
			if herr := m.w.disk.Root.Home(left, d.outPath()); herr != nil {
				m.w.log.Error("displaced file not recorded; it is at the next start", "name", left.Temp, "error", herr)
			} else {
				orphans = append(orphans, orphan{path: d.outPath(), out: left})
			}
		}
		if uerr != nil && err == nil {
			err = uerr
		}
	}
	if serr := m.syncMoves(); err == nil {
		err = serr
	}
	m.log, m.foreign = nil, nil
	return orphans, err
}

// rmdir removes a folder if it is one and is empty.
func (w *Workspace) rmdir(p wspath.Path) {
	if s, err := w.disk.Lstat(p); err == nil && s.Kind == KindDir {
		_ = w.disk.FS.Remove(string(p)) // one that is not empty stays
	}
}

// outPath is where out stood.
func (d *done) outPath() wspath.Path {
	if d.act == actMoved {
		return d.to
	}
	return d.path
}

func (m *materialiser) undoOne(d *done) (left *rootfs.Displaced, err error) {
	switch d.act {
	case actPlaced:
		m.w.disk.Index.DropFile(d.path)
		return nil, m.unplace(d)
	case actSwapped:
		m.w.disk.Index.DropFile(d.path)
		return m.unswap(d)
	case actTaken:
		if d.dir {
			m.w.disk.Index.DropTree(d.path)
		} else {
			m.w.disk.Index.DropFile(d.path)
		}
		return m.putBack(d.out, d.path)
	case actMoved:
		if d.dir {
			m.w.disk.Index.MoveTree(d.to, d.path)
		} else {
			m.w.disk.Index.DropFile(d.to)
			m.w.disk.Index.DropFile(d.path)
		}
		err := m.w.disk.FS.RenameNoReplace(string(d.to), string(d.path))
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
		err := m.w.disk.FS.Exchange(string(d.to), string(d.path))
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // removed meanwhile by another process
		}
		if err == nil {
			m.exchanged(d.to, d.path, d.dir)
		}
		return nil, err
	case actMade:
		// What a person, or another request, put into it keeps it.
		for _, x := range m.p.contents.all {
			x.staged.Leave(d.path)
		}
		m.w.rmdir(d.path)
		return nil, nil
	case actPruned:
		_, err := m.w.disk.Root.EnsureDir(d.path)
		return nil, err
	case actChmod:
		m.w.disk.Index.DropFile(d.path)
		err := m.w.disk.FS.Chmod(string(d.path), d.perm)
		if disk.IsAbsent(err) {
			err = nil
		}
		return nil, err
	}
	return nil, nil
}

// unplace takes away what was put where nothing stood.
func (m *materialiser) unplace(d *done) error {
	out, err := m.w.disk.Root.Take(d.path)
	if out != nil && err != nil {
		err = m.w.disk.Root.Look(out)
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

// reclaim takes our own content back, or gives a person's file its place again.
func (m *materialiser) reclaim(d *done, out *rootfs.Displaced, notOurs func() error) error {
	if d.staged == nil { // a link
		if out.Info.IsSymlink() {
			return m.w.disk.Root.Drop(out)
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
func (m *materialiser) unswap(d *done) (*rootfs.Displaced, error) {
	out, err := m.w.disk.Root.SwapBack(d.out, d.path)
	if out != nil && err != nil {
		err = m.w.disk.Root.Look(out)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return m.putBack(d.out, d.path)
	}
	if err != nil {
		return d.out, err
	}
	var left *rootfs.Displaced
	err = m.reclaim(d, out, func() error {
		// A person wrote over ours: that stands, and what it displaced is an
		// orphan.
		again, err := m.w.disk.Root.SwapBack(out, d.path)
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
// something stands there, is left over.
func (m *materialiser) putBack(out *rootfs.Displaced, p wspath.Path) (*rootfs.Displaced, error) {
	for range disk.Tries {
		err := m.w.disk.Root.PutBack(out, p)
		switch {
		case err == nil:
			return nil, nil
		case errors.Is(err, fs.ErrExist):
			return out, nil
		case !errors.Is(err, fs.ErrNotExist):
			return out, err
		}
		if m.w.disk.Root.Look(out) != nil {
			return nil, err // gone by itself
		}
		if _, derr := m.w.disk.Root.EnsureDir(p.Dir()); derr != nil {
			return out, derr
		}
	}
	return out, nil
}

// finish lets go of what was displaced, once all is done and recorded. What is
// aside need not go before the answer.
func (m *materialiser) finish() {
	// A file that this change set wrote and displaced again is not open for writing
	// by another process.
	m.p.contents.close()
	for i := range m.log {
		d := &m.log[i]
		if d.out == nil {
			continue
		}
		if d.out.Info.IsRegular() && d.open != vfs.No {
			m.w.wait(d.outPath(), d.out, d.open)
			continue
		}
		if d.out.Info.IsDir() {
			m.w.retireTree(d.out, d.path, d.skipped)
			continue
		}
		if d.out.IsAside() {
			m.w.dropSoon(lingering{path: d.outPath(), out: d.out})
		} else if l := (lingering{path: d.outPath(), out: d.out}); !m.w.lateComer(l) {
			m.w.drop(l)
		}
	}
}

// touched gives the paths whose files and folders a checkpoint has to sync.
func (m *materialiser) touched() []wspath.Path {
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
