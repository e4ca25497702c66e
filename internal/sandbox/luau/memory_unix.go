//go:build unix

package luau

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// allocator reserves a script's memory whole, so that it never moves, takes
// pages only as they are used, and goes back to the system at its end.
func allocator() experimental.MemoryAllocator {
	return experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
		b, err := unix.Mmap(-1, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return &mapped{}
		}
		return &mapped{all: b}
	})
}

type mapped struct{ all []byte }

func (m *mapped) Reallocate(size uint64) []byte {
	if size > uint64(len(m.all)) {
		return nil
	}
	return m.all[:size:len(m.all)]
}

func (m *mapped) Free() {
	if m.all != nil {
		_ = unix.Munmap(m.all) // of what Mmap gave
		m.all = nil
	}
}
