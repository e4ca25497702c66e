// Package repo is the history of one workspace, as it is on disk and in memory: its
// objects wherever they are, refs, tasks, the commit index, where it begins. It reads,
// for clients (History) and for the engine and its upkeep (Repo); what is added to it
// or taken away is theirs.
package gitstore

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
	"umbra/gitstore/journal"
	"umbra/gitstore/large"
	"umbra/gitstore/packset"
	"umbra/gitstore/records"
	"umbra/gitstore/refs"
	"umbra/gitstore/remote"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Repo is the history of one workspace and what guards it.
type Repo struct {
	History
	fs         vfs.FS
	log        *slog.Logger
	now        func() time.Time
	readers    func() []vfs.Info
	inUse      func(ctx context.Context, dirs, files []vfs.Info) (bool, error)
	mergeGrace time.Duration
	base       *forkPoint  // nil but for a fork
	held       *remote.Log // nil without a sink
	tip        tipOf
	boundary   atomic.Pointer[Boundary]
	cached     caches
	packs      packset.Set
	large      large.Set
	records    *records.Index
	live       atomic.Pointer[[]*journal.Journal]
	tasks      taskMap
	refs       *refs.Store
	note       *refs.Note
	infoLog    infoLog
	warnings   warnings
	upkeep     upkeep
	purges     purges
	committing sync.Mutex
	publishing sync.Mutex
}

// History reads a workspace's history. All methods may be called from any goroutine.
type History struct{ r *Repo }

// newRepo prepares a repo; nothing is read yet.
func newRepo(opt *Options) *Repo {
	r := &Repo{fs: opt.FS, log: opt.Log, now: opt.Now, readers: opt.Readers, inUse: opt.InUse, mergeGrace: opt.MergeGrace,
		cached: caches{trees: newTreeCache(opt.Caches.trees), computed: cache.New[computed, any](opt.Caches.bases)},
		tip:    tipOf{moved: make(chan struct{})}, tasks: taskMap{byID: make(map[string]*Task)}}
	r.History = History{r}
	r.tip.Store(&Tip{})
	r.live.Store(new([]*journal.Journal))
	r.packs.FS, r.packs.Log, r.packs.Cache, r.packs.Warn = r.fs, r.log, opt.Caches.bases, r.warn
	r.large.Packs = &r.packs
	return r
}

// Tip is the newest durable commit; Seq 0 means that there is none yet.
type Tip struct {
	Commit, Tree ID
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
	trees    treeCache
	computed *cache.Cache[computed, any]
	memo     treeMemo
}

type taskMap struct {
	mu   sync.RWMutex
	byID map[string]*Task
}

type warnings struct {
	mu   sync.Mutex
	list []string
}

// upkeep is the state of maintenance, retention and collections.
type upkeep struct {
	cmu sync.Mutex // one move of the boundary, or collection, at a time; before mmu
	// rooting is held for reading while a tree is in a pack that no commit names
	// yet.
	rooting sync.RWMutex
	// shed is set once a collection left objects out: from then on a commit that
	// relies upon an older object looks whether it is still there.
	shed  atomic.Bool
	swept atomic.Pointer[Boundary] // as of the last collection

	mmu sync.Mutex // one run of maintenance at a time
	// What maintenance knows of its last runs; mmu.
	lastDrop time.Time
	dropped  atomic.Bool // packs went, and their names may turn up again
}

// purges is what purges did since the store was opened.
type purges struct {
	gone  atomic.Pointer[map[ID]bool] // contents that are no more
	count atomic.Uint64
}

// Tip gives the newest durable commit, without waiting.
func (h History) Tip() Tip { return *h.r.tip.Load() }

