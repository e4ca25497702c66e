package cache_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"umbra/gitstore/cache"
)

// one is what a value of a kilobyte costs.
const one = 1024 + cache.Overhead

func fill(c *cache.Cache[int, string], from, to int) {
	for k := from; k < to; k++ {
		c.Put(k, "v", 1024)
	}
}

// kept counts what is there without using it: every look is a use, so it looks
// from the one that was used first.
func kept(c *cache.Cache[int, string], from, to int) (n int) {
	for k := from; k < to; k++ {
		if v, ok := c.Get(k); ok && v == "v" {
			n++
		}
	}
	return n
}

func TestLeastRecentlyUsedGoesFirstWhereverItIs(t *testing.T) {
	b := cache.NewBudget(20 * one)
	old, young := cache.New[int, string](b), cache.New[int, string](b)
	fill(old, 0, 10)
	fill(young, 0, 10)
	if n := kept(old, 0, 2); n != 2 { // used again: 2 to 9 are the oldest now
		t.Fatalf("%d of 2 kept within the budget", n)
	}
	fill(young, 10, 14)
	if b.Used() > b.Limit() {
		t.Errorf("%d bytes kept, of %d", b.Used(), b.Limit())
	}
	if n := kept(old, 0, 2); n != 2 {
		t.Errorf("%d of 2 kept that were used again", n)
	}
	if n := kept(old, 2, 6); n != 0 {
		t.Errorf("%d of the 4 oldest kept", n)
	}
	if n := kept(old, 6, 10); n < 2 {
		t.Errorf("%d of 4 kept, for which there was room", n)
	}
	if n := kept(young, 0, 14); n != 14 {
		t.Errorf("%d of the 14 youngest kept", n)
	}
}

func TestClosedGivesItsPartBackAtOnce(t *testing.T) {
	b := cache.NewBudget(20 * one)
	stays, goes := cache.New[int, string](b), cache.New[int, string](b)
	fill(stays, 0, 5)
	fill(goes, 0, 5)
	goes.Close()
	if b.Used() != 5*one {
		t.Errorf("%d bytes kept, not %d", b.Used(), 5*one)
	}
	fill(goes, 0, 5) // a late reader
	if _, ok := goes.Get(0); ok || b.Used() != 5*one {
		t.Errorf("a closed cache keeps: %d bytes", b.Used())
	}
	stays.Clear()
	if _, ok := stays.Get(0); ok || b.Used() != 0 {
		t.Errorf("%d bytes kept after Clear", b.Used())
	}
	fill(stays, 0, 20)
	if n := kept(stays, 0, 20); n != 20 {
		t.Errorf("%d of 20 kept after Clear", n)
	}
}

func TestLargeValues(t *testing.T) {
	b := cache.NewBudget(20 * one)
	c, other := cache.New[int, string](b), cache.New[int, string](b)
	c.Put(1, "v", b.Limit())
	if _, ok := c.Get(1); ok || b.Used() != 0 {
		t.Errorf("a value is kept that is larger than the budget: %d bytes", b.Used())
	}
	fill(other, 0, 10)
	c.Put(1, "v", b.Limit()-cache.Overhead)
	if _, ok := c.Get(1); !ok || b.Used() != b.Limit() {
		t.Errorf("the value put last is not kept: %d bytes", b.Used())
	}
	none := cache.New[int, string](cache.NewBudget(0))
	fill(none, 0, 1)
	if _, ok := none.Get(0); ok {
		t.Error("a budget of 0 keeps something")
	}
}

// TestManyCachesAtOnce has them filled, emptied and closed side by side. The sum
// must come out at nothing, and never be far beyond the limit.
func TestManyCachesAtOnce(t *testing.T) {
	const workers = 8
	b := cache.NewBudget(200 * one)
	shared := cache.New[int, string](b)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			own := cache.New[int, string](b)
			for range 20_000 {
				c := own
				if r.IntN(2) == 0 {
					c = shared
				}
				switch k := r.IntN(400); r.IntN(100) {
				case 0:
					c.Clear()
				case 1:
					own.Close()
					own = cache.New[int, string](b)
				default:
					if _, ok := c.Get(k); !ok {
						c.Put(k, "v", 1024)
					}
				}
				if used := b.Used(); used > b.Limit()+b.Limit()/16+2*workers*one || used < 0 {
					t.Errorf("%d bytes kept, of %d", used, b.Limit())
					return
				}
			}
			own.Close()
		})
	}
	wg.Wait()
	shared.Close()
	if b.Used() != 0 {
		t.Errorf("%d bytes are kept without a cache", b.Used())
	}
}

// BenchmarkPutFull puts into a full budget that many caches share.
func BenchmarkPutFull(b *testing.B) {
	for _, c := range []struct {
		name   string
		caches int
	}{{"1 cache", 1}, {"1000 caches", 1000}} {
		b.Run(c.name, func(b *testing.B) {
			budget := cache.NewBudget(20_000 * one)
			all := make([]*cache.Cache[int, string], c.caches)
			for i := range all {
				all[i] = cache.New[int, string](budget)
			}
			k := 0
			for ; k < 20_000; k++ {
				all[k%len(all)].Put(k, "v", 1024)
			}
			b.ReportAllocs()
			for b.Loop() {
				all[k%len(all)].Put(k, "v", 1024)
				k++
			}
		})
	}
}
