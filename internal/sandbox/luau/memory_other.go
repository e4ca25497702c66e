//go:build !unix

package luau

import "github.com/tetratelabs/wazero/experimental"

// allocator leaves it to the runtime.
func allocator() experimental.MemoryAllocator { return nil }
