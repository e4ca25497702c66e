// Package exec applies what commands changed in layers (package layer) to their
// workspaces.
//
// The command runs in the client's process. The server makes the layer's
// directories, in its own data directory, and reads only them: a request names a
// layer by its id, never by a path.
//
// An apply is one change set of the write service. Its commit is what decides: a
// layer whose commit is in history is applied, and what is in no history (ignored
// files, permission bits) is moved over after it, at the next start if need be.
// Where nothing is to be recorded, the note "moves" decides.
package exec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"umbra/internal/calls"
	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/idem"
	"umbra/internal/layer"
	"umbra/internal/task"
	"umbra/internal/workspaces"
)

// Options of a Service; all are needed.
type Options struct {
	Dir        string // the layers' directory; made where it is missing
	Workspaces *workspaces.Manager
	Calls      *calls.Service
	Log        *slog.Logger
}

// Service is all layers of a data directory. Its methods may be called from any
// goroutine.
type Service struct {
	o  Options
	mu sync.Mutex
	// busy are the layers that are being applied or dropped.
	busy map[string]bool
	// step, if not nil, is called before each thing that an apply does to a disk; its
	// error ends the apply there, as a kill would. For tests.
	step func() error

	cleaner *cleaner
	ended   context.Context // when the service is closed
	end     context.CancelFunc
	others  sync.WaitGroup // of attend

	forks  forks
	probe  sync.Once
	probed error // why there are no layers for forks

	mounts  sync.Once
	noMount error // why no layer can be mounted at a path
}

func (s *Service) stepped() error {
	if s.step == nil {
		return nil
	}
	return s.step()
}

// Layer is what is kept of one.
type Layer struct {
	ID        string `json:"id"` // the call's
	Workspace string `json:"workspace"`
	Root      string `json:"root"`
	Task      string `json:"task"`
	From      uint64 `json:"from"` // the number of the last commit before the command
	// Attached is set where the call was open before the layer.
	Attached bool      `json:"attached,omitempty"`
	Boot     string    `json:"boot"`
	Begun    time.Time `json:"begun"`
	// Of a fork: the workspace whose directory Root is, and the directory over it.
	Of   string `json:"of,omitempty"`
	Over string `json:"over,omitempty"`
	// Below is the directory that is shown in place of Root's files, if any: the workspace
	// of Root was deleted.
	Below string `json:"below,omitempty"`

	// Running is set while the client that began it is alive and not done.
	Running bool `json:"-"`
}

// Files of a layer.
const (
	metaFile  = "layer.json"
	lockFile  = "lock"  // locked by the client while the command runs
	movesFile = "moves" // what is to be moved over, once it is decided
	draftFile = "moves.draft"
	awayDir   = "away" // what an apply displaced
	exitFile  = "exit" // the command's exit code, if it is not 0 and an apply has begun
	// A directory of the layers' whose name begins so is to be removed. No id does.
	removedPrefix = ".removed-"
	doneFile      = "applied" // of earlier versions: the layer is to be removed
)

// New opens the service, and finishes or leaves what a stop interrupted.
func New(o Options) (*Service, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := layer.SweepProbes(o.Dir); err != nil {
		o.Log.Warn("what a stop left of a look at the system stays", "directory", o.Dir, "error", err)
	}
	s := &Service{o: o, busy: map[string]bool{}}
	s.cleaner = newCleaner(s)
	s.ended, s.end = context.WithCancel(context.Background())
	return s, nil
}

func (s *Service) path(id string, names ...string) string {
	return filepath.Join(append([]string{s.o.Dir, id}, names...)...)
}

// Begun is a call with a layer.
type Begun struct {
	*calls.Begun
	Dir  string // of the layer
	Over string // of a fork: the directory between the workspace and the layer
	// Below is what is under Over, if it is not the workspace.
	Below string
}

// Begin begins a call whose changes come out of a layer. Conflict "no_layer" for
// a virtual workspace; otherwise the errors of calls.Service.Begin.
func (s *Service) Begin(ctx context.Context, b calls.Begin) (*Begun, error) {
	return s.begin(ctx, b, false)
}

