// Package cache keeps what was read of histories within one budget of bytes that
// many caches share: trees and delta bases of all stores of a process.
//
// Each cache has a lock of its own, held for a map lookup, so stores that are
// written to concurrently do not contend. A Put that exceeds the budget evicts the
// least recently used values of all caches. An empty cache is not registered with
// its budget, so a closed one leaves nothing behind.
package cache

import (
	"container/heap"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Budget bounds what its caches keep together. Safe for concurrent use.
type Budget struct {
	limit int64
	used  atomic.Int64
	// clock moves with each value that is put: what was used between two of them
	// counts as used at once. Nothing is evicted while it does not move.
	clock atomic.Uint64

	trimming sync.Mutex // one at a time drops; the others go on
	mu       sync.Mutex // after that of a cache, never before
	caches   map[member]struct{}
}

// member is a cache that holds something.
type member interface {
	// oldest returns when the value to be evicted first was used; false: there is
	// none.
	oldest() (at uint64, ok bool)
	// drop drops the value that is to go first if it was used at a time, and is
	// oldest then.
	drop(at uint64) (next uint64, ok bool)
}

// NewBudget makes a budget of some bytes. 0 keeps nothing.
func NewBudget(bytes int64) *Budget {
	return &Budget{limit: bytes, caches: make(map[member]struct{})}
}

// Limit gives the bytes that may be kept.
func (b *Budget) Limit() int64 { return b.limit }

// Used gives the bytes that are kept, bookkeeping included. While several put
// values at once it may be more than the limit, by a sixteenth and those values.
func (b *Budget) Used() int64 { return b.used.Load() }

// trim drops what was used least recently until the rest fits. While one is at
// it the others go on, unless they are far ahead of it.
func (b *Budget) trim() {
	if b.used.Load() > b.limit+b.limit/16 {
		b.trimming.Lock()
	} else if !b.trimming.TryLock() {
		return
	}
	defer b.trimming.Unlock()
	for b.used.Load() > b.limit && b.pass() {
	}
}

// pass visits all caches that hold something once. To make up for that it evicts a
// little more than it must, and at least as many values as there are caches: so
// the cost of one value does not grow with their number. Values used since the
// last Put stay, and so does that Put's. It returns false if there are no others.
func (b *Budget) pass() bool {
	now := b.clock.Load()
	b.mu.Lock()
	members := slices.Collect(maps.Keys(b.caches))
	b.mu.Unlock()
	q := make(queue, 0, len(members))
	for _, m := range members {
		if at, ok := m.oldest(); ok && at < now {
			q = append(q, due{m, at})
		}
	}
	heap.Init(&q)
	found := len(q) > 0
	for least := len(q); len(q) > 0 && (least > 0 || b.used.Load() > b.limit-b.limit/256); least-- {
		if at, ok := q[0].m.drop(q[0].at); ok && at < now {
			q[0].at = at
			heap.Fix(&q, 0)
		} else {
			heap.Pop(&q)
		}
	}
	return found
}

// due is a cache, by the time at which its oldest value was used.
type due struct {
	m  member
	at uint64
}

type queue []due

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(due)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// Overhead is about what a cached value costs in addition to its own bytes: the
// entry and its place in the map.
const Overhead = 200

// Cache keeps values by key. Safe for concurrent use. It takes no memory to
// speak of while it is empty.
type Cache[K comparable, V any] struct {
	b *Budget

	mu     sync.Mutex
	byKey  map[K]*entry[K, V]
	ring   entry[K, V] // next: used last; prev: used first
	used   int64
	closed bool
}

type entry[K comparable, V any] struct {
	prev, next *entry[K, V]
	key        K
	value      V
	cost       int64
	at         uint64 // the budget's clock at its last use
}

// New makes a cache that is part of a budget.
func New[K comparable, V any](b *Budget) *Cache[K, V] { return &Cache[K, V]{b: b} }

// Get gives what is kept under a key.
func (c *Cache[K, V]) Get(k K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byKey[k]
	if !ok {
		return v, false
	}
	c.use(e)
	return e.value, true
}

// Put keeps a value of some bytes under a key; an existing one stays.
// A value larger than the whole budget is not kept. The value must not be
// changed from then on.
func (c *Cache[K, V]) Put(k K, v V, bytes int64) {
	cost := bytes + Overhead
	if cost > c.b.limit {
		return
	}
	c.mu.Lock()
	if e, ok := c.byKey[k]; ok {
		c.use(e)
		c.mu.Unlock()
		return
	}
	if c.closed {
		c.mu.Unlock()
		return
	}
	if len(c.byKey) == 0 {
		c.byKey = make(map[K]*entry[K, V])
		c.ring.prev, c.ring.next = &c.ring, &c.ring
		c.b.mu.Lock()
		c.b.caches[c] = struct{}{}
		c.b.mu.Unlock()
	}
	e := &entry[K, V]{key: k, value: v, cost: cost, at: c.b.clock.Add(1)}
	c.byKey[k] = e
	c.first(e)
	c.used += cost
	over := c.b.used.Add(cost) > c.b.limit
	c.mu.Unlock()
	if over {
		c.b.trim()
	}
}

// use makes an entry the one that was used last.
func (c *Cache[K, V]) use(e *entry[K, V]) {
	e.at = c.b.clock.Load()
	if c.ring.next != e {
		e.prev.next, e.next.prev = e.next, e.prev
		c.first(e)
	}
}

func (c *Cache[K, V]) first(e *entry[K, V]) {
	e.prev, e.next = &c.ring, c.ring.next
	e.prev.next, e.next.prev = e, e
}

// Clear forgets everything, and gives its room to the others.
func (c *Cache[K, V]) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
}

// Close is Clear for good: nothing is kept from then on.
func (c *Cache[K, V]) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.clear()
}

func (c *Cache[K, V]) clear() {
	if len(c.byKey) == 0 {
		return
	}
	c.b.used.Add(-c.used)
	c.byKey, c.used = nil, 0
	c.ring.prev, c.ring.next = nil, nil
	c.b.mu.Lock()
	delete(c.b.caches, c)
	c.b.mu.Unlock()
}

func (c *Cache[K, V]) oldest() (at uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last()
}

func (c *Cache[K, V]) last() (at uint64, ok bool) {
	if len(c.byKey) == 0 {
		return 0, false
	}
	return c.ring.prev.at, true
}

func (c *Cache[K, V]) drop(at uint64) (next uint64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.last(); !ok || old != at {
		return old, ok
	}
	if len(c.byKey) == 1 {
		c.clear()
		return 0, false
	}
	e := c.ring.prev
	e.prev.next, e.next.prev = e.next, e.prev
	delete(c.byKey, e.key)
	c.used -= e.cost
	c.b.used.Add(-e.cost)
	return c.last()
}
