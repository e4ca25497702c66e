package datadir

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"umbra/internal/state"
)

// ownerFile, in the data directory, holds the secret by which the owner's own
// verbs get in where tokens are on: who may read it (0600, in a folder of
// 0700) could read everything else there too. Each start makes a new one.
const ownerFile = "owner"

// NewOwner makes the secret and writes it: over the one of the start before, at once, so
// that a reader never sees half of it and a full disk is no reason not to start.
func NewOwner(dir *state.Dir) (string, error) {
	secret := rand.Text() + rand.Text() // 130 bits each
	line := []byte(secret + "\n")
	is, err := os.Lstat(dir.Join(ownerFile))
	if err != nil || is.Mode() != 0o600 || is.Size() != int64(len(line)) {
		return secret, replaceOwner(dir, line)
	}
	f, err := os.OpenFile(dir.Join(ownerFile), os.O_WRONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return secret, err
	}
	_, err = f.WriteAt(line, 0)
	return secret, errors.Join(err, f.Close())
}

// replaceOwner makes the file, durably: the next start writes over it.
func replaceOwner(dir *state.Dir, line []byte) error {
	f, err := os.CreateTemp(dir.Path, "."+ownerFile+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already after the rename
	_, err = f.Write(line)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), dir.Join(ownerFile))
}

// ReadOwner gives the secret of the server that holds a data directory; empty
// where there is none to be read, as for a server without tokens none is needed.
func ReadOwner(dir string) (string, error) {
	raw, err := os.ReadFile(filepath.Join(dir, ownerFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return "", nil
	}
	return strings.TrimSpace(string(raw)), err
}
