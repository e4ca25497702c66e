package inuse

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"strconv"
	"syscall"

	"umbra/internal/vfs"
)

// inode names a file whatever its path.
type inode struct{ dev, ino uint64 }

// Repository reports whether another process is in one of the folders, was started for
// one of them by its arguments or git's variables, or has one of the files open or
// mapped, by /proc (proc(5)). git has nothing open between listing the packs and coming
// to the first. It sees the processes of
// the server's own user, and with root's rights all; no other process gets into a
// data directory, whose mode is 0700. ErrUndecided says that none was at work of those
// that were there at the call, nor of those that it saw begin, but always more began.
func Repository(ctx context.Context, dirs, files []vfs.Info) (bool, error) {
	at, open := make(map[inode]bool), make(map[inode]bool)
	for _, d := range dirs {
		at[inode{d.Dev, d.Ino}] = true
		open[inode{d.Dev, d.Ino}] = true
	}
	for _, f := range files {
		open[inode{f.Dev, f.Ino}] = true
	}
	// Again for those that began meanwhile, or became another program (execve(2)), until
	// none has: what comes after the last look finds the folder as it is then.
	seen := map[int]string{}
	for range manyLooks {
		procs, err := os.ReadDir("/proc")
		if err != nil {
			return false, nil // unknown
		}
		more := false
		for _, p := range procs {
			pid, err := strconv.Atoi(p.Name())
			if err != nil || pid == os.Getpid() {
				continue
			}
			program, _ := os.ReadFile("/proc/" + p.Name() + "/cmdline") // one that cannot be read has ended
			if was, known := seen[pid]; known && was == string(program) {
				continue
			}
			seen[pid], more = string(program), true
			if err := ctx.Err(); err != nil {
				return false, err
			}
			if uses("/proc/"+p.Name(), at, open) || startedFor("/proc/"+p.Name(), program, at) {
				return true, nil
			}
		}
		if !more {
			return false, nil
		}
	}
	return false, ErrUndecided
}

// manyLooks bounds how often it is looked for processes that began meanwhile.
const manyLooks = 20

// uses reports whether a process is in one of the folders, or has one of the
// files open or mapped.
func uses(dir string, at, open map[inode]bool) bool {
	if points(dir+"/cwd", at) || mapsOne(dir+"/maps", open) {
		return true
	}
	fds, err := os.ReadDir(dir + "/fd")
	if err != nil {
		return false // it has ended, or is another user's
	}
	for _, fd := range fds {
		if points(dir+"/fd/"+fd.Name(), open) {
			return true
		}
	}
	return false
}

// startedFor reports whether a process is a git, and one of its arguments or variables
// names one of the folders.
func startedFor(dir string, cmdline []byte, at map[inode]bool) bool {
	if program, _, _ := bytes.Cut(cmdline, []byte{0}); !bytes.Contains(program, []byte("git")) {
		return false
	}
	names := func(path []byte) bool {
		if len(path) == 0 {
			return false
		}
		if path[0] == '/' {
			return points(dir+"/root"+string(path), at)
		}
		return points(dir+"/cwd/"+string(path), at)
	}
	for arg := range bytes.SplitSeq(cmdline, []byte{0}) {
		if _, value, ok := bytes.Cut(arg, []byte("=")); names(arg) || ok && names(value) { // --git-dir=
			return true
		}
	}
	environ, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return false
	}
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if _, value, ok := bytes.Cut(v, []byte("=")); ok && bytes.HasPrefix(v, []byte("GIT_")) && names(value) {
			return true
		}
	}
	return false
}

// points reports whether a link of /proc leads to one of the files.
func points(link string, to map[inode]bool) bool {
	var st syscall.Stat_t
	return syscall.Stat(link, &st) == nil && to[inode{uint64(st.Dev), st.Ino}]
}

// mapsOne reports whether one of the files is mapped: git closes an index once
// that is so. A line is "address perms offset major:minor inode path".
func mapsOne(name string, files map[inode]bool) bool {
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) < 6 {
			continue
		}
		major, minor, ok := bytes.Cut(fields[3], []byte(":"))
		ma, err := strconv.ParseUint(string(major), 16, 32)
		mi, err2 := strconv.ParseUint(string(minor), 16, 32)
		ino, err3 := strconv.ParseUint(string(fields[4]), 10, 64)
		if !ok || err != nil || err2 != nil || err3 != nil {
			continue
		}
		dev := mi&0xff | (ma&0xfff)<<8 | (mi&^0xff)<<12 | (ma&^0xfff)<<32 // makedev(3)
		if files[inode{dev, ino}] {
			return true
		}
	}
	return false
}
