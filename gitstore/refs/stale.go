package refs

import (
	"context"
	"strings"
	"time"
)

// staleAge is how old a lock that is not ours must be before it is cleared.
const staleAge = 10 * time.Minute

// ClearStale removes the locks that dead processes left: ours, and others'
// that are older than ten minutes, unless a process has the file open. It
// gives their names in the repository. It is for a start, before the first
// Update.
func (s *Store) ClearStale(ctx context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.locks()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	files := make([]FileID, 0, len(found))
	for _, l := range found {
		files = append(files, l.id)
	}
	held, err := s.opt.HeldOpen(ctx, files)
	if err != nil {
		return nil, err
	}
	var cleared []string
	for _, l := range found {
		if held[l.id] {
			continue
		}
		// It may have been given back, and taken by another, meanwhile.
		info, err := s.fs.Lstat(s.path(l.name))
		if notExist(err) || err == nil && fileID(info) != l.id {
			continue
		}
		if err == nil {
			err = s.fs.Remove(s.path(l.name))
		}
		if err != nil && !notExist(err) {
			return cleared, err
		}
		cleared = append(cleared, l.name)
	}
	return cleared, nil
}

type foundLock struct {
	name string
	id   FileID
}

// locks gives the locks that are ours or old.
func (s *Store) locks() ([]foundLock, error) {
	var out []foundLock
	oldest := s.opt.Now().Add(-staleAge).UnixNano()
	look := func(name string) error {
		if !strings.HasSuffix(name, lockSuffix) {
			return nil
		}
		info, err := s.fs.Lstat(s.path(name))
		if notExist(err) {
			return nil
		}
		if err == nil && info.IsRegular() && (fileID(info) == s.marker || info.MtimeNs < oldest) {
			out = append(out, foundLock{name: name, id: fileID(info)})
		}
		return err
	}
	// Where git keeps locks (gitrepository-layout(5)).
	for _, name := range []string{packedName, HEAD, "config", "shallow"} {
		if err := look(name + lockSuffix); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"refs", "logs", "worktrees", "objects/info", "objects/pack"} {
		if err := s.walk(dir, look); err != nil {
			return nil, err
		}
	}
	return out, nil
}
