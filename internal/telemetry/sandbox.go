package telemetry

import "time"

// Sandbox counts the runs of one engine.
type Sandbox struct {
	Engine  string // its name: js, luau
	running Gauge
	done    Counter
	failed  Counter
	refused Counter
	Took    *Histogram
}

// NewSandbox makes one.
func NewSandbox(engine string) *Sandbox {
	return &Sandbox{Engine: engine, Took: NewTimes(.001, .005, .01, .025, .05, .1, .25, .5, 1, 5, 30, 60, 300)}
}

// Begin counts a run that was asked for.
func (s *Sandbox) Begin() {
	if s != nil {
		s.running.Add(1)
	}
}

// End counts how it ended, after so long: failed is the program's own doing, an
// error that it was refused or could not be carried out.
func (s *Sandbox) End(took time.Duration, failed bool, err error) {
	if s == nil {
		return
	}
	s.running.Add(-1)
	switch {
	case err != nil:
		s.refused.Add(1)
		return
	case failed:
		s.failed.Add(1)
	default:
		s.done.Add(1)
	}
	s.Took.Observe(int64(took))
}

// Load gives how many run or wait to run, and how many have ended how.
func (s *Sandbox) Load() (running int64, done, failed, refused uint64) {
	return s.running.Load(), s.done.Load(), s.failed.Load(), s.refused.Load()
}
