// Package repo is the history of one workspace, as it is on disk and in memory: its
// objects wherever they are, refs, tasks, the commit index, where it begins. It reads,
// for clients (History) and for the engine and its upkeep (Repo); what is added to it
// or taken away is theirs.
package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/cache"
	"umbra/gitstore/inuse"
	"umbra/gitstore/journal"
	"umbra/gitstore/large"
	"umbra/gitstore/object"
	"umbra/gitstore/packset"
	"umbra/gitstore/records"
	"umbra/gitstore/refs"
	"umbra/gitstore/remote"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// LockPatience is how long the background waits for a ref lock before others have their
// turn; PublishPatience how long a caller waits.
const (
	LockPatience    = time.Second
	PublishPatience = 10 * time.Second
)

// Repo is the history of one workspace and what guards it.
type Repo struct {
	History
	FS         vfs.FS
	Log        *slog.Logger
	Now        func() time.Time
	readers    func() []vfs.Info
	inUse      func(ctx context.Context, dirs, files []vfs.Info) (bool, error)
	MergeGrace time.Duration
	Base       *ForkPoint  // nil but for a fork
	Held       *remote.Log // nil without a sink
	Head       tipOf
	Begins     atomic.Pointer[Boundary]
	Cached     caches
	Packs      packset.Set
	Large      large.Set
	Index      *records.Index
	Live       atomic.Pointer[[]*journal.Journal]
	TaskMap    taskMap
	Refs       *refs.Store
	Note       *refs.Note
	InfoLog    infoLog
	warnings   warnings
	Upkeep     upkeep
	Purges     purges
	// Committing is held while a group is committed, publishing while journals are closed
	// and refs moved. publishing comes first.
	Committing sync.Mutex
	Publishing sync.Mutex
}

// History reads a workspace's history. All methods may be called from any goroutine.
type History struct{ r *Repo }

// Options of a Repo, as the Store's options of the same names.
type Options struct {
	FS         vfs.FS
	Log        *slog.Logger
	Now        func() time.Time
	Readers    func() []vfs.Info
	InUse      func(ctx context.Context, dirs, files []vfs.Info) (bool, error)
	MergeGrace time.Duration
	Caches     *Caches
}

// New prepares a repo; nothing is read yet.
func New(opt Options) *Repo {
	r := &Repo{FS: opt.FS, Log: opt.Log, Now: opt.Now, readers: opt.Readers, inUse: opt.InUse, MergeGrace: opt.MergeGrace,
		Cached: caches{Trees: NewTreeCache(opt.Caches.trees), Computed: cache.New[Computed, any](opt.Caches.bases)},
		Head:   tipOf{moved: make(chan struct{})}, TaskMap: taskMap{ByID: make(map[string]*Task)}}
	r.History = History{r}
	r.Head.Store(&Tip{})
	r.Live.Store(new([]*journal.Journal))
	r.Packs.FS, r.Packs.Log, r.Packs.Cache, r.Packs.Warn = r.FS, r.Log, opt.Caches.bases, r.Warn
	r.Large.Packs = &r.Packs
	return r
}

// Tip is the newest durable commit; Seq 0 means that there is none yet.
type Tip struct {
	Commit, Tree object.ID
	Seq          uint64
}

// tipOf is the newest durable commit, and the callers that wait for the next.
type tipOf struct {
	atomic.Pointer[Tip]
	mu    sync.Mutex
	moved chan struct{} // closed and renewed when the tip moves
}

// caches hold what was read of history.
type caches struct {
	Trees    TreeCache
	Computed *cache.Cache[Computed, any]
	memo     treeMemo
}

type taskMap struct {
	Mu   sync.RWMutex
	ByID map[string]*Task
}

type warnings struct {
	mu   sync.Mutex
	list []string
}

// upkeep is the state of maintenance, retention and collections.
type upkeep struct {
	Collecting sync.Mutex // one move of the boundary, or collection, at a time; before mmu
	// Rooting is held for reading while a tree is in a pack that no commit names
	// yet.
	Rooting sync.RWMutex
	// Shed is set once a collection left objects out: from then on a commit that
	// relies upon an older object looks whether it is still there.
	Shed  atomic.Bool
	Swept atomic.Pointer[Boundary] // as of the last collection

	Maintaining sync.Mutex // one run of maintenance at a time
	// What maintenance knows of its last runs; mmu.
	LastDrop time.Time
	Dropped  atomic.Bool // packs went, and their names may turn up again
}

// purges is what purges did since the store was opened.
type purges struct {
	Gone  atomic.Pointer[map[object.ID]bool] // contents that are no more
	Count atomic.Uint64
}

// Tip gives the newest durable commit, without waiting.
func (h History) Tip() Tip { return *h.r.Head.Load() }

// Wait returns when a commit after the given sequence number is durable.
func (h History) Wait(ctx context.Context, after uint64) error {
	for {
		h.r.Head.mu.Lock()
		moved := h.r.Head.moved
		h.r.Head.mu.Unlock()
		if h.r.Tip().Seq > after {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return errs.Wrap(context.Cause(ctx), "")
		}
	}
}

