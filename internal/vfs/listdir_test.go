package vfs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"umbra/internal/need"
	"umbra/internal/vfs"
)

// Both ways of ListDir give the same result: by one handle, and by ReadDir and
// Lstat.
func TestListDir(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a/sub"), 0o755), os.WriteFile(filepath.Join(dir, "a/f"), []byte("four"), 0o644),
		os.Symlink("a", filepath.Join(dir, "link")), os.Symlink("f", filepath.Join(dir, "a/l"))); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS(dir)
	need.NoError(t, err)
	defer f.Close()
	for _, way := range []vfs.FS{f, vfs.Inject(f, &vfs.Hook{})} {
		var got []string
		err := vfs.ListDir(way, "a", func(entries []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
			for _, e := range entries {
				info, err := lstat(e.Name)
				if err != nil || info.Mode.Type() != e.Type {
					t.Errorf("%s: %+v, %v", e.Name, info, err)
				}
				want, err := way.Lstat("a/" + e.Name)
				if err != nil || info != want {
					t.Errorf("%s: %+v, Lstat says %+v, %v", e.Name, info, want, err)
				}
				got = append(got, e.Name)
			}
			for _, bad := range []string{"..", ".", "sub/x", "", "/"} {
				if _, err := lstat(bad); err == nil {
					t.Errorf("lstat(%q) is no error", bad)
				}
			}
			if _, err := lstat("gone"); !errors.Is(err, syscall.ENOENT) {
				t.Error(err)
			}
			return fmt.Errorf("mine")
		})
		slices.Sort(got)
		if !slices.Equal(got, []string{"f", "l", "sub"}) || err == nil || err.Error() != "mine" {
			t.Errorf("%q, %v", got, err)
		}
		for name, want := range map[string]error{"none": syscall.ENOENT, "a/f": syscall.ENOTDIR, "../": syscall.EINVAL} {
			err := vfs.ListDir(way, name, func([]vfs.DirEntry, func(string) (vfs.Info, error)) error { return nil })
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	// As O_DIRECTORY with O_NOFOLLOW answers: no folder, or a loop.
	if err := vfs.ListDir(f, "link", func([]vfs.DirEntry, func(string) (vfs.Info, error)) error { return nil }); !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.ELOOP) {
		t.Error(err)
	}
}
