package workspace

import (
	"context"
	"fmt"
	"sync"
	"time"

	"umbra/internal/errs"
	"umbra/internal/workspace/reconcile"
)

// lifetime counts the requests inside a workspace, runs its own work, and ends
// both.
type lifetime struct {
	opmu    sync.Mutex
	ops     int // requests inside
	closing bool
	idle    *sync.Cond // ops fell to 0; opmu
	gone    chan struct{}
	goneErr error

	background     sync.WaitGroup
	stopBackground context.CancelFunc
	keep           func(ctx context.Context, quiet bool) // brings caches up to date; nil: nothing does
	release        func()
	adopt          func(ctx context.Context, allow func(root string) error) (reconcile.SyncResult, error)
}

func (l *lifetime) begun() {
	l.idle = sync.NewCond(&l.opmu)
	l.gone = make(chan struct{})
}

// OnRelease sets what Release calls, before the workspace has users.
func (l *lifetime) OnRelease(fn func()) { l.release = fn }

// OnAdopt sets what Sync calls with Adopt set, before the workspace has users.
func (l *lifetime) OnAdopt(fn func(ctx context.Context, allow func(root string) error) (reconcile.SyncResult, error)) {
	l.adopt = fn
}

// EndStreams ends what waits for commits, with an error, while other requests go on.
func (l *lifetime) EndStreams(why error) {
	l.opmu.Lock()
	defer l.opmu.Unlock()
	l.endLocked(why)
}

// endLocked closes gone; the caller must hold opmu.
func (l *lifetime) endLocked(why error) {
	l.goneErr = why
	select {
	case <-l.gone:
	default:
		close(l.gone)
	}
}

// Release ends the caller's use of the workspace; it may be unloaded then.
func (l *lifetime) Release() {
	if l.release != nil {
		l.release()
	}
}

// enter counts a request in; it fails when the workspace is being unloaded.
func (l *lifetime) enter() error {
	l.opmu.Lock()
	defer l.opmu.Unlock()
	if l.closing {
		if l.goneErr != nil {
			return l.goneErr
		}
		return errs.New(errs.Unavailable, "stopping", "The workspace is being unloaded.")
	}
	l.ops++
	return nil
}

func (l *lifetime) leave() {
	l.opmu.Lock()
	defer l.opmu.Unlock()
	if l.ops--; l.ops == 0 {
		l.idle.Broadcast()
	}
}

// warningList is what the owner should know.
type warningList struct {
	wmu      sync.Mutex
	warnings []string
}

// maxWarnings bounds what is remembered.
const maxWarnings = 100

func (w *Workspace) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.log.Warn(text)
	w.wmu.Lock()
	defer w.wmu.Unlock()
	if len(w.warnings) < maxWarnings {
		w.warnings = append(w.warnings, text)
	}
}

// closePatience is how long CloseWithin goes on after its context has ended, and once
// more after the store was fenced.
const closePatience = 500 * time.Millisecond

// CloseWithin is Close. Where several servers share the history it returns within twice
// closePatience after the end of ctx, so that another server can have the workspace:
// nothing under way is acknowledged from then on. Where it still does not end, late is
// closed once the workspace is.
func (w *Workspace) CloseWithin(ctx context.Context, why error) (late <-chan struct{}, err error) {
	if w.store.Held() == nil {
		return nil, w.Close(ctx, why)
	}
	ended := make(chan struct{})
	var closed error // with ended
	go func() {
		defer close(ended)
		closed = w.Close(ctx, why)
	}()
	select {
	case <-ended:
		return nil, closed
	case <-ctx.Done():
	}
	for _, fence := range []bool{false, true} {
		if fence {
			w.store.Held().Fence()
		}
		t := time.NewTimer(closePatience)
		defer t.Stop()
		select {
		case <-ended:
			return nil, closed
		case <-t.C:
		}
	}
	w.log.Warn("the workspace is released while requests are still in it")
	return ended, errs.Wrap(context.Cause(ctx), "")
}
