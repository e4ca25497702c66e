package agentconf

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"umbra/internal/vfs"
)

// create writes a new file durably, with the mode and owner of an existing one, or with
// a mode that the umask narrows. One that cannot have that owner is an error.
func (s *Store) create(path string, flag int, text []byte, like fs.FileInfo, mode fs.FileMode) error {
	s.step()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|flag, mode)
	if err != nil {
		return err
	}
	s.step()
	_, err = f.Write(text)
	s.step()
	if like != nil {
		err = errors.Join(err, chown(f, like), f.Chmod(like.Mode().Perm()))
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// chown gives a file the owner and group of another one.
func chown(f *os.File, like fs.FileInfo) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	have, ok1 := info.Sys().(*syscall.Stat_t)
	want, ok2 := like.Sys().(*syscall.Stat_t)
	if !ok1 || !ok2 || have.Uid == want.Uid && have.Gid == want.Gid {
		return nil
	}
	if f.Chown(int(want.Uid), int(want.Gid)) != nil {
		return errors.New("it belongs to another user or group")
	}
	return nil
}

// rename puts a file in the place of another, durably.
func (s *Store) rename(from, to string) error {
	s.step()
	if err := os.Rename(from, to); err != nil {
		return err
	}
	s.step()
	return syncDir(filepath.Dir(to))
}

func (s *Store) remove(path string) error {
	s.step()
	return os.Remove(path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) { // a file system that cannot
		err = nil
	}
	return errors.Join(err, d.Close())
}

// tempName is a name for the file that takes the place of another.
func tempName(path string) string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".umbra-"+hex.EncodeToString(b[:]))
}

// missingDirs lists the directories that do not exist, the deepest first.
func missingDirs(dir string) (list []string) {
	for at := dir; at != filepath.Dir(at); at = filepath.Dir(at) {
		if _, err := os.Lstat(at); err == nil {
			break
		}
		list = append(list, at)
	}
	return list
}

// removeDirs removes directories that are empty. Another file's record is given those
// that are not, and that are removed with that one.
func (s *Store) removeDirs(records map[string]record, list []string) {
	for _, dir := range list {
		if err := s.remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			handOver(records, dir)
		}
	}
}

var errMeanwhile = errors.New("it was changed in the meantime")

// make changes the file. What it replaces is compared once more after it has been
// replaced.
func (s *Store) make(d *doing, c *Change, at string, like fs.FileInfo) error {
	for _, dir := range slices.Backward(d.Made) {
		s.step()
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if d.After != "" {
		if err := s.create(d.Temp, os.O_EXCL, c.After, like, 0o644); err != nil {
			return err
		}
	}
	// The agent may have written meanwhile.
	if to, err := target(c.Path); err != nil || to != at {
		return errors.Join(err, errMeanwhile)
	}
	if same, err := c.unchanged(at); err != nil || !same {
		return errors.Join(err, errMeanwhile)
	}
	if err := s.swap(d); err != nil {
		return err
	}
	if _, stray := d.done(); stray {
		return errors.Join(s.takeBack(d), errMeanwhile)
	}
	if err := s.remove(d.Temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.step()
	return syncDir(filepath.Dir(at))
}

// swap puts Temp in the place of the file, and the file in that of Temp, as far as there
// are such.
func (s *Store) swap(d *doing) error {
	dir, err := vfs.OS(filepath.Dir(d.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	s.step()
	name, temp := filepath.Base(d.Path), filepath.Base(d.Temp)
	switch {
	case d.After == "":
		err = dir.RenameNoReplace(name, temp)
	case d.Was == "":
		err = dir.RenameNoReplace(temp, name)
	default:
		err = dir.Exchange(temp, name)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return errMeanwhile
	case !errors.Is(err, errors.ErrUnsupported):
		return err
	case d.After == "":
		return os.Remove(d.Path)
	}
	return os.Rename(d.Temp, d.Path)
}

// takeBack gives the file back what the agent had written after the plan.
func (s *Store) takeBack(d *doing) error {
	back := doing{Path: d.Path, Temp: d.Temp, Was: d.After, After: "stray"}
	if err := s.swap(&back); err != nil {
		return err
	}
	return syncDir(filepath.Dir(d.Path))
}
