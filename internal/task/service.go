package task

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"umbra/gitstore"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/keyed"
	"umbra/internal/state"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// Options of a Service. All but Log, Now and the limits are needed.
type Options struct {
	Workspaces *workspaces.Manager
	State      *state.DB
	// FS is the data directory's tasks folder, Dir its path on the host (sent
	// to clients, so that an agent on this machine can use the files).
	FS  vfs.FS
	Dir string
	Log *slog.Logger
	Now func() time.Time
	// MaxFile bounds one file in scratch or artifacts, in bytes.
	MaxFile int64
	// Room is asked before bytes are written to the data directory outside of
	// history; nil: there is always some.
	Room func(bytes int64) error
	// Epoch returns the epoch under which this server owns a workspace, where State is
	// shared by several: 0 if it does not, 1 if no other server can. nil: the manager's.
	Epoch func(workspaceID string) int64
	// Objects are shared, as State is then: the folders of tasks on virtual
	// workspaces are shared too. nil: all folders are this server's.
	Objects areas.Objects
	// StreamLag is how many commits a stream that was up to date may fall
	// behind before it is ended with "lagged".
	StreamLag uint64
}

const (
	defaultMaxFile   = 1 << 30
	defaultStreamLag = 4096
)

// Service is all tasks of a data directory. Its methods may be called
// concurrently.
type Service struct {
	o     Options
	index *index
	hub   hub
	sums  sumCache

	mu      sync.Mutex
	folders map[string]*openFolders // open ones, by task
	shared  *areas.Keeper           // of those that several servers share; nil: there are none
	ending  func(ctx context.Context, id string)

	unread unread
	places places

	// making serializes what must see and change the set of a workspace's
	// tasks in one step (create, delete, status, forget), by workspace.
	making keyed.Mutex
}

// New makes the service, finishes or undoes what a crash interrupted, and sets the
// function by which the manager finds the owner of an external change. Close ends it.
func New(ctx context.Context, o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxFile <= 0 {
		o.MaxFile = defaultMaxFile
	}
	if o.StreamLag == 0 {
		o.StreamLag = defaultStreamLag
	}
	if o.Epoch == nil {
		o.Epoch = o.Workspaces.Epoch
	}
	x, err := loadIndex(o.State)
	if err != nil {
		return nil, err
	}
	s := &Service{o: o, index: x, folders: map[string]*openFolders{}}
	if o.Objects != nil {
		s.shared = areas.New(areas.Options{State: o.State, Objects: o.Objects, Log: o.Log, Epoch: o.Epoch, Names: areas.Names()})
	}
	if x.shared { // each workspace is settled when it is entered
		o.Workspaces.AddHooks(workspaces.Hooks{Entered: s.Entered, Leaving: s.Leaving, Lost: s.Lost})
		s.enterOwn(ctx)
		s.serve()
		return s, s.sweep()
	}
	none, err := x.empty()
	if err != nil {
		return nil, err
	}
	if none {
		if err := s.Rebuild(ctx); err != nil {
			return nil, err
		}
	}
	s.rejoin(ctx)
	for _, r := range x.pending() {
		if err := s.settle(ctx, r); err != nil {
			o.Log.Warn("a task could not be settled", "task", r.ID, "error", err)
		}
	}
	if err := s.catchUp(ctx); err != nil {
		return nil, err
	}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	s.serve()
	return s, nil
}

// serve has the manager ask whose an external change is.
func (s *Service) serve() {
	s.o.Workspaces.SetAttribute(s.index.executing)
	s.o.Workspaces.SetBusy(s.index.busy)
}

// SetEnding sets what is called before a task ends. To be called before the first
// request.
func (s *Service) SetEnding(fn func(ctx context.Context, id string)) { s.ending = fn }

// Unused reports whether no task has, or had, an id; false if that cannot be read.
func (s *Service) Unused(id string) bool {
	_, ok, err := s.known(context.Background(), id)
	return !ok && err == nil
}

// FreeFor reports whether no task of another workspace has, or had, an id; false
// if that cannot be read.
func (s *Service) FreeFor(id, workspaceID string) bool {
	rec, ok, err := s.known(context.Background(), id)
	return err == nil && (!ok || rec.Workspace == workspaceID)
}

