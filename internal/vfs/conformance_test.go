package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"umbra/internal/need"
)

// eachFS runs a test over every implementation.
func eachFS(t *testing.T, test func(t *testing.T, f FS)) {
	t.Helper()
	t.Run("Mem", func(t *testing.T) { test(t, NewMem(MemOptions{Umask: 0o022})) })
	t.Run("Inject", func(t *testing.T) {
		test(t, Inject(NewMem(MemOptions{Umask: 0o022}), &Hook{Reads: true}))
	})
	for name, open := range osImplementations() {
		t.Run(name, func(t *testing.T) {
			f, err := open(t.TempDir())
			need.NoError(t, err)
			t.Cleanup(func() { need.NoError(t, f.Close()) })
			test(t, f)
		})
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func write(t testing.TB, f FS, name, data string) {
	t.Helper()
	h, err := f.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	need.NoError(t, err)
	_, err = h.Write([]byte(data))
	need.NoError(t, err)
	need.NoError(t, h.Close())
}

func read(t testing.TB, f FS, name string) string {
	t.Helper()
	b, err := ReadFile(f, name)
	need.NoError(t, err)
	return string(b)
}

func names(t testing.TB, f FS, dir string) []string {
	t.Helper()
	list, err := f.ReadDir(dir)
	need.NoError(t, err)
	var names []string
	for _, e := range list {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	return names
}

func TestFiles(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		need.NoError(t, f.Mkdir("d", 0o755))
		h, err := f.OpenFile("d/f", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
		need.NoError(t, err)
		defer h.Close()
		_, err = h.Write([]byte("hello world"))
		need.NoError(t, err)
		_, err = h.WriteAt([]byte("W"), 6)
		need.NoError(t, err)
		pos, err := h.Seek(-5, io.SeekEnd)
		need.NoError(t, err)
		buf := make([]byte, 10)
		n, err := h.Read(buf)
		if pos != 6 || err != nil || string(buf[:n]) != "World" {
			t.Fatalf("at %d read %q, %v", pos, buf[:n], err)
		}
		if _, err := h.Read(buf); err != io.EOF {
			t.Fatalf("read at the end: %v", err)
		}
		if n, err := h.ReadAt(buf, 8); n != 3 || err != io.EOF || string(buf[:n]) != "rld" {
			t.Fatalf("ReadAt: %d %v", n, err)
		}
		_, err = h.WriteAt([]byte("!"), 20)
		need.NoError(t, err)
		need.NoError(t, h.Truncate(5))
		need.NoError(t, h.Truncate(8))
		if got := read(t, f, "d/f"); got != "hello\x00\x00\x00" {
			t.Fatalf("after truncate %q", got)
		}
		need.NoError(t, h.Allocate(16))
		need.NoError(t, h.Allocate(4))
		need.NoError(t, h.Sync())
		need.NoError(t, h.Datasync())
		need.NoError(t, h.StartWriteout())
		need.NoError(t, h.Chmod(0o755))
		info, err := h.Stat()
		need.NoError(t, err)
		if info.Size != 16 || info.Mode != 0o755 || info.Nlink != 1 || info.Ino == 0 || info.MtimeNs == 0 || info.CtimeNs == 0 {
			t.Fatalf("%+v", info)
		}
		byName, err := f.Lstat("d/f")
		need.NoError(t, err)
		if byName != info {
			t.Fatalf("by name %+v, by handle %+v", byName, info)
		}
		need.NoError(t, f.Chmod("d/f", 0o600))
		need.NoError(t, f.SyncDir("d"))
		need.NoError(t, f.SyncDir("."))
	})
}

func TestAppend(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		write(t, f, "f", "one")
		h, err := f.OpenFile("f", os.O_WRONLY|os.O_APPEND, 0)
		need.NoError(t, err)
		defer h.Close()
		_, err = h.Write([]byte("two"))
		need.NoError(t, err)
		_, err = h.WriteAt([]byte("x"), 0)
		wantErr(t, err, syscall.EINVAL)
		_, err = h.Read(make([]byte, 1))
		wantErr(t, err, syscall.EBADF)
		if got := read(t, f, "f"); got != "onetwo" {
			t.Fatal(got)
		}
	})
}

func TestClosedFile(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		write(t, f, "f", "x")
		h, err := f.Open("f")
		need.NoError(t, err)
		need.NoError(t, h.Close())
		wantErr(t, h.Close(), fs.ErrClosed)
		_, err = h.Stat()
		wantErr(t, err, fs.ErrClosed)
		_, err = h.ReadAt(make([]byte, 1), 0)
		wantErr(t, err, fs.ErrClosed)
		wantErr(t, h.Sync(), fs.ErrClosed)
	})
}

