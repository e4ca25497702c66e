package model

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"umbra/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spend is how long the random tests run.
func spend(t *testing.T) time.Duration {
	t.Helper()
	if s := os.Getenv("UMBRA_MODEL_TIME"); s != "" {
		d, err := time.ParseDuration(s)
		need.NoError(t, err)
		return d
	}
	switch {
	case os.Getenv("UMBRA_SOAK") != "":
		return 10 * time.Minute
	case testing.Short():
		return 8 * time.Second
	}
	return 30 * time.Second
}

// sequence makes and runs one sequence of a seed.
func sequence(seed uint64) (inMemory bool, kind profile, steps []step, err error) {
	r := rand.New(rand.NewPCG(seed, 4))
	n := generator{r: r, p: profile(r.IntN(int(profiles))), cuts: cutRate()}
	inMemory = r.IntN(2) == 0
	g, err := newRig(inMemory, files())
	if err != nil {
		return inMemory, n.p, nil, err
	}
	defer func() {
		if rerr := g.remove(); err == nil {
			err = rerr
		}
	}()
	for range 5 + r.IntN(40) {
		s := n.next(g)
		steps = append(steps, s)
		if err := g.run(s); err != nil {
			return inMemory, n.p, steps, err
		}
	}
	if err := g.checkEnd(); err != nil {
		return inMemory, n.p, steps, err
	}
	if r.IntN(8) == 0 {
		err = g.checkWithGit()
	}
	return inMemory, n.p, steps, err
}

// TestModel runs random sequences for a time.
// cutRate is how often the power fails, as a multiple of the usual rate; 0: never.
func cutRate() (n int) {
	if v := os.Getenv("UMBRA_MODEL_CUTS"); v != "" {
		if _, err := fmt.Sscan(v, &n); err != nil {
			panic("UMBRA_MODEL_CUTS is not a number")
		}
	}
	return n
}

func TestModel(t *testing.T) {
	// In the short form always the same ones, so that it fails for a reason.
	seed, one, most := uint64(1), false, 1200
	if os.Getenv("UMBRA_MODEL_TIME") != "" || os.Getenv("UMBRA_SOAK") != "" {
		seed, most = new(maphash.Hash).Sum64()>>16, math.MaxInt
	}
	if s := os.Getenv("UMBRA_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		need.NoError(t, err)
		seed, one = n, true
	}
	begin, until := seed, time.Now().Add(spend(t))
	sequences, steps, failed := 0, 0, 0
	for ; sequences == 0 || !one && sequences < most && time.Now().Before(until); seed++ {
		inMemory, kind, script, err := sequence(seed)
		sequences++
		steps += len(script)
		if one {
			t.Logf("%v, in memory %t:\n%s", kind, inMemory, show(script))
		}
		if err == nil {
			continue
		}
		short, serr := shrink(inMemory, script, err, time.Now().Add(30*time.Second))
		t.Errorf("UMBRA_SEED=%d (%v, in memory %t), step %d: %v\nas short as\n%s\t# %v", seed, kind, inMemory, len(script), err, show(short), serr)
		if failed++; failed == 5 {
			break
		}
	}
	t.Logf("seeds from %d: %d sequences, %d steps", begin, sequences, steps)
}
