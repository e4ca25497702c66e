package watcher

import (
	"time"

	"umbra/internal/wspath"
)

// note changes what is to be reported to a workspace. The caller must hold mu.
func (w *Watcher) note(s *space, change func(*pending)) {
	if s.removed || w.closed {
		return
	}
	change(&s.pend)
	now := time.Now()
	s.pend.last = now
	if _, ok := w.unreported[s]; !ok {
		s.pend.first = now
		w.unreported[s] = struct{}{}
		w.nudge()
	} else if s.pend.urgent() {
		w.nudge()
	}
}

// notice is like note; the caller must not hold mu.
func (w *Watcher) notice(s *space, change func(*pending)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.note(s, change)
}

// urgent reports whether there is something that needs no quiet.
func (p *pending) urgent() bool { return p.lost != "" || p.gone }

// due returns when the pending changes are to be reported.
func (p *pending) due(now time.Time, o Options) time.Time {
	at := p.last.Add(o.Quiet)
	if most := p.first.Add(o.Most); most.Before(at) {
		at = most
	}
	if p.urgent() {
		at = now
	}
	if at.Before(p.hold) {
		return p.hold
	}
	return at
}

// renewGap is the least time between two walks of all workspaces: errors may come
// in floods.
const renewGap = 500 * time.Millisecond

// reporter reports what has waited long enough. It wakes up only while something is
// pending.
func (w *Watcher) reporter() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		due, next := w.due()
		for _, s := range due {
			w.report(s)
		}
		if len(due) > 0 {
			continue
		}
		if !next.IsZero() {
			timer.Reset(time.Until(next))
		}
		select {
		case <-w.done:
			return
		case <-w.kick:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// due gives the workspaces whose time has come, and when the next one's will.
func (w *Watcher) due() (due []*space, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, time.Time{}
	}
	now := time.Now()
	sooner := func(t time.Time) {
		if next.IsZero() || t.Before(next) {
			next = t
		}
	}
	if _, lost := w.losses.mark(); lost {
		if at := w.renewed.Add(renewGap); now.Before(at) {
			sooner(at)
		} else {
			w.renewed = now
			w.renewAll()
		}
	}
	for s := range w.unreported {
		if at := s.pend.due(now, w.opts); !now.Before(at) {
			due = append(due, s)
		} else {
			sooner(at)
		}
	}
	return due, next
}

// renewAll has every workspace walked again, since it is unknown whose events were
// lost. The caller must hold mu.
func (w *Watcher) renewAll() {
	why, err := w.losses.take()
	w.log.Warn("events of changed files were lost; all workspaces are scanned", "reason", string(why), "error", err)
	for _, s := range w.spaces {
		w.enqueue(s, op{kind: opRenew, path: wspath.Root, reason: why})
	}
}

// report calls the workspace's callbacks with its pending changes, and returns these.
func (w *Watcher) report(s *space) pending {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	// A root that was moved away or covered by a mount raises no event of its
	// own; everything in it would seem deleted.
	id, err := identify(s.root)
	w.mu.Lock()
	switch {
	case s.removed || w.closed:
		w.mu.Unlock()
		return pending{}
	case s.watching && (err != nil || id != s.rootID):
		// A walk makes sure; should it be back by then, everything is reported.
		s.pend.hold = time.Now().Add(w.opts.Quiet)
		w.enqueue(s, op{kind: opLook, path: wspath.Root})
		w.mu.Unlock()
		return pending{gone: true}
	}
	p := s.pend
	s.pend = pending{}
	delete(w.unreported, s)
	w.mu.Unlock()

	if p.gone {
		if s.opts.Gone != nil {
			s.opts.Gone()
		}
		return p
	}
	if paths := p.paths(); len(paths) > 0 && s.opts.Dirty != nil {
		w.batches.Add(1)
		s.opts.Dirty(paths)
	}
	if p.rules && s.opts.RulesChanged != nil {
		s.opts.RulesChanged()
	}
	if p.lost != "" {
		w.lost.Add(1)
		if s.opts.Lost != nil {
			s.opts.Lost(p.lost)
		}
	}
	return p
}