func TestUnlinked(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		need.NoError(t, f.Mkdir("d", 0o755))
		need.NoError(t, f.Mkdir("e", 0o755))
		h, err := f.CreateUnlinked("d", 0o644)
		need.NoError(t, err)
		defer h.Close()
		_, err = h.Write([]byte("data"))
		need.NoError(t, err)
		if n := names(t, f, "d"); len(n) != 0 {
			t.Fatal(n)
		}
		info, err := h.Stat()
		need.NoError(t, err)
		if info.Nlink != 0 {
			t.Fatalf("%+v", info)
		}
		need.NoError(t, f.LinkFile(h, "e/f"))
		wantErr(t, f.LinkFile(h, "e/f"), syscall.EEXIST)
		need.NoError(t, f.LinkFile(h, "e/g"))
		linked, err := f.Lstat("e/f")
		need.NoError(t, err)
		if linked.Ino != info.Ino || linked.Nlink != 2 || read(t, f, "e/g") != "data" {
			t.Fatalf("%+v", linked)
		}
		need.NoError(t, f.Remove("e/f"))
		need.NoError(t, f.Remove("e/g"))
		wantErr(t, f.LinkFile(h, "e/f"), syscall.ENOENT)
		_, err = f.CreateUnlinked("nope", 0o644)
		wantErr(t, err, syscall.ENOENT)
		_, err = f.CreateUnlinked("e/../d", 0o644)
		wantErr(t, err, syscall.EINVAL)
	})
}

func TestRenames(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		need.NoError(t, f.Mkdir("d", 0o755))
		need.NoError(t, f.Mkdir("d/sub", 0o755))
		write(t, f, "a", "A")
		write(t, f, "d/b", "B")
		wantErr(t, f.RenameNoReplace("a", "d/b"), syscall.EEXIST)
		need.NoError(t, f.Exchange("a", "d/b"))
		if read(t, f, "a") != "B" || read(t, f, "d/b") != "A" {
			t.Fatal("not exchanged")
		}
		wantErr(t, f.Exchange("a", "nope"), syscall.ENOENT)
		wantErr(t, f.Exchange("d", "d/sub"), syscall.EINVAL)
		wantErr(t, f.Exchange("d/sub", "d"), syscall.EINVAL)
		if errors.Is(f.Exchange("d", "d/b"), errors.ErrUnsupported) {
			t.Fatal("a directory into itself is not a lack of exchange")
		}
		wantErr(t, f.Rename("d", "d/sub/d"), syscall.EINVAL)
		wantErr(t, f.RenameNoReplace("d", "d/sub/d"), syscall.EINVAL)
		wantErr(t, f.Rename("a", "d"), syscall.EISDIR)
		wantErr(t, f.Rename("d", "a"), syscall.ENOTDIR)
		wantErr(t, f.Rename("d/sub", "a/x"), syscall.ENOTDIR)
		need.NoError(t, f.Mkdir("e", 0o755))
		wantErr(t, f.Rename("e", "d"), syscall.ENOTEMPTY)
		need.NoError(t, f.Exchange("d", "a"))
		if read(t, f, "a/b") != "A" || read(t, f, "d") != "B" {
			t.Fatal("file and folder not exchanged")
		}
		need.NoError(t, f.Rename("a", "e"))
		need.NoError(t, f.RenameNoReplace("e", "n"))
		need.NoError(t, f.Rename("d", "n/b"))
		if got := fmt.Sprint(names(t, f, "."), names(t, f, "n"), " ", read(t, f, "n/b")); got != "[n] [b sub] B" {
			t.Fatal(got)
		}
		wantErr(t, f.Remove("n"), syscall.ENOTEMPTY)
		need.NoError(t, f.Remove("n/b"))
		need.NoError(t, f.Remove("n/sub"))
		need.NoError(t, f.Remove("n"))
		wantErr(t, f.Remove("n"), syscall.ENOENT)
	})
}

