package task

import (
	"sync"
	"time"

	"umbra/internal/errs"
)

const (
	// placeFor is how long the workspace of a task is remembered. A task stays on its
	// workspace: this bounds for how long a record that was removed, with its ID used
	// again elsewhere, is taken for what it was.
	placeFor = 2 * time.Second
	// maxPlaces bounds what is remembered.
	maxPlaces = 10_000
)

// places remembers the workspaces of tasks, where records are shared: a node needs one
// for each request that it forwards, and the owner reads the record itself. The zero
// value is ready for use.
type places struct {
	mu   sync.Mutex
	byID map[string]placed
}

type placed struct {
	workspace string
	until     time.Time
}

func (p *places) get(id string, now time.Time) (workspace string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.byID[id]
	return at.workspace, ok && now.Before(at.until)
}

func (p *places) put(id, workspace string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID == nil || len(p.byID) >= maxPlaces {
		p.byID = make(map[string]placed)
	}
	p.byID[id] = placed{workspace, now.Add(placeFor)}
}

// Where returns the workspace of a task, "" if there is none. It opens nothing. Where
// records are shared, it may be that of a task that was deleted moments before.
func (s *Service) Where(id string) (workspaceID string, err error) {
	if ws, ok := s.places.get(id, s.o.Now()); ok {
		return ws, nil
	}
	rec, ok, err := s.index.get(id)
	if !ok || err != nil || rec.Deleted {
		return "", errs.Wrap(err, "")
	}
	s.remember(rec)
	return rec.Workspace, nil
}

// remember keeps the workspace of a task for Where.
func (s *Service) remember(rec Record) {
	if s.index.shared && !rec.Pending && !rec.Deleted {
		s.places.put(rec.ID, rec.Workspace, s.o.Now())
	}
}
