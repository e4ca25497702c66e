package errs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// System errors get the kind and code of what they mean for a path that another
// process changes.
func TestSystemErrors(t *testing.T) {
	dir := t.TempDir()
	_, missing := os.Open(filepath.Join(dir, "absent"))
	_, noLink := os.Readlink(dir)
	for _, c := range []struct {
		err  error
		kind Kind
		code string
	}{
		{missing, NotFound, "not_found"},
		{noLink, Conflict, "file_changing"},
		{fmt.Errorf("read: %w", noLink), Conflict, "file_changing"},
		{&fs.PathError{Op: "open", Path: "a", Err: syscall.ELOOP}, Conflict, "file_changing"},
		{&fs.PathError{Op: "open", Path: "a", Err: syscall.ENOTDIR}, Conflict, "not_a_directory"},
		{&fs.PathError{Op: "open", Path: "a", Err: syscall.EINVAL}, Internal, "internal_error"},
		{&fs.PathError{Op: "rename", Path: "a", Err: syscall.EXDEV}, Conflict, "crosses_file_systems"},
	} {
		if kind, code := KindOf(c.err), CodeOf(Wrap(c.err, "")); kind != c.kind || code != c.code {
			t.Errorf("%v: %v %s, want %v %s", c.err, kind, code, c.kind, c.code)
		}
	}
}
