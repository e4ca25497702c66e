package server

import (
	"os"
	"strconv"
	"syscall"
)

// CloseInheritedOnExec keeps the descriptors that the process was started with from the
// commands that it runs. A server calls it before it runs any; what Go opens itself is
// marked already.
func CloseInheritedOnExec() {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return // there are none to be found
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > syscall.Stderr {
			syscall.CloseOnExec(fd)
		}
	}
}
