package layer

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"umbra/internal/layer/enter"
)

// ErrOrphans is returned where processes that see a layer could not be ended.
var ErrOrphans = errors.New("processes of the command still run")

// EndOrphans ends the processes that see the layer with an upper directory, also in mount
// namespaces that they made of their own: those that a command had started whose Run was
// killed. They get SIGTERM, and SIGKILL after Grace.
func EndOrphans(upper string) error {
	source, err := enter.Source(upper)
	if err != nil {
		return err
	}
	mark := []byte(" - overlay " + source + " ")
	hard := time.Now().Add(Grace)
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for asked := map[int]bool{}; ; <-t.C {
		n := unix.SIGTERM
		if time.Now().After(hard) {
			n = unix.SIGKILL
		}
		found, err := orphans(mark, func(fd, pid int) {
			if n == unix.SIGKILL || !asked[pid] {
				asked[pid] = true
				_ = unix.PidfdSendSignal(fd, n, nil, 0)
				_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0) // a stopped process handles nothing
			}
		})
		if err != nil || !found {
			return err
		}
		if time.Now().After(hard.Add(Grace)) {
			return ErrOrphans
		}
	}
}

// orphans calls fn with each process whose table of mounts has a mark.
func orphans(mark []byte, fn func(fd, pid int)) (found bool, err error) {
	list, err := os.ReadDir("/proc")
	if err != nil {
		return false, err
	}
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0) // it is another process's no more, whatever ends
		if err != nil {
			continue
		}
		table, err := os.ReadFile("/proc/" + e.Name() + "/mountinfo")
		if err == nil && bytes.Contains(table, mark) {
			found = true
			fn(fd, pid)
		}
		_ = unix.Close(fd)
	}
	return found, nil
}
