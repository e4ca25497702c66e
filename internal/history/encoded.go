package history

import (
	"bytes"
	"context"
	"encoding/binary"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/workspace"
)

// Encoded returns a task's summary in its encoded form. encode's result is cached
// until the history grows, for long tasks also across a restart (Keep).
func (c *Cache) Encoded(ctx context.Context, w *workspace.Workspace, id string, encode func(*Summary) ([]byte, error)) ([]byte, error) {
	s := c.slot(key{w.ID(), id})
	s.mu.Lock()
	defer s.mu.Unlock()
	st := w.Store()
	as := asOf(st)
	if s.encoded != nil && s.encodedAs == as {
		return s.encoded, nil
	}
	if s.task == nil {
		if data := loadEncoded(w, id, as); data != nil {
			s.encoded, s.encodedAs, s.encodedKept = data, as, true
			return data, nil
		}
	}
	sum, err := s.summary(ctx, w, id)
	if err != nil {
		return nil, err
	}
	data, err := encode(sum)
	if err == nil && len(data) <= maxEncoded && asOf(st) == as {
		s.encoded, s.encodedAs, s.encodedKept = data, as, false
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
	return binary.BigEndian.AppendUint64(append([]byte(encodedMagic), m.tip[:]...), m.from)
}

const (
	encodedMagic = "USUM\x01"
	// maxEncoded is the size up to which an answer is kept.
	maxEncoded = 8 << 20
)

func encodedName(task string) string { return "summary-" + task }

// keepEncoded writes the answer if there is a new one; mu is held.
func (s *cached) keepEncoded(w *workspace.Workspace, task string) {
	if s.encoded == nil || s.encodedKept || s.encodedAs != asOf(w.Store()) {
		return
	}
	if err := write(w, s.encodedAs.rewrites, encodedName(task), append(s.encodedAs.header(), s.encoded...)); err == nil {
		s.encodedKept = true
	}
}

// loadEncoded gives the answer that is kept, if it is as of a moment.
func loadEncoded(w *workspace.Workspace, task string, as moment) []byte {
	data, err := w.ReadCache(encodedName(task))
	if err != nil {
		return nil
	}
	if rest, ok := bytes.CutPrefix(data, as.header()); ok && len(rest) > 0 {
		return rest
	}
	return nil
}
