// Package layer runs a command with an overlay over a directory, and reads what
// the command changed out of the overlay's upper directory.
//
// The kernel's overlayfs shows the directory (lower) with the changes of the
// command (upper) on top, in a mount namespace that only the command and its
// children have. An ordinary user may do that in a user namespace of his own since
// Linux 5.11 (the mount option userxattr); the super-user needs no user namespace.
//
// What is known of others that apply an upper directory (try, podman, bubblewrap,
// BranchFS), and holds here:
//   - A whiteout is a character device 0:0. A removed directory that was made again
//     is opaque: what the lower one has in it is gone, too (Entry.Opaque).
//   - A redirect or a metadata-only copy names content elsewhere. With userxattr
//     the kernel makes none; Read refuses one instead of reading it as empty.
//   - rename(2) of a directory that the lower one has is EXDEV; mv(1) copies then.
//   - A write to one name of a file with several (hard links) changes that name
//     alone: index=off. That is what an apply by replacing files does as well.
//   - A file that was only opened for writing, or whose mode was changed, is copied
//     up whole. Whether it differs must be found by comparing.
//   - A link that is replaced by a file, or a directory by a file, has no whiteout:
//     the entry itself covers what is below.
//   - Writes through mmap are in the upper file; holes stay holes.
//   - The lower directory may change meanwhile. overlayfs calls the result
//     undefined; for directories that are not copied up, the command sees the
//     change, and of a file that it has touched it sees its own version. The
//     overlay may cache a directory's listing while it is open.
package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// ErrUnsupported is wrapped where the system gives no layer.
var ErrUnsupported = errors.New("no layer")

// Kind is what an entry of the upper directory is.
type Kind uint8

// The kinds.
const (
	Whiteout Kind = iota + 1 // what the lower directory has at the path was removed
	Dir
	File
	Symlink
	Special // FIFO, socket, device
)

// Entry is one path of an upper directory.
type Entry struct {
	Path string // relative, '/' separated
	Kind Kind
	// Opaque is set for a directory that hides the lower directory's content.
	Opaque bool
	Perm   uint32 // permission bits, of a file or directory
	Size   int64  // of a file
	Target string // of a symlink
	Type   string // of Special: "fifo", "socket", "device"
}

// An UnsupportedError says of a path why it cannot be read.
type UnsupportedError struct{ Path, Reason string }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("layer: %s: %s", e.Path, e.Reason)
}

// Exit is how a command ended.
type Exit struct {
	Status int // 128+n for signal n
	// Failure says why the command did not run: Status is 126 or 127 then.
	Failure string
	// Stopped is set where Command.Stop ended the command itself, not only what it
	// had left running.
	Stopped bool
}

// RemoveSlowly is like Remove; when the context is canceled it ends after the directory
// that it is at, with the context's error.
func RemoveSlowly(ctx context.Context, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	list, _ := os.ReadDir(dir) // Remove reports what is wrong with it
	for _, e := range list {
		if e.IsDir() {
			if err := RemoveSlowly(ctx, dir+"/"+e.Name()); err != nil {
				return err
			}
		}
	}
	return Remove(dir)
}
