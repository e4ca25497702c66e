package history

import (
	"bytes"
	"context"
	"encoding/binary"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// Told returns a task's summary in its encoded form. encode's result is cached
// until the history grows, for long tasks also across a restart (Keep).
func (c *Cache) Told(ctx context.Context, w *workspace.Workspace, id string, encode func(*Summary) ([]byte, error)) ([]byte, error) {
	s := c.slot(key{w.ID(), id})
	s.mu.Lock()
	defer s.mu.Unlock()
	st := w.Store()
	as := asOf(st)
	if s.told != nil && s.toldAs == as {
		return s.told, nil
	}
	if s.task == nil {
		if data := loadTold(w, id, as); data != nil {
			s.told, s.toldAs, s.toldKept = data, as, true
			return data, nil
		}
	}
	sum, err := s.summary(ctx, w, id)
	if err != nil {
		return nil, err
	}
	data, err := encode(sum)
	if err == nil && len(data) <= maxTold && asOf(st) == as {
		s.told, s.toldAs, s.toldKept = data, as, false
	}
	return data, err
}

// moment is what a summary depends on: where the history ends, where it begins,
// and how often it was rewritten since the start.
type moment struct {
	tip            object.ID
	from, rewrites uint64
}

func asOf(st *gitstore.Store) moment {
	return moment{st.Tip().Commit, st.Boundary().Seq, st.Rewrites()}
}

// header precedes a kept answer.
func (m moment) header() []byte {
	return binary.BigEndian.AppendUint64(append([]byte(toldMagic), m.tip[:]...), m.from)
}

const (
	toldMagic = "USUM\x01"
	// maxTold is the size up to which an answer is kept.
	maxTold = 8 << 20
)

func toldName(task string) string { return "summary-" + task }

// keepTold writes the answer if there is a new one; mu is held.
func (s *cached) keepTold(w *workspace.Workspace, task string) {
	if s.told == nil || s.toldKept || s.toldAs != asOf(w.Store()) {
		return
	}
	if err := write(w, s.toldAs.rewrites, toldName(task), append(s.toldAs.header(), s.told...)); err == nil {
		s.toldKept = true
	}
}

// loadTold gives the answer that is kept, if it is as of a moment.
func loadTold(w *workspace.Workspace, task string, as moment) []byte {
	data, err := w.ReadCache(toldName(task))
	if err != nil {
		return nil
	}
	if rest, ok := bytes.CutPrefix(data, as.header()); ok && len(rest) > 0 {
		return rest
	}
	return nil
}
