package gitstore

import (
	"maps"

	"umbra/gitstore/journal"
)

// journalEnd is what a journal leads to.
type journalEnd struct {
	tip   Tip
	tasks map[string]*Task // the newest records of those that it changed
	pos   uint64           // in a sink's log, of the last group
}

func (e *journalEnd) add(tip Tip, tasks map[string]*Task) {
	e.tip = tip
	maps.Copy(e.tasks, tasks)
}

// endOf returns what a journal leads to. The caller holds committing, or the journal is
// full.
func endOf(j *journal.Journal) *journalEnd {
	if j.State == nil {
		j.State = &journalEnd{tasks: make(map[string]*Task)}
	}
	return j.State.(*journalEnd)
}

// salvageOpen replaces the open journal if it is unsound; committing is held.
func (s *Store) salvageOpen() error {
	old := s.logs.open
	if old == nil || !old.Unsound {
		return nil
	}
	if old.Empty() {
		s.logs.open = nil
		s.r.FS.Remove(old.Name) // one without entries left behind is dropped at a start
	} else {
		j, err := s.logs.set.Salvage(old)
		if err != nil {
			return err
		}
		s.logs.open = j
	}
	s.setLive()
	old.Close()
	return nil
}

// salvageClosing replaces a journal that is being closed if it is unsound.
func (s *Store) salvageClosing(old *journal.Journal) (*journal.Journal, error) {
	if !old.Unsound {
		return old, nil
	}
	j, err := s.logs.set.Salvage(old)
	if err != nil {
		return nil, err
	}
	s.r.Committing.Lock()
	for i, c := range s.logs.closing {
		if c == old {
			s.logs.closing[i] = j
		}
	}
	s.setLive()
	s.r.Committing.Unlock()
	old.Close()
	return j, nil
}

// setLive publishes to readers which journals hold objects; the caller must hold
// committing.
func (s *Store) setLive() {
	list := append([]*journal.Journal(nil), s.logs.closing...)
	if s.logs.open != nil {
		list = append(list, s.logs.open)
	}
	s.r.Live.Store(&list)
}
