package materialize

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"syscall"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/moves"
	"umbra/internal/rootfs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/content"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/workspace/plan"
	"umbra/internal/workspace/record"
	"umbra/internal/workspace/retire"
	"umbra/internal/wspath"
)

// act is how a step was done.
type act uint8

const (
	actPlaced    act = iota + 1 // content is where nothing was
	actSwapped                  // content replaced out
	actTaken                    // out was renamed away
	actMoved                    // path is at to; out was there, if not nil
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
	skipped  []op.Skip // of a directory that was taken: what is not recorded
}

// foreign is an unexpected file that a step met: a user was there between
// the look and the step.
type foreign struct {
	Path wspath.Path       // where it was
	Out  *rootfs.Displaced // as it came out; nil: nothing was there any more
}

// Target is where changes are materialized: one workspace's content.
type Target struct {
	Disk   *disk.Disk
	Rec    *record.Recorder
	Keeper *retire.Keeper
	Log    *slog.Logger
}

// New returns the target of a keeper's workspace.
func New(k *retire.Keeper) *Target {
	return &Target{Disk: k.Disk, Rec: k.Rec, Keeper: k, Log: k.Log}
}

// Begin begins to do the steps of a plan, whose paths are locked.
func (t *Target) Begin(p *plan.Plan) *Materializer {
	return &Materializer{Target: t, P: p}
}

// Materializer does the steps of one plan.
type Materializer struct {
	*Target
	P       *plan.Plan
	log     []done
	Foreign []foreign
	moves   []moves.Step // the renames of directories among the steps
}

// Run does the steps in order. After an error the log has what was done.
func (m *Materializer) Run(ctx context.Context) error {
	for i := range m.P.Steps {
		// A step before may remove the file that has the attributes.
		if s := &m.P.Steps[i]; s.Early && s.Content.Staged != nil {
			s.Content.Staged.TakeAttributes(s.Attrs)
		}
	}
	for i := range m.P.Steps {
		s := &m.P.Steps[i]
		var err error
		switch s.Kind {
		case plan.StepPut:
			err = m.put(ctx, s)
		case plan.StepTake:
			err = m.take(ctx, s)
		case plan.StepMove:
			err = m.move(ctx, s)
		case plan.StepSwap:
			err = m.swap(ctx, s)
		case plan.StepMkdir:
			err = m.mkdir(s)
		case plan.StepChmod:
			err = m.chmod(ctx, s)
		case plan.StepPrune:
			err = m.prune(s)
		}
		if err != nil {
			return errs.Wrap(err, string(s.Path))
		}
	}
	return m.syncMoves()
}

// dirs makes the folder of a path and notes those that it made.
func (m *Materializer) dirs(p wspath.Path) error {
	made, err := m.Disk.Root.EnsureDir(p.Dir())
	for _, dir := range made {
		m.log = append(m.log, done{act: actMade, path: dir})
	}
	return err
}

