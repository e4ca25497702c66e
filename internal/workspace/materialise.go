package workspace

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/moves"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// act is how a step was done.
type act uint8

const (
	actPlaced    act = iota + 1 // content stands where nothing stood
	actSwapped                  // content stands in place of out
	actTaken                    // out was renamed away
	actMoved                    // path is at to; out stood there, if not nil
	actExchanged                // path and to took each other's places
	actMade                     // a folder
	actPruned                   // an empty folder was removed
	actChmod                    // permission bits; perm were there before
)

// done is one action on disk, and what is needed to undo it.
type done struct {
	act      act
	path, to wspath.Path
	out      *rootfs.Displaced
	staged   *rootfs.Staged
	perm     fs.FileMode
	open     vfs.Writers // whether a process may still write to out
	foreign  bool        // out is not what was expected
	dir      bool
	skipped  []Skip // of a directory that was taken: what is not recorded
}

// foreign is what a step met that nobody expected: a person was there between
// the look and the step.
type foreign struct {
	path wspath.Path       // where it stood
	out  *rootfs.Displaced // as it came out; nil: nothing stood there any more
}

// materialiser does the steps of one plan.
type materialiser struct {
	w       *Workspace
	p       *plan
	log     []done
	foreign []foreign
	moves   []moves.Step // the renames of directories among the steps
}

// run does the steps in order. After an error the log tells what was done.
func (m *materialiser) run(ctx context.Context) error {
	for i := range m.p.steps {
		// A step before may remove the file that has the attributes.
		if s := &m.p.steps[i]; s.early && s.content.staged != nil {
			s.content.staged.TakeAttributes(s.attrs)
		}
	}
	for i := range m.p.steps {
		s := &m.p.steps[i]
		var err error
		switch s.kind {
		case stepPut:
			err = m.put(ctx, s)
		case stepTake:
			err = m.take(ctx, s)
		case stepMove:
			err = m.move(ctx, s)
		case stepSwap:
			err = m.swap(ctx, s)
		case stepMkdir:
			err = m.mkdir(s)
		case stepChmod:
			err = m.chmod(ctx, s)
		case stepPrune:
			err = m.prune(s)
		}
		if err != nil {
			return errs.Wrap(err, string(s.path))
		}
	}
	return m.syncMoves()
}

// dirs makes the folder of a path and notes those that it made.
func (m *materialiser) dirs(p wspath.Path) error {
	made, err := m.w.disk.Root.EnsureDir(p.Dir())
	for _, dir := range made {
		m.log = append(m.log, done{act: actMade, path: dir})
	}
	return err
}

// put exchanges content with what stands at a path.
func (m *materialiser) put(ctx context.Context, s *step) error {
	if s.content.staged == nil {
		return m.putLink(ctx, s)
	}
	if s.attrs != "" && !s.early {
		s.content.staged.TakeAttributes(s.attrs)
	}
	exists := s.expect != nil
	var last error
	for range 2 * disk.Tries {
		if !exists {
			last = s.content.staged.Place(s.path, s.perm)
			if last == nil {
				m.log = append(m.log, done{act: actPlaced, path: s.path, staged: s.content.staged})
				if s.expect != nil {
					m.foreign = append(m.foreign, foreign{path: s.path})
				}
				return m.placed(s)
			}
		} else {
			var out *rootfs.Displaced
			if out, last = s.content.staged.Swap(s.path, s.perm); out != nil {
				m.log = append(m.log, done{act: actSwapped, path: s.path, out: out, staged: s.content.staged})
				if last != nil {
					return last
				}
				if err := m.inspect(ctx, s.expect, s.path); err != nil {
					return err
				}
				return m.placed(s)
			}
		}
		switch {
		case errors.Is(last, fs.ErrNotExist):
			// The folder is missing, or what stood there is gone.
			if err := m.dirs(s.path); err != nil {
				return err
			}
			exists = false
			if s.content.staged.Lost() {
				if err := m.stageAgain(s); err != nil {
					return err
				}
			}
		case errors.Is(last, fs.ErrExist) && !exists:
			exists = true // somebody made a file in between: it comes out
		case errors.Is(last, fs.ErrExist), errors.Is(last, syscall.EXDEV):
			// The temporary name is in use, or the folder is another file system.
			if err := m.stageAgain(s); err != nil {
				return err
			}
		default:
			return last
		}
	}
	return last
}

// stageAgain prepares the content once more beside its target. The first file
// is dropped with the request: where its folder was taken away, and comes back,
// it comes back with it.
func (m *materialiser) stageAgain(s *step) error {
	again, err := s.content.staged.Copy(s.path)
	if err != nil {
		return err
	}
	again.Stamp(s.content.blob.ID())
	m.p.contents.all = append(m.p.contents.all, &content{staged: s.content.staged})
	s.content.staged = again
	return nil
}

