package refs

import (
	"bytes"
	"context"
	"slices"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// shallowName is the file of commits whose parents are not there (gitformat
// "shallow", git-fetch-pack(1)): one id a line.
const shallowName = "shallow"

// Shallow gives the repository's shallow commits, in the file's order; none
// if the file does not exist. Lines that are not an id are skipped, since a user
// may have written the file.
func (s *Store) Shallow() ([]object.ID, error) {
	data, err := vfs.ReadFile(s.fs, s.path(shallowName))
	if notExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []object.ID
	for line := range bytes.Lines(data) {
		if id, err := object.ParseID(string(bytes.TrimSpace(line))); err == nil {
			out = append(out, id)
		}
	}
	return out, nil
}

// SetShallow replaces the shallow commits by what change makes of them, under
// git's own lock of that file; durable when it returns. The file goes where
// nothing is left.
func (s *Store) SetShallow(ctx context.Context, change func([]object.ID) []object.ID) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := s.lock(ctx, shallowName)
	if err != nil {
		return err
	}
	defer func() {
		if uerr := unlock(); err == nil {
			err = uerr
		}
	}()
	old, err := s.Shallow()
	if err != nil {
		return err
	}
	next := change(slices.Clone(old))
	if slices.Equal(next, old) {
		// A killed process may have written it, and not synced the folder.
		return s.fs.SyncDir(s.repo)
	}
	if len(next) == 0 {
		if err := s.fs.Remove(s.path(shallowName)); err != nil && !notExist(err) {
			return err
		}
		return s.fs.SyncDir(s.repo)
	}
	var data []byte
	for _, id := range next {
		data = append(append(data, id.String()...), '\n')
	}
	temp, err := s.writeTemp(data)
	if err != nil {
		return err
	}
	if err := s.fs.Rename(temp, s.path(shallowName)); err != nil {
		s.fs.Remove(temp)
		return err
	}
	return s.fs.SyncDir(s.repo)
}
