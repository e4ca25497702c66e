package browse

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"umbra/internal/vfs"
)

// rewriting is a file system on which another process rewrites a file in place, to
// the same size, while it is read for the first time.
type rewriting struct {
	vfs.FS
	left int
}

func (r *rewriting) Open(name string) (vfs.File, error) {
	f, err := r.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &rewritten{f, r}, nil
}

type rewritten struct {
	vfs.File
	fs *rewriting
}

func (f *rewritten) ReadAt(b []byte, off int64) (int, error) {
	if f.fs.left > 0 {
		f.fs.left--
		return 0, io.EOF // it is empty just now
	}
	return f.File.ReadAt(b, off)
}

// A file that is truncated and written again while it is opened is read once more.
func TestOpenRewrittenFile(t *testing.T) {
	r, dir := ahead(t)
	must(t, os.WriteFile(filepath.Join(dir, "f"), []byte("text"), 0o644))
	r.disk.FS = &rewriting{FS: r.disk.FS, left: 2}
	o, err := r.OpenFile(t.Context(), "f")
	must(t, err)
	defer o.Close()
	if text, err := io.ReadAll(io.NewSectionReader(o, 0, o.Info.Size)); err != nil || string(text) != "text" {
		t.Errorf("%q, %v", text, err)
	}
}
