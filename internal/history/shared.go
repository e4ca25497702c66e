package history

import (
	"context"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// shared gathers the changes that a task and others may have made, if they
// were not claimed since.
type shared struct {
	seen     int    // commits read
	rewrites uint64 // of the history, when they were
	list     []Entry
	claimed  map[object.ID]map[string]bool // paths that became one task's, by the shared commit
}

// read takes in the commits since the last call.
func (s *shared) read(ctx context.Context, w *workspace.Workspace, task string) error {
	if rewrites := w.Store().Rewrites(); rewrites != s.rewrites {
		*s = shared{rewrites: rewrites}
	}
	recs, all, err := w.Store().Claimed(ctx, s.seen)
	if err == nil && all < s.seen {
		*s = shared{rewrites: s.rewrites}
		recs, all, err = w.Store().Claimed(ctx, 0)
	}
	if err != nil || len(recs) == 0 {
		return err
	}
	if err := readCommits(ctx, w, recs, func(c *gitstore.Commit, of []workspace.ChangeEntry) { s.add(c, of, task) }); err != nil {
		return err
	}
	s.seen = all
	return nil
}

func (s *shared) add(c *gitstore.Commit, of []workspace.ChangeEntry, task string) {
	if c.Message.Source != message.Shared {
		for i := range of {
			if s.claimed == nil {
				s.claimed = make(map[object.ID]map[string]bool)
			}
			paths := s.claimed[of[i].Claims]
			if paths == nil {
				paths = make(map[string]bool)
				s.claimed[of[i].Claims] = paths
			}
			paths[of[i].Path] = true
		}
		return
	}
	var subtasks []string // a task's sub-agents may be claimants side by side
	for _, claimant := range c.Message.Trailers(message.KeyClaimantTask) {
		if id, subtask, _ := strings.Cut(claimant, " "); id == task {
			subtasks = append(subtasks, subtask)
		}
	}
	if subtasks == nil {
		return
	}
	for i := range of {
		e := newEntry(&of[i], i)
		e.subtasks = subtasks
		of[i].ID, of[i].SubtaskID = idOf(e.Seq, e.n), subtasks[0]
		s.list = append(s.list, *e)
	}
}

// entries returns the unclaimed ones.
func (s *shared) entries() []Entry {
	out := make([]Entry, 0, len(s.list))
	for _, e := range s.list {
		if !s.claimed[e.Commit][e.Path] {
			out = append(out, e)
		}
	}
	return out
}

// SharedEntries gives the shared changes that a task may have made, oldest
// first, as its changelog has them: without a number, and not those that became
// one task's. With a subtask, those of its calls alone.
func (c *Cache) SharedEntries(ctx context.Context, w *workspace.Workspace, task, subtask string) ([]workspace.ChangeEntry, error) {
	s := c.slot(key{w.ID(), task})
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.shared.read(ctx, w, task); err != nil {
		return nil, err
	}
	var out []workspace.ChangeEntry
	for _, e := range s.shared.entries() {
		if subtask != "" && !e.Of(subtask) {
			continue
		}
		x := *e.ChangeEntry
		x.ID, x.SubtaskID = 0, ""
		out = append(out, x)
	}
	return out, nil
}
