package gitstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"umbra/gitstore/message"
)

// logInfo adds a task's superseded info tags to the reflog of its info ref, so
// that they are no dangling objects in git-fsck(1)'s eyes, and people can look
// at what a task said before: git reflog show refs/umbra/tasks/<task>/info.
// Nothing depends on it: it is not synced, and a failure is only logged.
func (s *Store) logInfo(t *Task) {
	if len(t.past) == 0 {
		return
	}
	name, email := message.Committer()
	when := s.opt.Now().Unix()
	var lines []byte
	before := ID{}
	for _, id := range append(t.past[:len(t.past):len(t.past)], t.InfoTag) {
		lines = fmt.Appendf(lines, "%s %s %s <%s> %d +0000\tinfo\n", before, id, name, email, when)
		before = id
	}
	if err := s.appendLog(path.Join(repoDir, "logs", tasksPrefix, t.ID, "info"), lines); err != nil {
		s.log.Warn("reflog of a task's record not written", "task", t.ID, "error", err)
	}
}

func (s *Store) appendLog(name string, lines []byte) error {
	f, err := s.fs.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = s.mkdirAll(path.Dir(name)); err == nil {
			f, err = s.fs.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Close())
}

func (s *Store) mkdirAll(dir string) error {
	if dir == "." {
		return nil
	}
	if err := s.mkdirAll(path.Dir(dir)); err != nil {
		return err
	}
	if err := s.fs.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
