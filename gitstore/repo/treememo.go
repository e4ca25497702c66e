package repo

import (
	"sync"

	"umbra/gitstore/object"
)

// maxMemo bounds how many commits' trees are remembered: 40 bytes each.
const maxMemo = 4096

// treeMemo remembers the trees of commits that were read lately, so that who
// reads a history in order need not read every commit once more as the next
// one's parent. The zero value is ready.
type treeMemo struct {
	mu    sync.Mutex
	from  uint64 // the boundary as of which it holds
	trees map[object.ID]object.ID
}

func (m *treeMemo) put(c *Commit, from uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.trees == nil || m.from != from || len(m.trees) >= maxMemo {
		m.trees, m.from = make(map[object.ID]object.ID), from
	}
	m.trees[c.ID] = c.Tree
}

func (m *treeMemo) get(commit object.ID, from uint64) (tree object.ID, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.from == from {
		tree, ok = m.trees[commit]
	}
	return tree, ok
}
