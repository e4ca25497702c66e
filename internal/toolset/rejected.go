package toolset

import (
	"fmt"
	"strings"

	"umbra/gitstore/message"
	"umbra/internal/review"
	"umbra/internal/workspace"
)

// rejected says in a sentence what a reviewer took back of the toolset's tasks since
// the model's last call; "" for nothing. Only workspaces that the call reads or
// changes are checked.
func (r *run) rejected() string {
	var names []string
	said := make(map[string]bool)
	for i := range r.l.rec.Mounts {
		m := &r.l.rec.Mounts[i]
		if r.opened[m.Workspace] == nil && !r.changes[m.Workspace] || !m.Scope.Reads() {
			continue
		}
		o, err := r.own(i)
		if err != nil || o.task == "" {
			continue
		}
		since, news := r.s.hear(r.l.rec.ID+"\x00"+o.task, o.ws, o.task, r)
		if !news {
			continue
		}
		list, err := review.Rejections(r.ctx, o.ws, o.task, since)
		if err != nil {
			r.s.o.Log.Warn("what was rejected of a task could not be read", "task", o.task, "error", err)
			continue
		}
		for _, x := range list {
			name := o.logical(x.Path)
			if said[name] {
				continue
			}
			said[name] = true
			if x.Message != "" {
				name += fmt.Sprintf(" (the reviewer says: %q)", x.Message)
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "\n\n[A reviewer rejected changes of yours and took them back, in " + strings.Join(names, ", ") +
		". Do not make them again, and read the files before you edit them.]"
}

// maxHeard bounds what hear remembers; what is forgotten is as after a start.
const maxHeard = 10_000

// hear returns up to which commit a toolset has heard of a task's rejections, and
// notes that it now has of all; news is false if there is no newer commit. After a
// start that is the task's last own change before this call.
func (s *Service) hear(key string, ws *workspace.Workspace, task string, r *run) (since uint64, news bool) {
	tip := ws.Store().Tip().Seq
	s.mu.Lock()
	since, known := s.heard[key]
	if s.heard == nil || len(s.heard) >= maxHeard {
		s.heard = make(map[string]uint64)
	}
	s.heard[key] = tip
	s.mu.Unlock()
	if known {
		return since, since < tip
	}
	recs, err := ws.Store().TaskRecords(r.ctx, task)
	if err != nil {
		return 0, false
	}
	for i := len(recs) - 1; i >= 0; i-- {
		if c := &recs[i]; c.Source != message.Revert && c.Entries > 0 && c.Commit != r.commit {
			return c.Seq, true
		}
	}
	return 0, len(recs) > 0
}
