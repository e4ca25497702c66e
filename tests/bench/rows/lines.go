package rows

import (
	"fmt"
	"math"
	"slices"
	"time"

	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

var latencyColumns = []string{"", "clients", "p50 ms", "p99 ms", "longest ms", "changes/s", "p50 ÷ umbra's", "durable when it answers"}

// latencyLines writes a line a subject, each compared with umbra's server (or, where
// that does not take part, the first subject).
func latencyLines(r *report.Result, list []measure.Measured, own string) {
	r.Columns = latencyColumns
	for _, m := range list {
		ratio := math.NaN()
		if ours, ok := peers.Find(list, own); ok && ours.Name != m.Name {
			ratio = m.P50Ratio(ours)
		}
		r.Line(m.Name, fmt.Sprint(m.Clients), report.Millis(m.P50), report.Millis(m.P99), report.Millis(m.Max),
			report.Number(m.Rate, ""), report.Times(ratio), m.Durable)
	}
}

// p50s gives a subject's medians by round, none where it did not take part.
func p50s(list []measure.Measured, name string) []float64 {
	m, _ := peers.Find(list, name)
	return m.RoundP50
}

func rates(list []measure.Measured, name string) []float64 {
	m, _ := peers.Find(list, name)
	return m.RoundRate
}

// slower returns how many times as long a's change takes as b's.
func slower(list []measure.Measured, a, b string) float64 {
	return stats.Ratio(p50s(list, a), p50s(list, b))
}

// faster returns how many times as many changes a second a makes as b.
func faster(list []measure.Measured, a, b string) float64 {
	return stats.Ratio(rates(list, a), rates(list, b))
}

// reportMissing notes the peers that this machine does not have, each once.
func reportMissing(r *report.Result, missing []string) {
	for _, m := range slices.Compact(slices.Sorted(slices.Values(missing))) {
		r.Note("Left out: %s.", m)
	}
}

// divided gives a/b, NaN where either was not measured.
func divided(a, b time.Duration) float64 {
	if a == 0 || b == 0 {
		return math.NaN()
	}
	return float64(a) / float64(b)
}
