package toolset

import (
	"context"
	"time"

	"umbra/internal/clock"
	"umbra/internal/errs"
	"umbra/internal/state"
)

// A toolset that belongs to one process of a client may have a lease: unused for
// so long it is removed, with the tasks that it made. So a client that is killed
// leaves nothing behind. A start begins every lease again, for this server. The end of a lease is kept in its record, which a use moves now and then,
// and always before it has passed: servers that share the records find by it what to
// end.

// MaxIdle is the longest lease.
const MaxIdle = 24 * time.Hour

// How often leases are checked: four times in the shortest, within these.
const (
	minLook = 20 * time.Millisecond
	maxLook = time.Minute
)

const (
	// othersEvery is how often it is looked for what other servers changed of the
	// toolsets that this one has ready.
	othersEvery = 2 * time.Second
	// looseFor is after how long loose tasks are completed by a server that may not be
	// the one which made them so.
	looseFor = 15 * time.Minute
	// clientsEvery is how often clients that have left are looked for.
	clientsEvery = time.Hour
)

// use notes that the toolset is in use.
func (s *Service) use(l *live) {
	if l.rec.Idle == 0 {
		return
	}
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[l.rec.ID] = now
	if l.rec.Idle/4 < s.shortest {
		s.shortest = l.rec.Idle / 4
		select {
		case s.woken <- struct{}{}:
		default:
		}
	}
}

// over reports whether the lease has run out, as far as this server knows.
func (s *Service) over(r *Record, now time.Time) bool {
	if r.Idle == 0 {
		return false
	}
	s.mu.RLock()
	used := s.used[r.ID]
	s.mu.RUnlock()
	if used.Before(s.started) {
		used = s.started
	}
	return now.Sub(used) > r.Idle && now.After(r.Until)
}

// watchLeases ends toolsets whose lease has run out, until Close.
func (s *Service) watchLeases() {
	clients := time.Now()
	for {
		s.mu.RLock()
		pause := max(s.shortest, minLook)
		s.mu.RUnlock()
		select {
		case <-s.ending.Done():
			return
		case <-s.woken:
			continue
		case <-time.After(pause):
		}
		s.endLeases(s.ending)
		if time.Since(clients) >= clientsEvery {
			clients = time.Now()
			s.endClients(s.ending)
			if s.o.State.Shared() {
				s.settleAll(s.ending, looseFor)
			}
		}
	}
}

// keepUses moves the ends of the leases of what was used.
func (s *Service) keepUses() error {
	s.mu.RLock()
	ids := make([]string, 0, len(s.used))
	for id := range s.used {
		ids = append(ids, id)
	}
	s.mu.RUnlock()
	if len(ids) == 0 {
		return nil
	}
	kept := map[string]time.Time{}
	err := s.o.State.Update(func(tx *state.Tx) error {
		clear(kept)
		var all []Record
		err := tx.GetMany(bucket, ids, func(key string, raw []byte) error {
			r, err := parse(key, raw)
			all = append(all, r)
			return err
		})
		if err != nil {
			return err
		}
		for i := range all {
			old := all[i]
			s.mu.RLock()
			used := s.used[old.ID]
			s.mu.RUnlock()
			until := used.Add(old.Idle).UTC()
			kept[old.ID] = until
			if old.Idle == 0 || until.Sub(old.Until) < min(old.Idle/4, 30*time.Second) {
				continue
			}
			now := old
			now.Until = until
			if err := records.Replace(tx, &old, &now); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return errs.Wrap(err, "")
	}
	now := s.o.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		// A use is forgotten once it does not hold the lease any more.
		if until, there := kept[id]; !there || now.After(until) {
			delete(s.used, id)
		}
	}
	return nil
}

// endLeases deletes the toolsets whose lease has run out.
func (s *Service) endLeases(ctx context.Context) {
	if err := s.keepUses(); err != nil {
		s.o.Log.Warn("the last use of toolsets is not kept", "error", err)
	}
	ids, err := records.IDs(s.o.State, leased, state.TimeBytes, 0, state.TimeKey(s.o.Now()))
	if err != nil {
		s.o.Log.Warn("the leases of toolsets could not be read", "error", err)
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		ended, err := s.remove(ctx, id, Who{}, func(r *Record) bool { return s.over(r, s.o.Now()) })
		switch {
		case errs.Is(err, errs.NotFound):
		case err != nil:
			s.o.Log.Warn("an unused toolset could not be removed", "toolset", id, "error", err)
		case ended:
			s.o.Log.Info("an unused toolset was removed: its lease ended", "toolset", id)
		}
	}
}

// followOthers looks for what other servers changed, for clients that listen.
func (s *Service) followOthers() {
	for range clock.Ticks(s.ending, othersEvery) {
		s.lookAgain()
	}
}

func (s *Service) lookAgain() {
	s.mu.RLock()
	ids := make([]string, 0, len(s.ready))
	for id := range s.ready {
		ids = append(ids, id)
	}
	s.mu.RUnlock()
	now := make(map[string][]byte, len(ids))
	err := s.o.State.View(func(tx *state.Tx) error {
		return tx.GetMany(bucket, ids, func(key string, raw []byte) error {
			now[key] = append([]byte{}, raw...)
			return nil
		})
	})
	if err != nil {
		return // the next time tries again
	}
	for _, id := range ids {
		raw, found := now[id]
		_, _ = s.cached(id, raw, found) // a record that cannot be read fails its calls
	}
}

// Close ends the watch over leases. The toolsets stay.
func (s *Service) Close() {
	s.end()
	s.leasing.Wait()
	if err := s.keepUses(); err != nil {
		s.o.Log.Warn("the last use of toolsets is not kept", "error", err)
	}
}
