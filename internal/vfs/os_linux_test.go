package vfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
)

func osImplementations() map[string]func(string) (FS, error) {
	return map[string]func(string) (FS, error){
		"OS":     OS,
		"OSWalk": func(dir string) (FS, error) { return newOS(dir, true) },
	}
}

// A racing symbolic link leads no call out of the root: it either fails or stays
// inside.
func TestSwapStaysInside(t *testing.T) {
	for name, open := range osImplementations() {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			inside, outside := filepath.Join(base, "in"), filepath.Join(base, "out")
			for _, dir := range []string{inside, outside, filepath.Join(inside, "real")} {
				need.NoError(t, os.Mkdir(dir, 0o755))
			}
			need.NoError(t, os.WriteFile(filepath.Join(outside, "f"), []byte("outside"), 0o644))
			need.NoError(t, os.WriteFile(filepath.Join(inside, "real", "f"), []byte("inside"), 0o644))
			need.NoError(t, os.Symlink("../out", filepath.Join(inside, "evil")))
			f, err := open(inside)
			need.NoError(t, err)
			defer f.Close()
			tries := 100_000
			if testing.Short() || name == "OSWalk" {
				tries /= 10
			}
			var race sync.WaitGroup
			stop := make(chan struct{})
			race.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					// "real" is the folder, then the link, then the folder…
					if err := f.Exchange("real", "evil"); err != nil {
						t.Error(err)
						return
					}
				}
			})
			read, refused := 0, 0
			for i := range tries {
				h, err := f.Open("real/f")
				if err == nil {
					buf := make([]byte, 16)
					n, _ := h.Read(buf)
					h.Close()
					if string(buf[:n]) != "inside" {
						t.Fatalf("try %d read %q", i, buf[:n])
					}
					read++
				} else {
					refused++
				}
				switch i % 4 {
				case 0:
					_ = f.Mkdir("real/made", 0o755)
					_ = f.Remove("real/made")
				case 1:
					if h, err := f.CreateUnlinked("real", 0o600); err == nil {
						_ = f.LinkFile(h, "real/linked")
						h.Close()
					}
					_ = f.Remove("real/linked")
				case 2:
					_ = f.Rename("real/f", "real/g")
					_ = f.Rename("real/g", "real/f")
					_ = f.Rename("evil/g", "evil/f")
				case 3:
					if info, err := f.Lstat("real/f"); err == nil && info.Size != int64(len("inside")) {
						t.Fatalf("try %d: %+v", i, info)
					}
					_ = f.Chmod("real/f", 0o600)
				}
				if i%4 == 2 {
					// A rename back may have met the link: make it whole again.
					for _, dir := range []string{"real", "evil"} {
						_ = f.RenameNoReplace(dir+"/g", dir+"/f")
					}
				}
			}
			close(stop)
			race.Wait()
			list, err := os.ReadDir(outside)
			need.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(outside, "f"))
			need.NoError(t, err)
			info, err := os.Stat(filepath.Join(outside, "f"))
			need.NoError(t, err)
			if len(list) != 1 || string(got) != "outside" || info.Mode() != 0o644 {
				t.Fatalf("outside: %v %q %v", list, got, info.Mode())
			}
			if read == 0 || refused == 0 {
				t.Fatalf("no race: %d read, %d refused", read, refused)
			}
		})
	}
}

func TestFIFO(t *testing.T) {
	dir := t.TempDir()
	need.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644))
	f, err := OS(dir)
	need.NoError(t, err)
	defer f.Close()
	h, err := f.Open("pipe")
	need.NoError(t, err)
	defer h.Close()
	info, err := h.Stat()
	need.NoError(t, err)
	if info.Mode.Type() != os.ModeNamedPipe {
		t.Fatal(info.Mode)
	}
	_, err = f.OpenFile("pipe", os.O_WRONLY, 0)
	need.NoError(t, err) // there is a reader
	list, err := f.ReadDir(".")
	need.NoError(t, err)
	if list[0].Type != os.ModeNamedPipe {
		t.Fatal(list)
	}
}

