package pathlock

import (
	"context"
	"slices"
	"sync"

	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// Table hands out exclusive locks on paths, each with everything under it.
// A request gets all of its paths at once or waits, and a later request never
// passes an earlier one that it overlaps with: none starves, and since a
// request holds nothing while it waits, none deadlocks.
//
// A request costs as many steps as its paths have components, plus the
// requests that it overlaps with; how many others there are does not matter.
type Table struct {
	mu sync.Mutex
	// At holds who names a path itself, under who names one below it. Both
	// list waiting requests too.
	At, Under map[wspath.Path]map[*Lock]struct{}
}

// Lock is one request's hold on its paths.
type Lock struct {
	table   *Table
	paths   []wspath.Path
	set     map[wspath.Path]struct{} // the paths, where they are many
	blocked int                      // earlier requests that overlap with this one
	waiting []*Lock                  // later ones that this one blocks
	ready   chan struct{}
	lent    bool // by a hold, which keeps it
}

func New() *Table {
	return &Table{
		At:    make(map[wspath.Path]map[*Lock]struct{}),
		Under: make(map[wspath.Path]map[*Lock]struct{}),
	}
}

// Acquire waits for all paths; an error is the context's, or *NotHeld, and then
// nothing is held.
func (t *Table) Acquire(ctx context.Context, paths []wspath.Path) (*Lock, error) {
	if l, err := t.within(ctx, paths); l != nil || err != nil {
		return l, err
	}
	l := &Lock{table: t, paths: paths, set: setOf(paths), ready: make(chan struct{})}
	t.mu.Lock()
	before := make(map[*Lock]struct{})
	for _, p := range paths {
		addAll(before, t.At[p])
		addAll(before, t.Under[p])
		for dir := range p.Ancestors() {
			addAll(before, t.At[dir])
		}
	}
	l.blocked = len(before)
	for b := range before {
		b.waiting = append(b.waiting, l)
	}
	for _, p := range paths {
		enter(t.At, p, l)
		for dir := range p.Ancestors() {
			enter(t.Under, dir, l)
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
		l.Release()
		return nil, ctx.Err()
	}
}

// Covers reports whether a path is held.
func (l *Lock) Covers(p wspath.Path) bool {
	if l.set == nil {
		return slices.ContainsFunc(l.paths, p.Within)
	}
	if p.IsRoot() {
		p = wspath.Root // its one name in the set
	}
	for {
		if _, ok := l.set[p]; ok || p.IsRoot() {
			return ok
		}
		p = p.Dir()
	}
}

// setOf returns the set of many paths, nil for a few.
func setOf(paths []wspath.Path) map[wspath.Path]struct{} {
	if len(paths) <= 8 {
		return nil
	}
	set := make(map[wspath.Path]struct{}, len(paths))
	for _, p := range paths {
		if p.IsRoot() {
			p = wspath.Root
		}
		set[p] = struct{}{}
	}
	return set
}

// Release lets the next ones in. Also for a lock that is still waited for.
func (l *Lock) Release() {
	if l.lent {
		return
	}
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range l.paths {
		leave(t.At, p, l)
		for dir := range p.Ancestors() {
			leave(t.Under, dir, l)
		}
	}
	for _, next := range l.waiting {
		if next.blocked--; next.blocked == 0 {
			close(next.ready)
		}
	}
	l.waiting = nil
}

// With runs fn while the paths, each with everything under it, are locked. They
// are released however fn ends, also by a panic. An error that is not fn's is the
// context's, and then fn did not run.
func (t *Table) With(ctx context.Context, paths []wspath.Path, fn func(lock *Lock) error) error {
	lock, err := t.Acquire(ctx, paths)
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer lock.Release()
	return fn(lock)
}

func addAll(dst, src map[*Lock]struct{}) {
	for l := range src {
		dst[l] = struct{}{}
	}
}

func enter(m map[wspath.Path]map[*Lock]struct{}, p wspath.Path, l *Lock) {
	set := m[p]
	if set == nil {
		set = make(map[*Lock]struct{}, 1)
		m[p] = set
	}
	set[l] = struct{}{}
}

func leave(m map[wspath.Path]map[*Lock]struct{}, p wspath.Path, l *Lock) {
	set := m[p]
	delete(set, l)
	if len(set) == 0 {
		delete(m, p)
	}
}