// Close ends streams, and writes what the index has not yet. The manager is not
// closed.
func (s *Service) Close() {
	s.hub.close()
	if err := s.index.close(); err != nil {
		s.o.Log.Warn("the index of tasks could not be written; the next start reads them", "error", err)
	}
}

// Rebuild makes the index again from the repositories of all workspaces. A
// workspace that cannot be opened is logged and left out.
func (s *Service) Rebuild(ctx context.Context) error {
	return s.o.Workspaces.Each(func(rec workspaces.Record) bool {
		if err := s.rebuildOne(ctx, rec.ID); err != nil {
			s.o.Log.Warn("the tasks of a workspace could not be read", "workspace", rec.ID, "error", err)
		}
		return true
	})
}

func (s *Service) rebuildOne(ctx context.Context, workspaceID string) error {
	w, err := s.o.Workspaces.Inspect(ctx, workspaceID)
	if err != nil {
		return err
	}
	defer w.Release()
	for _, t := range w.Store().Tasks() {
		if err := s.index.put(RecordOf(t, workspaceID)); err != nil {
			return err
		}
	}
	return nil
}

// settle makes one record equal to what the repository says: a task that was
// reserved and never made goes, a status that was set is taken over.
func (s *Service) settle(ctx context.Context, r Record) error {
	w, err := s.o.Workspaces.Inspect(ctx, r.Workspace)
	if errs.Is(err, errs.NotFound) {
		return s.index.remove(r.ID)
	}
	if err != nil {
		return err
	}
	defer w.Release()
	t, ok := w.Store().Task(r.ID)
	if !ok && (r.isDropped || r.Deleted) {
		r.Pending = false
		return s.index.put(r)
	}
	if !ok {
		return s.index.remove(r.ID)
	}
	return s.index.put(RecordOf(t, r.Workspace))
}

// catchUp takes over what repositories know more than the index, of workspaces
// whose tasks were being changed when the last process ended. One that cannot be
// opened is logged, and tried again when a task is not found.
func (s *Service) catchUp(ctx context.Context) error {
	behind, err := s.index.behind()
	if err != nil {
		return err
	}
	for _, id := range behind {
		if err := s.catchUpOne(ctx, id); err != nil {
			s.index.keepMark(id)
			s.unread.add(id)
			s.o.Log.Warn("the tasks of a workspace could not be read", "workspace", id, "error", err)
		}
	}
	return nil
}

func (s *Service) catchUpOne(ctx context.Context, workspaceID string) error {
	w, err := s.o.Workspaces.Inspect(ctx, workspaceID)
	if errs.Is(err, errs.NotFound) {
		return s.index.caughtUp(workspaceID, nil)
	}
	if err != nil {
		return err
	}
	defer w.Release()
	var news []Record
	for _, t := range w.Store().Tasks() {
		now := RecordOf(t, workspaceID)
		known, ok, err := s.index.get(t.ID)
		if err != nil {
			return err
		}
		now.isDropped = known.isDropped // while the repository has the task it means nothing
		if ok && known.same(now) {
			continue
		}
		news = append(news, now)
		if !ok && !now.Deleted {
			_, release, err := s.Folders(t.ID)
			switch {
			case err == nil:
				release()
			case !errs.Is(errs.Wrap(err, ""), errs.NoSpace): // else they are made when they are used
				return err
			}
		}
	}
	err = s.index.caughtUp(workspaceID, news)
	if errs.Is(errs.Wrap(err, ""), errs.NoSpace) {
		err = s.index.noteAll(workspaceID, news)
	}
	return err
}

// RecordOf returns the record of a task as its repository has it.
func RecordOf(t gitstore.Task, workspaceID string) Record {
	auto := extra(t.Info, extraAuto) != ""
	return Record{ID: t.ID, Workspace: workspaceID, Created: t.Info.Created, Status: Status(t.Info.Status),
		Auto: auto, Active: auto && t.Changes > 0, Deleted: extra(t.Info, extraDeleted) != "", Parent: extra(t.Info, extraParent), KeyHash: t.Info.IdempotencyKey}
}

