package stats

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func ms(list ...int) []time.Duration {
	var out []time.Duration
	for _, n := range list {
		out = append(out, time.Duration(n)*time.Millisecond)
	}
	return out
}

func TestOf(t *testing.T) {
	hundred := make([]int, 101)
	for i := range hundred {
		hundred[i] = 100 - i // descending: Of must not rely on an order
	}
	for _, c := range []struct {
		name    string
		samples []time.Duration
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", ms(7), Summary{N: 1, P50: 7 * time.Millisecond, Max: 7 * time.Millisecond}},
		{"odd", ms(3, 1, 2), Summary{N: 3, P50: 2 * time.Millisecond, Max: 3 * time.Millisecond}},
		{"even", ms(4, 1), Summary{N: 2, P50: 2500 * time.Microsecond, Max: 4 * time.Millisecond}},
		{"enough for a p99", ms(hundred...), Summary{N: 101, P50: 50 * time.Millisecond, P99: 99 * time.Millisecond, Max: 100 * time.Millisecond}},
	} {
		before := slices.Clone(c.samples)
		if got := Of(c.samples); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
		if !slices.Equal(before, c.samples) {
			t.Errorf("%s: the samples were moved", c.name)
		}
	}
}

func TestQuantilesStayInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "ns"))
		}), 1, 300).Draw(t, "samples")
		s := Of(samples)
		if s.P50 > s.Max || s.P50 < slices.Min(samples) {
			t.Fatalf("p50 is outside of the samples: %+v", s)
		}
		if s.N >= ForP99 && (s.P99 < s.P50 || s.P99 > s.Max) {
			t.Fatalf("p99 is out of order: %+v", s)
		}
	})
}

func TestMedian(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		values []float64
		want   float64
	}{
		{nil, nan}, {[]float64{nan}, nan}, {[]float64{5}, 5}, {[]float64{9, 1, 5}, 5},
		{[]float64{1, 2, nan}, 1.5},
	} {
		if got := Median(c.values); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("Median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

func TestRatio(t *testing.T) {
	nan := math.NaN()
	for _, c := range []struct {
		name string
		a, b []float64
		want float64
	}{
		{"paired, not of the medians", []float64{1, 10, 100}, []float64{2, 20, 50}, 0.5},
		{"rounds that lack one are left out", []float64{nan, 4, 6}, []float64{1, 2, nan}, 2},
		{"no division by nothing", []float64{1, 3}, []float64{0, 1}, 3},
		{"of different length", []float64{2, 2, 2}, []float64{1}, 2},
		{"none", nil, []float64{1}, nan},
	} {
		if got := Ratio(c.a, c.b); got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDriftOfTheMachineCancels(t *testing.T) {
	// a takes twice as long as b throughout, on a machine that slows tenfold.
	var a, b []float64
	for round := range 30 {
		pace := 1 + 9*float64(round)/29
		a, b = append(a, 2*pace), append(b, pace)
	}
	if got := Ratio(a, b); math.Abs(got-2) > 1e-9 {
		t.Errorf("ratio %v, want 2", got)
	}
}

func TestSum(t *testing.T) {
	if got := Sum([]float64{1, 2, 3}, []float64{10, 20}); !slices.Equal(got, []float64{11, 22}) {
		t.Errorf("got %v", got)
	}
	if got := Sum(); len(got) != 0 {
		t.Errorf("got %v of nothing", got)
	}
	if got := Sum([]float64{1}, []float64{math.NaN()}); !math.IsNaN(got[0]) {
		t.Errorf("a round that one lacks gives %v", got)
	}
}
