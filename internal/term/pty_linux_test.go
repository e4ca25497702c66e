package term_test

import (
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"umbra/internal/need"
)

// pty opens a terminal: what is written to slave can be read from master.
func pty(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		need.Missing(t, "no pseudo-terminals: "+err.Error())
	}
	t.Cleanup(func() { master.Close() })
	need.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	need.NoError(t, err)
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		need.Missing(t, "no pseudo-terminals: "+err.Error())
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}
