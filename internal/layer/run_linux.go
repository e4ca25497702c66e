package layer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/layer/enter"
	"umbra/internal/mounts"
)

// Grace is the time between SIGTERM and SIGKILL for what a command leaves running.
const Grace = 2 * time.Second

// Command is a command to be run in a layer.
type Command struct {
	// Root is the directory that the overlay covers, Upper and Work two empty
	// directories on one file system. An empty Root: no layer.
	Root, Upper, Work string
	// Over, if set, is a directory between the two: a lower layer above Root.
	Over string
	// Below, if set, is the lower directory in place of Root, whose files are not shown.
	Below string
	Dir   string // where it runs, as the command sees it
	Args  []string
	Env   []string
	Files [3]*os.File // standard streams
	// Started, if set, is called with the command's process id.
	Started func(pid int)
	// Linger leaves processes in the background alone when the command has ended.
	Linger bool
	// Stop, when closed, ends all processes of the command; may be nil.
	Stop <-chan struct{}
	// Group gives the command a session of its own, so that no terminal's signal
	// reaches it.
	Group bool
}

// capabilities of the child in its user namespace: those that overlayfs uses as
// the mounter's. The command itself has none of them.
var capabilities = []uintptr{unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_MKNOD, unix.CAP_SYS_ADMIN}

// Run runs a command until it has ended, and what it left running too. Signals
// that this process gets are passed on. It makes this process the parent of
// orphans and waits for all children, so nothing else in it may start any
// meanwhile; it must be called once at a time.
//
// An error that is ErrUnsupported: the system gives no layer, and the command did
// not run.
func Run(c Command) (Exit, error) {
	// A child's death signal is tied to the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil && !c.Linger {
		return Exit{}, fmt.Errorf("%w: collect orphans: %w", ErrUnsupported, err)
	}
	signals := forwarded()
	defer signal.Stop(signals)
	over := make(chan struct{})
	defer close(over)
	pid, err := c.start(over)
	if err != nil {
		return Exit{}, err
	}
	if pid.exit != nil {
		return *pid.exit, nil
	}
	if c.Started != nil {
		c.Started(pid.id)
	}
	return c.wait(pid.id, signals)
}

// started is a child: its id, or how it ended already.
type started struct {
	id   int
	exit *Exit
}

// start starts the command, in namespaces of its own where it has a layer. The thread
// that is its parent lives until over is closed.
func (c *Command) start(over <-chan struct{}) (started, error) {
	if c.Root == "" {
		return c.direct(over)
	}
	if err := Covers(cmp.Or(c.Below, c.Root)); err != nil {
		return started{}, err
	}
	if os.Geteuid() == 0 {
		s, err := c.direct(over)
		if !errors.Is(err, ErrUnsupported) {
			return s, err
		}
	}
	return c.viaChild()
}

func (c *Command) args() *enter.Args {
	return &enter.Args{Root: c.Root, Over: c.Over, Below: c.Below, Upper: c.Upper, Work: c.Work, Dir: c.Dir, Command: c.Args}
}

// attributes are those of the command's process.
func (c *Command) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: c.Group}
	if !c.Linger {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return attr
}

// direct starts the command from a thread that enters the layer. That takes one process,
// but needs the right to mount, where there is a layer: a user namespace is a whole
// process's.
func (c *Command) direct(over <-chan struct{}) (started, error) {
	type outcome struct {
		started
		err error
	}
	out := make(chan outcome, 1)
	go onOwnThread(func() {
		s, err := c.onThread()
		out <- outcome{s, err}
		if s.id != 0 {
			<-over // the end of the thread would kill the command: Pdeathsig
		}
	})
	o := <-out
	return o.started, o.err
}

// onOwnThread calls fn on a thread that nothing else runs on, and that ends with the
// call. It is not the first one, whose namespaces and directory others see as the process's.
func onOwnThread(fn func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		fn()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		onOwnThread(fn)
	}()
	<-done
	runtime.UnlockOSThread()
}

