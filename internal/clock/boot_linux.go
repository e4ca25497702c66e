package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boot is the time since the system was started, suspended time included
// (CLOCK_BOOTTIME, clock_gettime(2)). It never goes back.
func Boot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return time.Since(start)
	}
	return time.Duration(t.Nano())
}
