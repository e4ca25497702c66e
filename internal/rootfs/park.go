package rootfs

import (
	"io/fs"
	"strconv"
	"syscall"

	"umbra/internal/vfs"
)

// Open files are few in a process, and a request may write thousands. Beyond a
// number of them a prepared file is parked: it gets a name in Staging and is
// closed, and each later use opens it for the length of one call.

// descriptorShare is how many prepared files all requests together may hold
// open: a quarter of the process's limit, getrlimit(2).
func descriptorShare() int64 {
	const fallback = 256
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil || lim.Cur < 4 || lim.Cur > 1<<30 {
		return fallback
	}
	return int64(lim.Cur / 4)
}

// Park closes a finished file if more than limit files are open, held being the
// caller's own and this one, or if all requests together hold more than their
// share. It reports whether it did. A file that cannot be parked stays open: one
// that was not prepared in Staging, or one that cannot get a name there.
func (s *Staged) Park(held, limit int) bool {
	st := s.r.staging
	if st == nil || !s.shared || s.name != "" || s.file == nil || held <= limit && st.held.Load() <= st.maxHeld {
		return false
	}
	name := st.parkedName()
	if st.fs.LinkFile(s.file, name) != nil {
		return false
	}
	s.parked, s.closes = name, true
	s.closeFile()
	return true
}

// parkedName gives a name at the top of staging that no directory has.
func (st *Staging) parkedName() string {
	return parkedPrefix + strconv.FormatUint(st.parked.Add(1), 10)
}

// open makes sure that the file is open, and gives what closes it again if it
// was closed. After an error nothing has to be closed.
func (s *Staged) open() (closeAgain func(), err error) {
	opened, err := s.keepOpen()
	if err != nil || !opened {
		return func() {}, err
	}
	return s.closeFile, nil
}

// keepOpen opens the file by its name if it is closed, and reports whether it
// was.
func (s *Staged) keepOpen() (opened bool, err error) {
	if s.file != nil {
		return false, nil
	}
	in, name := s.r.at(s.aside), s.name
	if s.parked != "" {
		in, name = s.r.staging.fs, s.parked
	}
	if name == "" {
		return false, &fs.PathError{Op: "open", Path: "staged file", Err: syscall.ENOENT}
	}
	f, err := in.Open(name)
	if err != nil {
		return false, err
	}
	if info, err := f.Stat(); err != nil || info.Ino != s.ino || info.Dev != s.dev {
		_ = f.Close()
		return false, &fs.PathError{Op: "open", Path: name, Err: syscall.ESTALE}
	}
	s.file = f
	if s.shared {
		s.r.staging.held.Add(1)
	}
	return true, nil
}

// closeFile closes the file and keeps its stat data for Info.
func (s *Staged) closeFile() {
	if s.file == nil {
		return
	}
	if s.closes {
		if info, err := s.file.Stat(); err == nil {
			s.last = info
		} else {
			s.last = vfs.Info{}
		}
	}
	_ = s.file.Close()
	s.file = nil
	if s.shared {
		s.r.staging.held.Add(-1)
	}
}

// unpark removes the name in staging.
func (s *Staged) unpark() {
	if s.parked != "" {
		_ = s.r.staging.fs.Remove(s.parked) // what stays goes at the next start
		s.parked = ""
	}
}

// takeBack parks content that came out again, away from what happens to the
// directory it is in. Where it cannot move there, it is opened instead.
func (s *Staged) takeBack() {
	if s.file != nil || s.name == "" {
		return
	}
	st := s.r.staging
	if c, ok := st.fs.(vfs.Crosser); ok {
		name := st.parkedName()
		if c.MoveFrom(s.r.at(s.aside), s.name, name) == nil {
			s.parked, s.name, s.aside = name, "", false
			return
		}
	}
	_, _ = s.keepOpen()
}
