package measure

import (
	"context"
	"math"
	"time"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/stats"
)

// Subject is one way to record a change.
type Subject interface {
	Name() string
	// Durable says what survives a power failure once Change has returned.
	Durable() string
	// Change records one change, for one of several clients. What it takes is
	// measured.
	Change(ctx context.Context, client int, c corpus.Change) error
}

// Preparer is a subject that needs something done before a change which is not
// measured: where a peer records the files of a working tree, that is the
// writing of the file.
type Preparer interface {
	Prepare(c corpus.Change) error
}

// Serial is a subject that takes one change at a time. More clients would wait
// for each other: it is measured with one.
type Serial interface {
	OneAtATime()
}

// Lane is a subject and the project that it works on.
type Lane struct {
	Subject Subject
	// Files of its project.
	Files int
	// Clients at once; 0 is one. A Serial subject has one in any case.
	Clients int
	// Label distinguishes lanes of one subject; empty is the subject's name.
	Label string
}

func (l Lane) name() string {
	if l.Label != "" {
		return l.Label
	}
	return l.Subject.Name()
}

// Measured is what was found out about a lane.
type Measured struct {
	Name, Durable string
	Clients       int
	stats.Summary
	// Rate is the median of the rounds' changes a second.
	Rate float64
	// RoundP50 and RoundRate have one figure a round, seconds and changes a
	// second; NaN for a round without a change. They are what ratios are made of.
	RoundP50, RoundRate []float64 `json:"-"`
}

// P50Ratio returns how many times as long a change of m takes as one of peer.
func (m Measured) P50Ratio(peer Measured) float64 { return stats.Ratio(m.RoundP50, peer.RoundP50) }

// RateRatio returns how many times as many changes a second m makes as peer.
func (m Measured) RateRatio(peer Measured) float64 { return stats.Ratio(m.RoundRate, peer.RoundRate) }

// track gathers what one lane does.
type track struct {
	lane      Lane
	clients   int
	sequences []*corpus.Sequence
	all       []time.Duration
	roundP50  []float64
	roundRate []float64
}

func newTrack(l Lane, seed uint64) *track {
	clients := max(l.Clients, 1)
	if _, one := l.Subject.(Serial); one {
		clients = 1
	}
	t := &track{lane: l, clients: clients}
	for client := range clients {
		t.sequences = append(t.sequences, corpus.NewSequence(l.Files, client, clients, seed))
	}
	return t
}

// one makes one change and gives what it took.
func (t *track) one(ctx context.Context, client int) (time.Duration, error) {
	c := t.sequences[client].Next()
	if p, ok := t.lane.Subject.(Preparer); ok {
		if err := p.Prepare(c); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	err := t.lane.Subject.Change(ctx, client, c)
	return time.Since(start), err
}

// add takes in what a round gave; busy is the wall-clock time that its changes
// took.
func (t *track) add(samples []time.Duration, busy time.Duration) {
	t.all = append(t.all, samples...)
	if len(samples) == 0 || busy <= 0 {
		t.roundP50, t.roundRate = append(t.roundP50, math.NaN()), append(t.roundRate, math.NaN())
		return
	}
	t.roundP50 = append(t.roundP50, stats.Of(samples).P50.Seconds())
	t.roundRate = append(t.roundRate, float64(len(samples))/busy.Seconds())
}

func (t *track) measured() Measured {
	return Measured{Name: t.lane.name(), Durable: t.lane.Subject.Durable(), Clients: t.clients, Summary: stats.Of(t.all),
		Rate: stats.Median(t.roundRate), RoundP50: t.roundP50, RoundRate: t.roundRate}
}
