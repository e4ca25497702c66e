package watcher

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"umbra/internal/errs"
	"umbra/internal/ignore"
	"umbra/internal/wspath"
)

// Reason says why events of a workspace were lost, or why they cannot be
// trusted.
type Reason string

// The reasons.
const (
	Overflow   Reason = "overflow"    // the kernel's queue overflowed
	Failed     Reason = "error"       // the watcher reported an error, or a folder could not be read
	Backlog    Reason = "backlog"     // more directories appeared and disappeared than could be walked
	WatchLimit Reason = "watch_limit" // no more watches, instances or descriptors: not watched any more
	Aliased    Reason = "aliased"     // a folder is watched under another name (a bind mount)
	FileSystem Reason = "file_system" // a network, FUSE or overlay file system
	TooDeep    Reason = "too_deep"    // a folder whose path is too long to be watched
)

// Options are of one Watcher. Zero values mean the defaults.
type Options struct {
	Log *slog.Logger // nil: slog.Default()
	// MaxWatches bounds the watches of all workspaces together; 0 leaves it to
	// the system (fs.inotify.max_user_watches).
	MaxWatches int
	// CookieDir is a private folder of the server's for Sync, on a local file
	// system; it is made if needed. Empty means a temporary one.
	CookieDir string
	// Quiet is how long nothing may happen before a batch is reported, Most how long
	// a batch waits if something always happens: 75 and 500 ms.
	Quiet, Most time.Duration
	// SyncWait bounds how long Sync waits: 2 s.
	SyncWait time.Duration
	// FolderNames is how many changed names of one directory are reported one by
	// one, MaxNames how many of one workspace: 512 and 16,384.
	FolderNames, MaxNames int
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	or := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	or(&o.Quiet, 75*time.Millisecond)
	or(&o.Most, 500*time.Millisecond)
	or(&o.SyncWait, 2*time.Second)
	if o.FolderNames <= 0 {
		o.FolderNames = 512
	}
	if o.MaxNames <= 0 {
		o.MaxNames = 16384
	}
	return o
}

// Space has the functions that are called for a workspace. Each may be nil. Dirty,
// RulesChanged, Lost and Gone are called one at a time for a workspace, and must
// hand over and return: while one runs nothing is reported to any workspace, and
// none of them may call Add, Remove, Sync or Close.
type Space struct {
	// Rules gives the root's rules and the project's own index as of now; it is
	// asked again when rules change. Nil, or nil rules, watches everything.
	Rules func() (*ignore.Dir, *ignore.Index, error)
	// TrackedUnder reports whether an ignored directory is watched nevertheless,
	// since it has tracked files below.
	TrackedUnder func(dir wspath.Path) bool
	// Prune reports whether a path is skipped, as the server's own directories are.
	// It is called under a lock, often: it must only compare.
	Prune func(path wspath.Path) bool

	Dirty        func(paths []wspath.Path)
	RulesChanged func()
	Lost         func(Reason)
	// Gone is called when the root was removed, moved or replaced; nothing more is
	// reported until Add.
	Gone func()
}

// Watcher watches any number of workspaces.
type Watcher struct {
	opts Options
	log  *slog.Logger
	src  source

	cookies   cookies
	losses    losses
	ownCookie bool // CookieDir is ours to remove

	mu         sync.Mutex
	wake       *sync.Cond // a space in ready, or closed
	idle       *sync.Cond // a space is no longer active
	spaces     map[string]*space
	roots      map[string][]*space // by absolute root
	excludes   map[string][]*space // by the folder of git's info/exclude
	watches    map[string]*watch   // by absolute path
	inodes     map[inode]*watch
	ready      []*space
	unreported map[*space]struct{} // spaces with something pending
	closed     bool
	limitLog   bool      // the limit was logged
	renewed    time.Time // when all workspaces were last walked again

	kick  chan struct{} // capacity 1: the teller looks again
	done  chan struct{}
	group sync.WaitGroup

	events, batches, lost atomic.Int64
}

// The goroutines that look at folders.
const workers = 2

// New starts a watcher. Where the system gives no instance (EMFILE:
// fs.inotify.max_user_instances), it still works: it trusts nothing, and every
// workspace is notified that it is not watched. It fails if the directory for
// cookies cannot be made.
func New(opts Options) (*Watcher, error) {
	return newWatcher(opts, openNotify)
}

func newWatcher(opts Options, open func() (source, error)) (*Watcher, error) {
	w := &Watcher{
		opts: opts.withDefaults(), spaces: map[string]*space{}, roots: map[string][]*space{}, excludes: map[string][]*space{},
		watches: map[string]*watch{}, inodes: map[inode]*watch{}, unreported: map[*space]struct{}{},
		kick: make(chan struct{}, 1), done: make(chan struct{}),
	}
	w.log = w.opts.Log
	w.wake, w.idle = sync.NewCond(&w.mu), sync.NewCond(&w.mu)
	w.losses.since = make(chan struct{})
	w.cookies.drained, w.cookies.waiting = make(chan chan struct{}), map[string]chan struct{}{}
	if err := w.makeCookieDir(); err != nil {
		return nil, errs.Wrap(err, "")
	}
	src, err := open()
	if err != nil {
		w.log.Warn("files cannot be watched; workspaces are scanned instead", "error", err)
		w.limitLog = true
		src = newDeadSource(err)
	}
	w.src = src
	w.group.Go(w.pump)
	w.group.Go(w.drain)
	w.group.Go(w.reporter)
	for range workers {
		w.group.Go(w.work)
	}
	return w, nil
}