// maxWarnings bounds what a store that meets trouble without end remembers.
const maxWarnings = 100

// Warned lists the warnings so far.
func (r *Repo) Warned() []string {
	r.warnings.mu.Lock()
	defer r.warnings.mu.Unlock()
	return slices.Clone(r.warnings.list)
}

// Warn logs what the owner should know, and remembers it.
func (r *Repo) Warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.Log.Warn(text)
	r.warnings.mu.Lock()
	defer r.warnings.mu.Unlock()
	if len(r.warnings.list) < maxWarnings {
		r.warnings.list = append(r.warnings.list, text)
	}
}

// MoveTip publishes a new durable tip to readers.
func (r *Repo) MoveTip(t Tip) {
	r.Head.Store(&t)
	r.Head.mu.Lock()
	close(r.Head.moved)
	r.Head.moved = make(chan struct{})
	r.Head.mu.Unlock()
}

// DropCommitGraph removes a user's commit-graph: it names commits that are
// going to be gone. git makes none in a repository that has a shallow boundary,
// but does not forget one.
func (r *Repo) DropCommitGraph() error {
	const info = storedir.Repo + "/objects/info"
	if err := storedir.Remove(r.FS, info+"/commit-graph"); err != nil {
		return err
	}
	const dir = info + "/commit-graphs"
	names, err := r.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// commit-graph-chain first: without it the layers are nothing.
	slices.SortFunc(names, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range names {
		if err := storedir.Remove(r.FS, dir+"/"+e.Name); err != nil {
			return err
		}
	}
	return nil
}

// LockedOut names the lock that kept something from being done.
func LockedOut(err error) error {
	var locked *refs.LockedError
	if !errors.As(err, &locked) {
		return errs.Wrap(err, "")
	}
	return &errs.Error{Kind: errs.Unavailable, Code: "ref_locked", Err: err,
		Detail: "Another process holds " + locked.Name + "; nothing is lost, and it is tried again."}
}

// Busy reports whether another process is at work in the repository, or may be.
func (r *Repo) Busy(ctx context.Context) (bool, error) {
	busy, err := r.atWork(ctx)
	if errors.Is(err, inuse.ErrUndecided) {
		return true, nil
	}
	return busy, err
}

// atWork reports whether another process is known to be at work in the repository;
// inuse.ErrUndecided says what it does there.
func (r *Repo) atWork(ctx context.Context) (bool, error) {
	var dirs, files []vfs.Info
	for _, name := range []string{storedir.Repo, storedir.Repo + "/objects", storedir.Packs} {
		info, err := r.FS.Lstat(name)
		if err != nil {
			return false, err
		}
		dirs = append(dirs, info)
	}
	names, err := r.FS.ReadDir(storedir.Packs)
	if err != nil {
		return false, err
	}
	for _, e := range names {
		info, err := r.FS.Lstat(storedir.Packs + "/" + e.Name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return false, err
		}
		files = append(files, info)
	}
	if r.readers != nil {
		dirs = append(dirs, r.readers()...)
	}
	return r.inUse(ctx, dirs, files)
}

// Hold sets the log of the sink; nil takes it away.
func (r *Repo) Hold(log *remote.Log) { r.Held, r.Packs.Held = log, log }

// Whole waits until all packs are on the local disk, which git needs; it does
// nothing without a sink.
func (r *Repo) Whole(ctx context.Context) error {
	if r.Held == nil {
		return nil
	}
	if err := r.Held.Whole(ctx); err != nil {
		return errs.Wrap(err, "")
	}
	return errs.Wrap(r.Index.Filled(ctx), "")
}

// readable fails once the store was fenced.
func (r *Repo) readable() error {
	if r.Held == nil {
		return nil
	}
	return r.Held.Readable()
}

// DiskBytes gives how much room the store takes on disk, in bytes: our packs with
// their indexes, superseded ones until they go, journals with the room that is
// made ahead, prepared large blobs, and the commit index. It is known in memory,
// and waits for no disk; what people put into the repository is not in it.
func (h History) DiskBytes() int64 {
	n := h.r.Packs.Bytes(true) + h.r.Large.Bytes() + h.r.Index.Bytes()
	for _, j := range *h.r.Live.Load() {
		n += max(j.Room, j.Used())
	}
	return n
}

// HistoryBytes gives how large the history is, in bytes: DiskBytes without what
// only waits to be removed or used. A merge makes it smaller, never larger for a
// while.
func (h History) HistoryBytes() int64 {
	n := h.r.Packs.Bytes(false) + h.r.Large.Bytes()
	for _, j := range *h.r.Live.Load() {
		n += j.Used()
	}
	return n
}

// DropSuperseded removes superseded packs. Upkeep.Maintaining is held.
func (r *Repo) DropSuperseded(due []*packset.File) error {
	r.Upkeep.LastDrop = r.Now()
	r.Upkeep.Dropped.Store(true)
	return r.Packs.DropSuperseded(due)
}
