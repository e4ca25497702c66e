package backup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Service makes the backups of one data directory, one at a time.
type Service struct {
	DataDir string // host path
	Source  Source
	// Folders returns the host paths that no backup may be in: it would be recorded
	// as a user's files.
	Folders func() []string
	Program string // version, for the manifest
	// Begin, if set, makes what is to be backed up in place of DataDir and Source, until
	// end is called: the data directory is a copy of what several servers share.
	Begin func() (dir string, source Source, end func() error, err error)

	running sync.Mutex
}

// Backup makes or renews the backup in a folder of this machine, made where it is
// missing. Writers go on meanwhile.
//
// errs.Invalid for a path that is not absolute, or leads to no folder;
// errs.Conflict backup_inside, backup_running, backup_in_use, and as Run.
func (s *Service) Backup(ctx context.Context, dir string, report func(Report)) (rep Report, err error) {
	if !filepath.IsAbs(dir) || strings.IndexByte(dir, 0) >= 0 {
		return Report{}, errs.New(errs.Invalid, "validation_failed", "dir must be an absolute path on the server's machine.")
	}
	if !s.running.TryLock() {
		return Report{}, errs.New(errs.Conflict, "backup_running", "A backup is being made already.")
	}
	defer s.running.Unlock()
	at := canonical(dir)
	for _, own := range append([]string{s.DataDir}, s.Folders()...) {
		if own = canonical(own); within(at, own) {
			return Report{}, errs.New(errs.Conflict, "backup_inside", "A backup must not lie in the data directory or in a workspace.")
		}
	}
	if err := os.MkdirAll(at, 0o700); err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			return Report{}, errs.New(errs.Invalid, "validation_failed", "dir is not a directory.")
		}
		if errors.Is(err, fs.ErrNotExist) { // of a file system that makes no directories
			return Report{}, errs.New(errs.Invalid, "validation_failed", "dir cannot be made there.")
		}
		return Report{}, errs.Wrap(err, "")
	}
	unlock, err := Lock(at)
	if err != nil {
		return Report{}, err
	}
	defer unlock()
	from, source := s.DataDir, s.Source
	if s.Begin != nil {
		var end func() error
		if from, source, end, err = s.Begin(); err != nil {
			return Report{}, errs.Wrap(err, "")
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	data, err := vfs.OS(from)
	if err != nil {
		return Report{}, errs.Wrap(err, "")
	}
	defer data.Close()
	to, err := vfs.OS(at)
	if err != nil {
		return Report{}, errs.Wrap(err, "")
	}
	defer to.Close()
	return Run(ctx, Options{Source: source, Data: data, To: to, Program: s.Program, Now: time.Now, Progress: report})
}

// canonical resolves links in as much of a path as is there.
func canonical(p string) string {
	p = filepath.Clean(p)
	if real, err := filepath.EvalSymlinks(p); err == nil {
		return real
	}
	if up := filepath.Dir(p); up != p {
		return filepath.Join(canonical(up), filepath.Base(p))
	}
	return p
}

func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// Lock keeps other backups and restores out of a folder, in whatever process; the
// system unlocks it when the process ends.
//
// errs.Conflict backup_in_use.
func Lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errs.New(errs.Conflict, "backup_in_use", "Another process backs up to the directory, or restores from it.")
		}
		return nil, errs.Wrap(&fs.PathError{Op: "flock", Path: dir, Err: err}, "")
	}
	return func() { f.Close() }, nil
}
