// Package fork makes forks of workspaces and takes them away: workspaces that begin
// as another one is at a commit, and share its history (contracts/forks.md).
package fork

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/checkpoint"
	"umbra/internal/errs"
	"umbra/internal/merge"
	"umbra/internal/review"
	"umbra/internal/state"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// Options of a service.
type Options struct {
	Workspaces *workspaces.Manager
	Tasks      *task.Service
	Layers     Layers
	Review     *review.Reader
	State      *state.DB // merges that are carried out
	// Room reports whether so many bytes may be written; nil: they may.
	Room func(bytes int64) error
	Log  *slog.Logger
	Now  func() time.Time
}

// Layers are the directories of layer forks, which package exec has.
type Layers interface {
	Forks() error // why the system has none
	// Mounts returns why the server cannot mount one where others see it.
	Mounts() error
	// ForkFiles returns the directory of a fork's own ignored files.
	ForkFiles(fork string) string
	// FreeFork makes a fork that is to be deleted removable, or says why it is not.
	FreeFork(rec workspaces.Record, force bool) error
	// FreeBelow ends what keeps forks' commands from changes in a workspace's directory, or
	// says why it cannot.
	FreeBelow(id string) error
	// ForgetFork drops what is left of a fork that was deleted.
	ForgetFork(id string) error
}

// Service makes, lists and deletes forks. Its methods may be called from any
// goroutine.
type Service struct {
	o      Options
	ctx    context.Context
	stop   context.CancelFunc
	done   chan struct{}
	ending sync.WaitGroup
	below  sync.RWMutex // held to read while directories of keepBelow are made
}

