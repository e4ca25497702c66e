// Package stats is the arithmetic of the benchmarks: quantiles of latencies, and
// ratios of two subjects that were measured in turn.
//
// A ratio is never one of two overall figures: each round gives its own, from
// slices that were measured next to each other, and the median of those is used. A
// machine that slows down for a second slows both sides of one ratio, and affects
// no other.
package stats

import (
	"math"
	"slices"
	"time"
)

// ForP99 is the number of samples below which a 99th percentile says nothing
// that the longest sample does not.
const ForP99 = 100

// Summary is what a set of latencies comes to.
type Summary struct {
	N        int
	P50, P99 time.Duration // P99 is 0 below ForP99 samples
	Max      time.Duration
}

// Of sums samples up; their order does not matter and is kept.
func Of(samples []time.Duration) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	s := Summary{N: len(sorted), P50: quantile(sorted, 0.5), Max: sorted[len(sorted)-1]}
	if s.N >= ForP99 {
		s.P99 = quantile(sorted, 0.99)
	}
	return s
}

// quantile gives the q-th quantile of sorted samples, between two of them in
// proportion.
func quantile(sorted []time.Duration, q float64) time.Duration {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	part := at - float64(low)
	return sorted[low] + time.Duration(part*float64(sorted[low+1]-sorted[low]))
}

// Median gives the middle of some figures, the mean of the middle two where
// their number is even, and NaN of none. NaNs are left out.
func Median(values []float64) float64 {
	sorted := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	if len(sorted) == 0 {
		return math.NaN()
	}
	slices.Sort(sorted)
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// Ratio gives the median over rounds of a's figure divided by b's. Rounds in
// which either has none (NaN, or b's is 0) are left out; NaN where none is left.
func Ratio(a, b []float64) float64 {
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if !math.IsNaN(a[i]) && !math.IsNaN(b[i]) && b[i] != 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	return Median(ratios)
}

// Sum adds the figures of several subjects round by round: what it costs to do
// all of it. A round that one of them lacks is NaN.
func Sum(series ...[]float64) []float64 {
	var sum []float64
	for i, s := range series {
		for round, v := range s {
			if i == 0 {
				sum = append(sum, v)
			} else if round < len(sum) {
				sum[round] += v
			}
		}
		sum = sum[:min(len(sum), len(s))]
	}
	return sum
}
