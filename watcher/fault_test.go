package watcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/testlog"
	"umbra/internal/wspath"
)

// faulty passes a real source's events on, but for what a test takes away.
type faulty struct {
	source
	events chan fsnotify.Event
	errors chan error
	add    func(dir string) error
	done   chan struct{}
	group  sync.WaitGroup

	mu   sync.Mutex
	drop func(fsnotify.Event) bool
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	src, err := openNotify()
	need.NoError(t, err)
	f := &faulty{source: src, events: make(chan fsnotify.Event), errors: make(chan error), done: make(chan struct{})}
	f.group.Go(func() {
		defer close(f.events)
		for ev := range src.Events() {
			f.mu.Lock()
			drop := f.drop != nil && f.drop(ev)
			f.mu.Unlock()
			if drop {
				continue
			}
			select {
			case f.events <- ev:
			case <-f.done:
			}
		}
	})
	return f
}

func (f *faulty) Events() <-chan fsnotify.Event { return f.events }
func (f *faulty) Errors() <-chan error          { return f.errors }

func (f *faulty) Add(dir string) error {
	if f.add != nil {
		if err := f.add(dir); err != nil {
			return err
		}
	}
	return f.source.Add(dir)
}

func (f *faulty) Close() error {
	close(f.done)
	err := f.source.Close()
	f.group.Wait()
	close(f.errors)
	return err
}

func (f *faulty) lose(which func(fsnotify.Event) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop = which
}

func startFaulty(t *testing.T, f *faulty, opts Options) *Watcher {
	t.Helper()
	if opts.Log == nil {
		opts.Log = quiet()
	}
	opts.CookieDir, opts.SyncWait = t.TempDir(), deadline
	w, err := newWatcher(opts, func() (source, error) { return f, nil })
	need.NoError(t, err)
	t.Cleanup(func() { need.NoError(t, w.Close()) })
	return w
}

// After an overflow, directories made in between are watched, although there was
// no event for them, and every workspace is notified.
func TestOverflow(t *testing.T) {
	onDisks(t, func(t *testing.T, root string) {
		f := newFaulty(t)
		w := startFaulty(t, f, Options{})
		write(t, root+"/a/old/f", "x")
		write(t, root+"/b/f", "x")
		a, b := newRecorder(), newRecorder()
		need.NoError(t, w.Add(t.Context(), "a", root+"/a", a.space()))
		need.NoError(t, w.Add(t.Context(), "b", root+"/b", b.space()))

		f.lose(func(ev fsnotify.Event) bool { return !strings.Contains(ev.Name, "cookie") })
		need.NoError(t, os.Rename(root+"/a/old", root+"/a/moved"))
		for i := range 100 {
			write(t, fmt.Sprintf("%s/a/new/%d/f", root, i), "x")
		}
		w.mustSync(t, "a") // the error is the only sign of it
		f.lose(nil)
		f.errors <- fsnotify.ErrEventOverflow
		if err := w.Sync(t.Context(), "a"); err != nil && errs.CodeOf(err) != "events_lost" {
			t.Errorf("Sync: %v", err)
		}
		for _, r := range []*recorder{a, b} {
			r.await(t, "lost", func() bool { return len(r.lost) == 1 && r.lost[0] == Overflow })
			r.forget()
		}
		write(t, root+"/a/new/77/g", "x")
		write(t, root+"/a/moved/f", "y")
		w.mustSync(t, "a")
		a.mu.Lock()
		if a.paths["new/77/g"] == 0 || a.paths["moved/f"] == 0 || len(a.paths) != 2 || len(a.lost) > 0 {
			t.Errorf("dirty %v, lost %v", a.paths, a.lost)
		}
		a.mu.Unlock()
		if !w.State("b").Watching || w.Stats().Overflows != 1 {
			t.Errorf("%+v, %+v", w.State("b"), w.Stats())
		}
	})
}