func TestLinks(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		need.NoError(t, f.Mkdir("d", 0o755))
		need.NoError(t, f.Mkdir("d/e", 0o755))
		write(t, f, "d/f", "F")
		need.NoError(t, f.Symlink("d", "l"))
		need.NoError(t, f.Symlink("../f", "d/e/up"))
		need.NoError(t, f.Symlink("../../x", "d/out"))
		need.NoError(t, f.Symlink("/etc", "abs"))
		need.NoError(t, f.Symlink("loop", "loop"))
		if got := read(t, f, "l/f"); got != "F" {
			t.Fatal(got)
		}
		_, err := f.Open("d/e/up")
		wantErr(t, err, syscall.ELOOP)
		info, err := f.Stat("d/e/up")
		need.NoError(t, err)
		plain, err := f.Lstat("d/f")
		need.NoError(t, err)
		if info != plain {
			t.Fatalf("%+v %+v", info, plain)
		}
		for _, name := range []string{"d/out/x", "abs/passwd", "abs/nope"} {
			_, err := f.Open(name)
			wantErr(t, err, ErrEscapes)
			wantErr(t, err, syscall.EXDEV)
			wantErr(t, f.Mkdir(name, 0o755), ErrEscapes)
			wantErr(t, f.Exchange(name, "d"), ErrEscapes)
			wantErr(t, f.Exchange("d", name), ErrEscapes)
			_, err = f.Lstat(name)
			wantErr(t, err, ErrEscapes)
		}
		_, err = f.Stat("abs")
		wantErr(t, err, ErrEscapes)
		_, err = f.Sub("abs")
		wantErr(t, err, ErrEscapes)
		_, err = f.CreateUnlinked("abs", 0o600)
		wantErr(t, err, ErrEscapes)
		wantErr(t, f.SyncDir("abs"), ErrEscapes)
		_, err = f.Open("loop/x")
		wantErr(t, err, syscall.ELOOP)
		target, err := f.Readlink("d/e/up")
		if err != nil || target != "../f" {
			t.Fatal(target, err)
		}
		long := strings.Repeat("x/", 300)
		need.NoError(t, f.Symlink(long, "long"))
		target, err = f.Readlink("long")
		if err != nil || target != long {
			t.Fatal(target, err)
		}
		_, err = f.Readlink("d/f")
		wantErr(t, err, syscall.EINVAL)
		_, err = f.ReadDir("l")
		wantErr(t, err, syscall.ENOTDIR)
		wantErr(t, f.Chmod("l", 0o700), errors.ErrUnsupported)
		need.NoError(t, f.SyncDir("l"))

		need.NoError(t, f.Link("d/f", "hard"))
		need.NoError(t, f.Link("l", "l2"))
		info, err = f.Lstat("hard")
		need.NoError(t, err)
		if info.Ino != plain.Ino || info.Nlink != 2 {
			t.Fatalf("%+v", info)
		}
		info, err = f.Lstat("l2")
		need.NoError(t, err)
		if !info.IsSymlink() || info.Nlink != 2 {
			t.Fatalf("%+v", info)
		}
		wantErr(t, f.Link("d", "d2"), syscall.EPERM)
		wantErr(t, f.Link("hard", "d/f"), syscall.EEXIST)
		need.NoError(t, f.Rename("hard", "d/f"))
		if _, err := f.Lstat("hard"); err != nil {
			t.Fatal("a rename between two names of one file does nothing:", err)
		}
	})
}

func TestBadNames(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		need.NoError(t, f.Mkdir("d", 0o755))
		write(t, f, "f", "")
		for _, name := range []string{"", "/", "/f", "..", "d/..", "../f", "d/", "d//f", "./f", "d/.", "f\x00"} {
			_, err := f.Open(name)
			wantErr(t, err, syscall.EINVAL)
			_, err = f.Lstat(name)
			wantErr(t, err, syscall.EINVAL)
			_, err = f.ReadDir(name)
			wantErr(t, err, syscall.EINVAL)
			_, err = f.Sub(name)
			wantErr(t, err, syscall.EINVAL)
			wantErr(t, f.Rename("f", name), syscall.EINVAL)
			wantErr(t, f.Exchange(name, "f"), syscall.EINVAL)
			wantErr(t, f.Remove(name), syscall.EINVAL)
			wantErr(t, f.Mkdir(name, 0o755), syscall.EINVAL)
			wantErr(t, f.SyncDir(name), syscall.EINVAL)
		}
		wantErr(t, f.Remove("."), syscall.EINVAL)
		wantErr(t, f.Rename("d", "."), syscall.EINVAL)
		wantErr(t, f.Mkdir(".", 0o755), syscall.EEXIST)
		wantErr(t, f.Mkdir(strings.Repeat("x", 256), 0o755), syscall.ENAMETOOLONG)
		wantErr(t, f.Rename("f", strings.Repeat("x", 256)), syscall.ENAMETOOLONG)
		_, err := f.OpenFile(".", os.O_RDWR|os.O_CREATE, 0o644)
		wantErr(t, err, syscall.EISDIR)
		_, err = f.OpenFile("d", os.O_WRONLY, 0)
		wantErr(t, err, syscall.EISDIR)
		_, err = f.Open("f/x")
		wantErr(t, err, syscall.ENOTDIR)
		wantErr(t, f.SyncDir("f"), syscall.ENOTDIR)
	})
}

