package blob

import (
	"bytes"
	"context"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is a store for tests: it lives as long as the process.
type Memory struct {
	mu      sync.Mutex
	objects map[string]memObject
}

type memObject struct {
	data     []byte
	modified time.Time
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{objects: map[string]memObject{}} }

// Put implements Store.
func (m *Memory) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := checkKey(key); err != nil {
		return fail(ctx, opPut, key, Refused, err)
	}
	data, err := io.ReadAll(io.NewSectionReader(body, 0, size))
	if err == nil && int64(len(data)) != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fail(ctx, opPut, key, Refused, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[key] = memObject{data, time.Now()}
	return nil
}

func (m *Memory) get(ctx context.Context, op, key string) ([]byte, error) {
	if err := checkKey(key); err != nil {
		return nil, fail(ctx, op, key, Refused, err)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, fail(ctx, op, key, Canceled, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.objects[key]
	if !ok {
		return nil, fail(ctx, op, key, NotFound, errMissing)
	}
	return o.data, nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	data, err := m.get(ctx, opGet, key)
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

// GetRange implements Store.
func (m *Memory) GetRange(ctx context.Context, key string, offset, n int64) (io.ReadCloser, error) {
	if err := checkRange(key, offset, n); err != nil {
		return nil, fail(ctx, opRange, key, Refused, err)
	}
	data, err := m.get(ctx, opRange, key)
	if err != nil {
		return nil, err
	}
	if offset+n > int64(len(data)) {
		return nil, fail(ctx, opRange, key, TooShort, errEnds)
	}
	return io.NopCloser(bytes.NewReader(data[offset : offset+n])), nil
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return fail(ctx, opDelete, key, Refused, err)
	}
	if err := context.Cause(ctx); err != nil {
		return fail(ctx, opDelete, key, Canceled, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

// List implements Store.
func (m *Memory) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		m.mu.Lock()
		keys := slices.Sorted(maps.Keys(m.objects))
		m.mu.Unlock()
		for _, key := range keys {
			if key <= after || !strings.HasPrefix(key, prefix) {
				continue
			}
			if err := context.Cause(ctx); err != nil {
				yield(Object{}, fail(ctx, opList, prefix, Canceled, err))
				return
			}
			m.mu.Lock()
			o, ok := m.objects[key]
			m.mu.Unlock()
			if ok && !yield(Object{key, int64(len(o.data)), o.modified}, nil) {
				return
			}
		}
	}
}