// The kernel's own queue overflows while no events are taken from the pump.
func TestKernelsQueueOverflows(t *testing.T) {
	limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	if errors.Is(err, fs.ErrNotExist) {
		return // no inotify, no such queue
	}
	need.NoError(t, err)
	n, err := strconv.Atoi(strings.TrimSpace(string(limit)))
	need.NoError(t, err)
	root := t.TempDir()
	write(t, root+"/a", "x")
	write(t, root+"/b", "x")
	w, r := watched(t, root, Options{})
	w.mu.Lock()
	for range n/2 + eventBuffer { // equal events in a row would be one
		need.NoError(t, os.Chmod(root+"/a", 0o600))
		need.NoError(t, os.Chmod(root+"/b", 0o600))
	}
	write(t, root+"/unseen/folder/f", "x")
	w.mu.Unlock()
	r.await(t, "overflow", func() bool { return len(r.lost) > 0 && r.lost[0] == Overflow })
	w.mustSync(t, "ws")
	r.forget()
	write(t, root+"/unseen/folder/g", "x")
	w.mustSync(t, "ws")
	r.awaitDirty(t, "unseen/folder/g")
}

// A Sync that the overflow comes upon fails, whichever goroutine is first.
func TestSyncNeverOverlooksAnOverflow(t *testing.T) {
	f := newFaulty(t)
	w := startFaulty(t, f, Options{})
	root := t.TempDir()
	r := newRecorder()
	need.NoError(t, w.Add(t.Context(), "ws", root, r.space()))
	for i := range 30 {
		f.lose(func(ev fsnotify.Event) bool {
			if strings.Contains(ev.Name, "cookie") {
				f.errors <- fsnotify.ErrEventOverflow // as fsnotify does, before the events that follow
				return false
			}
			return true
		})
		write(t, fmt.Sprintf("%s/f%d", root, i), "x")
		if err := w.Sync(t.Context(), "ws"); errs.CodeOf(err) != "events_lost" {
			t.Fatalf("Sync %d: %v", i, err)
		}
	}
}

