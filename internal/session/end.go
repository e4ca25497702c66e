package session

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"umbra/internal/errs"
	"umbra/internal/state"
)

// Delete ends a session, and completes its task if it made it.
func (s *Service) Delete(ctx context.Context, id, requestID string) error {
	r, ended, err := s.update(id, func(r *Record) bool {
		over := r.Ended
		r.Ended = true
		return !over
	})
	if err != nil {
		return err
	}
	if !ended {
		return notFound()
	}
	// What has begun is finished, also when the caller leaves.
	s.finish(context.WithoutCancel(ctx), r, requestID)
	return nil
}

// finish completes the task of a session that is marked as ended, and removes the
// session; what fails is done later.
func (s *Service) finish(ctx context.Context, r Record, requestID string) {
	var err error
	if r.OwnTask {
		err = s.o.Tasks.Complete(ctx, r.Task, requestID)
	}
	if err == nil {
		err = s.remove(r.ID)
	}
	if err != nil && ctx.Err() == nil {
		s.o.Log.Warn("a session's end is not finished; tried again", "session", r.ID, "error", err)
	}
}

// run ends what is idle, and keeps when sessions were used.
func (s *Service) run(ctx context.Context) {
	every := min(max(s.o.Idle/8, 20*time.Millisecond), flushEvery)
	tick := time.NewTicker(every)
	defer tick.Stop()
	flushed := s.o.Now()
	for {
		s.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := s.o.Now(); now.Sub(flushed) >= min(flushEvery, s.o.Idle/2) {
			flushed = now
			if err := s.flush(); err != nil {
				s.o.Log.Warn("the last use of sessions is not kept", "error", err)
			}
		}
	}
}

// sweepBatch is how many sessions one sweep ends at most.
const sweepBatch = 1000

// settledBy is how long a session that another server makes may be in the making.
const settledBy = 15 * time.Minute

// sweep ends the sessions that are idle, and goes on with those whose end was not
// finished. Several servers may do that at a time.
func (s *Service) sweep(ctx context.Context) {
	warn := func(err error) {
		if err != nil && !errs.Is(err, errs.NotFound) {
			s.o.Log.Warn("idle sessions could not be ended", "error", err)
		}
	}
	idle, err := records.IDs(s.o.State, byUse, state.TimeBytes, sweepBatch, state.TimeKey(s.o.Now().Add(-s.o.Idle)))
	warn(err)
	for _, id := range idle {
		if ctx.Err() != nil {
			return
		}
		r, ended, err := s.update(id, func(r *Record) bool {
			over := !r.Pending && !r.Ended && s.idle(*r)
			r.Ended = over
			return over
		})
		warn(err)
		if ended && err == nil {
			s.finish(ctx, r, "")
		}
	}
	left, err := records.IDs(s.o.State, unsettled, 0, sweepBatch, "")
	warn(err)
	for _, id := range left {
		if ctx.Err() != nil {
			return
		}
		r, found, err := s.get(id)
		warn(err)
		if found && r.Ended {
			s.finish(ctx, r, "")
		}
	}
	if s.o.State.Shared() {
		s.settleAll(ctx, settledBy)
	}
}

// flush keeps the last use of every session that was used, and of those that are used
// now.
func (s *Service) flush() error {
	now := s.o.Now().UTC()
	last := map[string]time.Time{}
	s.mu.Lock()
	for id, u := range s.uses {
		switch {
		case u.inside > 0:
			u.last, u.dirty = now, true
			last[id] = now
		case u.dirty:
			last[id] = u.last
		default:
			delete(s.uses, id)
		}
	}
	s.mu.Unlock()
	if len(last) == 0 {
		return nil
	}
	err := s.o.State.Update(func(tx *state.Tx) error {
		var all []Record
		err := tx.GetMany(bucket, slices.Sorted(maps.Keys(last)), func(key string, raw []byte) error {
			var r Record
			err := json.Unmarshal(raw, &r)
			all = append(all, r)
			return err
		})
		if err != nil {
			return err
		}
		for i := range all {
			old := all[i]
			// One that was ended meanwhile stays what it is.
			if old.Ended || old.Pending || !last[old.ID].After(old.LastUsed) {
				continue
			}
			used := old
			used.LastUsed = last[old.ID]
			if err := records.Replace(tx, &old, &used); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return errs.Wrap(err, "")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, kept := range last {
		if u := s.uses[id]; u != nil && u.last.Equal(kept) {
			u.dirty = false
		}
	}
	return nil
}
