package watcher

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/fsnotify/fsnotify"
)

// source is where events come from: fsnotify, nothing at all, or a test's.
// Both channels are closed by Close.
type source interface {
	Add(dir string) error
	Remove(dir string) error
	Events() <-chan fsnotify.Event
	Errors() <-chan error
	Close() error
}

type notify struct{ *fsnotify.Watcher }

func (n notify) Events() <-chan fsnotify.Event { return n.Watcher.Events }
func (n notify) Errors() <-chan error          { return n.Watcher.Errors }

// eventBuffer is how many events wait between fsnotify and the pump; more wait in
// the kernel's queue.
const eventBuffer = 4096

func openNotify() (source, error) {
	n, err := fsnotify.NewBufferedWatcher(eventBuffer)
	if err != nil {
		return nil, err
	}
	return notify{n}, nil
}

// errNoSource says that the system gave no instance.
var errNoSource = errors.New("no instance to watch with")

// deadSource is used where the system gives no instance.
type deadSource struct {
	err    error
	events chan fsnotify.Event
	errors chan error
}

func newDeadSource(err error) *deadSource {
	return &deadSource{err: err, events: make(chan fsnotify.Event), errors: make(chan error)}
}

func (d *deadSource) Add(string) error              { return fmt.Errorf("%w: %w", errNoSource, d.err) }
func (d *deadSource) Remove(string) error           { return nil }
func (d *deadSource) Events() <-chan fsnotify.Event { return d.events }
func (d *deadSource) Errors() <-chan error          { return d.errors }

func (d *deadSource) Close() error {
	close(d.events)
	close(d.errors)
	return nil
}

// losses is what the errors said, between the goroutine that drains them and
// everybody else. Its lock is held for moments only.
type losses struct {
	overflows, errors atomic.Int64

	mu     sync.Mutex
	reason Reason        // not yet acted on, or ""
	err    error         // the first cause, for the log
	since  chan struct{} // closed by the next loss
}

func (l *losses) add(r Reason, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// An overflow says more than any other error.
	if l.reason == "" || r == Overflow {
		l.reason, l.err = r, err
	}
	close(l.since)
	l.since = make(chan struct{})
}

// mark gives a channel that the next loss closes, and whether one is not yet
// acted on.
func (l *losses) mark() (<-chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.since, l.reason != ""
}

func (l *losses) take() (Reason, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, err := l.reason, l.err
	l.reason, l.err = "", nil
	return r, err
}

// drain takes every error as soon as it comes: fsnotify is blocked until then,
// some of the time with its lock held. So nothing here may wait for Watcher.mu.
func (w *Watcher) drain() {
	for {
		select {
		case err, ok := <-w.src.Errors():
			if !ok {
				return
			}
			w.failed(err)
		case ack := <-w.cookies.drained:
			close(ack)
		}
	}
}

func (w *Watcher) failed(err error) {
	switch {
	case errors.Is(err, fsnotify.ErrEventOverflow):
		w.losses.overflows.Add(1)
		w.losses.add(Overflow, err)
	case isStaleWatch(err):
		return
	default:
		w.losses.errors.Add(1)
		w.losses.add(Failed, err)
	}
	w.nudge()
}

// isStaleWatch reports whether fsnotify complains of its own clean-up: a folder
// that was moved and removed at once has no watch left to take away, and
// inotify_rm_watch(2) says EINVAL. No event is lost by that. An error of
// reading the queue comes as a fs.PathError instead.
func isStaleWatch(err error) bool {
	_, reading := errors.AsType[*fs.PathError](err)
	return !reading && errors.Is(err, syscall.EINVAL)
}

// nudge makes the teller look again.
func (w *Watcher) nudge() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}
