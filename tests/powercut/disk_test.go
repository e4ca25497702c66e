package powercut

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
)

// disk is a file system in an image, mounted through a loop device.
type disk struct {
	t     testing.TB
	image string
	mount string
	opts  string // of mount(8)
	up    bool
	// killOnly is a folder of the machine's own disk, for a kill in place of a
	// power cut.
	killOnly bool
}

const imageSize = 400 << 20

// newDisk makes a file system of a kind ("ext4", "xfs") and mounts it.
func newDisk(t testing.TB, kind string) *disk {
	t.Helper()
	need.Root(t)
	mkfs := need.Tool(t, "mkfs."+kind)
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		need.Missing(t, "there are no loop devices")
	}
	top := t.TempDir()
	d := &disk{t: t, image: filepath.Join(top, "image"), mount: filepath.Join(top, "mnt"), opts: "loop"}
	if kind == "xfs" {
		d.opts += ",nouuid" // see release: the former image may still be mounted elsewhere
	}
	f, err := os.Create(d.image)
	if err == nil {
		err = f.Truncate(imageSize)
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = os.Mkdir(d.mount, 0o755)
	}
	need.NoError(t, err)
	args := []string{"-q", d.image}
	if kind == "ext4" {
		args = []string{"-q", "-F", d.image}
	}
	d.run(mkfs, args...)
	d.attach()
	t.Cleanup(func() {
		if d.up {
			exec.Command("umount", "-l", d.mount).Run() // whatever a failed test left
		}
	})
	return d
}

func (d *disk) run(name string, args ...string) {
	d.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		d.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func (d *disk) attach() {
	d.t.Helper()
	d.run("mount", "-o", d.opts, d.image, d.mount)
	d.up = true
}

// cut takes the power away: the file system stops at once, and what its log
// holds in memory never reaches the disk (EXT4_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN:
// _IOR('X', 125, __u32), 2 = no flush of the log).
func (d *disk) cut() {
	d.t.Helper()
	const shutdown, noLogFlush = 0x8004587d, 2
	f, err := os.Open(d.mount)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), shutdown, noLogFlush); err != nil {
		d.t.Fatalf("shutdown: %v", err)
	}
}

// reattach mounts the file system again, which replays its log.
func (d *disk) reattach() {
	d.t.Helper()
	if d.killOnly {
		return
	}
	var out bytes.Buffer
	for end := time.Now().Add(10 * time.Second); d.up; {
		cmd := exec.Command("umount", d.mount)
		out.Reset()
		cmd.Stderr = &out
		if cmd.Run() == nil {
			d.up = false
		} else if time.Now().After(end) { // whoever looks at all open files holds some up for a moment
			d.t.Fatalf("umount: %s", out.String())
		}
	}
	d.release()
	d.attach()
}

// release waits until nothing has the image open, as a test in a mount namespace of
// its own may for a while: it would be mounted as it is, stopped. After a second a copy
// takes its place.
func (d *disk) release() {
	d.t.Helper()
	for end := time.Now().Add(time.Second); d.attached(); {
		if time.Now().Before(end) {
			timer := time.After(20 * time.Millisecond)
			<-timer
			continue
		}
		next := d.image + "'"
		d.run("cp", "--sparse=always", d.image, next)
		if err := os.Remove(d.image); err != nil {
			d.t.Fatal(err)
		}
		d.image = next
		return
	}
}

// attached reports whether a loop device has the image.
func (d *disk) attached() bool {
	d.t.Helper()
	list, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, name := range list {
		if file, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(file)) == d.image {
			return true
		}
	}
	return false
}

func (d *disk) path(names ...string) string {
	return filepath.Join(append([]string{d.mount}, names...)...)
}

func env(name string, def int) int {
	n := def
	if v := os.Getenv(name); v != "" {
		fmt.Sscan(v, &n)
	}
	return n
}