// put exchanges content with the file at a path.
func (m *Materializer) put(ctx context.Context, s *plan.Step) error {
	if s.Content.Staged == nil {
		return m.putLink(ctx, s)
	}
	if s.Attrs != "" && !s.Early {
		s.Content.Staged.TakeAttributes(s.Attrs)
	}
	exists := s.Expect != nil
	var last error
	for range 2 * disk.Tries {
		if !exists {
			last = s.Content.Staged.Place(s.Path, s.Perm)
			if last == nil {
				m.log = append(m.log, done{act: actPlaced, path: s.Path, staged: s.Content.Staged})
				if s.Expect != nil {
					m.Foreign = append(m.Foreign, foreign{Path: s.Path})
				}
				return m.placed(s)
			}
		} else {
			var out *rootfs.Displaced
			if out, last = s.Content.Staged.Swap(s.Path, s.Perm); out != nil {
				m.log = append(m.log, done{act: actSwapped, path: s.Path, out: out, staged: s.Content.Staged})
				if last != nil {
					return last
				}
				if err := m.inspect(ctx, s.Expect, s.Path); err != nil {
					return err
				}
				return m.placed(s)
			}
		}
		switch {
		case errors.Is(last, fs.ErrNotExist):
			// The folder is missing, or the file there is gone.
			if err := m.dirs(s.Path); err != nil {
				return err
			}
			exists = false
			if s.Content.Staged.Lost() {
				if err := m.stageAgain(s); err != nil {
					return err
				}
			}
		case errors.Is(last, fs.ErrExist) && !exists:
			exists = true // another process made a file in between: it is displaced
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

// stageAgain prepares the content once more next to its target. The first file
// is dropped with the request: where its folder was taken away, and comes back,
// it comes back with it.
func (m *Materializer) stageAgain(s *plan.Step) error {
	again, err := s.Content.Staged.Copy(s.Path)
	if err != nil {
		return err
	}
	again.Stamp(s.Content.Blob.ID())
	m.P.Contents.All = append(m.P.Contents.All, &content.Content{Staged: s.Content.Staged})
	s.Content.Staged = again
	return nil
}

// followed keeps the temporary names of prepared and displaced files true when
// their folder is renamed.
func (m *Materializer) followed(from, to wspath.Path) {
	for _, x := range m.P.Contents.All {
		x.Staged.Follow(from, to)
	}
	for i := range m.log {
		if out := m.log[i].out; out != nil {
			out.Follow(from, to)
		}
	}
}

// placed notes what is now at a path. Whether a user wrote to it already no clock says.
func (m *Materializer) placed(s *plan.Step) error {
	at := m.Disk.Now()
	info, err := s.Content.Staged.Info()
	if err != nil {
		return err
	}
	*s.Result = plan.OnDisk{Info: info, ID: s.Content.Blob.ID(), Mode: s.Mode, Racy: true}
	if s.Content.Staged.Wrote(info) || info.Size != s.Content.Blob.Size() {
		m.Disk.Index.DropFile(s.Path)
		return nil
	}
	m.Disk.Remember(s.Path, info, s.Content.Blob.ID(), s.Mode, at)
	return nil
}

func (m *Materializer) putLink(ctx context.Context, s *plan.Step) error {
	exists := s.Expect != nil
	var last error
	for range 2 * disk.Tries {
		if !exists {
			if last = m.Disk.FS.Symlink(s.Content.Target, string(s.Path)); last == nil {
				m.log = append(m.log, done{act: actPlaced, path: s.Path})
				if s.Expect != nil {
					m.Foreign = append(m.Foreign, foreign{Path: s.Path})
				}
				return m.linked(s)
			}
		} else {
			var out *rootfs.Displaced
			if out, last = m.Disk.Root.SwapLink(s.Path, s.Content.Target); out != nil {
				m.log = append(m.log, done{act: actSwapped, path: s.Path, out: out})
				if last != nil {
					return last
				}
				if err := m.inspect(ctx, s.Expect, s.Path); err != nil {
					return err
				}
				return m.linked(s)
			}
		}
		switch {
		case errors.Is(last, fs.ErrNotExist):
			if err := m.dirs(s.Path); err != nil {
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

func (m *Materializer) linked(s *plan.Step) error {
	info, err := m.Disk.FS.Lstat(string(s.Path))
	if err != nil {
		return err
	}
	*s.Result = plan.OnDisk{Info: info, ID: s.Content.Blob.ID(), Mode: object.Symlink}
	m.Disk.Index.DropFile(s.Path)
	return nil
}

// inspect checks what the last action brought out.
func (m *Materializer) inspect(ctx context.Context, expect *plan.OnDisk, p wspath.Path) error {
	d := &m.log[len(m.log)-1]
	same, open, err := m.isExpected(ctx, d.out, p, expect)
	if err != nil {
		return err
	}
	d.open, d.foreign = open, !same
	if !same {
		if err := m.Disk.Root.Home(d.out, p); err != nil {
			return err
		}
	} else if open != vfs.No {
		if err := m.Disk.Root.Away(d.out, p, open == vfs.Yes); err != nil {
			return errInUse(p, err)
		}
	}
	if !same {
		m.Foreign = append(m.Foreign, foreign{Path: p, Out: d.out})
	}
	return nil
}

// isExpected reports whether what came out is what was checked under the
// lock, and whether another process has it open for writing.
func (m *Materializer) isExpected(ctx context.Context, out *rootfs.Displaced, p wspath.Path, expect *plan.OnDisk) (same bool, open vfs.Writers, err error) {
	if !out.Info.IsRegular() {
		return expect != nil && disk.SameContent(out.Info, expect.Info), vfs.No, nil
	}
	f, err := m.Disk.Root.Open(out)
	if err != nil {
		// Not readable: then its stat data must do.
		return expect != nil && disk.SameContent(out.Info, expect.Info) && !expect.Racy, vfs.Unknown, nil
	}
	defer f.Close()
	// Asked first: what no process has open for writing, under a name that only
	// the server knows, no longer changes.
	open = f.Writers()
	if out.Info, err = f.Stat(); err != nil {
		return false, open, err
	}
	if expect == nil || !disk.SameContent(out.Info, expect.Info) {
		return false, open, nil
	}
	if m.Rec.Unsettled(p, expect.Info, expect.ID) {
		if err := f.Sync(); err != nil {
			return false, open, err
		}
	}
	if !expect.Racy && open == vfs.No {
		return true, open, nil
	}
	id, err := disk.HashBlob(ctx, f, out.Info.Size)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return false, open, nil // who has it open has cut it
	}
	if err != nil {
		return false, open, err
	}
	return id == expect.ID, open, nil
}

// take renames away what is at a path.
func (m *Materializer) take(ctx context.Context, s *plan.Step) error {
	if s.Dir {
		if err := m.leave(s.Path); err != nil {
			return err
		}
	}
	out, err := m.Disk.Root.Take(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		if s.Expect != nil || s.Dir {
			m.Foreign = append(m.Foreign, foreign{Path: s.Path})
		}
		return nil
	}
	if out != nil {
		m.log = append(m.log, done{act: actTaken, path: s.Path, out: out, dir: s.Dir, skipped: s.Skipped})
	}
	if err != nil {
		return err
	}
	if s.Dir && out.Info.IsDir() {
		ok, err := m.Keeper.TreeRecorded(ctx, out.Temp, s.Path, s.Skipped)
		if err != nil {
			return err
		}
		if !ok {
			m.log[len(m.log)-1].foreign = true
			m.Foreign = append(m.Foreign, foreign{Path: s.Path, Out: out})
		}
		return nil
	}
	m.Disk.Index.DropFile(s.Path)
	return m.inspect(ctx, s.Expect, s.Path)
}

// leave moves what this change set displaced out of a directory that is deleted.
func (m *Materializer) leave(dir wspath.Path) error {
	for i := range m.log {
		d := &m.log[i]
		if d.out == nil || d.out.IsAside() || !d.out.Info.IsRegular() || !wspath.Path(d.out.Temp).IsUnder(dir) {
			continue
		}
		if err := m.Disk.Root.Away(d.out, d.outPath(), d.open == vfs.Yes); err != nil && (d.open != vfs.No || d.foreign) {
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
func (m *Materializer) move(ctx context.Context, s *plan.Step) error {
	d := done{act: actMoved, path: s.Path, to: s.To, dir: s.Dir}
	if s.Target != nil {
		// Both names always lead to something: an exchange, and what was at
		// the target then goes from the other name.
		err := m.Disk.FS.Exchange(string(s.Path), string(s.To))
		switch {
		case err == nil:
			out, err := m.Disk.Root.Take(s.Path)
			if out == nil {
				return errors.Join(err, m.Disk.FS.Exchange(string(s.Path), string(s.To)))
			}
			d.out = out
			m.log = append(m.log, d)
			if err != nil {
				return err
			}
			if err := m.inspect(ctx, s.Target, s.To); err != nil {
				return err
			}
			return m.moved(ctx, s)
		case errors.Is(err, errors.ErrUnsupported):
			if d.out, err = m.takeTarget(s.To); err != nil {
				return m.keep(s.To, d.out, err)
			}
		case errors.Is(err, fs.ErrNotExist):
			m.Foreign = append(m.Foreign, foreign{Path: s.To})
		default:
			return err
		}
	}
	for range 2 * disk.Tries {
		err := m.Disk.FS.RenameNoReplace(string(s.Path), string(s.To))
		switch {
		case err == nil:
			m.log = append(m.log, d)
			if d.out != nil {
				if err := m.inspect(ctx, s.Target, s.To); err != nil {
					return err
				}
			}
			return m.moved(ctx, s)
		case errors.Is(err, fs.ErrExist) && d.out == nil:
			// Another process made something there in between.
			if d.out, err = m.takeTarget(s.To); err != nil {
				return m.keep(s.To, d.out, err)
			}
		case errors.Is(err, fs.ErrNotExist):
			if _, lerr := m.Disk.FS.Lstat(string(s.Path)); errors.Is(lerr, fs.ErrNotExist) {
				m.Foreign = append(m.Foreign, foreign{Path: s.Path})
				return m.keep(s.To, d.out, nil)
			}
			if err := m.dirs(s.To); err != nil {
				return m.keep(s.To, d.out, err)
			}
		case errors.Is(err, syscall.EXDEV) && s.Dir:
			// An overlay renames no directory that shows one below it.
			if err := m.moveEach(s.Path, s.To); err != nil {
				return m.keep(s.To, d.out, err)
			}
			m.log = append(m.log, d)
			return m.moved(ctx, s)
		default:
			return m.keep(s.To, d.out, err)
		}
	}
	return m.keep(s.To, d.out, disk.ErrChanging(s.To))
}

// swap exchanges two files or directories.
func (m *Materializer) swap(ctx context.Context, s *plan.Step) error {
	err := m.Disk.Root.Exchange(s.Path, s.To)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		temp := m.Disk.Root.TempIn(s.Path.Dir())
		for _, x := range []plan.Step{{Path: s.Path, To: temp, Expect: s.Expect, Result: s.Expect}, {Path: s.To, To: s.Path, Expect: s.Target, Result: s.Target},
			{Path: temp, To: s.To, Expect: s.Expect, Result: s.Expect}} {
			x.Dir = s.Dir
			if err := m.move(ctx, &x); err != nil || len(m.Foreign) > 0 {
				return err
			}
		}
		return nil
	case errors.Is(err, fs.ErrNotExist):
		m.Foreign = append(m.Foreign, foreign{Path: s.Path}, foreign{Path: s.To})
		return nil
	case err != nil:
		return err
	}
	m.log = append(m.log, done{act: actExchanged, path: s.Path, to: s.To, dir: s.Dir})
	m.exchanged(s.Path, s.To, s.Dir)
	for _, x := range []struct {
		was, now wspath.Path
		expect   *plan.OnDisk
	}{{s.Path, s.To, s.Expect}, {s.To, s.Path, s.Target}} {
		info, err := m.Disk.FS.Lstat(string(x.now))
		if err != nil {
			return err
		}
		if info.IsDir() != x.expect.Info.IsDir() || !info.IsDir() && !disk.SameContent(info, x.expect.Info) {
			m.Foreign = append(m.Foreign, foreign{Path: s.Path}, foreign{Path: s.To})
			return nil
		}
		if err := m.settle(x.was, x.now, x.expect); err != nil {
			return err
		}
		m.carried(x.now, info, x.expect)
	}
	return nil
}

// carried notes that a file has another name, if info is that of one. Its bytes
// are those of before.
func (m *Materializer) carried(p wspath.Path, info vfs.Info, is *plan.OnDisk) {
	if is.Info = info; info.IsRegular() && !is.Racy {
		m.Disk.Remember(p, info, is.ID, is.Mode, m.Disk.Now())
	} else if !info.IsDir() {
		m.Disk.Index.DropFile(p)
	}
}

// exchanged keeps what is known by path true when two names are exchanged.
func (m *Materializer) exchanged(a, b wspath.Path, dir bool) {
	m.Disk.Index.DropFile(a)
	m.Disk.Index.DropFile(b)
	if !dir {
		return
	}
	between := wspath.Path(wspath.TempName(0)) // no file's
	for _, x := range [][2]wspath.Path{{a, between}, {b, a}, {between, b}} {
		m.Disk.Index.MoveTree(x[0], x[1])
		m.followed(x[0], x[1])
		m.Rec.Progress.Follow(x[0], x[1])
	}
}

// moveEach moves a directory by moving what is in it. After an error all is where it was.
func (m *Materializer) moveEach(from, to wspath.Path) (err error) {
	info, err := m.Disk.FS.Lstat(string(from))
	if err != nil {
		return err
	}
	if err := m.Disk.FS.Mkdir(string(to), 0o700); err != nil {
		return err
	}
	var moved []string
	defer func() {
		if err == nil {
			return
		}
		for _, name := range slices.Backward(moved) {
			// What is taken back is the overlay's own by now, and so can be renamed.
			err = errors.Join(err, m.Disk.FS.RenameNoReplace(string(to.Join(name)), string(from.Join(name))))
		}
		Rmdir(m.Disk, to)
	}()
	for range disk.Tries {
		list, err := m.Disk.FS.ReadDir(string(from))
		if err != nil {
			return err
		}
		for _, e := range list {
			err := m.Disk.FS.RenameNoReplace(string(from.Join(e.Name)), string(to.Join(e.Name)))
			if errors.Is(err, syscall.EXDEV) && e.Type.IsDir() {
				err = m.moveEach(from.Join(e.Name), to.Join(e.Name))
			}
			if errors.Is(err, fs.ErrNotExist) {
				continue // it went meanwhile
			}
			if err != nil {
				return err
			}
			moved = append(moved, e.Name)
		}
		err = m.Disk.FS.Chmod(string(to), info.Mode.Perm())
		if err == nil {
			err = m.Disk.FS.Remove(string(from))
		}
		if !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	return disk.ErrChanging(from)
}

func (m *Materializer) takeTarget(to wspath.Path) (*rootfs.Displaced, error) {
	out, err := m.Disk.Root.Take(to)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return out, err
}

// keep notes what was taken before an error, so that it is put back.
func (m *Materializer) keep(p wspath.Path, out *rootfs.Displaced, err error) error {
	if out != nil {
		m.log = append(m.log, done{act: actTaken, path: p, out: out})
	}
	return err
}

// moved checks what came along under the new name.
func (m *Materializer) moved(ctx context.Context, s *plan.Step) error {
	if s.Dir {
		m.Disk.Index.MoveTree(s.Path, s.To)
		m.followed(s.Path, s.To)
		m.Rec.Progress.Follow(s.Path, s.To)
		return nil
	}
	m.Disk.Index.DropFile(s.Path)
	info, err := m.Disk.FS.Lstat(string(s.To))
	if err != nil {
		return err
	}
	if s.Expect != nil && !disk.SameContent(info, s.Expect.Info) {
		m.Foreign = append(m.Foreign, foreign{Path: s.Path})
		m.Disk.Index.DropFile(s.To)
		return nil
	}
	if err := m.settle(s.Path, s.To, s.Expect); err != nil {
		return err
	}
	if s.Result != nil {
		m.carried(s.To, info, s.Result)
	}
	return nil
}

// settle makes a file's bytes durable under its new name, if they are unsettled.
func (m *Materializer) settle(was, now wspath.Path, is *plan.OnDisk) error {
	if is == nil || !m.Rec.Unsettled(was, is.Info, is.ID) {
		return nil
	}
	f, _, err := m.Disk.OpenRegular(now)
	if err != nil {
		return nil // gone or not readable since: a user's
	}
	return errors.Join(f.Sync(), f.Close())
}

func (m *Materializer) mkdir(s *plan.Step) error {
	for range disk.Tries {
		err := m.Disk.FS.Mkdir(string(s.Path), m.Disk.Root.DirPerm())
		switch {
		case err == nil:
			m.log = append(m.log, done{act: actMade, path: s.Path})
			return nil
		case errors.Is(err, fs.ErrExist):
			info, err := m.Disk.FS.Lstat(string(s.Path))
			if err == nil && info.IsDir() {
				return nil
			}
			if err == nil {
				return &errs.Error{Kind: errs.Conflict, Code: "target_exists", Detail: "The target already exists.", Path: string(s.Path)}
			}
		case errors.Is(err, fs.ErrNotExist):
			if err := m.dirs(s.Path); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return disk.ErrChanging(s.Path)
}

func (m *Materializer) chmod(ctx context.Context, s *plan.Step) error {
	f, err := m.Disk.FS.Open(string(s.Path))
	if err != nil {
		if disk.IsAbsent(err) || errors.Is(err, syscall.ELOOP) {
			m.Foreign = append(m.Foreign, foreign{Path: s.Path})
			return nil
		}
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if s.Expect == nil || !disk.SameContent(info, s.Expect.Info) {
		m.Foreign = append(m.Foreign, foreign{Path: s.Path})
		return nil
	}
	if err := f.Chmod(s.Perm); err != nil {
		return err
	}
	m.log = append(m.log, done{act: actChmod, path: s.Path, perm: info.Mode.Perm()})
	at := m.Disk.Now()
	before := info
	if info, err = f.Stat(); err != nil {
		return err
	}
	s.Result.Info, s.Result.Mode = info, s.Mode
	if s.Expect.Racy || !disk.SameContent(info, before) {
		m.Disk.Index.DropFile(s.Path)
	} else {
		m.Disk.Remember(s.Path, info, s.Expect.ID, s.Mode, at)
	}
	return nil
}