// The same where the drain has taken the error but not yet noted it.
func TestSyncWaitsForTheDrain(t *testing.T) {
	f := newFaulty(t)
	w := startFaulty(t, f, Options{})
	need.NoError(t, w.Add(t.Context(), "ws", t.TempDir(), Space{}))
	held := make(chan struct{})
	f.lose(func(ev fsnotify.Event) bool {
		if !strings.Contains(ev.Name, "cookie") {
			return true
		}
		w.losses.mu.Lock()
		f.errors <- fsnotify.ErrEventOverflow
		close(held)
		return false
	})
	done := make(chan error, 1)
	go func() { done <- w.Sync(t.Context(), "ws") }()
	<-held
	f.lose(nil)
	select {
	case err := <-done:
		w.losses.mu.Unlock()
		t.Fatalf("Sync did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	w.losses.mu.Unlock()
	if err := <-done; errs.CodeOf(err) != "events_lost" {
		t.Errorf("Sync: %v", err)
	}
}

func TestErrorsInFloods(t *testing.T) {
	f := newFaulty(t)
	w := startFaulty(t, f, Options{})
	root := t.TempDir()
	r := newRecorder()
	need.NoError(t, w.Add(t.Context(), "ws", root, r.space()))
	const n = 20000
	for i := range n {
		f.errors <- &fs.PathError{Op: "read", Path: "inotify", Err: fmt.Errorf("no. %d", i)}
	}
	r.await(t, "lost", func() bool { return len(r.lost) > 0 && r.lost[0] == Failed })
	w.awaitDrained()
	if st := w.Stats(); st.Errors != n || st.Lost > n/100 {
		t.Errorf("%+v", st)
	}
	// The teller still has the last of them to act on.
	r.await(t, "the last", func() bool { return len(r.lost) > 1 })
	write(t, root+"/f", "x")
	r.awaitDirty(t, "f")
}

func TestStaleWatchIsNoError(t *testing.T) {
	f := newFake()
	w := startFake(t, f, Options{})
	f.errors <- syscall.EINVAL
	f.errors <- syscall.EINVAL
	w.awaitDrained()
	if st := w.Stats(); st.Errors != 0 {
		t.Errorf("%+v", st)
	}
}

// Folders that are moved and removed at once: fsnotify complains with its lock
// held while others want that lock.
func TestMovedAndRemovedAtOnce(t *testing.T) {
	root := t.TempDir()
	w, r := watched(t, root, Options{})
	for i := range 300 {
		d := fmt.Sprintf("%s/d%d", root, i)
		need.NoError(t, os.MkdirAll(d+"/s", 0o777))
		if i%3 == 0 {
			w.mustSync(t, "ws")
		}
		need.NoError(t, os.Rename(d, d+"x"))
		need.NoError(t, os.RemoveAll(d+"x"))
	}
	write(t, root+"/f", "x")
	w.mustSync(t, "ws")
	r.awaitDirty(t, "f")
	r.await(t, "nothing lost", func() bool { return len(r.lost) == 0 })
	if n := len(w.folders("ws")); n != 1 || w.Stats().Watches != 1 {
		t.Errorf("%d folders, %+v", n, w.Stats())
	}
}

func TestWatchLimit(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EMFILE, nil} {
		t.Run(fmt.Sprint(errno), func(t *testing.T) {
			root := t.TempDir()
			for i := range 20 {
				write(t, fmt.Sprintf("%s/big/d%d/f", root, i), "x")
			}
			write(t, root+"/small/f", "x")
			var log testlog.Buffer
			opts := Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
			f := newFaulty(t)
			if errno == nil {
				opts.MaxWatches = 12
			} else {
				var n atomic.Int32
				f.add = func(dir string) error {
					if n.Add(1) > 12 && strings.Contains(dir, "big") {
						return errno
					}
					return nil
				}
			}
			w := startFaulty(t, f, opts)
			small, big := newRecorder(), newRecorder()
			need.NoError(t, w.Add(t.Context(), "small", root+"/small", small.space()))
			need.NoError(t, w.Add(t.Context(), "big", root+"/big", big.space()))
			big.await(t, "limit", func() bool { return len(big.lost) == 1 && big.lost[0] == WatchLimit })
			if st := w.State("big"); st.Watching || st.Trusted || st.Reason != WatchLimit || st.Folders != 0 {
				t.Errorf("big: %+v", st)
			}
			if err := w.Sync(t.Context(), "big"); errs.CodeOf(err) != "not_watched" {
				t.Errorf("Sync: %v", err)
			}
			// The others go on, with what it gave back.
			write(t, root+"/small/a/b/g", "x")
			w.mustSync(t, "small")
			small.awaitDirty(t, "a/b/g")
			if !w.State("small").Watching || w.Stats().Watches != 3 {
				t.Errorf("small: %+v, %+v", w.State("small"), w.Stats())
			}
			// The second time the workspace is notified, but nothing is logged.
			need.NoError(t, w.Add(t.Context(), "big", root+"/big", big.space()))
			big.await(t, "limit again", func() bool { return len(big.lost) == 2 })
			w.mu.Lock() // the warning is written with it held
			defer w.mu.Unlock()
			if n := strings.Count(log.String(), "no more directories"); n != 1 {
				t.Errorf("said %d times: %s", n, log.String())
			}
		})
	}
}

// The limit is met later, by folders that come.
func TestWatchLimitLater(t *testing.T) {
	root := t.TempDir()
	w, r := watched(t, root, Options{MaxWatches: 5})
	for i := range 10 {
		write(t, fmt.Sprintf("%s/d%d/f", root, i), "x")
	}
	r.await(t, "limit", func() bool { return len(r.lost) == 1 && r.lost[0] == WatchLimit })
	if w.Trusted("ws") || w.Stats().Watches != 0 {
		t.Errorf("%+v, %+v", w.State("ws"), w.Stats())
	}
	need.NoError(t, os.RemoveAll(root+"/d0"))
	for i := range 10 {
		need.NoError(t, os.RemoveAll(fmt.Sprintf("%s/d%d", root, i)))
	}
	need.NoError(t, w.Add(t.Context(), "ws", root, r.space()))
	if !w.State("ws").Watching {
		t.Error("not watched again when there is room")
	}
}

func TestNoInstance(t *testing.T) {
	w, err := newWatcher(Options{Log: quiet()}, func() (source, error) { return nil, syscall.EMFILE })
	need.NoError(t, err)
	defer w.Close()
	r := newRecorder()
	need.NoError(t, w.Add(t.Context(), "ws", t.TempDir(), r.space()))
	r.await(t, "limit", func() bool { return len(r.lost) == 1 && r.lost[0] == WatchLimit })
	if err := w.Sync(t.Context(), "ws"); errs.CodeOf(err) != "not_watched" || w.Trusted("ws") {
		t.Errorf("Sync: %v", err)
	}
}

func TestSyncIsBounded(t *testing.T) {
	f := newFake()
	w := startFake(t, f, Options{SyncWait: time.Millisecond})
	need.NoError(t, w.Add(t.Context(), "ws", t.TempDir(), Space{}))
	if err := w.Sync(t.Context(), "ws"); errs.CodeOf(err) != "watch_timeout" {
		t.Errorf("Sync: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Sync(ctx, "ws"); !errs.Is(err, errs.Canceled) {
		t.Errorf("Sync: %v", err)
	}
	if err := w.Sync(ctx, "unknown"); errs.CodeOf(err) != "not_watched" {
		t.Errorf("Sync: %v", err)
	}
	if len(w.cookies.waiting) > 0 {
		t.Errorf("waits for %v", w.cookies.waiting)
	}
}

// The folder for cookies may be swept away by a cleaner of /tmp.
func TestCookieFolderIsMadeAgain(t *testing.T) {
	cookies := filepath.Join(t.TempDir(), "c/d")
	w, r := watched(t, t.TempDir(), Options{CookieDir: cookies})
	w.mustSync(t, "ws")
	need.NoError(t, os.RemoveAll(filepath.Dir(cookies)))
	w.mustSync(t, "ws")
	list, err := os.ReadDir(cookies)
	need.NoError(t, err)
	w.mustSync(t, "ws")
	if len(list) != 1 || len(r.batches) > 0 {
		t.Errorf("%v, %v", list, r.batches)
	}
}

func TestAddIsCancelled(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/a/b/f", "x")
	f := newFaulty(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.add = func(dir string) error {
		if strings.HasSuffix(dir, "/a") {
			cancel()
		}
		return nil
	}
	w := startFaulty(t, f, Options{})
	if err := w.Add(ctx, "ws", root, Space{}); !errs.Is(err, errs.Canceled) {
		t.Errorf("Add: %v", err)
	}
	if st := w.Stats(); st.Workspaces != 0 || st.Watches != 0 {
		t.Errorf("left over: %+v", st)
	}
}

func TestCloseWhileBusy(t *testing.T) {
	root := t.TempDir()
	w, err := New(Options{Log: quiet()})
	need.NoError(t, err)
	need.NoError(t, w.Add(t.Context(), "ws", root, newRecorder().space()))
	var group sync.WaitGroup
	stop := make(chan struct{})
	group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				write(t, fmt.Sprintf("%s/d%d/e/f", root, i%50), "x")
				_ = os.RemoveAll(fmt.Sprintf("%s/d%d", root, (i+25)%50))
			}
		}
	})
	for range 4 {
		group.Go(func() {
			for w.Sync(context.Background(), "ws") == nil {
			}
		})
	}
	for range 20 {
		need.NoError(t, w.Add(t.Context(), "other", root, Space{}))
		w.Remove("other")
	}
	need.NoError(t, w.Close())
	need.NoError(t, w.Close())
	close(stop)
	group.Wait()
	if err := w.Add(t.Context(), "late", root, Space{}); errs.CodeOf(err) != "stopping" {
		t.Errorf("Add: %v", err)
	}
	w.Remove("ws")
}