// BeginOnce is like Begin for a request with an idempotency key, whose hash is given: the
// same request is answered with the layer that it began.
func (s *Service) BeginOnce(ctx context.Context, b calls.Begin, hash string) (*Begun, error) {
	id := calls.IDOf("layer " + hash)
	old, err := s.o.Calls.Get(id, b.Sees)
	if b.ID != "" || err == nil && !idem.Remembered(old.Begun, time.Now()) {
		return s.begin(ctx, b, false)
	}
	b.ID = id
	return s.begin(ctx, b, true)
}

func (s *Service) begin(ctx context.Context, b calls.Begin, once bool) (*Begun, error) {
	b.Layer = true
	begun, err := s.o.Calls.Begin(ctx, b)
	if err != nil {
		return nil, err
	}
	if begun.Again && once && begun.Status == calls.Open {
		l, err := s.load(begun.ID, b.Sees)
		if err == nil {
			begun.Root = l.shownAt()
			return &Begun{begun, s.path(l.ID), l.Over, l.Below}, nil
		}
		if !errs.Is(err, errs.NotFound) {
			return nil, err
		}
		if err := layer.Remove(s.path(begun.ID)); err != nil { // the server was killed before it was whole
			return nil, errs.Wrap(err, "")
		}
	} else if begun.Again {
		return nil, errs.New(errs.Conflict, "call_exists", "The call_id is taken by another call; it must be new.").With("call_id", b.ID)
	}
	l := Layer{ID: begun.ID, Workspace: begun.Workspace, Root: begun.Root, Task: begun.Task, From: begun.From, Boot: clock.BootID(), Begun: begun.Record.Begun}
	if err = s.over(ctx, &l); err == nil {
		err = s.make(&l)
	}
	if err != nil {
		s.unguard(l.ID)
		_, _ = s.o.Calls.End(context.WithoutCancel(ctx), begun.ID, calls.End{Status: calls.Failed})
		return nil, err
	}
	begun.Root = l.shownAt()
	s.attend(l.ID)
	return &Begun{begun, s.path(l.ID), l.Over, l.Below}, nil
}

// Attach makes a layer for a call that is open: what it changes from now on comes out
// of it. The errors of calls.Service.Layer.
func (s *Service) Attach(ctx context.Context, id string, sees task.Sees) (*Begun, error) {
	begun, err := s.o.Calls.Layer(ctx, id, sees, func(r calls.Record, root string, from uint64) error {
		return s.make(&Layer{ID: r.ID, Workspace: r.Workspace, Root: root, Task: r.Task, From: from, Attached: true, Boot: clock.BootID(), Begun: r.Begun})
	})
	if err != nil {
		return nil, err
	}
	s.attend(id)
	return &Begun{begun, s.path(id), "", ""}, nil
}

func (s *Service) make(l *Layer) error {
	if l.Root == "" {
		return errs.New(errs.Conflict, "no_layer", "A virtual workspace has no directory for a layer.")
	}
	raw, err := json.Marshal(l)
	if err != nil {
		return err
	}
	dir := s.path(l.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return errs.Wrap(err, "")
	}
	// The upper directory's bits are what the command sees of the root's.
	perm := fs.FileMode(0o755)
	if info, err := os.Stat(l.lower()); err == nil {
		perm = info.Mode().Perm()
	}
	err = errors.Join(os.Mkdir(filepath.Join(dir, "upper"), 0o700), os.Chmod(filepath.Join(dir, "upper"), perm|0o700),
		os.Mkdir(filepath.Join(dir, "work"), 0o700), os.WriteFile(filepath.Join(dir, lockFile), nil, 0o600), os.WriteFile(filepath.Join(dir, metaFile), raw, 0o600))
	if err != nil {
		_ = layer.Remove(dir)
		return errs.Wrap(err, "")
	}
	return nil
}

