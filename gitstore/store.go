package gitstore

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/inuse"
	"umbra/gitstore/journal"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/purge"
	"umbra/gitstore/remote"
	"umbra/gitstore/repo"
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
	// Copy, if set, opens the log of a copy of the history, which stays in the folder: it
	// claims it, and is called again when that ended. remote.ErrNoCopy: none is kept.
	Copy func(ctx context.Context) (sink.Sink, error)
	// MaxUnsealed bounds the bytes of groups that are in the sink's log and not in
	// its object store yet; 64 MiB.
	MaxUnsealed int64
	// TaskRecords, if set, gives the records that are written in the transaction of
	// a group that changes a task. The committer calls it; it must not block.
	TaskRecords func(Task) []sink.Record
	// CommitRecords is TaskRecords for each commit: what it gives exists exactly if the
	// commit does.
	CommitRecords func(*message.Message) []sink.Record
	// Boot names this start of the system: what a cache of another start holds is
	// verified before it is used. Empty: always.
	Boot string
	// Foreground leaves closing, merging, sealing and ref packing to explicit
	// calls of Publish, Maintain and Seal, for tests that count file system calls.
	Foreground bool
}

func (o *Options) ofRepo() repo.Options {
	return repo.Options{FS: o.FS, Log: o.Log, Now: o.Now, Readers: o.Readers, InUse: o.InUse, MergeGrace: o.MergeGrace, Caches: o.Caches}
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
		o.Caches = NewCaches(repo.OwnCaches)
	}
	if o.InUse == nil {
		o.InUse = inuse.Repository
	}
	if o.Meter == nil {
		o.Meter = &Meter{}
	}
}

// Store is the commit engine of one workspace. All exported methods may be
// called from any goroutine.
type Store struct {
	repo.History
	r     *repo.Repo
	opt   Options
	queue queue
	logs  journals
	copy  *remote.Copy // nil without Options.Copy

	pub      publisher
	recovery Recovery

	retention retention
	wake      chan struct{} // wakes the maintainer
	// interrupt ends what Maintain does now; nil: nothing. While ahead is not 0 it begins nothing.
	interrupt atomic.Pointer[context.CancelFunc]
	ahead     atomic.Int32 // SealAhead runs so often
	// alone: the sink's store has all that the base has; upkeep.mmu.
	alone  bool
	purger *purge.Purger
	life   lifetime
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
	open     *journal.Journal   // nil until the first write
	closing  []*journal.Journal // full or to be published, oldest first
	set      journal.Set
	lastWhen time.Time
}

// retention is what retention knows; upkeep.cmu.
type retention struct {
	undone *cut                  // one whose last steps are still to be done
	bounds map[string]taskBounds // as of the last look
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

// Warnings lists what an owner should know: foreign refs, torn journals, locks
// that keep stock git from seeing what is durable.
func (s *Store) Warnings() []string {
	return slices.Concat(s.r.Warned(), s.pub.pending())
}

// Open opens the store of a workspace folder, making it when the folder is
// empty, and replays what its journals hold. One Store a folder: the caller
// sees to that.
func Open(ctx context.Context, opt Options) (*Store, error) {
	opt.setDefaults()
	r := repo.New(opt.ofRepo())
	s := &Store{History: r.History, r: r, opt: opt}
	s.queue.idle = sync.NewCond(&s.queue.mu)
	s.copy = remote.NewCopy(remote.CopyOptions{Open: opt.Copy, Begun: r.Packs.SetStored, Seal: s.sealCopy, Limit: opt.MaxUnsealed, Log: r.Log})
	s.logs.set.FS, s.logs.set.Log, s.logs.set.MaxObject = s.r.FS, s.r.Log, object.MaxMeta
	s.pub.s, s.purger = s, purge.NewPurger(r, purgeHost{s})
	s.wake = make(chan struct{}, 1)
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
		if s.copy != nil {
			s.life.background.Go(func() { s.copy.Run(bg) })
		}
		if s.r.Held != nil {
			s.life.background.Go(func() { s.r.Held.Run(bg, s.r.Log, s.Seal) })
			s.life.background.Go(func() { s.r.Held.FetchRest(bg, s.r.Log, s.r.Index.FillRest) })
		}
	}
	return s, nil
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
	s.r.Upkeep.Collecting.Lock() // the work that was under way has been canceled
	defer s.r.Upkeep.Collecting.Unlock()
	// A ref that is held costs nothing: the ref log says what it is to be.
	lctx, cancel := context.WithTimeout(ctx, repo.LockPatience)
	_, err := s.pub.publish(lctx)
	cancel()
	if errs.Is(errs.Wrap(err, ""), errs.NoSpace) { // what is durable in the journals stays
		s.r.Log.Warn("no space to publish; the next start does it", "error", err)
		err = nil
	} else if err == nil {
		s.sealLast(ctx)
		s.copy.Last(ctx)
		if err := s.r.WriteInfoLog(ctx); err != nil {
			s.r.Log.Warn("reflogs of tasks' records not written", "error", err)
		}
	}
	s.closeFiles()
	return err
}

func (s *Store) closeFiles() {
	s.logs.set.Close()
	s.r.Committing.Lock()
	if s.logs.open != nil {
		s.logs.open.Close()
		if s.logs.open.Empty() {
			s.r.FS.Remove(s.logs.open.Name) // left behind, it is dropped at a start
		}
	}
	for _, j := range s.logs.closing {
		j.Close()
	}
	s.r.Committing.Unlock()
	s.r.Packs.Close()
	if s.r.Held != nil {
		s.r.Held.Close()
	}
	s.r.Large.Close()
	s.r.Cached.Trees.Close()
	s.r.Cached.Computed.Close()
	if s.r.Index != nil {
		s.r.Index.Close()
	}
	if s.r.Note != nil {
		s.r.Note.Close()
	}
	s.r.FS.Close()
}

// untilClosed gives a context that also ends when the store is closed.
func (s *Store) untilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.life.running, func() {
		cancel(errs.New(errs.Unavailable, "stopping", "The workspace is being unloaded."))
	})
	return ctx, func() { stop(); cancel(nil) }
}
