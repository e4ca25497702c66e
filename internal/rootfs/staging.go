package rootfs

import (
	"errors"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"umbra/internal/vfs"
)

// Staging is a folder of the server's own in which new content is prepared, for
// all workspaces on its file system. Compared with the target's own folder it has two
// merits: it is not watched, so that preparing wakes up no watcher, ours or
// another's; and it can be anywhere on the disk. ext4 without a journal passes
// over every inode that was deleted in the last minutes, one by one, when it
// looks for a free one in a folder's block group (find_inode_bit in
// fs/ext4/ialloc.c): where files are replaced often, making one costs hundreds
// of microseconds. Staging goes on in another folder then, in another group.
//
// Nothing in it has a name but files that are parked (Staged.Park), and those are
// removed at the next start: what is prepared is gone after a crash. All methods
// may be called concurrently.
type Staging struct {
	fs  vfs.FS
	dev uint64
	now func() time.Time

	held    atomic.Int64  // prepared files that are open
	maxHeld int64         // beyond it the next ones are parked
	parked  atomic.Uint64 // number of the last file that got a name here

	mu         sync.Mutex
	dir        string // where files are made now
	made, slow int    // of them there, in this window
	last       uint64 // number of the last folder made
}

// A folder is left when half of a window's files were slow to make. A calm ext4
// or xfs takes about 10 microseconds.
const (
	stagingWindow = 64
	stagingSlow   = 50 * time.Microsecond
)

// spreader is an FS that can place the folders in a folder far from each other on
// the disk.
type spreader interface {
	Spread(dir string) error
}

// plainer is what an FS offers that can report whether a file made in a folder
// would be any different from one made elsewhere on that device.
type plainer interface {
	Plain(dir string) (dev uint64, plain bool, err error)
}

// OpenStaging takes over a folder, and closes it in the end; what a stop left in
// it is removed, and nothing else: a link may lead to a user's directory.
func OpenStaging(f vfs.FS) (*Staging, error) {
	info, err := f.Lstat(".")
	if err != nil {
		return nil, err
	}
	left, err := f.ReadDir(".")
	if err != nil {
		return nil, err
	}
	for _, e := range left {
		if !staged(e.Name) {
			continue
		}
		if err := f.Remove(e.Name); err != nil {
			return nil, err
		}
	}
	if s, ok := f.(spreader); ok {
		_ = s.Spread(".") // else they are where the system puts them
	}
	return &Staging{fs: f, dev: info.Dev, now: time.Now, dir: ".", maxHeld: descriptorShare()}, nil
}

// parkedPrefix begins the names of files that gave their descriptor up (Staged.Park).
const parkedPrefix = "parked-"

// staged reports whether a name is one that files and directories get here.
func staged(name string) bool {
	_, err := strconv.ParseUint(strings.TrimPrefix(name, parkedPrefix), 10, 64)
	return err == nil
}

// Close gives the folder free. Files that were made stay usable.
func (s *Staging) Close() error { return s.fs.Close() }

// create makes a file without a name.
func (s *Staging) create() (vfs.File, error) {
	for {
		s.mu.Lock()
		dir := s.dir
		s.mu.Unlock()
		began := s.now()
		f, err := s.fs.CreateUnlinked(dir, 0o600)
		if err == nil {
			s.took(dir, s.now().Sub(began))
			return f, nil
		}
		s.mu.Lock()
		left := s.dir != dir
		s.mu.Unlock()
		if !left || !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// took notes what a file's making took, and leaves a folder that is slow.
func (s *Staging) took(dir string, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if dir != s.dir {
		return
	}
	s.made++
	if d > stagingSlow {
		s.slow++
	}
	if s.made < stagingWindow {
		return
	}
	slow := s.slow > stagingWindow/2
	s.made, s.slow = 0, 0
	if !slow {
		return
	}
	s.last++
	next := strconv.FormatUint(s.last, 10)
	if s.fs.Mkdir(next, 0o700) != nil {
		return
	}
	if s.dir = next; dir != "." {
		_ = s.fs.Remove(dir) // one that is left goes at the next start
	}
}
