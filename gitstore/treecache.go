package gitstore

import (
	"container/list"
	"sync"

	"umbra/gitstore/object"
)

// treeCache holds encoded trees by id, least recently used ones going first
// when the bound in bytes is passed. Trees are immutable, so a hit is always
// right, whichever commit it was made for.
type treeCache struct {
	mu    sync.Mutex
	max   int64
	size  int64
	order *list.List // front: used last
	byID  map[object.ID]*list.Element
}

type treeCacheItem struct {
	id   object.ID
	tree *object.TreeData
}

// treeOverhead is what a cached tree costs beside its bytes: list element,
// map entry, struct.
const treeOverhead = 200

func newTreeCache(max int64) *treeCache {
	return &treeCache{max: max, order: list.New(), byID: make(map[object.ID]*list.Element)}
}

func (c *treeCache) get(id object.ID) (*object.TreeData, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok {
		return nil, false
	}
	c.order.MoveToFront(e)
	return e.Value.(treeCacheItem).tree, true
}

func (c *treeCache) put(id object.ID, t *object.TreeData) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byID[id]; ok {
		c.order.MoveToFront(e)
		return
	}
	c.byID[id] = c.order.PushFront(treeCacheItem{id, t})
	c.size += int64(t.Size()) + treeOverhead
	for c.size > c.max && c.order.Len() > 1 {
		last := c.order.Back()
		it := c.order.Remove(last).(treeCacheItem)
		delete(c.byID, it.id)
		c.size -= int64(it.tree.Size()) + treeOverhead
	}
}

// clear forgets all of them.
func (c *treeCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order.Init()
	clear(c.byID)
	c.size = 0
}
