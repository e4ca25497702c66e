package gitstore

import (
	"context"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
)

// KnownBlob represents a blob that history has, without reading it: for edits
// that change a mode or bring back what was there. Its size and hash are not
// set; ExistingBlob has them.
func KnownBlob(id ID) Blob { return Blob{id: id} }

// heldBlobs sees to the blobs that a draft takes for known. Since the caller saw
// one, the part of history that held it may have been dropped: what only waits to
// be removed is written once more, what is gone fails the draft. It costs nothing
// until something was dropped.
func (g *group) heldBlobs(d *Draft, track func(object.ID, journal.Loc)) error {
	if !g.s.r.Upkeep.Shed.Load() {
		return nil
	}
	for i := range d.Edits {
		e := &d.Edits[i]
		if e.MoveTo != "" || e.Mode == 0 || e.Blob.entry != nil || e.Blob.large != nil {
			continue
		}
		if _, ok := g.has(e.Blob.id); ok {
			continue
		}
		safe, err := g.s.r.IsSafe(e.Blob.id)
		if err != nil {
			return err
		}
		if safe {
			continue
		}
		data, err := g.s.ReadBlob(context.Background(), e.Blob.id, object.MaxMeta)
		if err != nil {
			return err
		}
		g.emit(e.Blob.id, object.Blob, int64(len(data)), object.Zero, 0, pack.AppendEntry(nil, object.Blob, data, g.s.level(len(data))), track)
	}
	return nil
}
