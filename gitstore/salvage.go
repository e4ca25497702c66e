package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
)

// salvage puts a new file with the acknowledged entries of a journal under its
// name, after a write or sync of the old one failed. The kernel may have
// dropped the dirty pages of such a file and call them clean: neither its
// bytes past the acknowledged ones nor a later sync of it mean anything.
//
// Until the new file has the name and the folder is synced, a start would find
// the old one, with the failed group absent or there whole; nothing is
// answered in between.
func (s *Store) salvage(old *journal) (*journal, error) {
	temp := old.name + ".new"
	if err := s.fs.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := s.fs.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{number: old.number, name: old.name, f: f, at: make(map[object.ID]loc)}
	err = j.copyFrom(old)
	if err == nil {
		err = s.fs.Rename(temp, old.name)
	}
	if err == nil {
		err = s.fs.SyncDir(journalDir)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	s.log.Warn("journal salvaged after a disk error", "journal", old.number)
	return j, nil
}

// copyFrom copies the acknowledged entries of old, each inflated as a check,
// and zeroed room behind them, and syncs the file.
func (j *journal) copyFrom(old *journal) error {
	old.mu.RLock()
	defer old.mu.RUnlock()
	j.tip, j.tasks = old.tip, old.tasks
	j.end, j.room = old.end, max(2*old.end, minPrepared)
	head := pack.Header(0)
	if _, err := j.f.WriteAt(head[:], 0); err != nil {
		return err
	}
	sc := pack.NewScanner(old.f, old.end, pack.ScanOptions{MaxObject: maxMeta})
	for sc.Pos() < old.end {
		e, err := sc.Next()
		if err != nil {
			return fmt.Errorf("acknowledged entries cannot be read back: %w", err)
		}
		buf := make([]byte, e.End-e.Offset)
		if _, err := old.f.ReadAt(buf, e.Offset); err != nil {
			return err
		}
		if _, err := j.f.WriteAt(buf, e.Offset); err != nil {
			return err
		}
	}
	for id, l := range old.at {
		j.at[id] = l
	}
	if err := j.zero(j.end); err != nil {
		return err
	}
	return j.f.Sync()
}

// salvageOpen replaces the open journal if it is unsound; logs.mu is held.
func (s *Store) salvageOpen() error {
	old := s.logs.open
	if old == nil || !old.unsound {
		return nil
	}
	if old.empty() {
		s.logs.open = nil
		s.fs.Remove(old.name) // one without entries left behind is dropped at a start
	} else {
		j, err := s.salvage(old)
		if err != nil {
			return err
		}
		s.logs.open = j
	}
	s.setLive()
	old.close()
	return nil
}

// salvageClosing replaces a journal that is being closed if it is unsound.
func (s *Store) salvageClosing(old *journal) (*journal, error) {
	if !old.unsound {
		return old, nil
	}
	j, err := s.salvage(old)
	if err != nil {
		return nil, err
	}
	s.logs.mu.Lock()
	for i, c := range s.logs.closing {
		if c == old {
			s.logs.closing[i] = j
		}
	}
	s.setLive()
	s.logs.mu.Unlock()
	old.close()
	return j, nil
}
