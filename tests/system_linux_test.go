package tests

import (
	"net"
	"runtime"
	"syscall"
	"testing"

	"umbra/internal/need"
)

// as dials as another user: the kernel's socket table has the user of the
// thread that made a socket.
func as(t *testing.T, uid int, address string) net.Conn {
	t.Helper()
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its identity
		if err := syscall.Setfsuid(uid); err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := net.Dial("tcp", address)
		done <- result{conn, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.conn.Close() })
	return r.conn
}

// smallDisk mounts a file system in memory of a size ("96m"), until the test's
// end.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size="+size); err != nil {
		need.Missing(t, "tmpfs cannot be mounted: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return disk
}

// bind shows a directory at another one too, until the test's end.
func bind(t *testing.T, from, at string) {
	t.Helper()
	if err := syscall.Mount(from, at, "", syscall.MS_BIND, ""); err != nil {
		need.Missing(t, "no bind mounts: "+err.Error())
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// freeOf gives how many bytes are free on a folder's file system.
func freeOf(dir string) (int64, error) {
	var st syscall.Statfs_t
	err := syscall.Statfs(dir, &st)
	return int64(st.Bavail) * st.Bsize, err
}