// followed keeps the temporary names of prepared and displaced files true when
// their folder is renamed.
func (m *materialiser) followed(from, to wspath.Path) {
	for _, x := range m.p.contents.all {
		x.staged.Follow(from, to)
	}
	for i := range m.log {
		if out := m.log[i].out; out != nil {
			out.Follow(from, to)
		}
	}
}

// placed notes what now stands at a path.
func (m *materialiser) placed(s *step) error {
	at := m.w.now()
	info, err := s.content.staged.Info()
	if err != nil {
		return err
	}
	*s.result = onDisk{info: info, id: s.content.blob.ID(), mode: s.mode, racy: true}
	m.w.disk.Remember(s.path, info, s.content.blob.ID(), s.mode, at)
	return nil
}

func (m *materialiser) putLink(ctx context.Context, s *step) error {
	exists := s.expect != nil
	var last error
	for range 2 * disk.Tries {
		if !exists {
			if last = m.w.disk.FS.Symlink(s.content.target, string(s.path)); last == nil {
				m.log = append(m.log, done{act: actPlaced, path: s.path})
				if s.expect != nil {
					m.foreign = append(m.foreign, foreign{path: s.path})
				}
				return m.linked(s)
			}
		} else {
			var out *rootfs.Displaced
			if out, last = m.w.disk.Root.SwapLink(s.path, s.content.target); out != nil {
				m.log = append(m.log, done{act: actSwapped, path: s.path, out: out})
				if last != nil {
					return last
				}
				if err := m.inspect(ctx, s.expect, s.path); err != nil {
					return err
				}
				return m.linked(s)
			}
		}
		switch {
		case errors.Is(last, fs.ErrNotExist):
			if err := m.dirs(s.path); err != nil {
				return err
			}
			exists = false
		case errors.Is(last, fs.ErrExist) && !exists:
			exists = true
		default:
			return last
		}
	}
	return last
}

func (m *materialiser) linked(s *step) error {
	info, err := m.w.disk.FS.Lstat(string(s.path))
	if err != nil {
		return err
	}
	*s.result = onDisk{info: info, id: s.content.blob.ID(), mode: object.Symlink}
	m.w.disk.Index.DropFile(s.path)
	return nil
}

// inspect looks at what the last action brought out.
func (m *materialiser) inspect(ctx context.Context, expect *onDisk, p wspath.Path) error {
	d := &m.log[len(m.log)-1]
	same, open, err := m.w.isExpected(ctx, d.out, expect)
	if err != nil {
		return err
	}
	d.open, d.foreign = open, !same
	if !same {
		if err := m.w.disk.Root.Home(d.out, p); err != nil {
			return err
		}
	} else if open != vfs.No {
		if err := m.w.disk.Root.Away(d.out, p, open == vfs.Yes); err != nil {
			return errInUse(p, err)
		}
	}
	if !same {
		m.foreign = append(m.foreign, foreign{path: p, out: d.out})
	}
	return nil
}

// isExpected reports whether what came out is what was looked at under the
// lock, and whether another process has it open for writing.
func (w *Workspace) isExpected(ctx context.Context, out *rootfs.Displaced, expect *onDisk) (same bool, open vfs.Writers, err error) {
	if !out.Info.IsRegular() {
		return expect != nil && disk.SameContent(out.Info, expect.info), vfs.No, nil
	}
	f, err := w.disk.Root.Open(out)
	if err != nil {
		// Not readable: then its stat data must do.
		return expect != nil && disk.SameContent(out.Info, expect.info) && !expect.racy, vfs.Unknown, nil
	}
	defer f.Close()
	// Asked first: what nobody has open for writing, under a name that nobody
	// else knows, changes no more.
	open = f.Writers()
	if out.Info, err = f.Stat(); err != nil {
		return false, open, err
	}
	if expect == nil || !disk.SameContent(out.Info, expect.info) {
		return false, open, nil
	}
	if !expect.racy && open == vfs.No {
		return true, open, nil
	}
	id, err := disk.HashBlob(ctx, f, out.Info.Size)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return false, open, nil // who has it open has cut it
	}
	if err != nil {
		return false, open, err
	}
	return id == expect.id, open, nil
}

