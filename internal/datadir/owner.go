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

// NewOwner makes the secret and writes it. On a full disk it overwrites the file of
// the start before, which needs no space.
func NewOwner(dir *state.Dir) (string, error) {
	secret := rand.Text() + rand.Text() // 130 bits each
	err := replaceOwner(dir, secret)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		var f *os.File
		if f, err = os.OpenFile(dir.Join(ownerFile), os.O_WRONLY, 0); err == nil {
			_, err = f.WriteAt([]byte(secret+"\n"), 0)
			err = errors.Join(err, f.Close())
		}
	}
	return secret, err
}

func replaceOwner(dir *state.Dir, secret string) error {
	f, err := os.CreateTemp(dir.Path, "."+ownerFile+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // gone already after the rename
	_, err = f.WriteString(secret + "\n")
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