// Ref is a task and the workspace that it is on, held open until Release.
type Ref struct {
	*workspace.Workspace
	Task gitstore.Task
	// Dropped says that the task's refs went with its part of the history: the
	// record alone is left.
	Dropped bool
}

// Sees reports whether the caller may know of a workspace with this root ("" for
// a virtual one). Nil lets all be seen.
type Sees func(root string) bool

func (f Sees) see(root string) bool { return f == nil || f(root) }

func notFound(id string) error {
	return errs.New(errs.NotFound, "task_not_found", "The task does not exist.").With("task_id", id)
}

// Get opens a task. NotFound "task_not_found" if there is none that the caller
// sees. The caller releases it.
func (s *Service) Get(ctx context.Context, id string, sees Sees) (*Ref, error) {
	return s.with(ctx, id, sees, s.o.Workspaces.Get)
}

// GetOn is Get for a task that has to be on a workspace. Where it is on another, that is
// not opened: errs.Conflict task_other_workspace.
func (s *Service) GetOn(ctx context.Context, id, workspaceID string, sees Sees) (*Ref, error) {
	return s.with(ctx, id, sees, func(ctx context.Context, on string) (*workspace.Workspace, error) {
		if on != workspaceID {
			return nil, errs.New(errs.Conflict, "task_other_workspace", "The task is on another workspace.").With("task_id", id)
		}
		return s.o.Workspaces.Get(ctx, on)
	})
}

// Read is Get for callers that need only what tasks did: it does not wait
// until a workspace that is being opened is compared with its folder.
func (s *Service) Read(ctx context.Context, id string, sees Sees) (*Ref, error) {
	return s.with(ctx, id, sees, s.o.Workspaces.Read)
}

func (s *Service) with(ctx context.Context, id string, sees Sees, open func(context.Context, string) (*workspace.Workspace, error)) (*Ref, error) {
	rec, ok, err := s.known(ctx, id)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	if !ok || rec.Deleted {
		return nil, notFound(id)
	}
	if ws, ok, err := s.o.Workspaces.Lookup(rec.Workspace); err != nil || !ok || !sees.see(ws.Place()) {
		return nil, cmp.Or(err, notFound(id))
	}
	w, err := open(ctx, rec.Workspace)
	if errs.Is(err, errs.NotFound) {
		return nil, notFound(id)
	}
	if err != nil {
		return nil, err
	}
	t, ok := w.Store().Task(id)
	if !ok && rec.isDropped {
		d, err := s.index.dropped(id)
		if err != nil || d == nil {
			w.Release()
			return nil, cmp.Or(errs.Wrap(err, ""), notFound(id))
		}
		return &Ref{Workspace: w, Task: d.task(id), Dropped: true}, nil
	}
	if !ok || extra(t.Info, extraDeleted) != "" {
		w.Release()
		return nil, notFound(id)
	}
	return &Ref{Workspace: w, Task: t}, nil
}

// Visible returns nil if the caller may know of the task or if it does not exist.
// It opens no workspace.
func (s *Service) Visible(id string, sees Sees) error {
	rec, ok, err := s.index.get(id)
	if !ok || err != nil {
		return errs.Wrap(err, "")
	}
	s.remember(rec)
	if ws, ok, err := s.o.Workspaces.Lookup(rec.Workspace); err != nil || rec.Deleted || !ok || !sees.see(ws.Place()) {
		return cmp.Or(err, notFound(id))
	}
	return nil
}

// DirectoryAt is workspaces.Manager's.
func (s *Service) DirectoryAt(path string) (id, server string, err error) {
	return s.o.Workspaces.DirectoryAt(path)
}

// WhereNew returns the workspace on which a new task is to be made: that of an id or
// a namespace, "" if it does not exist yet.
func (s *Service) WhereNew(id string, namespace []string) (workspaceID string, err error) {
	if namespace != nil {
		rec, known, err := s.o.Workspaces.FindVirtual(namespace)
		if !known || err != nil {
			return "", err
		}
		return rec.ID, nil
	}
	if _, known := s.o.Workspaces.Record(id); known {
		return id, nil
	}
	return "", nil
}

