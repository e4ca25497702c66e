package gitstore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/sink/sinktest"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// Three owners take turns at random, each with a directory that it had before, and lose the
// log at any of its calls: each finds every commit that was acknowledged, and a sound history.
func TestOwnersInTurn(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 2
	} else if os.Getenv("UMBRA_SOAK") != "" {
		rounds = 4000
	}
	first := uint64(time.Now().UnixNano())
	for round := range rounds {
		ownersInTurn(t, first+uint64(round))
	}
}

func ownersInTurn(t *testing.T, seed uint64) {
	ctx, r, m := t.Context(), rand.New(rand.NewPCG(seed, 0)), sinktest.NewMemory()
	dirs := []vfs.FS{vfs.NewMem(vfs.MemOptions{}), vfs.NewMem(vfs.MemOptions{}), vfs.NewMem(vfs.MemOptions{})}
	var steps []string
	var acknowledged []Committed
	check := func(s *Store) {
		t.Helper()
		if rep, err := s.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
			t.Fatalf("seed %d: %v %v\n%s", seed, rep.Problems, err, strings.Join(steps, "\n"))
		}
		for _, c := range acknowledged {
			if id, err := s.CommitAt(ctx, c.Seq); err != nil || id != c.Commit {
				t.Fatalf("seed %d: commit %d is %s, not %s: %v\n%s", seed, c.Seq, id, c.Commit, err, strings.Join(steps, "\n"))
			}
		}
	}
	for range 25 {
		at := r.IntN(len(dirs))
		s := onSink(t, m, func(o *Options) { o.FS, o.Boot, o.MergeGrace = dirs[at], []string{"", "boot"}[r.IntN(2)], 1 })
		steps = append(steps, fmt.Sprint("opened at ", at))
		check(s)
		left, op := r.IntN(20), []string{"append", "put", "swap"}[r.IntN(3)]
		fault := []sinktest.Fault{sinktest.None, sinktest.Refused, sinktest.FencedNot, sinktest.FencedIs, sinktest.UnknownNot, sinktest.UnknownIs}[r.IntN(6)]
		m.OnCall = func(c sinktest.Call) sinktest.Fault {
			if c.Op == op {
				left--
			}
			if c.Op == op && left == 0 {
				return fault
			}
			return sinktest.None
		}
		for n := range r.IntN(25) {
			var did string
			var err error
			switch k := r.IntN(10); {
			case k < 6:
				var c Committed
				did = "put"
				if c, err = put(ctx, s, "", fmt.Sprint("f", r.IntN(30)), strings.Repeat(fmt.Sprintln(at, n), 1+r.IntN(300))); err == nil {
					acknowledged = append(acknowledged, c)
				}
			case k < 8:
				did, err = "seal", s.Seal(ctx)
			case k < 9:
				did, err = "maintain", s.Maintain(ctx)
			default:
				did = "collect"
				_, err = s.Collect(ctx, CollectOptions{})
			}
			steps = append(steps, fmt.Sprint(did, ": ", err))
		}
		if r.IntN(3) > 0 { // or it is killed
			_ = s.Close(ctx)
		}
		m.OnCall = nil
	}
	m.Sweep()
	s := onSink(t, m)
	check(s)
	need.NoError(t, s.Close(ctx))
}