func (w *Watcher) makeCookieDir() error {
	dir := w.opts.CookieDir
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp("", "umbra-watch-")
		w.ownCookie = true
	} else {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	w.cookies.dir = dir
	return err
}

// Close ends everything and waits for it; callbacks that run are waited for.
// Sync and Add that run elsewhere fail.
func (w *Watcher) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	for _, s := range w.spaces {
		s.cancel()
	}
	w.wake.Broadcast()
	w.idle.Broadcast()
	w.mu.Unlock()
	close(w.done)
	err := w.src.Close()
	w.group.Wait()
	w.cookies.remove()
	if w.ownCookie {
		err = errors.Join(err, os.Remove(w.cookies.dir))
	}
	return errs.Wrap(err, "")
}

// Add watches a workspace's directory: when it returns, the watches are set, and a
// scan that begins now misses nothing. What exists in the directory already is not
// reported. An id that was added before starts over.
//
// It fails if the root is not a directory or cannot be read, with the error of
// Rules, and with ctx. That watches ran out is no failure: see State.
func (w *Watcher) Add(ctx context.Context, id, root string, opts Space) error {
	w.Remove(id)
	abs, err := filepath.Abs(root)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return errs.Wrap(err, "")
	}
	s := newSpace(id, abs, opts)
	if s.rootID, err = identify(abs); err != nil {
		return errs.Wrap(err, "")
	}
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return closedError()
	}
	if w.spaces[id] != nil {
		w.mu.Unlock()
		return errs.New(errs.Conflict, "workspace_busy", "The workspace is being added already.")
	}
	w.group.Add(1)
	defer w.group.Done()
	w.spaces[id] = s
	w.roots[abs] = append(w.roots[abs], s)
	w.mu.Unlock()

	stop := context.AfterFunc(ctx, s.cancel)
	err = w.refresh(s, wspath.Root)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	w.finish(s)
	if err != nil {
		w.Remove(id)
		return errs.Wrap(err, "")
	}
	return nil
}

// Remove ends the watching of a workspace; afterwards none of its functions
// runs or is called again. An unknown id is no error.
func (w *Watcher) Remove(id string) {
	w.mu.Lock()
	s := w.spaces[id]
	if s == nil {
		w.mu.Unlock()
		return
	}
	delete(w.spaces, id)
	s.removed = true
	s.cancel()
	for s.active && !w.closed {
		w.idle.Wait()
	}
	delete(w.unreported, s)
	unlist(w.roots, s.root, s)
	w.setExclude(s, "")
	w.mu.Unlock()
	w.dropTree(s, wspath.Root)
	s.reporting.Lock()
	defer s.reporting.Unlock()
}

// State describes how a workspace is watched.
type State struct {
	// Watching means that changes are reported; else only scans find any.
	Watching bool
	// Trusted says that no kind of change but those that never raise events is
	// missed: the long period of scans will do.
	Trusted bool
	Reason  Reason // why it is not trusted
	Folders int    // watched folders
}

// State gives the zero State for an unknown id.
func (w *Watcher) State(id string) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[id]
	if s == nil || w.closed {
		return State{}
	}
	return State{Watching: s.watching, Trusted: s.watching && s.blind == "", Reason: s.blind, Folders: len(s.dirs)}
}

// Trusted is State(id).Trusted.
func (w *Watcher) Trusted(id string) bool { return w.State(id).Trusted }

// Refresh makes the watcher ask for the rules again, where they changed
// otherwise than by a file that is watched. RulesChanged is called when the
// watches have followed.
func (w *Watcher) Refresh(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.spaces[id]; s != nil {
		w.enqueue(s, op{kind: opRules, path: wspath.Root})
	}
}

// Cover makes sure that the folder of a path is watched which has just come into
// history: rules may ignore it, and then it was passed over. It is cheap where
// the folder is watched, and returns before it is where not.
func (w *Watcher) Cover(id string, path wspath.Path) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.spaces[id]
	if s == nil || !s.watching {
		return
	}
	at := path
	for up := range path.Ancestors() {
		if s.dirs[up] != nil {
			if up != path.Dir() {
				w.enqueue(s, op{kind: opLook, path: at})
			}
			return
		}
		at = up
	}
}

// Stats count since the start, for metrics.
type Stats struct {
	Watches    int   // folders watched now, each once
	Workspaces int   // added
	Scanning   int   // of them those that are not watched or not trusted
	Events     int64 // taken from the system
	Batches    int64 // calls of Dirty
	Overflows  int64
	Errors     int64 // other errors of the watcher
	Lost       int64 // calls of Lost
}

// Stats gives the counters.
func (w *Watcher) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	st := Stats{Watches: len(w.watches), Workspaces: len(w.spaces), Events: w.events.Load(), Batches: w.batches.Load(), Lost: w.lost.Load(),
		Overflows: w.losses.overflows.Load(), Errors: w.losses.errors.Load()}
	for _, s := range w.spaces {
		if !s.watching || s.blind != "" {
			st.Scanning++
		}
	}
	return st
}

func closedError() error {
	return errs.New(errs.Unavailable, "stopping", "The server is stopping.")
}
