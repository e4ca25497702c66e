package record

import (
	"umbra/gitstore/object"
	"umbra/internal/filestamp"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Unsettled reports whether a user's file with the bytes of a blob, at the path that it
// was recorded at, has to be synced before a change set that replaced, removed or renamed
// it is answered. A power failure that undoes the change set leaves the file whole then,
// known as the version before, and the start does the change set again. A torn one would
// count as a user's later change, and a missing one as removed by a user: the change set
// would be lost after its answer. A file of the server's is known by its stamp.
func (r *Recorder) Unsettled(p wspath.Path, info vfs.Info, id object.ID) bool {
	return info.IsRegular() && !filestamp.Is(info.MtimeNs, info.Ino, id) && r.Progress.Unsynced(p)
}
