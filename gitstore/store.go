package gitstore

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/large"

	"umbra/gitstore/packset"

	"umbra/gitstore/cache"
	"umbra/gitstore/inuse"
	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/records"
	"umbra/gitstore/refs"
	"umbra/gitstore/remote"
	"umbra/gitstore/sink"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// ID and Mode are git's, from gitstore/object.
type (
	ID   = object.ID
	Mode = object.Mode
)

// maxTree bounds a tree that is written, in bytes: what is larger could not be
// read again. Tests set it.
var maxTree = int64(object.MaxMeta)

// checkTree refuses a tree that would be larger than what is read.
func checkTree(t *object.TreeData) error {
	if n := int64(len(t.Bytes())); n > maxTree {
		return &errs.Error{Kind: errs.TooLarge, Code: "directory_too_large",
			Detail: "A directory would have more entries than history can hold: their names may take 256 MiB together."}
	}
	return nil
}

// Identity overrides the name and address of an actor in commits.
type Identity struct{ Name, Email string }

// Options of a store. The zero value of a field means its default.
type Options struct {
	FS           vfs.FS           // the workspace's folder in the data directory; the store closes it
	Base         *Base            // the history that a fork continues; nil for any other
	Log          *slog.Logger     // default: discarded
	Now          func() time.Time // default: time.Now
	VisibleAfter time.Duration    // how long a durable commit may stay unseen by stock git; 700ms
	MergeGrace   time.Duration    // how long a merged pack stays for readers that have it open; 10m
	InlineBlob   int64            // bytes above which a blob gets a pack of its own; 4 MiB
	BaselinePart int64            // bytes at which a pack of a baseline is closed; 64 MiB
	Identities   map[string]Identity
	// Person is the git author of changes found on disk; empty: the server.
	Person string
	// Caches are what is kept of histories in memory, shared with other stores;
	// nil: 40 MiB of its own.
	Caches *Caches
	// InUse reports whether another process is in one of the folders or has
	// one of the files open. Nil looks into /proc where there is one.
	InUse func(ctx context.Context, dirs, files []vfs.Info) (bool, error)
	// Readers, if set, returns the repositories whose git reads the packs of this one.
	Readers func() []vfs.Info
	// Room, if set, is asked before new content is committed, with its bytes: its
	// error fails the draft. It is called by every writer and must not block.
	Room func(bytes int64) error
	// MaxHistory bounds HistoryBytes: beyond it drafts with new content are
	// errs.NoSpace, quota_exceeded. 0: no bound.
	MaxHistory int64
	// Meter counts what the store does; several may share one; may be nil.
	Meter *Meter
	// Sink holds the history: the folder is a cache then, never synced, and may be
	// lost or torn between two opens. Nil: the folder is the history.
	Sink sink.Sink
	// MaxUnsealed bounds the bytes of groups that are in the sink's log and not in
	// its object store yet; 64 MiB.
	MaxUnsealed int64
	// TaskRecords, if set, gives the records that are written in the transaction of
	// a group that changes a task. The committer calls it; it must not block.
	TaskRecords func(Task) []sink.Record
	// Boot names this start of the system: what a cache of another start holds is
	// verified before it is used. Empty: always.
	Boot string
	// Foreground leaves closing, merging, sealing and ref packing to explicit
	// calls of Publish, Maintain and Seal, for tests that count file system calls.
	Foreground bool
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.VisibleAfter == 0 {
		o.VisibleAfter = 700 * time.Millisecond
	}
	if o.MergeGrace == 0 {
		o.MergeGrace = 10 * time.Minute
	}
	if o.BaselinePart == 0 {
		o.BaselinePart = 64 << 20
	}
	if o.InlineBlob == 0 {
		o.InlineBlob = 4 << 20
		if o.Sink != nil {
			o.InlineBlob = 256 << 10
		}
	}
	if o.MaxUnsealed == 0 {
		o.MaxUnsealed = 64 << 20
	}
	if o.Sink != nil {
		o.FS = vfs.Unsynced(o.FS)
	}
	if o.Room == nil {
		o.Room = func(int64) error { return nil }
	}
	if o.Caches == nil {
		o.Caches = NewCaches(ownCaches)
	}
	if o.InUse == nil {
		o.InUse = inuse.Repository
	}
	if o.Meter == nil {
		o.Meter = &Meter{}
	}
}

