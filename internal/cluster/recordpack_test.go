package cluster

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/cluster/engine"
	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/state/statetest"
)

// packing is records that are packed after each change, whatever their buckets.
type packing struct {
	*inTurns
	mu      sync.Mutex
	buckets map[string]bool
}

func newPacking(nodes ...*Records) *packing {
	b := &packing{inTurns: &inTurns{nodes: nodes}, buckets: map[string]bool{}}
	for _, r := range nodes {
		r.packLeast = 1
		r.packable = func(bucket string) bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.buckets[bucket] = true
			return true
		}
	}
	return b
}

// pack packs all rows of the buckets that were read.
func (b *packing) pack() error {
	b.mu.Lock()
	all := slices.Sorted(maps.Keys(b.buckets))
	b.mu.Unlock()
	for _, bucket := range all {
		if _, err := b.next().packBucket(context.Background(), bucket, math.MaxInt64); err != nil {
			return err
		}
	}
	return nil
}

func (b *packing) Update(fn func(state.BackendTx) error) error {
	if err := b.inTurns.Update(fn); err != nil {
		return err
	}
	return b.pack()
}

func testPackedConformance(t *testing.T, p *clustertest.Pair) {
	statetest.Conform(t, func(t *testing.T) state.Backend {
		url := p.A.Database(t)
		return newPacking(records(t, open(t, url, "n1")), records(t, open(t, url, "n2")))
	})
}

// testPackWhileChanged counts on two nodes, makes and removes records, while two others
// pack: what is lost, done twice or removed and there again is seen in the end.
func testPackWhileChanged(t *testing.T, p *clustertest.Pair) {
	url := p.A.Database(t)
	b := newPacking(records(t, open(t, url, "n1")), records(t, open(t, url, "n2")))
	const keys, rounds = 12, 90
	name := func(i int) string { return fmt.Sprint("k", i%keys) }
	stop := make(chan struct{})
	var packers, changers sync.WaitGroup
	for range 2 {
		packers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := b.pack(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for c := range 4 {
		changers.Go(func() {
			for i := range rounds {
				if err := add(b.inTurns, name(c+i)); err != nil {
					t.Error(err)
				}
				own := fmt.Sprintf("%d-%d", c, i)
				if err := b.inTurns.Update(func(tx state.BackendTx) error { return tx.Put("made", own, []byte(own)) }); err != nil {
					t.Error(err)
				}
				if i%2 == 0 {
					continue
				}
				if err := b.inTurns.Update(func(tx state.BackendTx) error { return tx.Delete("made", own) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	changers.Wait()
	close(stop)
	packers.Wait()
	check := func(when string) {
		t.Helper()
		total := 0
		for i := range keys {
			total += sumOf(t, b, name(i))
		}
		if total != 4*rounds {
			t.Errorf("%s: counted to %d, not %d", when, total, 4*rounds)
		}
		var walked, backwards, all []string
		need.NoError(t, b.View(func(tx state.BackendTx) error {
			if err := tx.Ascend("made", "", func(key string, value []byte) (bool, error) {
				walked = append(walked, key)
				return key == string(value), nil
			}); err != nil {
				return err
			}
			return tx.Descend("made", "\xff", func(key string, _ []byte) (bool, error) {
				backwards = append(backwards, key)
				return true, nil
			})
		}))
		slices.Reverse(backwards)
		need.NoError(t, b.next().Each(context.Background(), func(bucket, key string, _ []byte) error {
			if bucket == "made" {
				all = append(all, key)
			}
			return nil
		}))
		if len(walked) != 4*rounds/2 || !slices.Equal(walked, backwards) || !slices.Equal(walked, all) {
			t.Errorf("%s: %d records upwards, %d downwards, %d by Each; want %d", when, len(walked), len(backwards), len(all), 4*rounds/2)
		}
	}
	check("after changes")
	need.NoError(t, b.pack())
	check("packed")
	var rows, packs int
	need.NoError(t, b.nodes[0].n.e.Do(context.Background(), func(ctx context.Context, c *engine.Conn) error {
		return c.QueryRow(ctx, `SELECT (SELECT count(*) FROM record), (SELECT count(*) FROM packed)`).Scan(&rows, &packs)
	}))
	if rows != 0 || packs < 3 {
		t.Errorf("%d rows and %d packs are left", rows, packs)
	}
}