// After Remove nothing is reported any more.
func TestRemoveIsFinal(t *testing.T) {
	root := t.TempDir()
	w := start(t, Options{Quiet: time.Microsecond})
	for range 50 {
		removed := false // guarded by Remove alone, which the race detector checks
		opts := Space{Dirty: func([]wspath.Path) {
			if removed {
				t.Error("reported after Remove")
			}
		}}
		need.NoError(t, w.Add(t.Context(), "ws", root, opts))
		write(t, root+"/f", "x")
		w.Remove("ws")
		removed = true
	}
	if n := w.Stats().Watches; n != 0 {
		t.Errorf("%d watches", n)
	}
}

// A batch waits for a quiet moment, but not for ever.
func TestBatches(t *testing.T) {
	root := t.TempDir()
	write(t, root+"/f", "x")
	cookies := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		w, err := newWatcher(Options{Log: quiet(), CookieDir: cookies}, func() (source, error) { return f, nil })
		need.NoError(t, err)
		defer w.Close()
		var reported []time.Duration
		var began time.Time
		need.NoError(t, w.Add(t.Context(), "ws", root, Space{Dirty: func([]wspath.Path) { reported = append(reported, time.Since(began)) }}))
		change := fsnotify.Event{Name: w.spaces["ws"].root + "/f", Op: fsnotify.Write}

		began = time.Now()
		f.events <- change
		<-time.After(50 * time.Millisecond)
		f.events <- change
		<-time.After(time.Minute)
		synctest.Wait()
		if len(reported) != 1 || reported[0] != 125*time.Millisecond {
			t.Errorf("two events are reported after %v", reported)
		}
		reported, began = nil, time.Now()
		for range 100 {
			f.events <- change
			<-time.After(10 * time.Millisecond)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if len(reported) != 2 || reported[0] != 500*time.Millisecond {
			t.Errorf("events without end are reported after %v", reported)
		}
	})
}

