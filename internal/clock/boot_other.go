//go:build !linux

package clock

import "time"

// Boot is the time since the program was started. It never goes back; whether it
// counts suspended time is the system's.
func Boot() time.Duration { return time.Since(start) }

// FileLag is by how much the times that the system gives to files may be behind
// the wall clock.
func FileLag() time.Duration { return maxFileLag }

// BootID returns nothing: only Linux has a name for each start of the system.
func BootID() string { return "" }