func TestAnyBytesAreNames(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		odd := []string{"a\nb", "\xff\xfe", " ", "\t", "caf\xe9", "-rf", "\x01", "a\\b", "...", strings.Repeat("\xff", 255)}
		for _, name := range odd {
			need.NoError(t, f.Mkdir("d"+name[1:], 0o755))
			need.NoError(t, f.Remove("d"+name[1:]))
			write(t, f, name, name)
		}
		for _, name := range odd {
			if got := read(t, f, name); got != name {
				t.Fatalf("%q holds %q", name, got)
			}
		}
		slices.Sort(odd)
		if got := names(t, f, "."); !slices.Equal(got, odd) {
			t.Fatalf("%q", got)
		}
	})
}

func TestSub(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		need.NoError(t, f.Mkdir("d", 0o755))
		need.NoError(t, f.Mkdir("d/e", 0o755))
		write(t, f, "top", "")
		need.NoError(t, f.Symlink("../top", "d/up"))
		need.NoError(t, f.Symlink("d/e", "l"))
		sub, err := f.Sub("d")
		need.NoError(t, err)
		write(t, sub, "e/f", "F")
		if got := read(t, f, "l/f"); got != "F" {
			t.Fatal(got)
		}
		if _, err := f.Stat("d/up"); err != nil {
			t.Fatal(err)
		}
		_, err = sub.Stat("up")
		wantErr(t, err, ErrEscapes)
		need.NoError(t, f.Rename("d", "moved"))
		if got := read(t, sub, "e/f"); got != "F" {
			t.Fatal("a Sub follows its directory")
		}
		viaLink, err := f.Sub("moved/e")
		need.NoError(t, err)
		need.NoError(t, viaLink.Close())
		need.NoError(t, sub.Remove("e/f"))
		need.NoError(t, sub.Remove("e"))
		need.NoError(t, sub.Remove("up"))
		need.NoError(t, f.Remove("moved"))
		wantErr(t, sub.Mkdir("x", 0o755), syscall.ENOENT)
		_, err = sub.OpenFile("x", os.O_CREATE|os.O_WRONLY, 0o644)
		wantErr(t, err, syscall.ENOENT)
		need.NoError(t, sub.Close())
		_, err = f.Sub("top")
		wantErr(t, err, syscall.ENOTDIR)
	})
}

func TestWriters(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		write(t, f, "f", "x")
		reader, err := f.Open("f")
		need.NoError(t, err)
		defer reader.Close()
		other, err := f.Open("f")
		need.NoError(t, err)
		defer other.Close()
		if reader.Writers() != No {
			t.Fatal("no process has it open for writing")
		}
		writer, err := f.OpenFile("f", os.O_WRONLY, 0)
		need.NoError(t, err)
		if reader.Writers() != Yes || other.Writers() != Yes || writer.Writers() != Yes {
			t.Fatal("a writer is not seen")
		}
		need.NoError(t, writer.Close())
		if reader.Writers() != No {
			t.Fatal("the writer is gone")
		}
	})
}

func TestDirTypes(t *testing.T) {
	eachFS(t, func(t *testing.T, f FS) {
		need.NoError(t, f.Mkdir("d", 0o755))
		write(t, f, "f", "")
		need.NoError(t, f.Symlink("f", "l"))
		list, err := f.ReadDir(".")
		need.NoError(t, err)
		types := map[string]fs.FileMode{}
		for _, e := range list {
			types[e.Name] = e.Type
		}
		want := map[string]fs.FileMode{"d": fs.ModeDir, "f": 0, "l": fs.ModeSymlink}
		if fmt.Sprint(types) != fmt.Sprint(want) {
			t.Fatal(types)
		}
		for i := range 1500 {
			need.NoError(t, f.Symlink("x", fmt.Sprintf("d/%0100d", i)))
		}
		if n := names(t, f, "d"); len(n) != 1500 {
			t.Fatal(len(n))
		}
	})
}