// take renames away what stands at a path.
func (m *materialiser) take(ctx context.Context, s *step) error {
	if s.dir {
		if err := m.leave(s.path); err != nil {
			return err
		}
	}
	out, err := m.w.disk.Root.Take(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		if s.expect != nil || s.dir {
			m.foreign = append(m.foreign, foreign{path: s.path})
		}
		return nil
	}
	if out != nil {
		m.log = append(m.log, done{act: actTaken, path: s.path, out: out, dir: s.dir, skipped: s.skipped})
	}
	if err != nil {
		return err
	}
	if s.dir && out.Info.IsDir() {
		ok, err := m.w.treeRecorded(ctx, out.Temp, s.path, s.skipped)
		if err != nil {
			return err
		}
		if !ok {
			m.log[len(m.log)-1].foreign = true
			m.foreign = append(m.foreign, foreign{path: s.path, out: out})
		}
		return nil
	}
	m.w.disk.Index.DropFile(s.path)
	return m.inspect(ctx, s.expect, s.path)
}

// leave moves what this change set displaced out of a directory that is deleted.
func (m *materialiser) leave(dir wspath.Path) error {
	for i := range m.log {
		d := &m.log[i]
		if d.out == nil || d.out.IsAside() || !d.out.Info.IsRegular() || !wspath.Path(d.out.Temp).IsUnder(dir) {
			continue
		}
		if err := m.w.disk.Root.Away(d.out, d.outPath(), d.open == vfs.Yes); err != nil && (d.open != vfs.No || d.foreign) {
			return errInUse(d.outPath(), err)
		}
	}
	return nil
}

// errInUse is answered where a file that another process may write to cannot be
// kept.
func errInUse(p wspath.Path, err error) error {
	return &errs.Error{Kind: errs.Conflict, Code: "file_in_use", Detail: "Another process has the file open, and it cannot be kept.", Path: string(p), Err: err}
}

// move renames a file or folder.
func (m *materialiser) move(ctx context.Context, s *step) error {
	d := done{act: actMoved, path: s.path, to: s.to, dir: s.dir}
	if s.target != nil {
		// Both names always lead to something: an exchange, and what stood at
		// the target then goes from the other name.
		err := m.w.disk.FS.Exchange(string(s.path), string(s.to))
		switch {
		case err == nil:
			out, err := m.w.disk.Root.Take(s.path)
			if out == nil {
				return errors.Join(err, m.w.disk.FS.Exchange(string(s.path), string(s.to)))
			}
			d.out = out
			m.log = append(m.log, d)
			if err != nil {
				return err
			}
			if err := m.inspect(ctx, s.target, s.to); err != nil {
				return err
			}
			return m.moved(ctx, s)
		case errors.Is(err, errors.ErrUnsupported):
			if d.out, err = m.takeTarget(s.to); err != nil {
				return m.keep(s.to, d.out, err)
			}
		case errors.Is(err, fs.ErrNotExist):
			m.foreign = append(m.foreign, foreign{path: s.to})
		default:
			return err
		}
	}
	for range 2 * disk.Tries {
		err := m.w.disk.FS.RenameNoReplace(string(s.path), string(s.to))
		switch {
		case err == nil:
			m.log = append(m.log, d)
			if d.out != nil {
				if err := m.inspect(ctx, s.target, s.to); err != nil {
					return err
				}
			}
			return m.moved(ctx, s)
		case errors.Is(err, fs.ErrExist) && d.out == nil:
			// Somebody made something there in between.
			if d.out, err = m.takeTarget(s.to); err != nil {
				return m.keep(s.to, d.out, err)
			}
		case errors.Is(err, fs.ErrNotExist):
			if _, lerr := m.w.disk.FS.Lstat(string(s.path)); errors.Is(lerr, fs.ErrNotExist) {
				m.foreign = append(m.foreign, foreign{path: s.path})
				return m.keep(s.to, d.out, nil)
			}
			if err := m.dirs(s.to); err != nil {
				return m.keep(s.to, d.out, err)
			}
		default:
			return m.keep(s.to, d.out, err)
		}
	}
	return m.keep(s.to, d.out, disk.ErrChanging(s.to))
}

// swap exchanges two files or directories.
func (m *materialiser) swap(ctx context.Context, s *step) error {
	err := m.w.disk.Root.Exchange(s.path, s.to)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		temp := m.w.disk.Root.TempIn(s.path.Dir())
		for _, x := range []step{{path: s.path, to: temp, expect: s.expect, result: s.expect}, {path: s.to, to: s.path, expect: s.target, result: s.target},
			{path: temp, to: s.to, expect: s.expect, result: s.expect}} {
			x.dir = s.dir
			if err := m.move(ctx, &x); err != nil || len(m.foreign) > 0 {
				return err
			}
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		m.foreign = append(m.foreign, foreign{path: s.path}, foreign{path: s.to})
		return nil
	case err != nil:
		return err
	}
	m.log = append(m.log, done{act: actExchanged, path: s.path, to: s.to, dir: s.dir})
	m.exchanged(s.path, s.to, s.dir)
	for _, x := range []struct {
		now    wspath.Path
		expect *onDisk
	}{{s.to, s.expect}, {s.path, s.target}} {
		info, err := m.w.disk.FS.Lstat(string(x.now))
		if err != nil {
			return err
		}
		if info.IsDir() != x.expect.info.IsDir() || !info.IsDir() && !disk.SameContent(info, x.expect.info) {
			m.foreign = append(m.foreign, foreign{path: s.path}, foreign{path: s.to})
			return nil
		}
		m.carried(x.now, info, x.expect)
	}
	return nil
}

