package workspace

import (
	"context"
	"sync"

	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// lockTable hands out exclusive locks on paths, each with everything under it.
// A request gets all of its paths at once or waits, and a later request never
// passes an earlier one that it overlaps with: nobody starves, and since a
// request holds nothing while it waits, nobody deadlocks.
//
// A request costs as many steps as its paths have components, plus the
// requests that it overlaps with; how many others there are does not matter.
type lockTable struct {
	mu sync.Mutex
	// at holds who names a path itself, under who names one below it. Both
	// list waiting requests too.
	at, under map[wspath.Path]map[*pathLock]struct{}
}

// pathLock is one request's hold on its paths.
type pathLock struct {
	table   *lockTable
	paths   []wspath.Path
	blocked int         // earlier requests that overlap with this one
	waiting []*pathLock // later ones that this one blocks
	ready   chan struct{}
	lent    bool // by a hold, which keeps it
}

func newLockTable() *lockTable {
	return &lockTable{
		at:    make(map[wspath.Path]map[*pathLock]struct{}),
		under: make(map[wspath.Path]map[*pathLock]struct{}),
	}
}

// acquire waits for all paths; an error is the context's, or *NotHeld, and then
// nothing is held.
func (t *lockTable) acquire(ctx context.Context, paths []wspath.Path) (*pathLock, error) {
	if l, err := t.within(ctx, paths); l != nil || err != nil {
		return l, err
	}
	l := &pathLock{table: t, paths: paths, ready: make(chan struct{})}
	t.mu.Lock()
	before := make(map[*pathLock]struct{})
	for _, p := range paths {
		addAll(before, t.at[p])
		addAll(before, t.under[p])
		for dir := range p.Ancestors() {
			addAll(before, t.at[dir])
		}
	}
	l.blocked = len(before)
	for b := range before {
		b.waiting = append(b.waiting, l)
	}
	for _, p := range paths {
		enter(t.at, p, l)
		for dir := range p.Ancestors() {
			enter(t.under, dir, l)
		}
	}
	if l.blocked == 0 {
		close(l.ready)
	}
	t.mu.Unlock()
	select {
	case <-l.ready:
		return l, nil
	default:
	}
	select {
	case <-l.ready:
		return l, nil
	case <-ctx.Done():
		l.release()
		return nil, ctx.Err()
	}
}

// covers reports whether a path is held.
func (l *pathLock) covers(p wspath.Path) bool {
	for _, have := range l.paths {
		if p.Within(have) {
			return true
		}
	}
	return false
}

// release lets the next ones in. Also for a lock that is still waited for.
func (l *pathLock) release() {
	if l.lent {
		return
	}
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range l.paths {
		leave(t.at, p, l)
		for dir := range p.Ancestors() {
			leave(t.under, dir, l)
		}
	}
	for _, next := range l.waiting {
		if next.blocked--; next.blocked == 0 {
			close(next.ready)
		}
	}
	l.waiting = nil
}

// locked runs fn while the paths, each with everything under it, are locked. They
// are released however fn ends, also by a panic. An error that is not fn's is the
// context's, and then fn did not run.
func (w *Workspace) locked(ctx context.Context, paths []wspath.Path, fn func(lock *pathLock) error) error {
	lock, err := w.locks.acquire(ctx, paths)
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer lock.release()
	return fn(lock)
}

func addAll(dst, src map[*pathLock]struct{}) {
	for l := range src {
		dst[l] = struct{}{}
	}
}

func enter(m map[wspath.Path]map[*pathLock]struct{}, p wspath.Path, l *pathLock) {
	set := m[p]
	if set == nil {
		set = make(map[*pathLock]struct{}, 1)
		m[p] = set
	}
	set[l] = struct{}{}
}

func leave(m map[wspath.Path]map[*pathLock]struct{}, p wspath.Path, l *pathLock) {
	set := m[p]
	delete(set, l)
	if len(set) == 0 {
		delete(m, p)
	}
}
