package workspace

import (
	"sync"

	"umbra/gitstore/object"
)

// sumCache remembers the SHA-256 of blobs, which no git object tells: an entry
// that keeps a file's bytes (rename, chmod) needs it. Bounded; what goes is
// computed again.
type sumCache struct {
	mu sync.Mutex
	m  map[object.ID]string
}

const maxSums = 4096

func (c *sumCache) get(id object.ID) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.m[id]
	return s, ok
}

func (c *sumCache) put(id object.ID, sum string) {
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

// forget takes blobs out.
func (c *sumCache) forget(blobs map[object.ID]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range blobs {
		delete(c.m, id)
	}
}
