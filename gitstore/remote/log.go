// Package remote is the store's side of a sink.Sink: which position comes next, how
// much of the log is not sealed, which objects are named, whether the store still
// owns its workspace; and the packs that are not on the local disk.
package remote

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/sink"
	"umbra/internal/errs"
)

// Limits of the log that is not sealed.
const (
	SealBytes = 1 << 20          // from so many bytes on it is sealed
	SealAfter = 15 * time.Minute // and when the oldest group is of this age
)

// Log is the log of one store. Its methods may be called from any goroutine, but
// Append, which is the committer's.
type Log struct {
	sink.Sink
	limit int64

	stop     atomic.Pointer[stop]
	ended    chan struct{} // closed with the first stop
	keepTail atomic.Bool
	lends    atomic.Bool // LendLast was called
	hurried  atomic.Bool // Hurry was called
	last     atomic.Bool
	due      chan struct{} // one place: a group was appended, or too many wait

	mu       sync.Mutex
	manifest *sink.Manifest // as of the last Swap; not nil, never changed
	next     uint64
	bytes    int64 // of the rows
	rows     []row // the groups after the manifest's base, by position
	named    map[string]uint64
	unnamed  map[string]sink.Pack // in use, and named by nothing yet

	lazy map[string]*lazyPack // by Base

	swapping sync.Mutex
	pending  *sink.Switch // its outcome is unknown
}

// row is a group that is not sealed.
type row struct {
	pos   uint64
	bytes int64
	since time.Time
}

// stop is why a store takes no more.
type stop struct {
	cause  error
	fenced bool // reads end too
}

// Open reads the log. limit bounds the bytes that are not sealed.
func Open(ctx context.Context, k sink.Sink, limit int64) (*Log, *sink.Tail, error) {
	tail, err := k.Tail(ctx)
	if err != nil {
		return nil, nil, err
	}
	l := &Log{Sink: k, limit: limit, ended: make(chan struct{}), due: make(chan struct{}, 1), manifest: tail.Manifest, next: tail.Next(),
		named: make(map[string]uint64), unnamed: make(map[string]sink.Pack), lazy: make(map[string]*lazyPack)}
	if l.manifest == nil {
		l.manifest = &sink.Manifest{}
	}
	for i := range tail.Groups {
		l.added(&tail.Groups[i])
	}
	return l, tail, nil
}

// added notes a group that is in the log.
func (l *Log) added(g *sink.Group) {
	l.next = g.Pos + 1
	if len(g.Data) == 0 {
		return
	}
	l.rows = append(l.rows, row{g.Pos, int64(len(g.Data)), time.Now()})
	l.bytes += int64(len(g.Data))
	for _, p := range g.Packs {
		l.named[p.Name] = g.Pos
		delete(l.unnamed, p.Name)
	}
	if l.bytes >= SealBytes || len(l.rows) == 1 {
		select {
		case l.due <- struct{}{}:
		default:
		}
	}
}

// Stopped is closed when the store can take no more writes: it was fenced, or the
// outcome of a group is unknown. It is to be closed, and opened again by who has a
// claim. Nil for a nil log.
func (l *Log) Stopped() <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.ended
}

// Cause returns why it stopped, nil as long as it has not.
func (l *Log) Cause() error {
	if l == nil {
		return nil
	}
	if s := l.stop.Load(); s != nil {
		return s.cause
	}
	return nil
}

// Readable returns nil while reads may be answered: until the store was fenced.
func (l *Log) Readable() error {
	if s := l.stop.Load(); s != nil && s.fenced {
		return sink.Fenced(true, s.cause)
	}
	return nil
}

// Writable returns nil while a group of that many bytes may be appended.
func (l *Log) Writable(bytes int64) error {
	if s := l.stop.Load(); s != nil {
		if s.fenced {
			return sink.Fenced(true, s.cause)
		}
		return &errs.Error{Kind: errs.Unavailable, Code: "owner_moving", Err: sink.ErrRefused,
			Detail: "The outcome of an earlier write is not known yet; the workspace is opened again."}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rows) > 0 && l.bytes+bytes > l.limit {
		select {
		case l.due <- struct{}{}:
		default:
		}
		return sink.BlobsUnavailable(errors.New("too much of the log is not in the object store"))
	}
	return nil
}

// Fence ends writes and reads: another owner may have the workspace.
func (l *Log) Fence() { l.ends(sink.Fenced(true, nil)) }

// KeepTail makes the store, when it is closed, leave in the log what is not sealed:
// the next owner reads it from there, sooner than it would be sealed.
func (l *Log) KeepTail() { l.keepTail.Store(true) }

// LendLast lets the store, when it is closed, leave its last switch to the release of the
// claim: one commit for both.
func (l *Log) LendLast() { l.lends.Store(true) }

// Hurry says that requests wait for the close of the store: its last seal costs little.
func (l *Log) Hurry() { l.hurried.Store(true) }

// Hurried reports whether Hurry was called.
func (l *Log) Hurried() bool { return l.hurried.Load() }

// BeginLast says that the next switch is the last one.
func (l *Log) BeginLast() { l.last.Store(l.lends.Load()) }

// KeepsTail reports whether KeepTail was called.
func (l *Log) KeepsTail() bool { return l.keepTail.Load() }