// Wait returns when a commit after the given sequence number is durable.
func (h History) Wait(ctx context.Context, after uint64) error {
	for {
		h.r.tip.mu.Lock()
		moved := h.r.tip.moved
		h.r.tip.mu.Unlock()
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

func (r *Repo) warned() []string {
	r.warnings.mu.Lock()
	defer r.warnings.mu.Unlock()
	return slices.Clone(r.warnings.list)
}

func (r *Repo) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.log.Warn(text)
	r.warnings.mu.Lock()
	defer r.warnings.mu.Unlock()
	if len(r.warnings.list) < maxWarnings {
		r.warnings.list = append(r.warnings.list, text)
	}
}

// moveTip publishes a new durable tip to readers.
func (r *Repo) moveTip(t Tip) {
	r.tip.Store(&t)
	r.tip.mu.Lock()
	close(r.tip.moved)
	r.tip.moved = make(chan struct{})
	r.tip.mu.Unlock()
}

// dropCommitGraph removes a user's commit-graph: it names commits that are
// going to be gone. git makes none in a repository that has a shallow boundary,
// but does not forget one.
func (r *Repo) dropCommitGraph() error {
	const info = storedir.Repo + "/objects/info"
	if err := storedir.Remove(r.fs, info+"/commit-graph"); err != nil {
		return err
	}
	const dir = info + "/commit-graphs"
	names, err := r.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// commit-graph-chain first: without it the layers are nothing.
	slices.SortFunc(names, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	for _, e := range names {
		if err := storedir.Remove(r.fs, dir+"/"+e.Name); err != nil {
			return err
		}
	}
	return nil
}

// lockedOut names the lock that kept something from being done.
func lockedOut(err error) error {
	var locked *refs.LockedError
	if !errors.As(err, &locked) {
		return errs.Wrap(err, "")
	}
	return &errs.Error{Kind: errs.Unavailable, Code: "ref_locked", Err: err,
		Detail: "Another process holds " + locked.Name + "; nothing is lost, and it is tried again."}
}

// repoInUse reports whether another process is known to be at work in the repository.
func (r *Repo) repoInUse(ctx context.Context) (bool, error) {
	var dirs, files []vfs.Info
	for _, name := range []string{storedir.Repo, storedir.Repo + "/objects", storedir.Packs} {
		info, err := r.fs.Lstat(name)
		if err != nil {
			return false, err
		}
		dirs = append(dirs, info)
	}
	names, err := r.fs.ReadDir(storedir.Packs)
	if err != nil {
		return false, err
	}
	for _, e := range names {
		info, err := r.fs.Lstat(storedir.Packs + "/" + e.Name)
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

// hold sets the log of the sink; nil takes it away.
func (r *Repo) hold(log *remote.Log) { r.held, r.packs.Held = log, log }

// whole waits until all packs are on the local disk, which git needs; it does
// nothing without a sink.
func (r *Repo) whole(ctx context.Context) error {
	if r.held == nil {
		return nil
	}
	if err := r.held.Whole(ctx); err != nil {
		return errs.Wrap(err, "")
	}
	return errs.Wrap(r.records.Filled(ctx), "")
}

// readable fails once the store was fenced.
func (r *Repo) readable() error {
	if r.held == nil {
		return nil
	}
	return r.held.Readable()
}

// DiskBytes gives how much room the store takes on disk, in bytes: our packs with
// their indexes, superseded ones until they go, journals with the room that is
// made ahead, prepared large blobs, and the commit index. It is known in memory,
// and waits for no disk; what people put into the repository is not in it.
func (h History) DiskBytes() int64 {
	n := h.r.packs.Bytes(true) + h.r.large.Bytes() + h.r.records.Bytes()
	for _, j := range *h.r.live.Load() {
		n += max(j.Room, j.Used())
	}
	return n
}

// HistoryBytes gives how large the history is, in bytes: DiskBytes without what
// only waits to be removed or used. A merge makes it smaller, never larger for a
// while.
func (h History) HistoryBytes() int64 {
	n := h.r.packs.Bytes(false) + h.r.large.Bytes()
	for _, j := range *h.r.live.Load() {
		n += j.Used()
	}
	return n
}