// A magic link of /proc is no way out either, and a mount point is no end.
func TestProcLinks(t *testing.T) {
	for name, open := range osImplementations() {
		t.Run(name, func(t *testing.T) {
			f, err := open("/proc/self")
			need.NoError(t, err)
			defer f.Close()
			if _, err := f.Open("root/etc"); err == nil {
				t.Fatal("followed /proc/self/root")
			}
			if _, err := f.Lstat("fd/0"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The writer of a file, in this process or another, survives the lease.
func TestLeaseAndWriters(t *testing.T) {
	dir := t.TempDir()
	f, err := OS(dir)
	need.NoError(t, err)
	defer f.Close()
	write(t, f, "f", "")
	h, err := f.Open("f")
	need.NoError(t, err)
	defer h.Close()
	cmd := exec.Command("sh", "-c", `i=0; while [ $i -lt 300 ]; do echo $i >>f; i=$((i+1)); done`)
	cmd.Dir = dir
	need.NoError(t, cmd.Start())
	for range 3000 {
		h.Writers()
	}
	need.NoError(t, cmd.Wait())
	if n := strings.Count(read(t, f, "f"), "\n"); n != 300 {
		t.Fatal(n)
	}
	if h.Writers() != No {
		t.Fatal("no process has it open")
	}
	// Mapped for writing, its descriptor closed.
	fd, err := unix.Open(filepath.Join(dir, "f"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	need.NoError(t, err)
	mem, err := unix.Mmap(fd, 0, 10, unix.PROT_WRITE, unix.MAP_SHARED)
	need.NoError(t, err)
	need.NoError(t, unix.Close(fd))
	if h.Writers() != Yes {
		t.Fatal("a writable mapping is not seen")
	}
	need.NoError(t, unix.Munmap(mem))
}

// Close during calls: no call may act on a number that another file got.
func TestCloseRace(t *testing.T) {
	f, err := OS(t.TempDir())
	need.NoError(t, err)
	defer f.Close()
	write(t, f, "mine", "mine")
	write(t, f, "other", "other")
	for range 300 {
		h, err := f.Open("mine")
		need.NoError(t, err)
		var users sync.WaitGroup
		for range 3 {
			users.Go(func() {
				buf := make([]byte, 8)
				for {
					n, err := h.ReadAt(buf, 0)
					if n == 0 && err != nil && err.Error() != "EOF" {
						return
					}
					if string(buf[:n]) != "mine" {
						t.Errorf("read %q", buf[:n])
						return
					}
				}
			})
		}
		need.NoError(t, h.Close())
		o, err := f.Open("other")
		need.NoError(t, err)
		users.Wait()
		need.NoError(t, o.Close())
	}
}

func TestNoDescriptorLeaks(t *testing.T) {
	for name, open := range osImplementations() {
		t.Run(name, func(t *testing.T) {
			f, err := open(t.TempDir())
			need.NoError(t, err)
			before := countFDs(t)
			need.NoError(t, f.Mkdir("d", 0o755))
			for i := range 50 {
				_, _ = f.Open("d/nope")
				_, _ = f.Open("nope/nope")
				_, _ = f.Sub("nope")
				sub, err := f.Sub("d")
				need.NoError(t, err)
				write(t, sub, "f", "x")
				need.NoError(t, sub.Close())
				_ = f.Exchange("d", "d/f")
				_ = f.SyncDir("d")
				_, _ = f.ReadDir("d")
				h, err := f.CreateUnlinked("d", 0o600)
				need.NoError(t, err)
				need.NoError(t, f.LinkFile(h, fmt.Sprint("d/", i)))
				need.NoError(t, h.Close())
			}
			if n := countFDs(t); n != before {
				t.Fatalf("%d descriptors before, %d after", before, n)
			}
			need.NoError(t, f.Close())
			if _, err := f.Lstat("d"); err == nil {
				t.Fatal("closed, and answers")
			}
			if err := f.Close(); err == nil {
				t.Fatal("closed twice")
			}
		})
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	need.NoError(t, err)
	return len(list)
}

// A file system without O_TMPFILE says so: proc has none.
func TestUnsupported(t *testing.T) {
	f, err := OS("/proc")
	need.NoError(t, err)
	defer f.Close()
	_, err = f.CreateUnlinked(".", 0o600)
	wantErr(t, err, syscall.EOPNOTSUPP)
}

func BenchmarkCreateExchange(b *testing.B) {
	for name, open := range map[string]func() (FS, error){
		"OS":     func() (FS, error) { return OS(b.TempDir()) },
		"OSWalk": func() (FS, error) { return newOS(b.TempDir(), true) },
		"OSshm": func() (FS, error) {
			dir, err := os.MkdirTemp("/dev/shm", "vfs")
			b.Cleanup(func() { os.RemoveAll(dir) })
			if err != nil {
				return nil, err
			}
			return OS(dir)
		},
		"OSshmWalk": func() (FS, error) {
			dir, err := os.MkdirTemp("/dev/shm", "vfs")
			b.Cleanup(func() { os.RemoveAll(dir) })
			if err != nil {
				return nil, err
			}
			return newOS(dir, true)
		},
		"Mem": func() (FS, error) { return NewMem(MemOptions{}), nil },
	} {
		b.Run(name, func(b *testing.B) {
			f, err := open()
			need.NoError(b, err)
			defer f.Close()
			need.NoError(b, f.Mkdir("a", 0o755))
			need.NoError(b, f.Mkdir("a/b", 0o755))
			need.NoError(b, f.Mkdir("a/b/c", 0o755))
			write(b, f, "a/b/c/target", "old")
			data := make([]byte, 4096)
			b.ReportAllocs()
			for b.Loop() {
				h, err := f.CreateUnlinked("a/b/c", 0o644)
				need.NoError(b, err)
				_, err = h.Write(data)
				need.NoError(b, err)
				need.NoError(b, f.LinkFile(h, "a/b/c/temp"))
				need.NoError(b, h.Close())
				need.NoError(b, f.Exchange("a/b/c/temp", "a/b/c/target"))
				need.NoError(b, f.Remove("a/b/c/temp"))
			}
		})
	}
}

// A file that is exchanged with one of another tree in the midst of its lookup is
// found all the same: it leads nowhere out.
func TestOpenWhileExchanged(t *testing.T) {
	here, err := OS(t.TempDir())
	need.NoError(t, err)
	defer here.Close()
	there, err := OS(t.TempDir())
	need.NoError(t, err)
	defer there.Close()
	write(t, here, "f", "one")
	write(t, there, "f", "two")
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			if err := here.(Crosser).ExchangeWith("f", there, "f"); err != nil {
				ended <- err
				return
			}
		}
	}()
	for range 200_000 {
		f, err := here.Open("f")
		need.NoError(t, err)
		need.NoError(t, f.Close())
	}
	close(stop)
	need.NoError(t, <-ended)
}
