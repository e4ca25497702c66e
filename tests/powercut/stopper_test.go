//go:build linux

package powercut

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
)

// stopper stops a program, and what it starts, before one of the system calls by which
// they change files. A seccomp filter reports each of these calls and waits for leave
// (seccomp_unotify(2)); after the one that is stopped none gets it. Calls by which
// programs in C alone change files (unlink, not unlinkat) are not seen.
type stopper struct {
	t testing.TB

	mu      sync.Mutex
	stop    int           // before which call; 0: before none
	count   int           // of the calls since arm
	reached chan struct{} // closed when the program is stopped
	name    string        // of the call before which it was
	process int           // how many were started; only the last one counts
}

// watched, as the first argument of the test program, has it filter its system calls
// and become the program of the other arguments: user, path, arguments.
const watched = "-watched"

func init() {
	if len(os.Args) > 3 && os.Args[1] == watched {
		fmt.Fprintln(os.Stderr, becomeWatched(os.Args[2], os.Args[3], os.Args[4:]))
		os.Exit(1)
	}
}

// changing are the calls that are reported as they are; a few others by their arguments.
var changing = map[int32]string{
	unix.SYS_WRITE: "write", unix.SYS_PWRITE64: "pwrite", unix.SYS_WRITEV: "writev", unix.SYS_PWRITEV: "pwritev",
	unix.SYS_FTRUNCATE: "ftruncate", unix.SYS_TRUNCATE: "truncate", unix.SYS_FALLOCATE: "fallocate", unix.SYS_COPY_FILE_RANGE: "copy_file_range",
	unix.SYS_FSYNC: "fsync", unix.SYS_FDATASYNC: "fdatasync", unix.SYS_SYNCFS: "syncfs", unix.SYS_SYNC_FILE_RANGE: "sync_file_range",
	unix.SYS_RENAMEAT: "renameat", unix.SYS_RENAMEAT2: "renameat2", unix.SYS_LINKAT: "linkat", unix.SYS_UNLINKAT: "unlinkat",
	unix.SYS_MKDIRAT: "mkdirat", unix.SYS_MKNODAT: "mknodat", unix.SYS_SYMLINKAT: "symlinkat",
	unix.SYS_FCHMOD: "fchmod", unix.SYS_FCHMODAT: "fchmodat", unix.SYS_FCHMODAT2: "fchmodat2", unix.SYS_FCHOWN: "fchown", unix.SYS_FCHOWNAT: "fchownat",
	unix.SYS_UTIMENSAT: "utimensat", unix.SYS_SETXATTR: "setxattr", unix.SYS_LSETXATTR: "lsetxattr", unix.SYS_FSETXATTR: "fsetxattr",
	unix.SYS_REMOVEXATTR: "removexattr", unix.SYS_LREMOVEXATTR: "lremovexattr", unix.SYS_FREMOVEXATTR: "fremovexattr",
	unix.SYS_OPENAT: "openat", unix.SYS_OPENAT2: "openat2", unix.SYS_IOCTL: "ioctl",
}

// makes are the flags of openat(2) that change files.
const makes = unix.O_CREAT | unix.O_TRUNC

