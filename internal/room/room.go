// Package room knows how much of a file system is free, and refuses new bytes
// where that is too little.
//
// Every writer calls it. So the system is queried at most once a second, or when
// the bytes written since may have used up the rest; in between a counter is
// used.
package room

import (
	"sync"
	"sync/atomic"
	"time"

	"umbra/internal/errs"
)

// Auto, as a floor, is one percent of the file system, at most 256 MiB.
const Auto = -1

const maxAuto = 256 << 20

// fresh is how long an answer of the system holds.
const fresh = time.Second

// Floor is the least room of a file system that is left free.
type Floor struct {
	dir   string
	floor int64
	now   func() time.Time
	ask   func(dir string) (free, total int64, err error) // bytes

	mu   sync.Mutex   // one asks the system
	at   atomic.Int64 // when it was asked, nanoseconds since 1970
	left atomic.Int64 // bytes above the floor then, less what was taken since
}

// New gives the floor of the file system that a folder is on: bytes, Auto, or 0
// for none.
func New(dir string, bytes int64) *Floor {
	return &Floor{dir: dir, floor: bytes, now: time.Now, ask: statfs}
}

// Take reports whether so many bytes may be written. If the system does not
// report how much is free, they may.
//
// errs.NoSpace insufficient_storage.
func (f *Floor) Take(bytes int64) error {
	if f.floor == 0 {
		return nil
	}
	if f.now().UnixNano()-f.at.Load() < int64(fresh) && f.left.Add(-bytes) > 0 {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	free, total, err := f.ask(f.dir)
	if err != nil {
		return nil
	}
	floor := f.floor
	if floor == Auto {
		floor = min(total/100, maxAuto)
	}
	left := free - floor - bytes
	f.left.Store(left)
	f.at.Store(f.now().UnixNano())
	if left <= 0 {
		return errs.New(errs.NoSpace, "insufficient_storage", "Too little room is left where history is kept.")
	}
	return nil
}

// Check reports whether there is room at all.
func (f *Floor) Check() error { return f.Take(0) }
