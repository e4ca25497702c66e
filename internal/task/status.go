package task

import (
	"umbra/internal/errs"
)

// Status is the state of a task.
type Status string

// The statuses (contracts/tasks.md, PATCH /tasks/{id}).
const (
	Executing Status = "executing"
	Paused    Status = "paused"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// ParseStatus reads a status; false for any other word.
func ParseStatus(s string) (Status, bool) {
	switch st := Status(s); st {
	case Executing, Paused, Completed, Failed, Cancelled:
		return st, true
	}
	return "", false
}

// Ended reports whether a task in this status is over for good.
func (s Status) Ended() bool { return s == Completed || s == Failed || s == Cancelled }

// Writable gives nil if a task in this status may change files, or the
// errs.Conflict that says why not (task_ended, task_paused).
func (s Status) Writable() error {
	switch {
	case s.Ended():
		return errs.New(errs.Conflict, "task_ended", "The task has ended (%s); it takes no more changes.", string(s))
	case s == Paused:
		return errs.New(errs.Conflict, "task_paused", "The task is paused; set its status to \"executing\" first.")
	}
	return nil
}

// next gives nil if a task may go from s to to. The same status again is
// allowed, also an ended one: a client that repeats itself asks for what is.
func (s Status) next(to Status) error {
	if s == to || !s.Ended() {
		return nil
	}
	return errs.New(errs.Conflict, "task_ended", "The task has ended (%s); that is final.", string(s))
}
