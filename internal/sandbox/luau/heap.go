package luau

import "github.com/tetratelabs/wazero/api"

// growStep is how much the memory grows at least, in pages.
const growStep = 16

// grow makes room for a heap that ends at an address. A script that is refused
// ends at once: it may not go on as if nothing were.
func grow(_ *script, mod api.Module, stack []uint64) {
	mem := mod.Memory()
	const page = 1 << 16
	have, want := mem.Size()/page, uint32((stack[0]&0xffffffff+page-1)/page)
	stack[0] = 1
	if want <= have {
		return
	}
	if _, ok := mem.Grow(max(want-have, growStep)); ok {
		return
	}
	if _, ok := mem.Grow(want - have); !ok {
		panic(errMemory)
	}
}
