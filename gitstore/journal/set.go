package journal

import (
	"log/slog"
	"sync"

	"umbra/internal/vfs"
)

// Set hands out the open journal and keeps the next one ready.
type Set struct {
	FS  vfs.FS
	Log *slog.Logger
	// MaxObject bounds an object that is read, in bytes.
	MaxObject int64

	mu      sync.Mutex // next, number, prepare
	next    *Journal
	number  uint64 // highest in use
	prepare int64  // size of the next one; 0: the smallest
}

// Skip says that no number up to n is to be used.
func (js *Set) Skip(n uint64) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.number = max(js.number, n)
}

// Rotate gives a fresh journal, the prepared one if there is one. full is the
// room of the journal that ran full before its time, 0 if none did: a storm
// then gets a larger one, and not a pack for each moment of it.
func (js *Set) Rotate(full int64) (*Journal, error) {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.prepare = max(js.prepare, minPrepared, min(2*full, maxHasty))
	if j := js.next; j != nil {
		js.next = nil
		return j, nil
	}
	js.number++
	return create(js.FS, js.number, js.prepare)
}

// Ready makes the next journal if there is none, sized by what was written
// since the last publication. Errors are left for rotate to meet again.
func (js *Set) Ready(used int64) {
	js.mu.Lock()
	defer js.mu.Unlock()
	size := int64(minPrepared)
	for size < 2*used && size < MaxPrepared {
		size *= 2
	}
	js.prepare = size
	if js.next != nil {
		return
	}
	js.number++
	j, err := create(js.FS, js.number, size)
	if err != nil {
		js.Log.Warn("journal not prepared ahead", "error", err)
		return
	}
	js.next = j
}

// IsReady reports whether the next journal is there, or being made.
func (js *Set) IsReady() bool {
	if !js.mu.TryLock() {
		return true
	}
	defer js.mu.Unlock()
	return js.next != nil
}

func (js *Set) dropNext() {
	if js.next != nil {
		js.next.Close()
		js.FS.Remove(js.next.Name) // an empty journal left behind is dropped at a start
		js.next = nil
	}
}

func (js *Set) Close() {
	js.mu.Lock()
	defer js.mu.Unlock()
	js.dropNext()
}

// nextName gives the name of the journal that is made ahead, if there is one.
func (js *Set) NextName() string {
	js.mu.Lock()
	defer js.mu.Unlock()
	if js.next == nil {
		return ""
	}
	return js.next.Name
}
