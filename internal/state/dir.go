package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Format is the version of the data directory's layout that this program
// writes. It is one line of <data-dir>/format.
const Format = 5

// RestoringDir is in a folder while a backup is restored into it.
const RestoringDir = ".umbra-restoring"

const (
	formatFile = "format"
	lockFile   = "lock"
)

// Holder is the process that has a data directory, as its lock file records it.
type Holder struct {
	PID     int    `json:"pid"`
	Address string `json:"address"` // as in the ready line; empty while it starts
}

// HeldError says that another process has the data directory.
type HeldError struct {
	Dir    string
	Holder Holder
}

// Error names the process that holds the directory.
func (e *HeldError) Error() string {
	who := "another process"
	if e.Holder.PID > 0 {
		who = "process " + strconv.Itoa(e.Holder.PID)
	}
	if e.Holder.Address == "" {
		return fmt.Sprintf("data directory %s is held by %s, which is starting or stopping", e.Dir, who)
	}
	return fmt.Sprintf("data directory %s is held by %s, listening on %s", e.Dir, who, e.Holder.Address)
}

// FormatError says that a data directory was written by a newer program.
type FormatError struct {
	Dir   string
	Found string
}

// RestoringError says that a backup is being restored into a folder, or that a
// restore was cut off.
type RestoringError struct{ Dir string }

// Error says what to do.
func (e *RestoringError) Error() string {
	return fmt.Sprintf("data directory %s is being restored, or a restore was cut off: run umbra restore again", e.Dir)
}

// Error names both versions.
func (e *FormatError) Error() string {
	return fmt.Sprintf("data directory %s has format %s, this program knows formats up to %d", e.Dir, e.Found, Format)
}

// Dir is a data directory that this process holds.
type Dir struct {
	Path string // absolute
	lock *os.File
}

// Acquire makes the directory where it is missing (mode 0700), takes its lock
// and checks its format; an older one is brought to this program's. Errors:
// *HeldError, *FormatError, *RestoringError, or the system's.
func Acquire(path string) (*Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		if e, ok := errors.AsType[*os.PathError](err); ok {
			return nil, fmt.Errorf("data directory %s cannot be made: %s: %w", path, e.Path, e.Err)
		}
		return nil, err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if _, err := os.Lstat(filepath.Join(path, RestoringDir)); err == nil {
		return nil, &RestoringError{Dir: path}
	}
	f, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// The kernel gives the lock back when the process dies, however it dies.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			held := &HeldError{Dir: path}
			held.Holder, _ = readHolder(path)
			return nil, held
		}
		return nil, &os.PathError{Op: "flock", Path: f.Name(), Err: err}
	}
	d := &Dir{Path: path, lock: f}
	if err := errors.Join(d.announceFirst(), d.checkFormat()); err != nil {
		_ = d.Release()
		return nil, err
	}
	return d, nil
}

func readHolder(dir string) (h Holder, err error) {
	raw, err := os.ReadFile(filepath.Join(dir, lockFile))
	if err != nil {
		return h, err
	}
	return h, json.Unmarshal(bytes.TrimSpace(raw), &h)
}

// FindHolder reports which running process has a data directory; ok is false
// where none has.
func FindHolder(dir string) (h Holder, ok bool, err error) {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if errors.Is(err, os.ErrNotExist) {
		return h, false, nil
	}
	if err != nil {
		return h, false, err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); err == nil {
		return h, false, nil
	}
	h, err = readHolder(dir)
	return h, err == nil, err
}

// Announce writes where the holder can be reached.
func (d *Dir) Announce(address string) error {
	raw, err := json.Marshal(Holder{PID: os.Getpid(), Address: address})
	if err != nil {
		return err
	}
	return d.write(raw)
}

// announceFirst writes that the holder starts. A lock file that gets its block by that is
// synced: it has it after a power failure, too.
func (d *Dir) announceFirst() error {
	was, err := d.lock.Stat()
	if err == nil {
		err = d.Announce("")
	}
	if err == nil && was.Size() == 0 {
		err = d.lock.Sync()
	}
	return err
}

// write fills the lock file: padded and at once, so that a reader never sees half of it, and
// the next process needs no room for its own.
func (d *Dir) write(text []byte) error {
	line := append(text, bytes.Repeat([]byte{' '}, max(0, 511-len(text)))...)
	_, err := d.lock.WriteAt(append(line, '\n'), 0)
	return err
}

func (d *Dir) checkFormat() error {
	name := filepath.Join(d.Path, formatFile)
	raw, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return writeDurably(name, strconv.Itoa(Format)+"\n")
	}
	if err != nil {
		return err
	}
	found := strings.TrimSpace(string(raw))
	n, err := strconv.Atoi(found)
	if err != nil || n < 1 || n > Format {
		return &FormatError{Dir: d.Path, Found: strconv.QuoteToASCII(found[:min(len(found), 32)])}
	}
	if n == Format {
		return nil
	}
	u := upgrader{dir: d.Path, steps: steps()}
	return u.run(n)
}

// writeDurably makes a file that is there whole or not at all, also after a cut.
func writeDurably(name, text string) error {
	tmp, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already after the rename
	_, err = tmp.WriteString(text)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// Join gives a path in the directory.
func (d *Dir) Join(names ...string) string {
	return filepath.Join(append([]string{d.Path}, names...)...)
}

// Release gives the directory to others.
func (d *Dir) Release() error {
	return errors.Join(d.write(nil), d.lock.Close())
}
