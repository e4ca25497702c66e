package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"umbra/gitstore/sink"
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

// writtenWhilePacked stops a node that packs between its reads and its changes, and has
// another one change, remove and add records among those that it has read. Each second
// time the answer to the first is lost.
func writtenWhilePacked(t *testing.T, p *clustertest.Pair) {
	s := newScene(t, p)
	r1, r2 := records(t, s.n1), records(t, s.n2)
	newPacking(r1, r2)
	l := newLedger("made")
	put := func(i int, value string) { l.put(t, r2, fmt.Sprintf("%03d", i), value) }
	remove := func(i int) { l.remove(t, r2, fmt.Sprintf("%03d", i)) }
	for i := range 30 {
		put(2*i, "first")
	}
	for round := range 8 {
		for i := range 6 { // some are in a pack already
			put(2*i+round, "before")
		}
		s.freeze.freeze("pack")
		done := make(chan error, 1)
		go func() {
			_, err := r1.packBucket(context.Background(), "made", math.MaxInt64)
			done <- err
		}()
		s.freeze.awaitStuck(t, "pack")
		put(round, "meanwhile")
		remove(round + 2)
		put(2*round+31, "new")
		if round%2 == 1 {
			s.link.CutBeforeAnswer()
		}
		s.freeze.thaw()
		if err := <-done; err != nil && round%2 == 0 {
			t.Error(err)
		}
		l.check(t, r1)
	}
}

// ledger is what the records of a bucket have to be after changes by any nodes, of
// which the outcomes of some are not known.
type ledger struct {
	bucket string
	mu     sync.Mutex
	may    map[string][]string // by key, what it may have; empty: no record
}

func newLedger(bucket string) *ledger { return &ledger{bucket: bucket, may: map[string][]string{}} }

func (l *ledger) put(t testing.TB, r state.Backend, key, value string) {
	l.change(t, key, value, r.Update(func(tx state.BackendTx) error { return tx.Put(l.bucket, key, []byte(value)) }))
}

func (l *ledger) remove(t testing.TB, r state.Backend, key string) {
	l.change(t, key, "", r.Update(func(tx state.BackendTx) error { return tx.Delete(l.bucket, key) }))
}

func (l *ledger) change(t testing.TB, key, value string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.may[key] = []string{value}
	case errors.Is(err, sink.ErrUnknown):
		if l.may[key] == nil {
			l.may[key] = []string{""}
		}
		l.may[key] = append(l.may[key], value)
	case !errors.Is(err, sink.ErrRefused):
		t.Errorf("neither refused nor unknown: %v", err)
	}
}

// check reads the bucket in each way.
func (l *ledger) check(t testing.TB, r *Records) {
	t.Helper()
	var walked, backwards, all, gotten []string
	keys := slices.Sorted(maps.Keys(l.may))
	need.NoError(t, r.View(func(tx state.BackendTx) error {
		to := func(list *[]string) func(string, []byte) (bool, error) {
			return func(key string, value []byte) (bool, error) {
				*list = append(*list, key+"="+string(value))
				return true, nil
			}
		}
		if err := errors.Join(tx.Ascend(l.bucket, "", to(&walked)), tx.Descend(l.bucket, "\xff", to(&backwards))); err != nil {
			return err
		}
		for _, key := range keys {
			value, found, err := tx.Get(l.bucket, key)
			if err != nil {
				return err
			}
			if found {
				gotten = append(gotten, key+"="+string(value))
			}
			if !slices.Contains(l.may[key], string(value)) {
				t.Errorf("%s is %q, and may be %q", key, value, l.may[key])
			}
		}
		return nil
	}))
	need.NoError(t, r.Each(context.Background(), func(bucket, key string, value []byte) error {
		if bucket == l.bucket {
			all = append(all, key+"="+string(value))
		}
		return nil
	}))
	slices.Reverse(backwards)
	if !slices.Equal(walked, gotten) || !slices.Equal(walked, backwards) || !slices.Equal(walked, all) {
		t.Errorf("the records by key are %q, upwards %q, downwards %q, by Each %q", gotten, walked, backwards, all)
	}
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
	if rows != 0 || packs < 2 {
		t.Errorf("%d rows and %d packs are left", rows, packs)
	}
}
