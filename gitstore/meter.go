package gitstore

import (
	"time"

	"umbra/internal/telemetry"
)

// Meter counts what stores do. Its parts may be nil: they count nothing then.
type Meter struct {
	Commits *telemetry.Counter   // made durable
	Bytes   *telemetry.Counter   // appended to journals
	Groups  *telemetry.Histogram // members of a group, which one fdatasync made durable
	Sync    *telemetry.Histogram // nanoseconds of a group's write and fdatasync
	Publish *telemetry.Histogram // nanoseconds until stock git saw what was durable
}

// NewMeter makes a meter that counts everything.
func NewMeter() *Meter {
	return &Meter{Commits: &telemetry.Counter{}, Bytes: &telemetry.Counter{},
		Groups:  telemetry.NewHistogram(1, 2, 4, 8, 16, 32, 64, 128, 256, maxGroup),
		Sync:    telemetry.NewTimes(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5),
		Publish: telemetry.NewTimes(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5)}
}

// durable counts a group that was written and synced since began.
func (m *Meter) durable(g *group, began time.Time) {
	m.Sync.Since(began)
	m.Groups.Observe(int64(len(g.members)))
	m.Commits.Add(uint64(len(g.records)))
	m.Bytes.Add(uint64(len(g.buf)))
}

// Figures are measurements of a store.
type Figures struct {
	Tip     uint64        // number of the newest durable commit
	Shown   uint64        // of the newest that stock git sees
	Unseen  time.Duration // how long the oldest has waited that it does not see; 0: there is none
	Journal int64         // bytes of the journals, with the room made ahead
	Packs   int64         // bytes of our packs and their indexes
	Behind  int           // refs that could not be moved yet
}

// Figures gives them, from memory.
func (s *Store) Figures() Figures {
	f := Figures{Shown: s.pub.shown.Load(), Packs: s.r.Packs.Bytes(true) + s.r.Large.Bytes()}
	f.Tip, f.Behind = max(s.Tip().Seq, f.Shown), len(s.pub.pending())
	s.pub.tmu.Lock()
	if since := s.pub.oldest; !since.IsZero() && f.Tip > f.Shown {
		f.Unseen = max(time.Since(since), 0)
	}
	s.pub.tmu.Unlock()
	for _, j := range *s.r.Live.Load() {
		f.Journal += max(j.Room, j.Used())
	}
	return f
}
