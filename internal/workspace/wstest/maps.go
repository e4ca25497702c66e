package wstest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
	"umbra/internal/vfs"
)

// Must fails the test at an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// WriteDisk puts a file onto a disk as a user does: bytes, or a link after "->".
func WriteDisk(t testing.TB, f vfs.FS, name, data string) {
	t.Helper()
	Mkdirs(t, f, path.Dir(strings.TrimSuffix(name, "/")))
	switch {
	case strings.HasSuffix(name, "/"):
		Mkdirs(t, f, strings.TrimSuffix(name, "/"))
		return
	case strings.HasPrefix(data, "->"):
		Must(t, f.Symlink(data[2:], name))
		return
	}
	h, err := f.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	Must(t, err)
	_, err = h.Write([]byte(data))
	Must(t, err)
	Must(t, h.Sync())
	Must(t, h.Close())
	Must(t, f.SyncDir(path.Dir(name)))
}

// Mkdirs makes a directory and those above it, durably.
func Mkdirs(t testing.TB, f vfs.FS, dir string) {
	t.Helper()
	if dir == "." {
		return
	}
	Mkdirs(t, f, path.Dir(dir))
	if err := f.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	Must(t, f.SyncDir(path.Dir(dir)))
}

// InFolder gives what a folder holds: bytes of Files, "->" and the target of links,
// "/" for empty folders. Temporary Files and .git show as they are.
func InFolder(t testing.TB, f vfs.FS, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	diskInto(t, f, dir, "", out)
	return out
}

func diskInto(t testing.TB, f vfs.FS, at, name string, out map[string]string) {
	list, err := f.ReadDir(at)
	Must(t, err)
	if len(list) == 0 && name != "" {
		out[name+"/"] = "/"
	}
	for _, e := range list {
		full, p := at+"/"+e.Name, path.Join(name, e.Name)
		switch {
		case e.Type.IsDir():
			diskInto(t, f, full, p, out)
		case e.Type&fs.ModeSymlink != 0:
			target, err := f.Readlink(full)
			Must(t, err)
			out[p] = "->" + target
		case e.Type.IsRegular():
			info, err := f.Lstat(full)
			Must(t, err)
			data, err := vfs.ReadFile(f, full)
			Must(t, err)
			if info.Mode&0o100 != 0 {
				p += "*"
			}
			out[p] = string(data)
		default:
			out[p] = "special"
		}
	}
}

func Files(m map[string]string) map[string]string {
	out := make(map[string]string)
	for k, v := range m {
		if !strings.HasSuffix(k, "/") {
			out[k] = v
		}
	}
	return out
}

func DiffMaps(disk, tree map[string]string) string {
	var s strings.Builder
	for k, v := range disk {
		if got, ok := tree[k]; !ok {
			fmt.Fprintf(&s, "%q (%.40q) is on disk only\n", k, v)
		} else if got != v {
			fmt.Fprintf(&s, "%q is %.40q on disk, %.40q in history\n", k, v, got)
		}
	}
	for k, v := range tree {
		if _, ok := disk[k]; !ok {
			fmt.Fprintf(&s, "%q (%.40q) is in history only\n", k, v)
		}
	}
	return s.String()
}
