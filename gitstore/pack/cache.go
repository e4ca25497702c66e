package pack

import (
	"container/list"
	"sync"

	"umbra/gitstore/object"
)

// BaseCache keeps inflated objects that others are deltas of, the last used, up
// to a number of bytes. Several packs may share one. Safe for concurrent use.
type BaseCache struct {
	mu    sync.Mutex
	limit int64
	used  int64
	byKey map[baseKey]*list.Element
	order *list.List // of *baseEntry, last used first
}

type baseKey struct {
	pack   *Pack
	offset int64
}

type baseEntry struct {
	key  baseKey
	kind object.Kind
	data []byte
}

// baseOverhead is roughly what the bookkeeping of one object takes, in bytes.
const baseOverhead = 200

// NewBaseCache makes a cache of at most limit bytes.
func NewBaseCache(limit int64) *BaseCache {
	return &BaseCache{limit: limit, byKey: map[baseKey]*list.Element{}, order: list.New()}
}

func (c *BaseCache) get(k baseKey) (object.Kind, []byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el, ok := c.byKey[k]
	if !ok {
		return 0, nil, false
	}
	c.order.MoveToFront(el)
	e := el.Value.(*baseEntry)
	return e.kind, e.data, true
}

// put keeps data, which nobody may change from then on. An object that takes
// more than a quarter of the room is not kept.
func (c *BaseCache) put(k baseKey, kind object.Kind, data []byte) {
	cost := int64(len(data)) + baseOverhead
	if cost > c.limit/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[k]; ok {
		return
	}
	c.byKey[k] = c.order.PushFront(&baseEntry{key: k, kind: kind, data: data})
	c.used += cost
	for c.used > c.limit {
		c.drop(c.order.Back())
	}
}

func (c *BaseCache) drop(el *list.Element) {
	e := c.order.Remove(el).(*baseEntry)
	delete(c.byKey, e.key)
	c.used -= int64(len(e.data)) + baseOverhead
}

// forget drops what a pack has there.
func (c *BaseCache) forget(p *Pack) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for el := c.order.Front(); el != nil; {
		next := el.Next()
		if el.Value.(*baseEntry).key.pack == p {
			c.drop(el)
		}
		el = next
	}
}
