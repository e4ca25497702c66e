package task

import (
	"context"
	"errors"
	"io"
	"os"

	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// Spooled is a request's body, taken in before anything is decided on it: a
// request with an idempotency key is known by its whole body.
type Spooled struct {
	io.ReadSeeker
	Size int64 // bytes

	fs   vfs.FS
	file vfs.File
	name string
}

// Close removes it.
func (s *Spooled) Close() { _ = errors.Join(s.file.Close(), s.fs.Remove(s.name)) }

// Spool reads a body to its end into the data directory. The file is not
// synced: it does not outlive the request.
func (s *Service) Spool(ctx context.Context, body io.Reader) (*Spooled, error) {
	if s.o.Room != nil {
		if err := s.o.Room(1); err != nil {
			return nil, err
		}
	}
	name := areas.TempName()
	f, err := s.o.FS.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	sp := &Spooled{ReadSeeker: f, fs: s.o.FS, file: f, name: name}
	if sp.Size, err = io.Copy(f, areas.Reader{Ctx: ctx, R: body}); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		sp.Close()
		return nil, errs.Wrap(err, "")
	}
	return sp, nil
}
