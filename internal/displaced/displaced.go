// Package displaced decides how long a displaced file is kept: one that a change
// replaced or deleted, and that another process may still write to.
//
// It holds no files and does no I/O. Package workspace asks it, and package rootfs
// holds the files, out of reach of directory operations.
package displaced

import (
	"time"

	"umbra/internal/vfs"
)

// A file of which the system does not say whether it is open for writing is kept
// for at least unknownFor, and until it has not changed for quietFor.
const (
	unknownFor = 60 * time.Second
	quietFor   = 10 * time.Second
)

// LookEvery is how often such a file needs to be checked.
const LookEvery = time.Second

// Action is what to do with a file now.
type Action uint8

// The actions.
const (
	Wait   Action = iota // keep it
	Record               // keep it, and record its bytes
	Retire               // record its bytes and remove it
)

// Waiting is one file. It is not safe for concurrent use.
type Waiting struct {
	since, quiet time.Duration
	seen         vfs.Info
	recorded     bool
}

// Begin starts the wait at a time, a reading of clock.Boot.
func Begin(at time.Duration) Waiting { return Waiting{since: at, quiet: at} }

// Next is what to do, by whether the file is open for writing, its stat data and
// the time. Unknown is never No: such a file is recorded when it has been quiet,
// and removed when it has also been kept for its time.
func (w *Waiting) Next(open vfs.Writers, info vfs.Info, at time.Duration) Action {
	switch open {
	case vfs.No:
		return Retire
	case vfs.Yes:
		w.quiet, w.recorded = at, false
		return Wait
	}
	if info.Size != w.seen.Size || info.MtimeNs != w.seen.MtimeNs {
		w.seen, w.quiet, w.recorded = info, at, false
	}
	switch quiet := at-w.quiet >= quietFor; {
	case quiet && at-w.since >= unknownFor:
		return Retire
	case quiet && !w.recorded:
		w.recorded = true
		return Record
	}
	return Wait
}