// Tip is the newest durable commit; Seq 0 means that there is none yet.
type Tip struct {
	Commit, Tree ID
	Seq          uint64
}

// Store is the commit engine of one workspace. All exported methods may be
// called from any goroutine.
type Store struct {
	opt  Options
	fs   vfs.FS
	log  *slog.Logger
	base *forkPoint  // nil but for a fork
	held *remote.Log // nil without a sink

	tip tipOf
	// boundary is nil while nothing was ever dropped. It moves under logs.mu.
	boundary atomic.Pointer[Boundary]
	cached   caches
	packs    packset.Set
	large    large.Set
	records  *records.Index

	queue queue
	logs  journals
	tasks taskMap

	pub      publisher
	refs     *refs.Store
	note     *refs.Note
	infoLog  infoLog
	warnings warnings
	recovery Recovery

	upkeep upkeep
	purges purges
	life   lifetime
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

// queue is what waits to be committed.
type queue struct {
	mu      sync.Mutex
	list    []*pending
	led     bool       // a leader commits, or has been chosen
	idle    *sync.Cond // of mu: there is no leader
	stopped bool
}

// journals are the journal files in their roles.
type journals struct {
	mu       sync.Mutex         // the committer holds it for a group
	open     *journal.Journal   // nil until the first write
	closing  []*journal.Journal // full or to be published, oldest first
	set      journal.Set
	lastWhen time.Time
	live     atomic.Pointer[[]*journal.Journal] // all that hold objects, for readers
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
	// undone is a cut whose last steps are still to be done; cmu.
	undone *cut
	bounds map[string]taskBounds // as of the last look; cmu
	// shed is set once a collection left objects out: from then on a commit that
	// relies upon an older object looks whether it is still there.
	shed  atomic.Bool
	swept atomic.Pointer[Boundary] // as of the last collection

	mmu  sync.Mutex    // one run of maintenance at a time
	wake chan struct{} // wakes the maintainer
	// alone: the sink's store has all that the base has; mmu.
	alone bool
	// What maintenance knows of its last runs; mmu.
	lastDrop time.Time
	dropped  atomic.Bool // packs went, and their names may turn up again
}

// purges is what purges did since the store was opened.
type purges struct {
	gone    atomic.Pointer[map[ID]bool] // contents that are no more
	count   atomic.Uint64
	pending *purgeIntent // the one that is not finished yet; pub.mu
}

// lifetime owns the background of a store.
type lifetime struct {
	running    context.Context // ends when the store is being closed
	stop       context.CancelFunc
	background sync.WaitGroup
}

// Recovery reports what a start found and did.
type Recovery struct {
	Commits int      // replayed from journals
	Torn    []string // journals whose end was not clean, kept aside under these names
	Foreign int      // our refs that another process had moved
	Purged  bool     // a purge that was cut off was finished
}

// Recovery reports what the start found.
func (s *Store) Recovery() Recovery { return s.recovery }

// Tip gives the newest durable commit, without waiting.
func (s *Store) Tip() Tip { return *s.tip.Load() }

// Wait returns when a commit after the given sequence number is durable.
func (s *Store) Wait(ctx context.Context, after uint64) error {
	for {
		s.tip.mu.Lock()
		moved := s.tip.moved
		s.tip.mu.Unlock()
		if s.Tip().Seq > after {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return errs.Wrap(context.Cause(ctx), "")
		}
	}
}

// Warnings lists what an owner should know: foreign refs, torn journals, locks
// that keep stock git from seeing what is durable.
func (s *Store) Warnings() []string {
	s.warnings.mu.Lock()
	defer s.warnings.mu.Unlock()
	return slices.Concat(s.warnings.list, s.pub.pending())
}

// maxWarnings bounds what a store that meets trouble without end remembers.
const maxWarnings = 100

func (s *Store) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.log.Warn(text)
	s.warnings.mu.Lock()
	defer s.warnings.mu.Unlock()
	if len(s.warnings.list) < maxWarnings {
		s.warnings.list = append(s.warnings.list, text)
	}
}

