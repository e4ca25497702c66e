package disk

import (
	"time"

	"umbra/gitstore/object"
	"umbra/internal/filestamp"
	"umbra/internal/vfs"
)

// settling is how long a file that a user made may be in memory alone, with its name:
// ext4 commits its journal every five seconds. Its bytes may follow later; a file
// without them is recognized by its times.
const settling = 6 * time.Second

// ModifiedSince reports whether a file that held a blob may have been modified at or
// after a time, in nanoseconds since 1970, by what its own times say. A file of the
// server's is known by its stamp, whatever the times are.
func ModifiedSince(info vfs.Info, id object.ID, at int64) bool {
	return !filestamp.Is(info.MtimeNs, info.Ino, id) && max(info.MtimeNs, info.CtimeNs) >= at
}

// Unsettled reports whether a user's file that held a blob may not be durable at the
// time of a commit, or cannot be distinguished from one that was modified later: a
// commit's time has seconds, and clocks are set back. The zero time is not known.
func Unsettled(info vfs.Info, id object.ID, when time.Time) bool {
	return !when.IsZero() && ModifiedSince(info, id, when.Add(-settling).Unix()*1e9)
}

// Settle makes the bytes of a file durable that a change set has replaced or removed,
// if they are unsettled. A power failure that undoes the change leaves the file whole
// then, known as the version before, and the start does the change again. A torn one
// would count as a user's later change, and a missing one as removed by a user: the
// change would be lost after its answer.
func (d *Disk) Settle(f vfs.File, info vfs.Info, id object.ID, when time.Time) error {
	if !Unsettled(info, id, when) {
		return nil
	}
	return f.Datasync()
}
