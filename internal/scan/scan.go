// Package scan walks over a workspace's directory, in parallel, and finds what
// belongs to history: for the baseline and for the reconciler's scans.
//
// It leaves out what the rules ignore (but not what is tracked), every ".git"
// and the server's temporary files and directories, and reports what it cannot or
// must not record. The only files it opens are those with rules; it follows no
// link, and keeps in memory the directories that are still to be listed and the
// listing that each worker processes, never the tree.
package scan

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"umbra/internal/ignore"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Reason says why something is not recorded; the "skipped" lists of answers have
// it.
type Reason string

// The reasons.
const (
	Special     Reason = "special"       // a FIFO, socket or device
	Unreadable  Reason = "unreadable"    // could not be listed or read
	NameRefused Reason = "name_refused"  // git refuses the name
	PathTooLong Reason = "path_too_long" // longer than wspath.MaxPath
)

// Found is one thing on disk.
type Found struct {
	Path wspath.Path
	Info vfs.Info // from lstat; zero where Skip is set
	// Ignored says that a rule ignores the path and that it is here because it
	// is tracked.
	Ignored bool
	// Skip is why it is not to be recorded. For a folder that holds for all
	// below it, which is then not known: nothing there is deleted.
	Skip Reason
}

// Options say what to walk over. The zero value takes everything.
type Options struct {
	// Start is the folder to begin at: the root if empty. Rules of the folders
	// above it hold.
	Start wspath.Path
	// Workers is how many folders are listed at once; 0 means two a processor.
	Workers int
	// Rules are the root's rules, nil for none. See RuleReader.
	Rules *ignore.Dir
	// Index is the project's own index, nil for none: git's rules do not hold
	// for what it tracks.
	Index *ignore.Index
	// Tracked and TrackedUnder report what no rule holds for: the files, and the
	// directories that have such files below. Both may be nil; else both are
	// called from several goroutines.
	Tracked      func(path wspath.Path) bool
	TrackedUnder func(dir wspath.Path) bool
	// Prune reports directories and files that are silently skipped: the server's
	// own. May be nil; else it is called from several goroutines.
	Prune func(path wspath.Path) bool
	// Dirs asks for folders too, each before what is in it.
	Dirs bool
	// Folder, if set, is called for each directory that was listed; its entries
	// are passed to the visitor that it returns, then done is called. Walk's own
	// visit gets only what is visited by itself: paths given to Paths, and
	// directories that cannot be listed.
	Folder func(dir wspath.Path) (visit func(Found) error, done func() error, err error)
	// Progress is called with the counts about every thousand files, by one
	// goroutine at a time. May be nil.
	Progress func(Stats)
}

// Stats count what a walk has met.
type Stats struct {
	Files, Links, Dirs int64 // passed to visit (directories: listed)
	Ignored            int64 // files and directories that rules leave out, without the content of the latter
	Skipped            int64 // passed to visit with a reason
}

// Walk calls visit for every regular file and symbolic link that belongs to
// history, and for what is skipped. visit is called from several goroutines at
// once; in one directory by one goroutine, in the order of the names. While it
// blocks, that worker waits. With one worker the order of everything is fixed.
//
// Files made or removed while the walk runs may or may not be visited. The first
// error of visit ends the walk and is returned; else it fails only with ctx, if
// the process is out of descriptors or memory, or if the root itself cannot be
// listed: any other directory that cannot be read is visited as Unreadable.
func Walk(ctx context.Context, f vfs.FS, opts Options, visit func(Found) error) (Stats, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := newWalker(ctx, f, opts, visit)
	start, err := w.start()
	if err != nil {
		return Stats{}, err
	}
	w.pending = start
	return w.run(cancel)
}

func newWalker(ctx context.Context, f vfs.FS, opts Options, visit func(Found) error) *walker {
	w := &walker{fs: f, opts: opts, visit: visit, ctx: ctx}
	w.wake.L = &w.mu
	return w
}

// run lists the pending folders, and those below them, until there are none.
func (w *walker) run(cancel context.CancelCauseFunc) (Stats, error) {
	// A cancelled walk wakes the workers that wait for folders.
	stop := context.AfterFunc(w.ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.wake.Broadcast()
	})
	defer stop()

	n := w.opts.Workers
	if n <= 0 {
		n = 2 * runtime.GOMAXPROCS(0)
	}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for {
				d, ok := w.take()
				if !ok {
					return
				}
				subdirs, err := w.folder(d)
				if err != nil {
					cancel(err)
				}
				w.done(subdirs)
			}
		})
	}
	wg.Wait()
	if w.opts.Progress != nil {
		w.opts.Progress(w.stats.snapshot())
	}
	return w.stats.snapshot(), context.Cause(w.ctx)
}

// folder is a folder that is still to be listed.
type folder struct {
	path  wspath.Path
	above *ignore.Dir // the rules of the folder it is in
	rules *ignore.Dir // its own, where they are known already
}

type walker struct {
	fs    vfs.FS
	opts  Options
	visit func(Found) error
	ctx   context.Context
	stats counters

	mu      sync.Mutex
	wake    sync.Cond
	pending []folder // last in, first out: keeps it short
	busy    int      // folders being listed

	progress sync.Mutex
	reported int64 // thousands of files that Progress was called for
}

// take waits for a folder; false when there is none left or the walk ended.
func (w *walker) take() (folder, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) == 0 && w.busy > 0 && w.ctx.Err() == nil {
		w.wake.Wait()
	}
	if len(w.pending) == 0 || w.ctx.Err() != nil {
		return folder{}, false
	}
	last := len(w.pending) - 1
	d := w.pending[last]
	w.pending[last] = folder{}
	w.pending = w.pending[:last]
	w.busy++
	return d, true
}

// done hands in what a folder's listing brought, in the order of names.
func (w *walker) done(subdirs []folder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := len(subdirs) - 1; i >= 0; i-- {
		w.pending = append(w.pending, subdirs[i])
	}
	w.busy--
	if len(subdirs) > 0 || w.busy == 0 {
		w.wake.Broadcast()
	}
}

// start finds the rules of the first folder. A start that is ignored itself is
// walked for what is tracked in it.
func (w *walker) start() ([]folder, error) {
	start := w.opts.Start
	if start.IsRoot() {
		return []folder{{path: wspath.Root, rules: w.opts.Rules}}, nil
	}
	names := start.Components()
	above := w.opts.Rules
	for _, name := range names[:len(names)-1] {
		if above == nil {
			break
		}
		next, err := above.Child(name)
		if err != nil {
			return nil, err
		}
		above = next
	}
	return []folder{{path: start, above: above}}, nil
}

// counters are Stats that many goroutines add to.
type counters struct {
	files, links, dirs, ignored, skipped atomic.Int64
}

func (c *counters) snapshot() Stats {
	return Stats{Files: c.files.Load(), Links: c.links.Load(), Dirs: c.dirs.Load(), Ignored: c.ignored.Load(), Skipped: c.skipped.Load()}
}

// reportProgress calls Progress where another thousand is full. A worker that
// finds another one telling does not wait for it.
func (w *walker) reportProgress() {
	if w.opts.Progress == nil || !w.progress.TryLock() {
		return
	}
	defer w.progress.Unlock()
	now := w.stats.snapshot()
	if k := (now.Files + now.Links) / 1000; k > w.reported {
		w.reported = k
		w.opts.Progress(now)
	}
}
