package sinktest

import (
	"sync"
	"testing"

	"umbra/gitstore/sink"
)

// memories are workspaces in memory.
type memories struct {
	mu sync.Mutex
	ws map[string]*Memory
}

func (m *memories) of(workspace string) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ws[workspace] == nil {
		m.ws[workspace] = NewMemory()
	}
	return m.ws[workspace]
}

func (m *memories) Claim(_ testing.TB, workspace string) sink.Sink { return m.of(workspace).Claim() }

func (m *memories) Record(_ testing.TB, workspace, bucket, key string) ([]byte, bool) {
	return m.of(workspace).Record(bucket, key)
}

func (m *memories) Dropped(_ testing.TB, workspace string) []string {
	all, _ := m.of(workspace).Dropped()
	return all
}

func TestMemory(t *testing.T) { Run(t, &memories{ws: make(map[string]*Memory)}) }
