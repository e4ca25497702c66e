package browse

import (
	"time"

	"umbra/internal/workspace/disk"
)

// Reader reads the content of one workspace as it is, without locks. Its methods may
// be called from any goroutine.
type Reader struct {
	disk *disk.Disk
	kept keptListings
}

// NewReader returns a reader of a content.
func NewReader(d *disk.Disk) *Reader { return &Reader{disk: d} }

// EvictIdle frees what is kept of listings and was not used lately.
func (r *Reader) EvictIdle(now time.Time) { r.kept.forget(now) }
