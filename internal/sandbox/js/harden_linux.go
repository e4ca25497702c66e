//go:build linux && (amd64 || arm64)

package js

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// harden gives the process's rights away and bounds its memory. It returns the
// names of the walls that the kernel refused; the others hold all the same.
func harden(memory int64) (missing []string) {
	limits(memory)
	// No thread may gain rights any more; seccomp and Landlock require it.
	_, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	if errno != 0 {
		missing = append(missing, "no_new_privs")
	}
	if !landlock() {
		missing = append(missing, "landlock")
	}
	if !seccomp() {
		missing = append(missing, "seccomp")
	}
	return missing
}

// MissingWalls returns the names of the walls around a program that this kernel,
// or this build of the server, does not have. It changes nothing.
func MissingWalls() (missing []string) {
	// A build with cgo cannot act on all threads of a process.
	if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_GETPID, 0, 0, 0); errno != 0 {
		return []string{"no_new_privs", "landlock"}
	}
	if _, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION); errno != 0 {
		missing = append(missing, "landlock")
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	if _, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); errno != 0 {
		missing = append(missing, "seccomp")
	}
	return missing
}

// overhead is the process's memory beyond the program's own: what the engine may
// still allocate to report that memory is used up, and stacks.
const overhead = 128 << 20

// limits are the resource limits (setrlimit(2)) that hold for any program. memory,
// in bytes, is for the program as a whole, the compiler's work on its text
// included; the engine counts what the program itself allocates.
func limits(memory int64) {
	set := func(resource int, n uint64) {
		_ = unix.Setrlimit(resource, &unix.Rlimit{Cur: n, Max: n})
	}
	set(unix.RLIMIT_CORE, 0)
	set(unix.RLIMIT_FSIZE, 0)
	set(unix.RLIMIT_NOFILE, 16)
	set(unix.RLIMIT_MEMLOCK, 0)
	if memory > 0 {
		// The compiler's garbage is collected early rather than counted.
		debug.SetMemoryLimit(memory / 2)
		set(unix.RLIMIT_DATA, dataBytes()+uint64(memory)+overhead)
	}
}

// dataBytes returns what the kernel counts against RLIMIT_DATA so far: the
// private writable mappings, most of them address space that the Go runtime
// reserved (proc_pid_statm(5), field "data").
func dataBytes() uint64 {
	const unknown = 256 << 20
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return unknown
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 6 {
		return unknown
	}
	pages, err := strconv.ParseUint(fields[5], 10, 64)
	if err != nil {
		return unknown
	}
	return pages * uint64(os.Getpagesize())
}

// landlock takes all of the file system away (landlock(7)), and TCP where the
// kernel knows that. It returns whether it did.
func landlock() bool {
	version, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return false
	}
	const filesV1 = 1<<13 - 1
	// struct landlock_ruleset_attr: handled_access_fs, handled_access_net.
	attr := [2]uint64{filesV1}
	size := unsafe.Sizeof(attr[0])
	if version >= 2 {
		attr[0] |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if version >= 3 {
		attr[0] |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if version >= 4 {
		attr[1] = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		size = unsafe.Sizeof(attr)
	}
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return false
	}
	// No rule is added: nothing is allowed. Each thread gives up for itself.
	_, _, errno = syscall.AllThreadsSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
	_ = unix.Close(int(fd))
	return errno == 0
}

// allowed are the system calls that the Go runtime and pipes need; any other
// is EPERM. Nothing here opens, makes, connects or starts anything.
var allowed = []uintptr{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_READV, unix.SYS_WRITEV,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_TGKILL, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PPOLL, unix.SYS_FCNTL,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_MEMBARRIER, unix.SYS_PRCTL,
}

// seccomp leaves the process allowed, and threads of its own (seccomp(2)). It
// returns whether it did.
func seccomp() bool {
	const (
		offsetNumber = 0
		offsetArch   = 4
		offsetArg0   = 16 // its low half, on both of our machines
	)
	arch, others := uint32(unix.AUDIT_ARCH_X86_64), amd64Only
	if runtime.GOARCH == "arm64" {
		arch, others = unix.AUDIT_ARCH_AARCH64, nil
	}
	deny := uint32(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	stmt := func(code uint16, k uint32) unix.SockFilter { return unix.SockFilter{Code: code, K: k} }
	jump := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	load := func(offset uint32) unix.SockFilter { return stmt(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset) }
	prog := []unix.SockFilter{
		load(offsetArch),
		jump(unix.BPF_JEQ, arch, 1, 0),
		stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_KILL_PROCESS),
		load(offsetNumber),
		// clone, where it makes a thread.
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(offsetArg0),
		jump(unix.BPF_JSET, unix.CLONE_THREAD, 0, 1),
		stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW),
		stmt(unix.BPF_RET|unix.BPF_K, deny),
	}
	// A C library tries clone3, whose flags no filter can see, and then clone.
	prog = append(prog, jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	for _, nr := range append(append([]uintptr{}, allowed...), others...) {
		prog = append(prog, jump(unix.BPF_JEQ, uint32(nr), 0, 1), stmt(unix.BPF_RET|unix.BPF_K, unix.SECCOMP_RET_ALLOW))
	}
	prog = append(prog, stmt(unix.BPF_RET|unix.BPF_K, deny))
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	thread, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	runtime.KeepAlive(prog)
	return errno == 0 && thread == 0 // else the thread that could not be filtered
}