// onThread is direct for the thread that calls it, which leaves the layer afterwards: the
// command's processes alone hold the mount.
func (c *Command) onThread() (started, error) {
	flags, back := unix.CLONE_FS, -1
	if c.Root != "" {
		flags |= unix.CLONE_NEWNS
		fd, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return started{}, fmt.Errorf("%w: open the namespace: %w", ErrUnsupported, err)
		}
		defer unix.Close(fd)
		back = fd
	}
	if err := unix.Unshare(flags); err != nil {
		return started{}, fmt.Errorf("%w: start in a namespace: %w", ErrUnsupported, err)
	}
	attr := &syscall.ProcAttr{Env: c.Env, Sys: c.attributes()}
	for _, f := range c.Files {
		attr.Files = append(attr.Files, f.Fd())
	}
	pid := 0
	status, text := enter.Run(c.args(), c.Env, func(file string, argv, _ []string) (err error) {
		pid, err = syscall.ForkExec(file, argv, attr)
		return err
	})
	if back >= 0 {
		_ = unix.Setns(back, unix.CLONE_NEWNS) // else the mount lasts until the thread ends
	}
	switch status {
	case 0:
		return started{id: pid}, nil
	case enter.NoLayer:
		return started{}, fmt.Errorf("%w: %s", ErrUnsupported, text)
	}
	return started{exit: &Exit{Status: status, Failure: text}}, nil
}

// viaChild starts the command in a user namespace: this program enters the layer in a
// process of its own, and replaces itself by the command.
func (c *Command) viaChild() (started, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return started{}, err
	}
	defer r.Close()
	uid, gid := os.Geteuid(), os.Getegid()
	attr := c.attributes()
	attr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	attr.AmbientCaps = capabilities
	p, err := os.StartProcess("/proc/self/exe", c.args().List(), &os.ProcAttr{Env: c.Env, Sys: attr, Files: append(c.Files[:], w)})
	w.Close()
	if err != nil {
		return started{}, fmt.Errorf("%w: start in a namespace: %w", ErrUnsupported, err)
	}
	id := p.Pid
	_ = p.Release() // wait collects it
	report, err := io.ReadAll(io.LimitReader(r, 4096))
	if err != nil {
		return started{}, err
	}
	if len(report) == 0 {
		return started{id: id}, nil // execve(2) closed the pipe
	}
	reap(id)
	code, text, _ := bytes.Cut(report, []byte(" "))
	status, err := strconv.Atoi(string(code))
	if err != nil || status == enter.NoLayer {
		return started{}, fmt.Errorf("%w: %s", ErrUnsupported, text)
	}
	return started{exit: &Exit{Status: status, Failure: string(text)}}, nil
}

// reap waits for one child.
func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// ended is a child that was collected.
type ended struct {
	pid    int
	status unix.WaitStatus
}

// wait collects children until the command and its descendants have ended.
func (c *Command) wait(pid int, signals <-chan os.Signal) (Exit, error) {
	children := make(chan ended)
	none := make(chan struct{})
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer close(none)
		for {
			var e ended
			var err error
			e.pid, err = unix.Wait4(-1, &e.status, 0, nil)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return // ECHILD
			}
			select {
			case children <- e:
			case <-done:
				return
			}
		}
	}()
	var exit *Exit
	var kill <-chan time.Time
	stop, stopped, hard := c.Stop, false, false
	end := func() {
		if kill == nil {
			signalAll(unix.SIGTERM)
			kill = time.After(Grace)
		}
	}
	for {
		select {
		case e := <-children:
			if e.pid == pid {
				exit = &Exit{Status: e.status.ExitStatus(), Stopped: stopped}
				if e.status.Signaled() {
					exit.Status = 128 + int(e.status.Signal())
				}
				if c.Linger {
					return *exit, nil
				}
				kill = nil // the command has had its own grace
				if unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) != unix.ECHILD {
					end()
				}
			} else if hard {
				signalAll(unix.SIGKILL)
			}
		case <-none:
			if exit == nil {
				return Exit{}, errors.New("the command's process was lost")
			}
			return *exit, nil
		case s := <-signals:
			if n, ok := s.(syscall.Signal); ok && exit == nil {
				_ = unix.Kill(pid, n)
			}
		case <-stop:
			stop, stopped = nil, true
			end()
		case <-kill:
			hard = true
			signalAll(unix.SIGKILL)
			kill = time.After(50 * time.Millisecond) // what was started meanwhile
		}
	}
}

