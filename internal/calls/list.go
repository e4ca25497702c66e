package calls

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"umbra/internal/errs"
	"umbra/internal/task"
)

// Filter says which calls are wanted; the zero value selects all.
type Filter struct {
	Workspace, Task, Subtask string
	Open                     *bool
	// Within selects the calls that are open, or ended so shortly ago while this
	// server ran; at most mostRecent of the latter.
	Within time.Duration

	Sees task.Sees
}

// mostRecent bounds how many ended calls are in memory.
const mostRecent = 1000

// recent is a call that has ended, and when.
type recent struct {
	rec Record
	at  time.Time // with a monotonic reading
}

// ended keeps a call that has just ended in memory. The caller must hold s.mu.
func (s *Service) ended(r Record) {
	if len(s.past) == mostRecent {
		s.past = slices.Delete(s.past, 0, mostRecent/4)
	}
	s.past = append(s.past, recent{r, s.o.Now()})
}

// current returns the open calls and, with within, those that ended so shortly ago, the
// newest first. Where several servers share the records, those of the others are of the
// records: of those that ended, among the mostRecent that began last.
func (s *Service) current(within time.Duration) ([]Record, error) {
	var out []Record
	for _, l := range s.opened() {
		out = append(out, l.snapshot())
	}
	if within > 0 {
		now := s.o.Now()
		s.mu.Lock()
		for _, r := range s.past {
			if now.Sub(r.at) <= within {
				out = append(out, r.rec)
			}
		}
		s.mu.Unlock()
	}
	if s.keep.fs == nil {
		others, err := s.keep.current(within, s.o.Now())
		if err != nil {
			return nil, err
		}
		out = append(out, others...)
	}
	// What is in memory comes first, and counts.
	slices.SortStableFunc(out, func(a, b Record) int { return strings.Compare(orderKey(&a), orderKey(&b)) })
	return slices.CompactFunc(out, func(a, b Record) bool { return a.ID == b.ID }), nil
}

// validPlace reports whether a place in the list has the form of an orderKey.
func validPlace(s string) bool {
	order, id, ok := strings.Cut(s, " ")
	_, err := strconv.ParseUint(order, 16, 64)
	return ok && err == nil && len(order) == 16 && task.ValidID(id)
}

// List returns up to limit calls, the newest first, that come after a place, and
// the place to continue at; "" if there are no more. A place that no List returned is
// errs.Invalid.
func (s *Service) List(f Filter, after string, limit int) (out []Record, next string, err error) {
	if after != "" && !validPlace(after) {
		return nil, "", errs.BadCursor()
	}
	last := ""
	take := func(key string, r *Record) bool {
		ws, known := s.o.Workspaces.Record(r.Workspace)
		switch {
		case f.Workspace != "" && r.Workspace != f.Workspace, f.Task != "" && r.Task != f.Task, f.Subtask != "" && r.Subtask != f.Subtask, f.Open != nil && *f.Open != (r.Status == Open),
			!known, f.Sees != nil && !f.Sees(ws.Place()):
			return true
		case len(out) == limit:
			next = last
			return false
		}
		out, last = append(out, *r), key
		return true
	}
	if f.Within > 0 || f.Open != nil && *f.Open {
		list, err := s.current(f.Within)
		if err != nil {
			return nil, "", err
		}
		for _, r := range list {
			if key := orderKey(&r); key > after && !take(key, &r) {
				break
			}
		}
		return out, next, nil
	}
	by := ""
	switch {
	case f.Task != "":
		by = byTask(f.Task)
	case f.Workspace != "":
		by = byWorkspace(f.Workspace)
	}
	err = s.keep.list(by, after, func(key string, r *Record) bool {
		s.mu.Lock()
		l := s.open[r.ID]
		s.mu.Unlock()
		if l != nil {
			*r = l.snapshot()
		}
		return take(key, r)
	})
	return out, next, err
}