// A hundred workspaces cost no time while nothing happens.
func TestIdle(t *testing.T) {
	root := t.TempDir()
	w := start(t, Options{})
	before := goroutines()
	r := newRecorder()
	for i := range 100 {
		dir := fmt.Sprintf("%s/w%d", root, i)
		write(t, dir+"/a/f", "x")
		need.NoError(t, w.Add(t.Context(), fmt.Sprint(i), dir, r.space()))
	}
	if n := goroutines(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	write(t, root+"/w50/a/f", "y")
	r.awaitDirty(t, "a/f")
	used := cpuTime(t)
	select {
	case <-w.kick:
		t.Error("something is to be reported")
	case <-time.After(500 * time.Millisecond):
	}
	if used = cpuTime(t) - used; used > 100*time.Millisecond {
		t.Errorf("idle: %v of processor time", used)
	}
	t.Log("processor time while idle:", used)
}

func TestAliasedFolders(t *testing.T) {
	f := newFake()
	w := startFake(t, f, Options{})
	root := t.TempDir()
	write(t, root+"/a/f", "x")
	r := newRecorder()
	need.NoError(t, w.Add(t.Context(), "ws", root, r.space()))
	// What another path to the same folder would look like.
	w.mu.Lock()
	a := w.watches[filepath.Join(w.spaces["ws"].root, "a")]
	a.abs = w.spaces["ws"].root + "/./a"
	w.mu.Unlock()
	need.NoError(t, w.Add(t.Context(), "other", root+"/a", r.space()))
	r.await(t, "aliased", func() bool { return len(r.lost) == 1 && r.lost[0] == Aliased })
	w.mu.Lock()
	a.abs = filepath.Clean(a.abs)
	w.mu.Unlock()
	if st := w.State("other"); st.Watching || st.Reason != Aliased {
		t.Errorf("%+v", st)
	}
}

func TestWhatIsALimit(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOSPC: true, &fs.PathError{Err: syscall.EMFILE}: true, newDeadSource(errors.New("x")).Add(""): true,
		syscall.EACCES: false, fs.ErrNotExist: false,
	} {
		if isLimit(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