// Open opens the store of a workspace folder, making it when the folder is
// empty, and replays what its journals hold. One Store a folder: the caller
// sees to that.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.setDefaults()
	s := &Store{opt: opt, fs: opt.FS, log: opt.Log,
		cached: caches{trees: newTreeCache(opt.Caches.trees), computed: cache.New[computed, any](opt.Caches.bases)},
		tip:    tipOf{moved: make(chan struct{})}, tasks: taskMap{byID: make(map[string]*Task)}}
	s.queue.idle = sync.NewCond(&s.queue.mu)
	s.tip.Store(&Tip{})
	s.logs.live.Store(new([]*journal.Journal))
	s.logs.set.FS, s.logs.set.Log, s.logs.set.MaxObject = s.fs, s.log, object.MaxMeta
	s.pub.s = s
	s.openPacks()
	s.upkeep.wake = make(chan struct{}, 1)
	s.pub.wake = make(chan struct{}, 1)
	if err := s.start(ctx); err != nil {
		s.closeFiles()
		return nil, err
	}
	bg, cancel := context.WithCancel(context.Background())
	s.life.running, s.life.stop = bg, cancel
	if !opt.Foreground {
		s.life.background.Go(func() { s.pub.run(bg) })
		s.life.background.Go(func() { s.maintainer(bg) })
		if s.held != nil {
			s.life.background.Go(func() { s.held.Run(bg, s.log, s.Seal) })
			s.life.background.Go(func() { s.held.FetchRest(bg, s.log, s.records.Filled) })
		}
	}
	return s, nil
}

// openPacks prepares the set of packs.
func (s *Store) openPacks() {
	s.packs.FS, s.packs.Log, s.packs.Cache, s.packs.Warn = s.fs, s.log, s.opt.Caches.bases, s.warn
	s.large.Packs = &s.packs
}

// Close finishes what is queued, lets stock git see everything, and frees the
// files. The store is of no use afterwards, whatever it returns; what was
// answered is durable even if it fails.
func (s *Store) Close(ctx context.Context) error {
	s.queue.mu.Lock()
	s.queue.stopped = true
	for s.queue.led {
		s.queue.idle.Wait()
	}
	s.queue.mu.Unlock()
	s.life.stop()
	s.life.background.Wait()
	s.upkeep.cmu.Lock() // the work that was under way has been canceled
	defer s.upkeep.cmu.Unlock()
	// A ref that is held costs nothing: the ref log says what it is to be.
	lctx, cancel := context.WithTimeout(ctx, lockPatience)
	_, err := s.pub.publish(lctx)
	cancel()
	if errs.Is(errs.Wrap(err, ""), errs.NoSpace) { // what is durable in the journals stays
		s.log.Warn("no space to publish; the next start does it", "error", err)
		err = nil
	} else if err == nil {
		s.sealLast(ctx)
		if err := s.writeInfoLog(ctx); err != nil {
			s.log.Warn("reflogs of tasks' records not written", "error", err)
		}
	}
	s.closeFiles()
	return err
}

func (s *Store) closeFiles() {
	s.logs.set.Close()
	s.logs.mu.Lock()
	if s.logs.open != nil {
		s.logs.open.Close()
		if s.logs.open.Empty() {
			s.fs.Remove(s.logs.open.Name) // left behind, it is dropped at a start
		}
	}
	for _, j := range s.logs.closing {
		j.Close()
	}
	s.logs.mu.Unlock()
	s.packs.Close()
	if s.held != nil {
		s.held.Close()
	}
	s.large.Close()
	s.cached.trees.Close()
	s.cached.computed.Close()
	if s.records != nil {
		s.records.Close()
	}
	if s.note != nil {
		s.note.Close()
	}
	s.fs.Close()
}

// untilClosed gives a context that also ends when the store is closed.
func (s *Store) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life.running, func() {
		cancel(errs.New(errs.Unavailable, "stopping", "The workspace is being unloaded."))
	})
	return ctx, func() { stop(); cancel(nil) }
}
