package server

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"umbra/internal/clock"
)

// The collector runs when the heap has doubled, so a server that was busy and is
// quiet now sits on what it allocated last, half an hour as well as a second.
// Where nothing is to be done that memory is given back to the machine.
const (
	// memoryLook is how often it is looked whether the server is quiet.
	memoryLook = 3 * time.Second
	// quietBytes is what a quiet server allocates at most between two looks.
	quietBytes = 1 << 20
	// worthBytes is what it must have allocated since memory was given back last,
	// in addition to a quarter of what lives: a collection reads all of that.
	worthBytes = 8 << 20
	// fallenBytes is by how much less must live otherwise, as after workspaces were
	// unloaded, in addition to an eighth; the runtime collects every two minutes.
	fallenBytes = 2 << 20
)

// memoryUse is the size of the heap that the runtime reports, in bytes.
type memoryUse struct {
	allocated uint64 // since the start, freed or not
	live      uint64 // as of the last collection
}

// heapUse checks the runtime's counters, which stops nothing.
func heapUse() memoryUse {
	s := [...]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(s[:])
	return memoryUse{allocated: s[0].Value.Uint64(), live: s[1].Value.Uint64()}
}

// giveMemoryBack runs until ctx ends: whenever the server has been at work and is
// quiet, it collects and returns what is free to the system, once.
func giveMemoryBack(ctx context.Context) {
	giveBack(ctx, heapUse, func() {
		// Pools keep what they hold through one collection, and a stack halves at
		// each: it takes two.
		debug.FreeOSMemory()
		debug.FreeOSMemory()
	})
}

func giveBack(ctx context.Context, use func() memoryUse, free func()) {
	var given, before, live uint64
	for range clock.Ticks(ctx, memoryLook) {
		now := use()
		live = max(live, now.live)
		worth := now.allocated-given >= worthBytes+now.live/4 || live-now.live >= fallenBytes+now.live/8
		if worth && now.allocated-before <= quietBytes {
			free()
			now = use()
			given, live = now.allocated, now.live
		}
		before = now.allocated
	}
}