// forwarded returns the signals that go to the command. One that this process was
// started to ignore is the command's to ignore too. The terminal sends its own to
// the command as well.
func forwarded() chan os.Signal {
	list := []os.Signal{unix.SIGHUP, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGINT, unix.SIGQUIT, unix.SIGALRM, unix.SIGCONT, unix.SIGWINCH}
	list = slices.DeleteFunc(list, signal.Ignored)
	out := make(chan os.Signal, 16)
	if !foreground() {
		signal.Notify(out, list...)
		return out
	}
	keyboard := []os.Signal{unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH, unix.SIGCONT}
	var own []os.Signal
	for _, s := range list {
		if slices.Contains(keyboard, s) {
			own = append(own, s)
		} else {
			signal.Notify(out, s)
		}
	}
	if len(own) > 0 {
		signal.Notify(make(chan os.Signal, 1), own...) // kept from ending this process
	}
	return out
}

// foreground reports whether a terminal's signals reach this process, and so its
// children.
func foreground() bool {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// signalAll sends a signal to all descendants. Orphans are children of this
// process, so none is missed but one that is being started.
func signalAll(n syscall.Signal) {
	for _, pid := range descendants(os.Getpid()) {
		_ = unix.Kill(pid, n)
		_ = unix.Kill(pid, unix.SIGCONT) // a stopped process handles nothing
	}
}

// descendants returns the ids of all processes below one, the nearest first.
func descendants(of int) []int {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	children := map[int][]int{}
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if parent, ok := parentOf(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var out []int
	for next := children[of]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		out = append(out, pid)
	}
	return out
}

// parentOf reads the fourth field of /proc/PID/stat (proc(5)), after the name,
// which is in parentheses and may hold anything.
func parentOf(pid int) (int, bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 2 || fields[0] == "Z" {
		return 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return parent, err == nil
}

// Probe returns ErrUnsupported where no command can be run in a layer whose
// directories are on the file system of a directory. It makes and removes one.
func Probe(dir string) error {
	if err := Supported(); err != nil {
		return err
	}
	top, err := os.MkdirTemp(dir, probePrefix)
	if err != nil {
		return err
	}
	defer func() { _ = Remove(top) }()
	c := Command{Root: top + "/root", Over: top + "/over", Upper: top + "/upper", Work: top + "/work", Dir: "/", Args: []string{"/"}}
	for _, d := range []string{c.Root, c.Over, c.Upper, c.Work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if err := MakeWhiteout(c.Over + "/gone"); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	c.Files = [3]*os.File{null, null, null}
	over := make(chan struct{})
	defer close(over)
	_, err = c.start(over) // a directory cannot be run: it ends by itself once it is mounted
	return err
}

// Supported returns ErrUnsupported where the kernel is too old: the option
// userxattr came with 5.11.
func Supported() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	var major, minor int
	release := unix.ByteSliceToString(u.Release[:])
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n == 2 && (major < 5 || major == 5 && minor < 11) {
		return fmt.Errorf("%w: Linux %s is older than 5.11", ErrUnsupported, release)
	}
	return nil
}

// Covers reports whether an overlay shows all of a directory: ErrUnsupported
// where another file system is mounted below it, which would look empty.
func Covers(root string) error {
	table, err := mounts.Read()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	prefix := strings.TrimSuffix(root, "/") + "/"
	for _, m := range table {
		if strings.HasPrefix(m.Point, prefix) {
			return fmt.Errorf("%w: another file system is mounted below the directory", ErrUnsupported)
		}
	}
	return nil
}