// New makes a service, which removes forks that expire until Close. Merges that a stop
// interrupted are taken back before it returns; where several servers share a workspace,
// when it comes to this one.
func New(o Options) *Service {
	if o.Now == nil {
		o.Now = time.Now
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Service{o: o, ctx: ctx, stop: cancel, done: make(chan struct{})}
	if o.State.Shared() {
		o.Workspaces.AddHooks(workspaces.Hooks{Entered: s.entered})
	}
	s.resume(ctx)
	s.finish(ctx)
	go s.run(ctx)
	return s
}

// Close ends the service's own work.
func (s *Service) Close() {
	s.stop()
	<-s.done
	s.ending.Wait()
}

// ownersFirst is how long an expired fork is left to the server that owns it.
const ownersFirst = time.Minute

// Expire removes the forks whose time is over, unmerged or not. One with a task at
// work, or with forks of its own, waits for those.
func (s *Service) Expire(ctx context.Context) {
	now := s.o.Now()
	for _, rec := range s.o.Workspaces.Expiring() {
		f := rec.Fork
		if f.Expires.After(now) || ctx.Err() != nil {
			break
		}
		if s.o.State.Shared() && s.o.Workspaces.Epoch(rec.ID) == 0 && now.Sub(f.Expires) < ownersFirst {
			continue // its owner removes it
		}
		err := s.remove(ctx, rec, true, true)
		switch errs.CodeOf(err) {
		case "workspace_busy", "has_forks", "layer_in_use", "mounted_inside":
			continue
		}
		if err != nil {
			s.o.Log.Warn("a fork that expired could not be removed", "workspace", rec.ID, "error", err)
			continue
		}
		s.o.Log.Info("a fork expired and was removed", "workspace", rec.ID, "parent", f.Of)
	}
}

// What becomes of the files that no history has.
const (
	ShareIgnored = "share"
	CopyIgnored  = "copy"
	NoIgnored    = "none"
)

// MaxCount is how many forks one request makes at most.
const MaxCount = 1000

// Make says which forks to make. Empty fields have the defaults of the contract.
type Make struct {
	Name      string
	Kind      string
	At        string // a commit, a checkpoint or a time; empty: now
	Path      string // absolute; of a copy, or where a layer is mounted
	Ignored   string
	Count     int
	ExpiresIn time.Duration
	Allow     func(root string) error // may the caller open this directory
}

func invalid(field, format string, args ...any) error {
	return errs.New(errs.Invalid, "invalid_"+field, format, args...).With("field", field)
}

// check fills in the defaults for a parent and refuses what does not fit it.
func (f *Make) check(parent workspaces.Record, l Layers) error {
	layers := l.Forks
	if f.Kind == "" {
		switch {
		case parent.ShownKind() == workspaces.VirtualKind:
			f.Kind = workspaces.VirtualKind
		case f.Path == "" && layers() == nil:
			f.Kind = workspaces.LayerKind
		default:
			f.Kind = workspaces.CopyKind
		}
	}
	if f.Count == 0 {
		f.Count = 1
	}
	switch {
	case f.Kind != workspaces.VirtualKind && f.Kind != workspaces.CopyKind && f.Kind != workspaces.LayerKind:
		return invalid("kind", "kind must be virtual, layer or copy.")
	case f.Count < 1 || f.Count > MaxCount:
		return invalid("count", "count must be from 1 to %d.", MaxCount)
	case f.Name != "" && !task.ValidID(f.Name):
		return invalid("name", "name must be formed as a task id.")
	case f.ExpiresIn < 0:
		return invalid("expires_in", "expires_in must be positive.")
	}
	if f.Kind == workspaces.VirtualKind {
		if f.Path != "" {
			return invalid("path", "A virtual fork has no directory; path is for a copy.")
		}
		if f.Ignored != "" && f.Ignored != NoIgnored {
			return invalid("ignored", "A virtual fork has no ignored files; ignored is for a copy.")
		}
		return nil
	}
	if f.Kind == workspaces.LayerKind {
		switch {
		case parent.Place() == "" || layers() != nil:
			return errs.New(errs.Unprocessable, "kind_unavailable", "The kind layer needs a directory and a system with overlayfs; virtual and copy are available.").With("field", "kind")
		case f.Ignored == "":
			f.Ignored = ShareIgnored
		case f.Ignored != ShareIgnored && f.Ignored != CopyIgnored && f.Ignored != NoIgnored:
			return invalid("ignored", "ignored must be share, copy or none.")
		}
		if f.Path == "" {
			return nil
		}
		if err := l.Mounts(); err != nil {
			return workspaces.ErrNoMount(err)
		}
		return f.checkPath(parent)
	}
	switch f.Ignored {
	case "":
		f.Ignored = CopyIgnored
	case CopyIgnored:
		if parent.Root == "" && parent.Place() != "" {
			return invalid("ignored", "A fork without a directory has no ignored files that can be copied; ignored must be none.")
		}
	case NoIgnored:
	case ShareIgnored:
		return invalid("ignored", "A copy cannot share ignored files; ignored must be copy or none.")
	default:
		return invalid("ignored", "ignored must be share, copy or none.")
	}
	return f.checkPath(parent)
}

// checkPath refuses a path at which no directory can be made, and names a fork after it.
func (f *Make) checkPath(parent workspaces.Record) error {
	switch {
	case f.Path != "" && f.Count > 1:
		return invalid("path", "path names one directory, so count must be 1.")
	case f.Path != "" && !filepath.IsAbs(f.Path):
		return invalid("path", "path must be absolute.")
	case f.Path != "" && !validName(filepath.Base(filepath.Clean(f.Path))) || strings.IndexByte(f.Path, 0) >= 0:
		return invalid("path", "path must be one at which a new directory may be made, and not a repository's.")
	case f.Path == "" && parent.Root == "":
		return invalid("path", "path is required: the absolute path of a new directory.")
	}
	f.Name = orElse(f.Name, f.pathName())
	return nil
}

// Make makes forks of a workspace, all or none. It records the workspace's disk
// first.
//
// Invalid "invalid_…" with the field; Unprocessable "kind_unavailable"; Conflict
// "path_exists", "fork_too_deep"; the errors of opening a directory.
func (s *Service) Make(ctx context.Context, w *workspace.Workspace, f Make) (made []workspaces.Record, err error) {
	unknown := errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	parent, ok := s.o.Workspaces.Record(w.ID())
	if !ok {
		return nil, unknown
	}
	defer func() {
		if _, there := s.o.Workspaces.Record(w.ID()); err != nil && !there { // it was deleted meanwhile
			err = unknown
		}
	}()
	if err := f.check(parent, s.o.Layers); err != nil {
		return nil, err
	}
	spec := workspaces.ForkSpec{}
	if err := w.RecordThen(ctx, func() { spec.At = w.Store().Tip().Commit }); err != nil {
		return nil, err
	}
	if f.At != "" {
		c, err := checkpoint.Resolve(ctx, w, f.At)
		if err != nil {
			return nil, err
		}
		spec.At = c.ID
	}
	if f.ExpiresIn > 0 {
		spec.Expires = s.o.Now().Add(f.ExpiresIn).UTC()
	}
	names := make([]string, f.Count)
	for i := range names {
		if names[i] = f.Name; f.Name != "" && f.Count > 1 {
			names[i] += "-" + strconv.Itoa(i+1)
		}
	}
	if spec.Kind = f.Kind; f.Kind != workspaces.CopyKind && f.Path == "" {
		own := f.Kind == workspaces.LayerKind && f.Ignored != ShareIgnored
		done := func() error { return nil }
		if own {
			spec.Begin = func(ids []string) (err error) {
				done, err = s.begun(pending{Forks: ids})
				return err
			}
		}
		made, err = s.o.Workspaces.ForkVirtual(ctx, w, spec, names)
		if err == nil && own {
			if err = s.ownIgnored(ctx, w, f, spec, made); err != nil {
				s.takeBack(ctx, made)
			}
		}
		return made, errors.Join(err, done())
	}
	made = make([]workspaces.Record, 0, f.Count)
	for _, name := range names {
		spec.Name = name
		rec, err := s.one(ctx, w, f, spec)
		if err != nil {
			s.takeBack(ctx, made)
			return nil, err
		}
		made = append(made, rec)
	}
	return made, nil
}

// takeBack removes the forks of a request that failed.
func (s *Service) takeBack(ctx context.Context, made []workspaces.Record) {
	for _, r := range made {
		if err := s.remove(context.WithoutCancel(ctx), r, true, true); err != nil {
			s.o.Log.Warn("a fork of a request that failed could not be removed", "workspace", r.ID, "error", err)
		}
	}
}

// ownIgnored gives layer forks ignored files of their own: copies, or none.
func (s *Service) ownIgnored(ctx context.Context, w *workspace.Workspace, f Make, spec workspaces.ForkSpec, made []workspaces.Record) error {
	snap, err := w.Store().SnapshotOf(ctx, spec.At)
	if err != nil {
		return err
	}
	for _, r := range made {
		fork, err := s.o.Workspaces.Get(ctx, r.ID) // which makes its directory
		if err != nil {
			return err
		}
		fork.Release()
		if err := s.layerIgnored(ctx, w, f, snap, s.o.Layers.ForkFiles(r.ID)); err != nil {
			return err
		}
	}
	return nil
}

// layerIgnored fills the directory of a layer's own ignored files.
func (s *Service) layerIgnored(ctx context.Context, w *workspace.Workspace, f Make, snap gitstore.Snapshot, to string) error {
	if w.Root() == "" {
		return invalid("ignored", "The ignored files of a fork's fork are those of the directory; ignored must be share.")
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return errs.Wrap(err, "")
	}
	c, err := newCopier(ctx, w, to)
	if err != nil {
		return err
	}
	c.over, c.hide, c.room = true, f.Ignored == NoIgnored, s.o.Room
	if err := errors.Join(c.ignored(snap), c.finish(), c.close()); err != nil {
		return err
	}
	return errs.Wrap(synced(to), "")
}

func (s *Service) one(ctx context.Context, w *workspace.Workspace, f Make, spec workspaces.ForkSpec) (rec workspaces.Record, err error) {
	fork, err := s.copied(ctx, w, f, spec)
	if err != nil {
		return rec, err
	}
	defer fork.Release()
	rec, _ = s.o.Workspaces.Record(fork.ID())
	return rec, nil
}

// copied makes a fork with a directory: a copy of the parent's files, or a layer that is
// mounted at it.
func (s *Service) copied(ctx context.Context, w *workspace.Workspace, f Make, spec workspaces.ForkSpec) (fork *workspace.Workspace, err error) {
	dir := f.Path
	if dir == "" {
		dir = w.Root() + "-" + workspaces.NewKey(orElse(spec.Name, "fork"))
	}
	dir = filepath.Clean(dir)
	if above, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(above, filepath.Base(dir))
	}
	if f.Allow != nil { // before anything is made, or looked for
		if err := f.Allow(dir); err != nil {
			return nil, err
		}
	}
	exists := errs.New(errs.Conflict, "path_exists", "path is there already; it must name a new directory.").With("field", "path")
	if _, err := os.Lstat(dir); err == nil { // it is not recorded as the fork's
		return nil, exists
	}
	mine := pending{Dir: dir}
	if f.Kind == workspaces.LayerKind {
		spec.ID = s.o.Workspaces.NewID(orElse(spec.Name, filepath.Base(dir)))
		mine.Layer = spec.ID
	}
	done, err := s.begun(mine)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	if err := os.Mkdir(dir, 0o777); err != nil {
		switch {
		case errors.Is(err, fs.ErrExist):
			return nil, exists
		case errors.Is(err, fs.ErrNotExist):
			return nil, invalid("path", "The directory that path would be made in does not exist.")
		}
		return nil, errs.Wrap(err, "")
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.unmade(mine))
		}
	}()
	if mine.Dev, mine.Ino, err = identity(dir); err != nil {
		return nil, err
	}
	if done, err = s.again(mine, done); err != nil {
		return nil, err
	}
	o := workspaces.OpenOptions{Allow: f.Allow}
	if err := s.o.Workspaces.Vacant(dir, o); err != nil {
		return nil, err
	}
	snap, err := w.Store().SnapshotOf(ctx, spec.At)
	if err != nil {
		return nil, err
	}
	if mine.Layer != "" {
		err = s.mount(ctx, w, f, spec, snap, dir)
	} else {
		err = s.fill(ctx, w, f, snap, mine)
	}
	if err != nil {
		return nil, err
	}
	return s.o.Workspaces.ForkCopy(ctx, w, dir, o, spec)
}

