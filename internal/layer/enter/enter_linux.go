package enter

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// statusFD is where the child reports to its parent. It is closed by execve(2).
const statusFD = 3

func init() {
	if len(os.Args) < 8 || os.Args[0] != Name {
		return
	}
	unix.CloseOnExec(statusFD)
	a := Args{Root: os.Args[1], Over: os.Args[2], Below: os.Args[3], Upper: os.Args[4], Work: os.Args[5], Dir: os.Args[6], Command: os.Args[7:]}
	status, text := Run(&a, os.Environ(), unix.Exec)
	_, _ = unix.Write(statusFD, []byte(strconv.Itoa(status)+" "+text))
	os.Exit(status & 0xff)
}

// Run enters the layer and has begin begin the command. The caller's thread must have
// a mount namespace of its own, and its working directory to itself. The status is 0 if begin
// returned no error.
func Run(a *Args, env []string, begin Begin) (status int, text string) {
	if a.Root != "" {
		if err := mount(a); err != nil {
			return NoLayer, err.Error()
		}
	}
	if err := unix.Chdir(a.Dir); err != nil {
		return NotRunnable, "change to the directory: " + err.Error()
	}
	// The parent's capabilities in the user namespace are not the command's.
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	return execute(a.Command, env, begin)
}

// Begin is execve(2), or begins another process.
type Begin func(file string, argv, env []string) error

// mount covers the root by an overlay (Documentation/filesystems/overlayfs.rst).
// Paths are passed as descriptors: no character in them has a meaning then.
//
// userxattr keeps the overlay's attributes where every user may read them; it
// rules out redirects and metadata-only copies. volatile: a layer is read in the
// same boot that wrote it, or not at all. index and xino need file handles, which an
// ordinary user has not: the kernel would log that each time.
func mount(a *Args) error {
	// Mounts made outside later appear here too, but none of this namespace's appears there.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return errors.New("make the mounts private: " + err.Error())
	}
	var fds [5]int
	for i, path := range []string{a.Root, a.Upper, a.Work, a.Over, a.Below} {
		if fds[i] = -1; path == "" {
			continue
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return errors.New("open the layer: " + err.Error())
		}
		fds[i] = fd
	}
	name := func(i int) string { return "/proc/self/fd/" + strconv.Itoa(fds[i]) }
	lower := name(0)
	if a.Below != "" {
		lower = name(4)
	}
	if a.Over != "" {
		lower = name(3) + ":" + lower
	}
	options := "lowerdir=" + lower + ",upperdir=" + name(1) + ",workdir=" + name(2) + ",userxattr,index=off,xino=off,volatile"
	source, err := Source(a.Upper)
	if err != nil {
		return errors.New("open the layer: " + err.Error())
	}
	if err := unix.Mount(source, name(0), "overlay", 0, options); err != nil {
		return errors.New("mount an overlay: " + err.Error())
	}
	for _, fd := range fds {
		_ = unix.Close(fd) // -1 is an error and no more
	}
	return nil
}

// Source returns the source of a layer's mount in the system's table, which names the
// upper directory: by it the processes are found that see the layer.
func Source(upper string) (string, error) {
	var st unix.Stat_t
	if err := unix.Lstat(upper, &st); err != nil {
		return "", err
	}
	return "umbra-layer-" + strconv.FormatUint(st.Dev, 16) + "-" + strconv.FormatUint(st.Ino, 10), nil
}

// execute is execvp(3), with the exit statuses of a shell.
func execute(command, env []string, begin Begin) (status int, text string) {
	name := command[0]
	if strings.Contains(name, "/") {
		return replace(name, command, env, begin)
	}
	status, text = NotFound, name+": not found"
	for dir := range strings.SplitSeq(searched(env), ":") {
		if dir == "" {
			dir = "."
		}
		file := dir + "/" + name
		if name == "" || !regular(file) {
			continue
		}
		s, t := replace(file, command, env, begin)
		if s == 0 {
			return s, t
		}
		if s != NotFound {
			status, text = s, t
		}
		if s == NotRunnable && !strings.HasSuffix(t, syscall.EACCES.Error()) {
			return s, t
		}
	}
	return status, text
}

// searched returns the directories of an environment's PATH.
func searched(env []string) string {
	for _, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			return path
		}
	}
	return "/bin:/usr/bin"
}

func regular(file string) bool {
	var st unix.Stat_t
	return unix.Stat(file, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

func replace(file string, command, env []string, begin Begin) (status int, text string) {
	err := begin(file, command, env)
	if err == unix.ENOEXEC { // a script without an interpreter, as execvp(3) does
		err = begin("/bin/sh", append([]string{"sh", file}, command[1:]...), env)
	}
	switch err {
	case nil:
		return 0, ""
	case unix.ENOENT, unix.ENOTDIR:
		return NotFound, command[0] + ": not found"
	default:
		return NotRunnable, command[0] + ": " + err.Error()
	}
}
