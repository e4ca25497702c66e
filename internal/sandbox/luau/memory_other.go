//go:build !unix

package luau

import "github.com/tetratelabs/wazero/experimental"

// room is a state's memory, which is the runtime's own here.
type room struct{}

// allocator leaves it to the runtime.
func (r *room) allocator() experimental.MemoryAllocator { return nil }
