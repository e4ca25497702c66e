package calls

import (
	"slices"
	"time"

	"umbra/internal/claims"
	"umbra/internal/clock"
)

// Status is the state of a call.
type Status string

// The statuses. A call is lost when its time has passed, its task was ended, or the
// server stopped that ran its command.
const (
	Open      Status = "open"
	OK        Status = "ok"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
	Lost      Status = "lost"
)

// Path is one that a call declared.
type Path struct {
	Path string `json:"path"`
	// Sum is "sha256:<hex>" of the content that the tool is about to write; empty
	// where the call did not send it.
	Sum string `json:"sum,omitempty"`
}

// Record is what is kept of a call.
type Record struct {
	ID        string `json:"id"`
	Hash      string `json:"hash"` // of the request that began it
	Workspace string `json:"workspace"`
	Task      string `json:"task"`
	Subtask   string `json:"subtask,omitempty"`
	By
	Paths     []Path `json:"paths,omitempty"`
	EndPaths  []Path `json:"end_paths,omitempty"`
	OnlyPaths bool   `json:"only_paths,omitempty"`
	Layer     bool   `json:"layer,omitempty"`
	// Hosted is set where the server runs the call's command: both end with the server.
	Hosted   bool   `json:"hosted,omitempty"`
	Status   Status `json:"status"`
	ExitCode *int   `json:"exit_code,omitempty"`

	TTL     time.Duration `json:"ttl"`
	Begun   time.Time     `json:"begun"`
	Touched time.Time     `json:"touched"`
	clocks
	Ended time.Time `json:"ended,omitzero"`
	// Since is the number of the last commit before the session's call before this
	// one ended; 0 for a session's first call. From is the number of the last
	// commit before the call began, Through of the last one when it ended, at least 1;
	// 0 until what the call did is known.
	Since   uint64 `json:"since,omitempty"`
	From    uint64 `json:"from"`
	Through uint64 `json:"through,omitempty"`
	// Commits are the numbers of its commits, Shared of those that others may have
	// made too.
	Commits   []uint64      `json:"commits,omitempty"`
	Shared    []uint64      `json:"shared,omitempty"`
	Overwrote []Overwritten `json:"overwrote,omitempty"`
	// TakenBack is the commit that took back what the call did against the policy.
	TakenBack string `json:"taken_back,omitempty"`
}

// clocks is what does not change when the wall clock is set.
type clocks struct {
	// How long ago Touched is follows from the time since the system's start Boot, as
	// long as that is the same.
	Boot      string        `json:"boot,omitempty"`
	TouchedAt time.Duration `json:"touched_at,omitempty"`
	// Order is above that of all calls that began before; 0 in records of old, whose
	// order is that of Begun.
	Order uint64 `json:"order,omitempty"`
}

// By says whose a call is, and what it runs.
type By struct {
	Agent   string `json:"agent,omitempty"`
	Session string `json:"session,omitempty"`
	Actor   string `json:"actor,omitempty"`
	Tool    string `json:"tool,omitempty"`
	Model   string `json:"model,omitempty"`
	Prompt  string `json:"prompt,omitempty"`
	Command string `json:"command,omitempty"` // SHA-256 of the command, where it is recorded
}

// Overwritten is a path whose content a call deleted or replaced as a whole, and
// whose it was. No commit of the project's own git has that content.
type Overwritten struct {
	Path   string    `json:"path"`
	Task   string    `json:"task,omitempty"`
	Actor  string    `json:"actor,omitempty"`
	Source string    `json:"source"`
	At     time.Time `json:"at"`
}

// touch notes that the call's time starts now.
func (r *Record) touch(now time.Time) {
	r.Touched, r.Boot, r.TouchedAt = now.UTC(), clock.BootID(), clock.Boot()
}

// left is how much of the call's time is left, at least a second.
func (r *Record) left(now time.Time) time.Duration {
	past := now.Sub(r.Touched)
	if r.Boot != "" && r.Boot == clock.BootID() {
		past = clock.Boot() - r.TouchedAt
	}
	return max(time.Second, r.TTL-max(0, past))
}

// order is the call's place among all.
func (r *Record) order() uint64 {
	if r.Order == 0 {
		return uint64(r.Begun.UnixNano())
	}
	return r.Order
}

// unfinished reports whether the call has ended, and what it did is to be found yet.
func (r *Record) unfinished() bool { return r.Status != Open && r.Through == 0 }

// claim is the call as package claims judges it.
func (r *Record) claim() *claims.Call {
	c := &claims.Call{ID: r.ID, OnlyPaths: r.OnlyPaths, Layer: r.Layer, Paths: make(map[string]string, len(r.Paths))}
	for _, p := range r.Paths {
		c.Paths[p.Path] = p.Sum
	}
	return c
}

// declares reports whether a path is one of those that a call declared.
func declares(list []Path, path string) bool {
	return slices.ContainsFunc(list, func(p Path) bool { return p.Path == path })
}
