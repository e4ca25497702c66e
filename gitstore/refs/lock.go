package refs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"umbra/internal/vfs"
)

const (
	lockSuffix = ".lock"
	// How often a held lock is checked again, and for how long where the
	// context has no deadline of its own.
	firstWait   = time.Millisecond
	longestWait = 100 * time.Millisecond
	defaultWait = 10 * time.Second
)

// LockedError describes a lock that another process held until the context's
// deadline, which is its cause.
type LockedError struct {
	Name string // the lock's file in the repository, "refs/heads/shadow.lock"
	Err  error
}

func (e *LockedError) Error() string { return fmt.Sprintf("refs: %s is held: %v", e.Name, e.Err) }

// Unwrap gives the context's error.
func (e *LockedError) Unwrap() error { return e.Err }

// ensureMarker makes the file that our locks are links of, durable, so that a
// lock that outlives a power cut is known for ours.
func (s *Store) ensureMarker() error {
	for {
		info, err := s.fs.Lstat(s.path(markerName))
		if err == nil {
			s.marker = fileID(info)
			return nil
		}
		if !notExist(err) {
			return err
		}
		if err := mkdirDurable(s.fs, s.path(ownDir)); err != nil {
			return err
		}
		f, err := s.fs.OpenFile(s.path(markerName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o444)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = f.Sync()
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = s.fs.SyncDir(s.path(ownDir))
		}
		if err != nil {
			return err
		}
	}
}

func fileID(i vfs.Info) FileID { return FileID{Dev: i.Dev, Ino: i.Ino} }

// lock takes the lock of a file of the repository, waiting for the process that holds
// it. The folder must be there (an ErrNotExist is returned if not). s.mu is
// held, so a lock with our mark is one that a killed process or a failed unlock
// left behind.
func (s *Store) lock(ctx context.Context, name string) (unlock func() error, err error) {
	lock := name + lockSuffix
	var timer *time.Timer
	var cancel context.CancelFunc
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := s.fs.Link(s.path(markerName), s.path(lock))
		switch {
		case err == nil:
			return func() error { return s.unlock(lock) }, nil
		case errors.Is(err, syscall.EMLINK):
			// Thousands of dead locks are links of this marker.
			err = s.renewMarker()
		case errors.Is(err, fs.ErrExist):
			var info vfs.Info
			info, err = s.fs.Lstat(s.path(lock))
			if err == nil && fileID(info) == s.marker {
				return func() error { return s.unlock(lock) }, nil
			}
			if err == nil {
				err = fs.ErrExist
			} else if notExist(err) {
				continue
			}
		case notExist(err):
			if _, merr := s.fs.Lstat(s.path(markerName)); !notExist(merr) {
				return nil, err // the folder is missing
			}
			err = s.ensureMarker()
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if timer == nil {
			if _, ok := ctx.Deadline(); !ok {
				ctx, cancel = context.WithTimeout(ctx, defaultWait)
				defer cancel()
			}
			timer = time.NewTimer(wait)
			defer timer.Stop()
		} else {
			timer.Reset(wait)
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, &LockedError{Name: lock, Err: context.Cause(ctx)}
		}
	}
}

// renewMarker puts a new file in the marker's place. Locks that are links of
// the old one are no longer known for ours, and go when they are old.
func (s *Store) renewMarker() error {
	if err := s.fs.Remove(s.path(markerName)); err != nil && !notExist(err) {
		return err
	}
	return s.ensureMarker()
}

// unlock removes one of our locks. One that cannot be removed is known for a
// dead one when it is next met.
func (s *Store) unlock(lock string) error {
	if err := s.fs.Remove(s.path(lock)); err != nil && !notExist(err) {
		return err
	}
	return nil
}

// mkdirDurable makes a folder and those above it, each on disk when it
// returns.
func mkdirDurable(f vfs.FS, dir string) error {
	err := f.Mkdir(dir, 0o777)
	if notExist(err) && parent(dir) != "." {
		if err = mkdirDurable(f, parent(dir)); err == nil {
			err = f.Mkdir(dir, 0o777)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.SyncDir(parent(dir))
}
