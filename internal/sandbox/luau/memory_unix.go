//go:build unix

package luau

import (
	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// room is a state's memory. It is reserved whole, so that it never moves, takes
// pages only as they are used, and goes back to the system at its end.
type room struct{ all []byte }

// allocator gives the memory to the runtime, once.
func (r *room) allocator() experimental.MemoryAllocator {
	return experimental.MemoryAllocatorFunc(func(_, most uint64) experimental.LinearMemory {
		b, err := unix.Mmap(-1, 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err == nil {
			r.all = b
		}
		return r
	})
}

// Reallocate gives so many bytes, nil if there are not as many.
func (r *room) Reallocate(size uint64) []byte {
	if size > uint64(len(r.all)) {
		return nil
	}
	return r.all[:size:len(r.all)]
}

// Free gives the memory back.
func (r *room) Free() {
	if r.all != nil {
		_ = unix.Munmap(r.all) // of what Mmap gave
		r.all = nil
	}
}
