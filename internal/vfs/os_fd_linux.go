package vfs

import (
	"io/fs"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sharedFD is a descriptor that is closed when it was asked for and the last
// call that uses it has returned, so that a Close during a call can
// never make that call act on a re-used number. os.File has the same, at the
// price of an fcntl and an epoll_ctl for each file opened without blocking.
type sharedFD struct {
	fd    int
	users atomic.Int64 // calls that run, plus fdClosed
}

const fdClosed = 1 << 62

// acquire gives the descriptor; release must follow. fs.ErrClosed after close.
func (s *sharedFD) acquire() (int, error) {
	if s.users.Add(1)&fdClosed != 0 {
		s.release()
		return -1, fs.ErrClosed
	}
	return s.fd, nil
}

func (s *sharedFD) release() {
	if s.users.Add(-1) == fdClosed {
		_ = s.drop()
	}
}

// close gives fs.ErrClosed the second time. The error of close(2) itself adds
// nothing to that of Sync, and is lost if another call still runs.
func (s *sharedFD) close() error {
	for {
		n := s.users.Load()
		if n&fdClosed != 0 {
			return fs.ErrClosed
		}
		if s.users.CompareAndSwap(n, n|fdClosed) {
			if n == 0 {
				return s.drop()
			}
			return nil
		}
	}
}

// drop closes the descriptor once: a failed acquire after the close takes the
// count up and down again, and must not close a number that is another file's.
func (s *sharedFD) drop() error {
	if !s.users.CompareAndSwap(fdClosed, fdClosed|fdClosed>>1) {
		return nil
	}
	return unix.Close(s.fd)
}

// retry repeats a call that a signal interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
