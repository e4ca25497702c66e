//go:build !linux

package clock

import "time"

// Boot is the time since the program was started. It never goes back; whether it
// counts suspended time is the system's.
func Boot() time.Duration { return time.Since(start) }
