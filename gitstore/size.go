package gitstore

import "umbra/internal/errs"

// DiskBytes gives how much room the store takes on disk, in bytes: our packs with
// their indexes, superseded ones until they go, journals with the room that is
// made ahead, prepared large blobs, and the commit index. It is known in memory,
// and waits for no disk; what people put into the repository is not in it.
func (s *Store) DiskBytes() int64 {
	n := s.packs.Bytes(true) + s.large.Bytes() + s.records.Bytes()
	for _, j := range *s.logs.live.Load() {
		n += max(j.Room, j.Used())
	}
	return n
}

// HistoryBytes gives how large the history is, in bytes: DiskBytes without what
// only waits to be removed or used. A merge makes it smaller, never larger for a
// while.
func (s *Store) HistoryBytes() int64 {
	n := s.packs.Bytes(false) + s.large.Bytes()
	for _, j := range *s.logs.live.Load() {
		n += j.Used()
	}
	return n
}

// Room reports whether so many bytes of new content may be committed now.
//
// errs.NoSpace quota_exceeded, or as Options.Room says.
func (s *Store) Room(bytes int64) error {
	if max := s.opt.MaxHistory; max > 0 && s.HistoryBytes()+bytes > max {
		return errs.New(errs.NoSpace, "quota_exceeded", "The workspace's history has reached the size that it may have.")
	}
	return s.opt.Room(bytes)
}

// newBytes gives how much content a draft brings that history does not have
// already, packed, in bytes.
func (d *Draft) newBytes() (n int64) {
	for i := range d.Edits {
		b := &d.Edits[i].Blob
		n += int64(len(b.entry))
		if b.large != nil {
			n += b.large.File().Pack.FileBytes()
		}
	}
	return n
}

// RoomToWrite reports whether a write of so many bytes, as they are before they are
// packed, may begin.
func (s *Store) RoomToWrite(bytes int64) error {
	if err := s.Room(1); err != nil {
		return err
	}
	return s.opt.Room(bytes)
}
