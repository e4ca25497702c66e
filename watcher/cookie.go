package watcher

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/fsnotify/fsnotify"

	"umbra/internal/errs"
)

// cookies are the names that a file in a private folder goes through; each comes
// back as an event behind all events before it.
type cookies struct {
	dir     string
	drained chan chan struct{} // asks the drain for a word

	turn sync.Mutex // one rename at a time
	last string     // the file's name now, "" for none
	n    uint64

	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// seen takes an event that is of the private folder.
func (c *cookies) seen(dir, name string, what fsnotify.Op) bool {
	if dir != c.dir {
		return false
	}
	if what.Has(fsnotify.Create) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if ch := c.waiting[name]; ch != nil {
			close(ch)
			delete(c.waiting, name)
		}
	}
	return true
}

func (c *cookies) expect(name string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan struct{})
	c.waiting[name] = ch
	return ch
}

func (c *cookies) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, name)
}

// set makes the next event. A rename needs no room on a full disk.
func (w *Watcher) setCookie() (name string, seen <-chan struct{}, err error) {
	c := &w.cookies
	c.turn.Lock()
	defer c.turn.Unlock()
	// Watching again what is watched costs nothing, and heals where the folder
	// was swept away.
	if err = w.src.Add(c.dir); errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(c.dir, 0o700); err == nil {
			err = w.src.Add(c.dir)
		}
	}
	if err != nil {
		return "", nil, err
	}
	c.n++
	name = "cookie-" + strconv.FormatUint(c.n, 10)
	ch := c.expect(name)
	path := filepath.Join(c.dir, name)
	err = fs.ErrNotExist
	if c.last != "" {
		err = os.Rename(filepath.Join(c.dir, c.last), path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		var f *os.File
		if f, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		c.forget(name)
		return "", nil, err
	}
	c.last = name
	return name, ch, nil
}

// remove takes the file away, at the end.
func (c *cookies) remove() {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.last != "" {
		_ = os.Remove(filepath.Join(c.dir, c.last))
	}
}

// Sync waits until every change made before the call that raises events was
// reported: to Dirty, or by RulesChanged or Lost, which ask for a scan. Then it
// returns nil. It waits for Options.SyncWait at most.
//
// Any error means that only a scan can find what changed: the
// workspace is not watched (errs.Unavailable "not_watched"), events were lost
// ("events_lost"), they did not come in time ("watch_timeout"), or the root is
// gone (errs.Conflict "workspace_missing").
func (w *Watcher) Sync(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.opts.SyncWait, errTimeout())
	defer cancel()
	loss, lost := w.losses.mark()
	w.mu.Lock()
	s := w.spaces[id]
	watching := s != nil && s.watching && !w.closed
	w.mu.Unlock()
	switch {
	case !watching:
		return errs.New(errs.Unavailable, "not_watched", "The workspace is not watched.")
	case lost:
		return errLost()
	}
	name, seen, err := w.setCookie()
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer w.cookies.forget(name)
	if err := w.await(ctx, seen, loss); err != nil {
		return err
	}
	// An overflow that came before the cookie may still be in the hands of the
	// drain.
	ack := make(chan struct{})
	select {
	case w.cookies.drained <- ack:
	case <-w.done:
		return closedError()
	case <-ctx.Done():
		return errs.Wrap(context.Cause(ctx), "")
	}
	if err := w.await(ctx, ack, loss); err != nil {
		return err
	}
	// And the folders that came are checked in their turn.
	looked := make(chan struct{})
	w.mu.Lock()
	w.enqueue(s, op{kind: opBarrier, done: looked})
	w.mu.Unlock()
	if err := w.await(ctx, looked, loss); err != nil {
		return err
	}
	reported := w.report(s)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case reported.gone || s.pend.gone:
		return errs.New(errs.Conflict, "workspace_missing", "The workspace's directory is gone.")
	case reported.lost != "" || s.removed || !s.watching:
		return errLost()
	}
	return nil
}

// await waits for one step of Sync.
func (w *Watcher) await(ctx context.Context, step, loss <-chan struct{}) error {
	select {
	case <-step:
	case <-loss:
	case <-w.done:
		return closedError()
	case <-ctx.Done():
		return errs.Wrap(context.Cause(ctx), "")
	}
	select {
	case <-loss:
		return errLost()
	default:
		return nil
	}
}

func errLost() error {
	return errs.New(errs.Unavailable, "events_lost", "Changes may have been missed.")
}

func errTimeout() error {
	return errs.New(errs.Unavailable, "watch_timeout", "Timed out waiting for file system events; retry the sync.")
}
