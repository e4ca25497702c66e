package clock

import (
	"os"
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

// BootID names this start of the system; empty if it is not known.
func BootID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(raw)
}

// FileLag is by how much the times that the kernel gives to files are behind the
// wall clock now: they are those of the last tick (CLOCK_REALTIME_COARSE). A file
// that changes from now on has a ctime of time.Now less FileLag at the earliest.
func FileLag() time.Duration {
	var coarse, fine unix.Timespec
	if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &coarse) != nil || unix.ClockGettime(unix.CLOCK_REALTIME, &fine) != nil {
		return maxFileLag
	}
	// Not more, if the clock was set between the two readings.
	return min(max(time.Duration(fine.Nano()-coarse.Nano()), 0), maxFileLag)
}
