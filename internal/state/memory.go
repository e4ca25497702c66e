package state

import (
	"bytes"
	"maps"
	"slices"
	"sync"
)

// memory is a backend for tests: its records end with the process.
type memory struct {
	mu      sync.RWMutex
	buckets map[string]map[string][]byte
	shared  bool
}

// NewMemory returns an empty DB in memory.
func NewMemory() *DB { return New(&memory{buckets: map[string]map[string][]byte{}}) }

// NewShared is NewMemory for tests of several services over one DB: they take it for
// one that other processes change.
func NewShared() *DB { return New(&memory{buckets: map[string]map[string][]byte{}, shared: true}) }

// Shared is DB.Shared.
func (m *memory) Shared() bool { return m.shared }

// Close implements Backend.
func (*memory) Close() error { return nil }

// Update implements Backend. It works on a copy of the buckets' maps.
func (m *memory) Update(fn func(BackendTx) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[string]map[string][]byte, len(m.buckets))
	for name, b := range m.buckets {
		next[name] = maps.Clone(b)
	}
	if err := fn(memoryTx{next, true}); err != nil {
		return err
	}
	m.buckets = next
	return nil
}

// View implements Backend.
func (m *memory) View(fn func(BackendTx) error) error {
	m.mu.RLock()
	now := m.buckets // an Update replaces it
	m.mu.RUnlock()
	return fn(memoryTx{now, false})
}

type memoryTx struct {
	buckets  map[string]map[string][]byte
	writable bool
}

// Get implements BackendTx.
func (t memoryTx) Get(bucket, key string) ([]byte, bool, error) {
	value, ok := t.buckets[bucket][key]
	return value, ok, nil
}

// Put implements BackendTx.
func (t memoryTx) Put(bucket, key string, value []byte) error {
	if !t.writable {
		return ErrReadOnly
	}
	if t.buckets[bucket] == nil {
		t.buckets[bucket] = map[string][]byte{}
	}
	t.buckets[bucket][key] = bytes.Clone(value)
	return nil
}

// Delete implements BackendTx.
func (t memoryTx) Delete(bucket, key string) error {
	if !t.writable {
		return ErrReadOnly
	}
	delete(t.buckets[bucket], key)
	return nil
}

// DeleteBucket implements BackendTx.
func (t memoryTx) DeleteBucket(bucket string) error {
	if !t.writable {
		return ErrReadOnly
	}
	delete(t.buckets, bucket)
	return nil
}

// Ascend implements BackendTx.
func (t memoryTx) Ascend(bucket, from string, fn func(key string, value []byte) (bool, error)) error {
	for _, key := range slices.Sorted(maps.Keys(t.buckets[bucket])) {
		if key < from {
			continue
		}
		if more, err := fn(key, t.buckets[bucket][key]); err != nil || !more {
			return err
		}
	}
	return nil
}

// Descend implements BackendTx.
func (t memoryTx) Descend(bucket, before string, fn func(key string, value []byte) (bool, error)) error {
	for _, key := range slices.Backward(slices.Sorted(maps.Keys(t.buckets[bucket]))) {
		if key >= before {
			continue
		}
		if more, err := fn(key, t.buckets[bucket][key]); err != nil || !more {
			return err
		}
	}
	return nil
}