// ends notes what an error says of the store.
func (l *Log) ends(err error) {
	fenced := errors.Is(err, sink.ErrFenced)
	s := l.stop.Load()
	if s == nil && l.stop.CompareAndSwap(nil, &stop{err, fenced}) {
		close(l.ended)
	} else if fenced && s != nil && !s.fenced {
		l.stop.Store(&stop{err, true})
	}
}

// Append makes a group durable; it sets its position, and names the packs that
// nothing names yet. The error is one for clients.
func (l *Log) Append(g *sink.Group) error {
	if err := l.Writable(int64(len(g.Data))); err != nil {
		return err
	}
	l.mu.Lock()
	g.Pos = l.next
	for name, p := range l.unnamed {
		if !slices.ContainsFunc(g.Packs, func(q sink.Pack) bool { return q.Name == name }) {
			g.Packs = append(g.Packs, p)
		}
	}
	l.mu.Unlock()
	err := l.Sink.Append(g)
	switch {
	case err == nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.added(g)
		return nil
	case errors.Is(err, sink.ErrFenced):
		l.ends(err)
		return err
	case errors.Is(err, sink.ErrRefused):
		return err
	}
	if !errors.Is(err, sink.ErrUnknown) {
		err = sink.Unknown(err)
	}
	l.ends(err)
	return err
}

// Use says that a pack is in the object store and in use, so that the next group or
// manifest names it.
func (l *Log) Use(p sink.Pack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.named[p.Name]; !ok && !slices.Contains(l.manifest.Objects(), p.Name) {
		l.unnamed[p.Name] = p
	}
}

// Unuse takes Use back: the pack is stale, or not in use any more.
func (l *Log) Unuse(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.unnamed, name)
}

// Named reports whether a group that is not sealed names an object.
func (l *Log) Named(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.named[name]
	return ok
}

// Stop ends writes for a cause: what was done is not known.
func (l *Log) Stop(cause error) { l.ends(cause) }

// Next returns the position of the next group.
func (l *Log) Next() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next
}

// Manifest returns the one of the last Swap; it is not to be changed.
func (l *Log) Manifest() *sink.Manifest {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.manifest
}

// Unsealed returns the bytes of the groups that are in no manifest, and since when
// the oldest of them is there; a zero time: there is none.
func (l *Log) Unsealed() (bytes int64, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rows) > 0 {
		since = l.rows[0].since
	}
	return l.bytes, since
}

// Put is Sink.Put; ErrFenced stops the store.
func (l *Log) Put(ctx context.Context, data Object) (string, error) {
	if s := l.stop.Load(); s != nil && s.fenced {
		return "", l.Readable()
	}
	name, err := l.Sink.Put(ctx, data, data.Size())
	if errors.Is(err, sink.ErrFenced) {
		l.ends(err)
	}
	return name, err
}

// Swap replaces the manifest by m, whose version it sets, unless they differ in
// nothing. One whose outcome was not known is ended first.
func (l *Log) Swap(ctx context.Context, m *sink.Manifest, purge bool) error {
	l.swapping.Lock()
	defer l.swapping.Unlock()
	if l.pending != nil {
		if err := l.swap(ctx, l.pending); err != nil {
			return err
		}
	}
	old := l.Manifest()
	m.Version = old.Version
	if slices.Equal(m.Encode(), old.Encode()) {
		return nil
	}
	m.Version++
	return l.swap(ctx, &sink.Switch{Manifest: m, Drop: l.dropped(old, m), Purge: purge, Last: l.last.Load() && !purge})
}

// Unsettled reports whether the outcome of the last Swap is not known.
func (l *Log) Unsettled() bool {
	l.swapping.Lock()
	defer l.swapping.Unlock()
	return l.pending != nil
}

// dropped lists the objects that old, or a group up to m's base, names and m does
// not.
func (l *Log) dropped(old, m *sink.Manifest) (out []string) {
	kept := make(map[string]bool)
	for _, name := range m.Objects() {
		kept[name] = true
	}
	add := func(name string) {
		if !kept[name] {
			kept[name] = true
			out = append(out, name)
		}
	}
	for _, name := range old.Objects() {
		add(name)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, pos := range l.named {
		if pos <= m.Base {
			add(name)
		}
	}
	return out
}

func (l *Log) swap(ctx context.Context, s *sink.Switch) error {
	if c := l.stop.Load(); c != nil && c.fenced {
		return l.Readable()
	}
	err := l.Sink.Swap(ctx, s)
	switch {
	case err == nil:
		l.pending = nil
		l.sealed(s.Manifest)
	case errors.Is(err, sink.ErrFenced):
		l.ends(err)
	case errors.Is(err, sink.ErrRefused):
		l.pending = nil
	default:
		l.pending = s
	}
	return err
}

// sealed notes that a manifest is in force.
func (l *Log) sealed(m *sink.Manifest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.manifest = m
	for len(l.rows) > 0 && l.rows[0].pos <= m.Base {
		l.bytes -= l.rows[0].bytes
		l.rows = l.rows[1:]
	}
	for name, pos := range l.named {
		if pos <= m.Base {
			delete(l.named, name)
		}
	}
	for _, name := range m.Objects() {
		delete(l.unnamed, name)
	}
}