// fill copies the parent's files.
func (s *Service) fill(ctx context.Context, w *workspace.Workspace, f Make, snap gitstore.Snapshot, to pending) (err error) {
	c, err := newCopier(ctx, w, to.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if dev, ino, err := identityOf(c.to); err != nil || dev != to.Dev || ino != to.Ino {
		return errors.Join(err, errs.New(errs.Conflict, "path_exists", "Another directory is at path now.").With("field", "path"))
	}
	c.room = s.o.Room
	if c.from != nil { // finish opens it as far as the parent's is
		if err := c.to.Chmod(".", 0o700); err != nil {
			return errs.Wrap(err, "")
		}
	}
	if err := c.tracked(snap); err != nil {
		return err
	}
	if f.Ignored == CopyIgnored {
		if err := c.ignored(snap); err != nil {
			return err
		}
	}
	if err := c.finish(); err != nil {
		return err
	}
	// No history has the ignored files, so that they could be restored.
	return errs.Wrap(synced(to.Dir), "")
}

// mount mounts a layer, with ignored files of its own where it does not share those of
// the parent's directory. What differs in it from the commit is put right when it is
// opened.
func (s *Service) mount(ctx context.Context, w *workspace.Workspace, f Make, spec workspaces.ForkSpec, snap gitstore.Snapshot, dir string) error {
	if f.Ignored != ShareIgnored {
		to := s.o.Layers.ForkFiles(spec.ID)
		if err := s.layerIgnored(ctx, w, f, snap, to); err != nil {
			return err
		}
	}
	return s.o.Workspaces.MountLayer(ctx, w, spec.ID, dir)
}

// validName reports whether a new directory may have a name: not one that git takes for a
// repository.
func validName(name string) bool {
	_, err := wspath.Parse(name)
	return err == nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// Delete forgets a workspace that is a fork, or has some: a fork goes with its
// history, and a copy with its directory. The forks of a workspace that is deleted
// by force get the history that they need first.
//
// Conflict "unmerged" for a fork with changes of its own, and "has_forks", both
// unless force is set; "workspace_busy".
func (s *Service) Delete(ctx context.Context, id string, force, deleteHistory bool) error {
	rec, ok, err := s.o.Workspaces.Lookup(id)
	if err != nil {
		return err
	}
	if !ok {
		return errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	}
	if rec.Fork != nil && !force {
		if err := s.checkMerged(ctx, rec); err != nil {
			return err
		}
	}
	forked := s.o.Workspaces.CheckUnforked(id)
	if forked != nil && !force {
		return forked
	}
	if force {
		if err := s.provide(ctx, rec, forked != nil); err != nil {
			return err
		}
	}
	return s.remove(ctx, rec, force, deleteHistory || rec.Fork != nil)
}

// provide gives the forks of a workspace that is deleted with force what they need of it:
// its files, and its history where they continue that.
func (s *Service) provide(ctx context.Context, rec workspaces.Record, forked bool) error {
	if err := s.removable(rec, true); err != nil {
		return err
	}
	if err := s.o.Tasks.CheckIdle(rec.ID); err != nil { // nothing is deleted
		return err
	}
	if err := s.provideFiles(ctx, rec); err != nil || !forked {
		return err
	}
	return s.o.Workspaces.Detach(ctx, rec.ID)
}

// clear removes a copy's directory, if it is still the one that was made.
func (s *Service) clear(rec workspaces.Record) error {
	if rec.Mounted() {
		return s.o.Workspaces.RemoveMountPoint(rec)
	}
	if !s.o.Workspaces.MadeFor(rec) {
		return nil
	}
	return removed(rec.Root)
}

// removable makes a workspace that is to be deleted with force removable, or says why it
// is not; forks may have to be given what they need first.
func (s *Service) removable(rec workspaces.Record, force bool) error {
	if s.o.Workspaces.MadeFor(rec) {
		if err := unmountedInside(rec.Root); err != nil {
			return err
		}
	}
	return s.o.Layers.FreeFork(rec, force)
}

// free is like removable, for a workspace on which no fork depends.
func (s *Service) free(rec workspaces.Record, force bool) error {
	if err := s.removable(rec, force); err != nil {
		return err
	}
	return s.o.Workspaces.CheckUnshown(rec)
}

func (s *Service) remove(ctx context.Context, rec workspaces.Record, force, deleteHistory bool) error {
	if err := s.free(rec, force); err != nil {
		return err
	}
	if s.o.Tasks.Live(rec.ID) == 0 { // else nothing is deleted
		if err := s.o.Workspaces.Unmount(ctx, rec.ID, force); err != nil {
			return err
		}
	}
	done, err := s.begun(pending{Delete: &rec, History: deleteHistory})
	if err != nil {
		return err
	}
	if err := s.o.Tasks.Forget(ctx, rec.ID, deleteHistory); err != nil {
		if _, there := s.o.Workspaces.Record(rec.ID); there { // else the next start goes on
			err = errors.Join(err, done())
		}
		return err
	}
	if err := s.cleared(rec); err != nil {
		return err
	}
	return done()
}

// cleared removes what a workspace that was forgotten left outside of its own part of the
// data directory.
func (s *Service) cleared(rec workspaces.Record) error {
	if rec.Fork != nil && rec.Fork.Below != "" {
		s.dropBelow(rec.Fork.Below)
	}
	return errors.Join(s.clear(rec), s.o.Layers.ForgetFork(rec.ID))
}

// checkMerged fails where a fork has changes that its parent does not have.
func (s *Service) checkMerged(ctx context.Context, rec workspaces.Record) error {
	w, err := s.o.Workspaces.Get(ctx, rec.ID)
	if err != nil {
		return err
	}
	defer w.Release()
	if w.Root() != "" {
		res, err := w.Sync(ctx, workspace.SyncOptions{Attribute: true})
		if err != nil && errs.CodeOf(err) != "workspace_missing" {
			return err
		}
		if err := unrecorded(rec, res.Skipped); err != nil {
			return err
		}
	}
	into, err := s.o.Workspaces.Get(ctx, rec.Fork.Of)
	if errs.Is(err, errs.NotFound) { // it was deleted: they have no owner
		if same, err := unchanged(ctx, w.Store(), rec.Fork); err != nil || same {
			return err
		}
		return errUnmerged()
	}
	if err != nil {
		return err
	}
	defer into.Release()
	res, err := merge.Do(ctx, s.side(w), s.side(into), merge.Request{DryRun: true})
	if err != nil || len(res.Files) == 0 && len(res.Conflicts) == 0 {
		return err
	}
	return errUnmerged()
}

// unrecorded fails where a fork's directory has files that changed since it was made
// and that history cannot have, such as one that is too large: they would go with it.
func unrecorded(rec workspaces.Record, skipped []workspace.Skip) error {
	here, err := vfs.OS(rec.Root)
	if err != nil {
		return nil // it is missing, and so are they
	}
	defer here.Close()
	parent, missing := vfs.OS(rec.Fork.Origin)
	if missing == nil {
		defer parent.Close()
	}
	var list []workspace.Skip
	for _, k := range skipped {
		info, err := here.Lstat(k.Path)
		if err != nil || !info.IsDir() && !info.IsRegular() || info.CtimeNs <= rec.Created.UnixNano() {
			continue // others have no content
		}
		if missing == nil { // a layer shows the parent's
			if theirs, err := parent.Lstat(k.Path); err == nil && theirs.Size == info.Size && theirs.MtimeNs == info.MtimeNs {
				continue
			}
		}
		list = append(list, k)
	}
	if len(list) == 0 {
		return nil
	}
	return errs.New(errs.Conflict, "unmerged", "The fork has files that changed and cannot be recorded; delete it with force to lose them.").With("unrecorded", list)
}

func errUnmerged() error {
	return errs.New(errs.Conflict, "unmerged", "The fork has changes that were never merged; delete it with force to lose them.")
}

// unchanged reports whether a fork's files are as they were when it was made.
func unchanged(ctx context.Context, st *gitstore.Store, f *workspaces.Fork) (bool, error) {
	at, err := object.ParseID(f.At)
	if err != nil {
		return false, err
	}
	snap, err := st.SnapshotOf(ctx, at)
	if err != nil {
		return false, err
	}
	return snap.Tree() == st.Tip().Tree, nil
}
