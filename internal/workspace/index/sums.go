package index

import (
	"sync"

	"umbra/gitstore/object"
)

// Sums remembers the SHA-256 of blobs, which no git object has: an entry
// that keeps a file's bytes (rename, chmod) needs it. Bounded; what goes is
// computed again.
type Sums struct {
	mu sync.Mutex
	m  map[object.ID]string
}

const maxSums = 4096

// Get returns the sum of a blob, if it is known.
func (c *Sums) Get(id object.ID) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.m[id]
	return s, ok
}

// Put remembers the sum of a blob.
func (c *Sums) Put(id object.ID, sum string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.m == nil {
		c.m = make(map[object.ID]string)
	}
	if len(c.m) >= maxSums {
		for old := range c.m { // any one
			delete(c.m, old)
			break
		}
	}
	c.m[id] = sum
}

// Forget drops blobs.
func (c *Sums) Forget(blobs map[object.ID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range blobs {
		delete(c.m, id)
	}
}