func becomeWatched(user, path string, args []string) error {
	runtime.LockOSThread()
	uid, err := strconv.Atoi(user)
	if err != nil {
		return err
	}
	if uid != 0 {
		if err := errors.Join(syscall.Setgid(uid), syscall.Setuid(uid)); err != nil {
			return err
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	const offsetNumber, offsetArgs = 0, 16
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	load := func(offset uint32) unix.SockFilter { return stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
	report, allow := stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_USER_NOTIF), stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW)
	prog := []unix.SockFilter{
		load(offsetNumber),
		jump(unix.BPF_JEQ, unix.SYS_OPENAT, 0, 4), // that may make or empty a file
		load(offsetArgs + 2*8),
		jump(unix.BPF_JSET, makes, 0, 1),
		report, allow,
		jump(unix.BPF_JEQ, unix.SYS_IOCTL, 0, 4), // that makes a copy
		load(offsetArgs + 1*8),
		jump(unix.BPF_JEQ, unix.FICLONE, 0, 1),
		report, allow,
	}
	for number := range changing {
		prog = append(prog, jump(unix.BPF_JEQ, uint32(number), 0, 1), report)
	}
	prog = append(prog, allow)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	listener, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	if err := unix.Sendmsg(3, []byte{0}, unix.UnixRights(int(listener)), nil, 0); err != nil {
		return err
	}
	return errors.Join(unix.Close(3), syscall.Exec(path, args, os.Environ()))
}

// wrap has a program be watched (harness.Options.Wrap).
func (s *stopper) wrap(cmd *exec.Cmd) {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	user := "0"
	if a := cmd.SysProcAttr; a != nil && a.Credential != nil {
		user = fmt.Sprint(a.Credential.Uid)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Args = append([]string{self, watched, user, cmd.Path}, cmd.Args...)
	cmd.Path = self
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "listener")
	cmd.ExtraFiles = []*os.File{theirs} // 3
	s.mu.Lock()
	s.process++
	process := s.process
	s.mu.Unlock()
	s.arm(0)
	go func() {
		defer unix.Close(pair[0])
		one, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := unix.Recvmsg(pair[0], one, rights, unix.MSG_CMSG_CLOEXEC)
		theirs.Close()
		if err == nil && n > 0 {
			err = s.listen(rights[:n], process)
		}
		if err != nil {
			s.t.Errorf("watching system calls: %v", err)
		}
	}()
}

// arm has the program stopped before its next stop-th call; 0: not at all.
func (s *stopper) arm(stop int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop, s.count, s.name, s.reached = stop, 0, "", make(chan struct{})
}

// notification is struct seccomp_notif, and leave is struct seccomp_notif_resp.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		number     int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	leave struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

func (s *stopper) listen(rights []byte, process int) error {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	fd := fds[0]
	defer unix.Close(fd)
	for {
		list := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		if _, err := unix.Poll(list, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return err
		}
		if list[0].Revents&unix.POLLIN == 0 {
			return nil // all processes have ended
		}
		var n notification
		if _, _, errno := syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&n))); errno == unix.ENOENT || errno == unix.EINTR {
			continue // it was killed
		} else if errno != 0 {
			return errno
		}
		if !s.may(&n, process) {
			continue
		}
		l := leave{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		errno := unix.EINTR
		for errno == unix.EINTR {
			_, _, errno = syscall.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&l)))
		}
		if errno != 0 && errno != unix.ENOENT {
			return errno
		}
	}
}

// may counts a call, and reports whether it may go on.
func (s *stopper) may(n *notification, process int) bool {
	switch n.number {
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV: // to files, and not to connections
		name, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", n.pid, n.args[0]))
		if err != nil || !strings.HasPrefix(name, "/") || strings.HasPrefix(name, "/dev/") {
			return true
		}
	case unix.SYS_OPENAT2:
		var how unix.OpenHow
		here := unix.Iovec{Base: (*byte)(unsafe.Pointer(&how)), Len: uint64(unsafe.Sizeof(how))}
		there := []unix.RemoteIovec{{Base: uintptr(n.args[2]), Len: int(here.Len)}}
		if _, err := unix.ProcessVMReadv(int(n.pid), []unix.Iovec{here}, there, 0); err == nil && how.Flags&makes == 0 {
			return true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if process != s.process {
		return true
	}
	if s.count++; s.stop == 0 || s.count < s.stop {
		return true
	}
	if s.count == s.stop {
		s.name = changing[n.number]
		close(s.reached)
	}
	return false
}

// end kills the program and what it started, which would wait for ever.
func (s *stopper) end(pid int) {
	if err := syscall.Kill(-pid, syscall.SIGKILL); err != nil {
		s.t.Error(err)
	}
}

func (s *stopper) at() (count int, name string, reached <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count, s.name, s.reached
}

// owned makes all in a directory another user's.
func owned(t testing.TB, dir string, user int) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, user, user)
	})
	need.NoError(t, err)
}

// eachStep runs a round that is not stopped, and then rounds that are stopped before a step,
// and returns how often each of their results came. last returns the steps of a whole round,
// and the name of the last step.
//
// 15 of the steps are sampled, one of each part; all in make soak, or as many as
// UMBRA_STEPS says.
func eachStep(t *testing.T, round func(stop int) string, last func() (all int, name string)) map[string]int {
	t.Helper()
	results := map[string]int{round(0): 1}
	all, _ := last()
	if all < 50 {
		t.Fatalf("%d steps were seen", all)
	}
	n := 15
	if os.Getenv("UMBRA_SOAK") != "" {
		n = all + all/4 // how many it takes is not the same each time
	}
	for i, n := 0, env("UMBRA_STEPS", n); i < n; i++ {
		stop := i + 1
		if n < all { // one of each part
			stop = 1 + (i*all+rand.IntN(all))/n
		}
		results[round(stop)]++
		if t.Failed() {
			_, name := last()
			t.Fatalf("stopped before step %d of %d, %s", stop, all, name)
		}
	}
	t.Logf("%d steps: %v", all, results)
	return results
}
