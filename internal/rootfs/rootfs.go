// Package rootfs puts new bytes onto a workspace's disk so that nothing is ever
// overwritten unseen: content is prepared without a name, exchanged with what
// is at the target, and the displaced file is returned to the caller.
//
// It knows nothing of history; the caller decides about the displaced file.
//
// # Temporary names
//
// `.umbra-<16 hex digits>.tmp` in the target's folder. The digits are
//
//   - the inode of the prepared file: while the name still leads to that inode
//     it was never exchanged; after the exchange it leads to what was displaced
//     by the file of that inode;
//   - for what was taken away (a delete), a hash of the name that it had;
//   - 0xffffffff and a random half, for the instant in which a file is made and
//     its inode not yet known. Such a file holds nothing of anybody's.
//
// A file that was made in Staging has another name first, in a directory that is not
// watched: see SetAside.
package rootfs

import (
	"bufio"
	"bytes"
	"errors"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Root is a workspace's folder. All methods may be called concurrently, for
// different paths.
type Root struct {
	fs      vfs.FS
	umask   fs.FileMode
	staging *Staging // or nil
	aside   vfs.FS   // or nil
	// crossing: an exchange by way of aside is under way.
	crossing sync.Mutex
	// Learned once: what the file system cannot do.
	noUnlinked, noExchange atomic.Bool
	// apart: what is made in staging cannot come here, another mount is between.
	apart atomic.Bool
}

// New works on a folder. umask is the process's (Umask). Content is prepared in
// staging where that is the same to a file, else in its target's folder; nil
// means always there.
func New(f vfs.FS, umask fs.FileMode, staging *Staging) *Root {
	return &Root{fs: f, umask: umask, staging: staging}
}

// FS gives the file system below.
func (r *Root) FS() vfs.FS { return r.fs }

// FilePerm gives the bits of a new file: 0666 less the umask, 0777 if it is
// executable.
func (r *Root) FilePerm(executable bool) fs.FileMode {
	if executable {
		return 0o777 &^ r.umask
	}
	return 0o666 &^ r.umask
}

// DirPerm gives the bits of a new folder.
func (r *Root) DirPerm() fs.FileMode { return 0o777 &^ r.umask }

// NoExchange reports whether the file system was found unable to exchange two
// names, so that a write in the instant of a replacement can be lost.
func (r *Root) NoExchange() bool { return r.noExchange.Load() }

// Umask reads the process's umask without changing it (proc(5)); 022 where the
// system does not report it.
func Umask() fs.FileMode {
	const fallback = 0o022
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return fallback
	}
	for sc := bufio.NewScanner(bytes.NewReader(data)); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), "Umask:"); ok {
			if n, err := strconv.ParseUint(strings.TrimSpace(rest), 8, 32); err == nil {
				return fs.FileMode(n) & 0o777
			}
		}
	}
	return fallback
}

// ExecBits adds x to permission bits where r is set, or takes every x away.
func ExecBits(perm fs.FileMode, executable bool) fs.FileMode {
	perm &= 0o777
	if executable {
		return perm | perm&0o444>>2
	}
	return perm &^ 0o111
}

// Executable reports whether git would record the bits as 100755.
func Executable(perm fs.FileMode) bool { return perm&0o100 != 0 }

// EnsureDir makes a folder and the ones above it, and gives those that it made,
// the highest first. An error undoes nothing: the caller has the list.
func (r *Root) EnsureDir(dir wspath.Path) (made []wspath.Path, err error) {
	if dir.IsRoot() {
		return nil, nil
	}
	if info, err := r.fs.Lstat(string(dir)); err == nil {
		if info.IsDir() {
			return nil, nil
		}
		return nil, &fs.PathError{Op: "mkdir", Path: string(dir), Err: syscall.ENOTDIR}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if made, err = r.EnsureDir(dir.Dir()); err != nil {
		return made, err
	}
	switch err := r.fs.Mkdir(string(dir), r.DirPerm()); {
	case err == nil:
		return append(made, dir), nil
	case errors.Is(err, fs.ErrExist):
		return made, nil // another request was faster; a file there shows at the next step
	default:
		return made, err
	}
}

// tempIn gives a temporary name in a target's folder.
func tempIn(target wspath.Path, digits uint64) string {
	return string(target.Dir().Join(wspath.TempName(digits)))
}

// makingDigits are those of a file that is just being made.
func makingDigits() uint64 { return 0xffffffff<<32 | uint64(rand.Uint32()) }

// IsMaking reports whether a temporary name's digits are of a file that was
// just being made.
func IsMaking(digits uint64) bool { return digits>>32 == 0xffffffff }

// takenTries is how many names a taken file may get, where one is in use.
const takenTries = 16

// takenDigits are those of what was taken away from a name.
func takenDigits(base string, try int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(base))
	h.Write([]byte{0, byte(try)})
	return h.Sum64() &^ (1 << 32) // never IsMaking
}

// TakenFrom reports whether a temporary name's digits say that it was taken
// from a name.
func TakenFrom(digits uint64, base string) bool {
	for try := range takenTries {
		if takenDigits(base, try) == digits {
			return true
		}
	}
	return false
}
