package toolset

import (
	"context"
	"time"
)

// A toolset that belongs to one process of a client may have a lease: where
// it is not used for so long it is removed, with the tasks that it made. So a client
// that is killed leaves nothing behind. A start begins every lease again.

// MaxIdle is the longest lease.
const MaxIdle = 24 * time.Hour

// How often leases are checked: four times in the shortest, within these.
const (
	minLook = 20 * time.Millisecond
	maxLook = time.Minute
)

// use notes that a client still needs the toolset.
func (l *live) use(now time.Time) {
	if l.rec.Idle > 0 {
		l.used.Store(&now)
	}
}

// over reports whether the lease has run out.
func (l *live) over(now time.Time) bool {
	used := l.used.Load()
	return l.rec.Idle > 0 && used != nil && now.Sub(*used) > l.rec.Idle
}

// watchLeases starts what ends toolsets whose lease has run out, once there is
// one with a lease. Close ends it.
func (s *Service) watchLeases() {
	s.leases.Do(func() {
		s.leasing.Go(func() {
			for {
				select {
				case <-s.ending.Done():
					return
				case <-time.After(s.nextLook()):
					s.endLeases(s.ending)
				}
			}
		})
	})
}

func (s *Service) nextLook() time.Duration {
	pause := maxLook
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, l := range s.byID {
		if l.rec.Idle > 0 {
			pause = min(pause, l.rec.Idle/4)
		}
	}
	return max(pause, minLook)
}

// endLeases deletes the toolsets whose lease has run out.
func (s *Service) endLeases(ctx context.Context) {
	s.endClients(ctx)
	var over []string
	now := s.o.Now()
	s.mu.RLock()
	for id, l := range s.byID {
		if l.over(now) && !l.rec.Hidden {
			over = append(over, id)
		}
	}
	s.mu.RUnlock()
	for _, id := range over {
		if ctx.Err() != nil {
			return
		}
		if err := s.remove(ctx, id, Who{}, func(l *live) bool { return l.over(s.o.Now()) }); err != nil {
			s.o.Log.Warn("an unused toolset could not be removed", "toolset", id, "error", err)
			continue
		}
		s.o.Log.Info("an unused toolset was removed: its lease ended", "toolset", id)
	}
}

// Close ends the watch over leases. The toolsets stay.
func (s *Service) Close() {
	s.end()
	s.leases.Do(func() {}) // none begins any more
	s.leasing.Wait()
}
