package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore/sink"
	"umbra/internal/cluster"
	"umbra/internal/telemetry"
)

// meter counts what a node does with the logs of its workspaces. It is safe for
// concurrent use.
type meter struct {
	appends, seals, opens *telemetry.Histogram
	// unknown are groups that were not confirmed in time, fenced calls of an owner that
	// another had replaced.
	unknown, fenced telemetry.Counter
	// Claims of a workspace that no node owned, that this life owned, and whose owner
	// was dead.
	resting, own, dead telemetry.Counter
	garbage            atomic.Int64 // objects that wait for the sweeper, as of the last look
	shared             atomic.Bool  // another database sweeps the object store
}

func newMeter() *meter {
	return &meter{appends: telemetry.NewTimes(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10),
		seals: telemetry.NewTimes(.001, .005, .01, .05, .1, .5, 1, 5, 10), opens: telemetry.NewTimes(.005, .01, .025, .05, .1, .15, .25, .5, 1, 2.5, 5, 10)}
}

func (m *meter) claimed(c *cluster.Claim) {
	switch c.Former {
	case 0:
		m.resting.Add(1)
	case c.Life.ID:
		m.own.Add(1)
	default:
		m.dead.Add(1)
	}
}

// claims calls each with the claims of every reason.
func (m *meter) claims(each func(reason string, n uint64)) {
	each("resting", m.resting.Load())
	each("own", m.own.Load())
	each("dead", m.dead.Load())
}

// metered is the log of a claimed workspace, counted.
type metered struct {
	*cluster.Sink
	meter *meter

	mu   sync.Mutex
	tail []unsealed // by position
}

// unsealed is a group of the log that no manifest covers.
type unsealed struct {
	pos   uint64
	bytes int
	since time.Time
}

// Tail is sink.Sink's. The groups that it finds count as if they were new.
func (s *metered) Tail(ctx context.Context) (*sink.Tail, error) {
	t, err := s.Sink.Tail(ctx)
	if err == nil {
		for i := range t.Groups {
			s.added(&t.Groups[i])
		}
	}
	return t, err
}

// Append is sink.Sink's.
func (s *metered) Append(g *sink.Group) error {
	began := time.Now()
	err := s.Sink.Append(g)
	switch {
	case err == nil:
		s.meter.appends.Since(began)
		s.added(g)
	case errors.Is(err, sink.ErrFenced):
		s.meter.fenced.Add(1)
	case !errors.Is(err, sink.ErrRefused):
		s.meter.unknown.Add(1)
	}
	return err
}

// Swap is sink.Sink's.
func (s *metered) Swap(ctx context.Context, sw *sink.Switch) error {
	began := time.Now()
	err := s.Sink.Swap(ctx, sw)
	switch {
	case err == nil:
		s.meter.seals.Since(began)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.tail = slices.DeleteFunc(s.tail, func(u unsealed) bool { return u.pos <= sw.Manifest.Base })
	case errors.Is(err, sink.ErrFenced):
		s.meter.fenced.Add(1)
	}
	return err
}

func (s *metered) added(g *sink.Group) {
	if len(g.Data) == 0 {
		return // of a claim
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tail = append(s.tail, unsealed{g.Pos, len(g.Data), time.Now()})
}

// unsealed returns how many bytes of the log are in no pack, and for how long the
// oldest have been there.
func (s *metered) unsealed() (bytes int64, oldest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.tail {
		bytes += int64(u.bytes)
	}
	if len(s.tail) > 0 {
		oldest = time.Since(s.tail[0].since)
	}
	return bytes, oldest
}