// load reads one layer. NotFound "layer_not_found".
func (s *Service) load(id string, sees task.Sees) (*Layer, error) {
	if !task.ValidID(id) {
		return nil, unknown()
	}
	raw, err := os.ReadFile(s.path(id, metaFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknown()
	}
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	var l Layer
	if err := json.Unmarshal(raw, &l); err != nil || l.ID != id {
		return nil, unknown()
	}
	if s.cleaner.has(id) {
		return nil, unknown()
	}
	if _, err := os.Lstat(s.path(id, doneFile)); err == nil || sees != nil && !sees(l.Root) {
		return nil, unknown()
	}
	l.Running = locked(s.path(id, lockFile))
	return &l, nil
}

// List returns the layers that were not applied, newest first.
func (s *Service) List(sees task.Sees) ([]Layer, error) {
	names, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	var out []Layer
	for _, n := range names {
		l, err := s.load(n.Name(), sees)
		if errs.Is(err, errs.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b Layer) int { return b.Begun.Compare(a.Begun) })
	return out, nil
}

// Get returns a layer that was not applied. NotFound "layer_not_found".
func (s *Service) Get(id string, sees task.Sees) (*Layer, error) { return s.load(id, sees) }

// Where returns the workspace of a layer, "" where there is none.
func (s *Service) Where(id string) (workspaceID string, err error) { return s.o.Calls.Where(id) }

// take reads a layer and keeps others from it until release. Conflict
// "layer_in_use".
func (s *Service) take(id string, sees task.Sees) (l *Layer, release func(), err error) {
	s.mu.Lock()
	if s.busy[id] {
		s.mu.Unlock()
		return nil, nil, inUse()
	}
	s.busy[id] = true
	s.mu.Unlock()
	release = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, id)
	}
	if l, err = s.load(id, sees); err == nil && l.Running {
		err = inUse()
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	s.unguard(id)
	return l, release, nil
}

func unknown() error {
	return errs.New(errs.NotFound, "layer_not_found", "The layer does not exist.")
}

func inUse() error {
	return errs.New(errs.Conflict, "layer_in_use", "The layer's command still runs, or the layer is being applied.")
}

// Drop removes a layer that is not applied, and ends its call; one that was open
// before it got the layer stays open. Conflict
// "layer_in_use", or "layer_decided" where its apply was interrupted and has only
// to be finished.
func (s *Service) Drop(ctx context.Context, id string, sees task.Sees) error {
	l, release, err := s.take(id, sees)
	if err != nil {
		return err
	}
	defer release()
	if err := layer.EndOrphans(s.path(id, "upper")); err != nil {
		return errs.Wrap(err, "")
	}
	decided, err := s.decided(ctx, l)
	if err != nil {
		return err
	}
	if decided {
		return errs.New(errs.Conflict, "layer_decided", "The layer is applied in part; apply it to finish that.")
	}
	if err := s.remove(id); err != nil {
		return err
	}
	if l.Attached {
		err = s.o.Calls.Unlayer(ctx, id)
	} else {
		_, err = s.o.Calls.End(ctx, id, calls.End{Status: calls.Cancelled})
	}
	if errs.Is(err, errs.NotFound) {
		return nil // the power failed before the call was durable
	}
	return err
}

// decided reports whether an apply of the layer was interrupted after it had been
// decided.
func (s *Service) decided(ctx context.Context, l *Layer) (bool, error) {
	if _, err := os.Lstat(s.path(l.ID, movesFile)); err == nil {
		return true, nil
	}
	if _, err := os.Lstat(s.path(l.ID, draftFile)); err != nil {
		return false, nil
	}
	w, err := s.o.Workspaces.Get(ctx, l.Workspace)
	if err != nil {
		return false, err
	}
	defer w.Release()
	_, found, err := s.commitOf(ctx, w, l)
	return found, err
}

// key is the idempotency key of a layer's commit.
func key(id string) string {
	sum := sha256.Sum256([]byte("layer " + id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Resume finishes the applies that a stop interrupted after they were decided, and
// removes what is left of those that are done. It is called once, before requests.
func (s *Service) Resume(ctx context.Context) {
	names, err := os.ReadDir(s.o.Dir)
	if err != nil {
		s.o.Log.Warn("layers could not be listed", "error", err)
		return
	}
	for _, n := range names {
		id := n.Name()
		if _, err := os.Lstat(s.path(id, doneFile)); err == nil || strings.HasPrefix(id, removedPrefix) {
			_ = s.cleaner.add(cleaning{dir: s.path(id)})
			continue
		}
		l, err := s.load(id, nil)
		if err != nil {
			continue // nothing began in it
		}
		decided, err := s.decided(ctx, l)
		if err == nil && !decided {
			if err := s.settleBits(ctx, l); err != nil {
				s.o.Log.Warn("directories that a stopped apply opened could not be closed", "layer", id, "error", err)
			}
		}
		if err == nil && decided {
			if _, err := s.Apply(ctx, id, Apply{}); err != nil {
				s.o.Log.Warn("a layer's apply could not be finished; try again with umbra exec --apply", "layer", id, "error", err)
			}
		}
	}
}
