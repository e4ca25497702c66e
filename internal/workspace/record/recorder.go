package record

import (
	"umbra/internal/policy"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/index"
	"umbra/internal/workspace/progress"
)

// Recorder brings changes of one workspace into its history. Its methods may be
// called from any goroutine; what a change set touches is locked by the caller.
type Recorder struct {
	Disk     *disk.Disk
	Progress *progress.Progress
	Policy   *policy.Rules // may be nil
	Owners   Owners
	// OnlyTask returns the only executing task, or "".
	OnlyTask func() string
	// Diverged is called where disk and history may differ by our doing.
	Diverged func()

	Sums    index.Sums
	decoded decoded
}

// Close frees what is kept of the history.
func (r *Recorder) Close() { r.decoded.drop() }
