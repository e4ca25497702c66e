package journal

import (
	"errors"
	"io"
	"os"
	"path"

	"umbra/internal/vfs"
)

// CopyFile writes a durable file of a workspace's directory in one step, in place of
// one that exists. It is prepared among the journals.
func CopyFile(to vfs.FS, name string, from io.Reader) error {
	temp := path.Join(Dir, "tmp-"+path.Base(name))
	f, err := to.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o444)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return to.Rename(temp, name)
}
