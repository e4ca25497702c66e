package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrNoLoop is returned if this machine cannot make a loop-mounted file system: it
// needs root, the device and the program that makes the file system.
var ErrNoLoop = errors.New("no loop-mounted file system here")

// loopBytes is the size of an image; it is sparse.
const loopBytes = 12 << 30

// umountTries is how often a busy mount is tried again, a tenth of a second
// apart: a program that was just stopped may still be going.
const umountTries = 50

// Loop makes an ext4 (with its journal) or xfs in a file of dir and mounts it
// below dir. undo unmounts it and removes both; the loop device frees itself.
func Loop(ctx context.Context, kind, dir string) (d Disk, undo func() error, err error) {
	var mkfs []string
	switch kind {
	case "ext4":
		mkfs = []string{"mkfs.ext4", "-q", "-F", "-O", "has_journal", "-E", "lazy_itable_init=0,lazy_journal_init=0"}
	case "xfs":
		mkfs = []string{"mkfs.xfs", "-q", "-f"}
	default:
		return d, nil, fmt.Errorf("%w: %s is not one of ext4 and xfs", ErrNoLoop, kind)
	}
	if os.Geteuid() != 0 {
		return d, nil, fmt.Errorf("%w: root only", ErrNoLoop)
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return d, nil, fmt.Errorf("%w: %w", ErrNoLoop, err)
	}
	if _, err := exec.LookPath(mkfs[0]); err != nil {
		return d, nil, fmt.Errorf("%w: %w", ErrNoLoop, err)
	}

	image, point := filepath.Join(dir, kind+".img"), filepath.Join(dir, kind)
	remove := func() error { return errors.Join(os.RemoveAll(point), os.Remove(image)) }
	if err := os.Mkdir(point, 0o755); err != nil {
		return d, nil, err
	}
	if err := sparse(image); err != nil {
		return d, nil, errors.Join(err, remove())
	}
	if err := command(ctx, append(mkfs, image)...); err != nil {
		return d, nil, errors.Join(err, remove())
	}
	// -o loop: the device goes with the mount.
	if err := command(ctx, "mount", "-t", kind, "-o", "loop", image, point); err != nil {
		return d, nil, errors.Join(fmt.Errorf("%w: %w", ErrNoLoop, err), remove())
	}
	undo = func() error {
		if err := unmount(point); err != nil {
			return err // the image stays: it is in use
		}
		return remove()
	}
	if d, err = Of(kind, point); err != nil {
		return d, nil, errors.Join(err, undo())
	}
	return d, undo, nil
}

func sparse(name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(loopBytes), f.Close())
}

// unmount does not take a context: what was mounted goes, also when the run was
// stopped.
func unmount(point string) error {
	var err error
	for range umountTries {
		if err = command(context.Background(), "umount", point); err == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("%s stays mounted: %w", point, err)
}

func command(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", args[0], err, out)
	}
	return nil
}
