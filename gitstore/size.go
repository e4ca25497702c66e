package gitstore

import "umbra/internal/errs"

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
