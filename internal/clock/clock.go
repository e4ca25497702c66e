// Package clock measures elapsed time where another process may set the wall clock:
// wall time is shown and stored, and never used for order or for elapsed time.
package clock

import "time"

// start is what Boot counts from where the system has no clock of its own for it.
var start = time.Now()

// tolerance is how far wall time and Boot may run apart by corrections that are
// no change of the clock (NTP slews, leap seconds, readings not made at once).
const tolerance = 5 * time.Minute

// Watch notices that the wall clock was set while the program runs. It is not
// safe for concurrent use.
type Watch struct {
	wall func() time.Time
	boot func() time.Duration

	wallStart time.Time
	bootStart time.Duration
}

// NewWatch begins to watch; nil functions are time.Now and Boot.
func NewWatch(wall func() time.Time, boot func() time.Duration) *Watch {
	if wall == nil {
		wall = time.Now
	}
	if boot == nil {
		boot = Boot
	}
	return &Watch{wall: wall, boot: boot, wallStart: wall().Round(0), bootStart: boot()}
}

// Elapsed is the time since the watch began, suspended time included.
func (w *Watch) Elapsed() time.Duration { return w.boot() - w.bootStart }

// Step is by how much the wall clock was set since the watch began, ahead or
// back; 0 within the tolerance of five minutes.
func (w *Watch) Step() time.Duration {
	step := w.wall().Round(0).Sub(w.wallStart) - w.Elapsed()
	if step.Abs() <= tolerance {
		return 0
	}
	return step
}

// maxFileLag is the longest tick of a kernel (100 a second), and some more.
const maxFileLag = 20 * time.Millisecond