// Writable gives nil if the task may change files on a workspace: for other
// dialects' X-Task-Id. NotFound "task_not_found"; Conflict "task_ended",
// "task_paused", "task_other_workspace".
func (s *Service) Writable(id, workspaceID string) error {
	rec, ok, err := s.known(context.Background(), id)
	if err != nil {
		return errs.Wrap(err, "")
	}
	if !ok || rec.Deleted {
		return notFound(id)
	}
	if rec.Workspace != workspaceID {
		return errs.New(errs.Conflict, "task_other_workspace", "The task is on another workspace.").With("task_id", id)
	}
	return rec.Status.Writable()
}

// Apply is Workspace.Apply for a task: it refuses what the task's status
// forbids, at once and again at the very commit, and makes the change the
// task's. What an idempotency key's commit answered is answered again,
// whatever the status is by now.
func (s *Service) Apply(ctx context.Context, r *Ref, req workspace.Request) (*workspace.Result, error) {
	req.By.TaskID = r.Task.ID
	check := func() error { return s.MayWrite(r) }
	if err := check(); err != nil {
		if req.By.IdempotencyKey == "" {
			return nil, err
		}
		_, made, ferr := r.Store().FindKey(ctx, req.By.IdempotencyKey, idem.Since(s.o.Now()))
		if ferr != nil || !made {
			return nil, err
		}
	}
	req.Check = check
	res, err := r.Workspace.Apply(ctx, req)
	if err != nil {
		return nil, err
	}
	if !res.Commit.IsZero() {
		s.active(ctx, r.Workspace, r.Task.ID)
	}
	return res, nil
}

// MayWrite gives nil if the task may change files as of now; Conflict
// "task_ended", "task_paused".
func (s *Service) MayWrite(r *Ref) error {
	t, ok := r.Store().Task(r.Task.ID)
	if !ok && r.Dropped {
		t, ok = r.Task, true
	}
	if !ok || extra(t.Info, extraDeleted) != "" {
		return notFound(r.Task.ID)
	}
	return Status(t.Info.Status).Writable()
}

// active notes the first change of a task that a session or toolset made.
func (s *Service) active(ctx context.Context, w *workspace.Workspace, id string) {
	rec, ok, err := s.index.get(id)
	if err != nil {
		s.o.Log.Warn("a task's first change could not be noted", "task", id, "error", err)
	}
	if !ok || !rec.Auto || rec.Active {
		return
	}
	rec.Active = true
	end, epoch, err := s.begin(ctx, w)
	if err == nil {
		err = s.index.keep(rec, epoch)
		end()
	}
	if err != nil {
		s.o.Log.Warn("a task's first change could not be noted", "task", id, "error", err)
	}
}

// Count returns how many tasks a workspace has.
func (s *Service) Count(workspaceID string) (int, error) {
	n, err := s.index.count(workspaceID)
	return n, errs.Wrap(err, "")
}

// Forget drops a workspace and its tasks: Conflict "workspace_busy" while one
// is executing or paused. Their folders go, their history stays unless it is
// to be deleted.
func (s *Service) Forget(ctx context.Context, workspaceID string, deleteHistory bool) error {
	defer s.making.Lock(workspaceID)()
	_, exists := s.o.Workspaces.Record(workspaceID) // else a crash left its tasks
	recs, err := s.index.on(workspaceID)
	if err != nil {
		return errs.Wrap(err, "")
	}
	busy := 0
	for _, r := range recs {
		if !r.Deleted && !r.Status.Ended() {
			busy++
		}
	}
	if busy > 0 && exists {
		return errBusy(busy)
	}
	err = s.o.Workspaces.Forget(ctx, workspaceID, deleteHistory)
	if err != nil && (exists || len(recs) == 0) {
		return err
	}
	for _, r := range recs {
		if err := s.dropShared(r.ID); err != nil {
			return err
		}
		if err := s.index.remove(r.ID); err != nil {
			return err
		}
		if err := s.dropFolders(r.ID); err != nil {
			s.o.Log.Warn("a task's directories could not be removed", "task", r.ID, "error", err)
		}
		s.hub.notify(workspaceID, r.ID, note{gone: true})
	}
	return nil
}

func errBusy(tasks int) error {
	return errs.New(errs.Conflict, "workspace_busy", "%s executing or paused on the workspace.", plural(tasks, "task is", "tasks are"))
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