// carried notes that a file has another name, if info is that of one. Its bytes
// are those of before.
func (m *materialiser) carried(p wspath.Path, info vfs.Info, is *onDisk) {
	if is.info = info; info.IsRegular() && !is.racy {
		m.w.disk.Remember(p, info, is.id, is.mode, m.w.now())
	} else if !info.IsDir() {
		m.w.disk.Index.DropFile(p)
	}
}

// exchanged keeps what is known by path true when two names are exchanged.
func (m *materialiser) exchanged(a, b wspath.Path, dir bool) {
	m.w.disk.Index.DropFile(a)
	m.w.disk.Index.DropFile(b)
	if !dir {
		return
	}
	between := wspath.Path(wspath.TempName(0)) // no file's
	for _, x := range [][2]wspath.Path{{a, between}, {b, a}, {between, b}} {
		m.w.disk.Index.MoveTree(x[0], x[1])
		m.followed(x[0], x[1])
		m.w.progress.follow(x[0], x[1])
	}
}

func (m *materialiser) takeTarget(to wspath.Path) (*rootfs.Displaced, error) {
	out, err := m.w.disk.Root.Take(to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return out, err
}

// keep notes what was taken before an error, so that it is put back.
func (m *materialiser) keep(p wspath.Path, out *rootfs.Displaced, err error) error {
	if out != nil {
		m.log = append(m.log, done{act: actTaken, path: p, out: out})
	}
	return err
}

// moved looks at what came along under the new name.
func (m *materialiser) moved(ctx context.Context, s *step) error {
	if s.dir {
		m.w.disk.Index.MoveTree(s.path, s.to)
		m.followed(s.path, s.to)
		m.w.progress.follow(s.path, s.to)
		return nil
	}
	m.w.disk.Index.DropFile(s.path)
	info, err := m.w.disk.FS.Lstat(string(s.to))
	if err != nil {
		return err
	}
	if s.expect != nil && !disk.SameContent(info, s.expect.info) {
		m.foreign = append(m.foreign, foreign{path: s.path})
		m.w.disk.Index.DropFile(s.to)
		return nil
	}
	if s.result != nil {
		m.carried(s.to, info, s.result)
	}
	return nil
}

func (m *materialiser) mkdir(s *step) error {
	for range disk.Tries {
		err := m.w.disk.FS.Mkdir(string(s.path), m.w.disk.Root.DirPerm())
		switch {
		case err == nil:
			m.log = append(m.log, done{act: actMade, path: s.path})
			return nil
		case errors.Is(err, fs.ErrExist):
			info, err := m.w.disk.FS.Lstat(string(s.path))
			if err == nil && info.IsDir() {
				return nil
			}
			if err == nil {
				return &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The target already exists.", Path: string(s.path)}
			}
		case errors.Is(err, fs.ErrNotExist):
			if err := m.dirs(s.path); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return disk.ErrChanging(s.path)
}

func (m *materialiser) chmod(ctx context.Context, s *step) error {
	f, err := m.w.disk.FS.Open(string(s.path))
	if err != nil {
		if disk.IsAbsent(err) || errors.Is(err, syscall.ELOOP) {
			m.foreign = append(m.foreign, foreign{path: s.path})
			return nil
		}
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if s.expect == nil || !disk.SameContent(info, s.expect.info) {
		m.foreign = append(m.foreign, foreign{path: s.path})
		return nil
	}
	if err := f.Chmod(s.perm); err != nil {
		return err
	}
	m.log = append(m.log, done{act: actChmod, path: s.path, perm: info.Mode.Perm()})
	at := m.w.now()
	if info, err = f.Stat(); err != nil {
		return err
	}
	s.result.info, s.result.mode = info, s.mode
	if s.expect.racy {
		m.w.disk.Index.DropFile(s.path)
	} else {
		m.w.disk.Remember(s.path, info, s.expect.id, s.mode, at)
	}
	return nil
}
