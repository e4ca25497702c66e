package areas

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"path"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Make makes those of a task's directories that do not exist; made reports
// whether there were any.
func Make(root vfs.FS, id string, names []string) (made bool, err error) {
	for _, name := range append([]string{"."}, names...) {
		err := root.Mkdir(path.Join(id, name), 0o700)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		}
		made = made || err == nil
	}
	return made, nil
}

// Sync makes new folders durable.
func Sync(root vfs.FS, id string) error {
	for _, dir := range []string{id, "."} {
		if err := root.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// Hash gives the blob id of a file's first size bytes. A file that is
// shorter by then is hashed again as what it is.
func Hash(ctx context.Context, r io.ReaderAt, size int64) (object.ID, int64, error) {
	for range 8 {
		if err := ctx.Err(); err != nil {
			return object.Zero, 0, err
		}
		h := object.NewHash(object.Blob, size)
		n, err := io.Copy(h, io.NewSectionReader(r, 0, size))
		if err != nil {
			return object.Zero, 0, err
		}
		if n == size {
			var id object.ID
			h.Sum(id[:0])
			return id, size, nil
		}
		size = n
	}
	return object.Zero, 0, errs.New(errs.Unavailable, "file_changing", "The file keeps changing while it is read.")
}

// Reader is R until Ctx ends.
type Reader struct {
	Ctx context.Context
	R   io.Reader
}

func (r Reader) Read(p []byte) (int, error) {
	if err := r.Ctx.Err(); err != nil {
		return 0, err
	}
	return r.R.Read(p)
}

// TempName returns a name for a file that is being made.
func TempName() string {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return wspath.TempName(binary.BigEndian.Uint64(b[:]))
}
