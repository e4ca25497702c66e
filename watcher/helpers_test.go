package watcher

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"

	"umbra/internal/ignore"
	"umbra/internal/need"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds every wait of a test.
const deadline = 20 * time.Second

// recorder is a reconciler that only remembers.
type recorder struct {
	mu      sync.Mutex
	changed chan struct{}
	paths   map[wspath.Path]int
	batches [][]wspath.Path
	lost    []Reason
	rules   int
	gone    int
}

func newRecorder() *recorder {
	return &recorder{changed: make(chan struct{}), paths: map[wspath.Path]int{}}
}

func (r *recorder) update(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) space() Space {
	return Space{
		Dirty: func(paths []wspath.Path) {
			r.update(func() {
				r.batches = append(r.batches, paths)
				for _, p := range paths {
					r.paths[p]++
				}
			})
		},
		Lost:         func(why Reason) { r.update(func() { r.lost = append(r.lost, why) }) },
		RulesChanged: func() { r.update(func() { r.rules++ }) },
		Gone:         func() { r.update(func() { r.gone++ }) },
	}
}

// await waits until a condition on what was reported holds.
func (r *recorder) await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	end := time.After(deadline)
	for {
		r.mu.Lock()
		ok, changed := holds(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-end:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("not reported: %s; dirty %v, lost %v, rules %d, gone %d", what, r.paths, r.lost, r.rules, r.gone)
		}
	}
}

// covered reports whether a path or a folder above it is dirty. Called with the
// lock.
func (r *recorder) covered(p wspath.Path) bool {
	if r.paths[p] > 0 {
		return true
	}
	for up := range p.Ancestors() {
		if r.paths[up] > 0 {
			return true
		}
	}
	return false
}

func (r *recorder) awaitDirty(t *testing.T, paths ...wspath.Path) {
	t.Helper()
	r.await(t, fmt.Sprint(paths), func() bool { return !slices.ContainsFunc(paths, func(p wspath.Path) bool { return !r.covered(p) }) })
}

func (r *recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.paths)
	r.batches, r.lost, r.rules, r.gone = nil, nil, 0, 0
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func start(t *testing.T, opts Options) *Watcher {
	t.Helper()
	if opts.Log == nil {
		opts.Log = quiet()
	}
	if opts.SyncWait == 0 {
		opts.SyncWait = deadline
	}
	if opts.CookieDir == "" {
		opts.CookieDir = t.TempDir()
	}
	w, err := New(opts)
	need.NoError(t, err)
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// watched starts a watcher of one folder.
func watched(t *testing.T, root string, opts Options) (*Watcher, *recorder) {
	t.Helper()
	w, r := start(t, opts), newRecorder()
	need.NoError(t, w.Add(t.Context(), "ws", root, r.space()))
	return w, r
}

func (w *Watcher) mustSync(t *testing.T, id string) {
	t.Helper()
	need.NoError(t, w.Sync(t.Context(), id))
}

// onDisks runs a test in memory and on disk.
func onDisks(t *testing.T, test func(t *testing.T, root string)) {
	t.Helper()
	t.Run("disk", func(t *testing.T) { test(t, t.TempDir()) })
	if info, err := os.Stat("/dev/shm"); err != nil || !info.IsDir() {
		return
	}
	t.Run("memory", func(t *testing.T) {
		root, err := os.MkdirTemp("/dev/shm", "umbra-watch-test-")
		need.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(root) })
		test(t, root)
	})
}

func write(t *testing.T, path, text string) {
	t.Helper()
	need.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	need.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}

// rulesOf reads rules as the write service does.
func rulesOf(t *testing.T, root string) func() (*ignore.Dir, *ignore.Index, error) {
	t.Helper()
	f, err := vfs.OS(root)
	need.NoError(t, err)
	t.Cleanup(func() { need.NoError(t, f.Close()) })
	return func() (*ignore.Dir, *ignore.Index, error) {
		exclude, err := os.ReadFile(filepath.Join(root, ".git/info/exclude"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, nil, err
		}
		d, err := ignore.NewRoot(ignore.Options{ReadFile: scan.RuleReader(f), InfoExclude: exclude})
		return d, nil, err
	}
}

// folders gives the folders of a workspace that are watched, sorted.
func (w *Watcher) folders(id string) []wspath.Path {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []wspath.Path
	for p := range w.spaces[id].dirs {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// fake is a source whose events a test makes.
type fake struct {
	events chan fsnotify.Event
	errors chan error
	add    func(dir string) error // nil: succeeds

	mu      sync.Mutex
	watched map[string]bool
}

func newFake() *fake {
	return &fake{events: make(chan fsnotify.Event), errors: make(chan error), watched: map[string]bool{}}
}

func (f *fake) Add(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.add != nil {
		if err := f.add(dir); err != nil {
			return err
		}
	}
	f.watched[dir] = true
	return nil
}

func (f *fake) Remove(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watched, dir)
	return nil
}

func (f *fake) Events() <-chan fsnotify.Event { return f.events }
func (f *fake) Errors() <-chan error          { return f.errors }

func (f *fake) Close() error {
	close(f.events)
	close(f.errors)
	return nil
}

// startFake starts a watcher on a fake.
func startFake(t *testing.T, f *fake, opts Options) *Watcher {
	t.Helper()
	opts.Log = quiet()
	if opts.CookieDir == "" {
		opts.CookieDir = t.TempDir()
	}
	w, err := newWatcher(opts, func() (source, error) { return f, nil })
	need.NoError(t, err)
	t.Cleanup(func() { need.NoError(t, w.Close()) })
	return w
}

// awaitDrained waits until every error that was taken is noted.
func (w *Watcher) awaitDrained() {
	ack := make(chan struct{})
	w.cookies.drained <- ack
	<-ack
}

func goroutines() int { return runtime.NumGoroutine() }

// cpuTime is what this process has used so far.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	need.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
