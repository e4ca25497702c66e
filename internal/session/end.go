package session

import (
	"context"
	"time"

	"umbra/internal/errs"
	"umbra/internal/state"
)

// Delete ends a session, and completes its task if it made it.
func (s *Service) Delete(ctx context.Context, id, requestID string) error {
	s.mu.Lock()
	e := s.byID[id]
	if e == nil || e.rec.Ended {
		s.mu.Unlock()
		return notFound()
	}
	r := e.rec
	s.mu.Unlock()
	// What has begun is finished, also when the caller leaves.
	return s.end(context.WithoutCancel(ctx), r, requestID)
}

// end is durable when the session is marked as ended: what fails after that is
// done later.
func (s *Service) end(ctx context.Context, r Record, requestID string) error {
	if !r.Ended {
		r.Ended = true
		if err := s.put(r); err != nil {
			return err
		}
	}
	if err := s.finish(ctx, r, requestID); err != nil && ctx.Err() == nil {
		s.o.Log.Warn("a session's end is not finished; tried again", "session", r.ID, "error", err)
	}
	return nil
}

func (s *Service) finish(ctx context.Context, r Record, requestID string) error {
	if r.OwnTask {
		if err := s.o.Tasks.Complete(ctx, r.Task, requestID); err != nil {
			return err
		}
	}
	return s.remove(r)
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

// sweep ends the sessions that are idle or whose workspace is gone, and goes on
// with those whose end was not finished.
func (s *Service) sweep(ctx context.Context) {
	var over []Record
	s.mu.Lock()
	for _, e := range s.byID {
		if e.rec.Pending {
			continue
		}
		_, known := s.o.Workspaces.Record(e.rec.Workspace)
		if e.rec.Ended || !known || s.idle(e) {
			over = append(over, e.rec)
		}
	}
	s.mu.Unlock()
	for _, r := range over {
		if ctx.Err() != nil {
			return
		}
		if err := s.end(ctx, r, ""); err != nil {
			s.o.Log.Warn("a session could not be ended", "session", r.ID, "error", err)
		}
	}
}

// flush keeps the last use of every session that was used.
func (s *Service) flush() error {
	var used []*entry
	var recs []Record
	s.mu.Lock()
	for _, e := range s.byID {
		if e.dirty && !e.rec.Ended && !e.rec.Pending {
			used, recs = append(used, e), append(recs, e.rec)
			e.dirty = false
		}
	}
	s.mu.Unlock()
	if len(recs) == 0 {
		return nil
	}
	err := s.o.State.Update(func(tx *state.Tx) error {
		for _, r := range recs {
			// One that was ended meanwhile stays what it is.
			var kept Record
			found, err := tx.Get(bucket, r.ID, &kept)
			if err != nil {
				return err
			}
			if !found || kept.Ended {
				continue
			}
			if err := tx.Put(bucket, r.ID, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		s.mu.Lock()
		for _, e := range used {
			e.dirty = true
		}
		s.mu.Unlock()
	}
	return errs.Wrap(err, "")
}
