package repo

import (
	"umbra/gitstore/cache"
	"umbra/gitstore/object"
)

// Caches bound what stores keep in memory of their histories: encoded trees,
// objects that others are stored as differences from, and what Compute made. All
// stores of a process should share one. Safe for concurrent use.
type Caches struct {
	trees, bases *cache.Budget
}

// OwnCaches is what a store without shared ones keeps, in bytes.
const OwnCaches = 40 << 20

// NewCaches makes caches of some bytes in all. A quarter is for the bases of
// deltas and what Compute made: who reads a whole history once (a clone, a
// collection) fills that, and leaves the trees that writers need.
func NewCaches(bytes int64) *Caches {
	return &Caches{trees: cache.NewBudget(bytes - bytes/4), bases: cache.NewBudget(bytes / 4)}
}

// Used gives the bytes that are kept now.
func (c *Caches) Used() int64 { return c.trees.Used() + c.bases.Used() }

// TreeCache holds encoded trees by id. Trees are immutable, so a hit is always
// right, whichever commit it was made for.
type TreeCache struct {
	*cache.Cache[object.ID, *object.TreeData]
}

// NewTreeCache makes a cache of its own within a budget.
func NewTreeCache(b *cache.Budget) TreeCache {
	return TreeCache{cache.New[object.ID, *object.TreeData](b)}
}

// Add keeps a tree.
func (c TreeCache) Add(id object.ID, t *object.TreeData) { c.Put(id, t, int64(t.Size())) }
