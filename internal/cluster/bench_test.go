package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore/sink"
	"umbra/internal/blob"
	"umbra/internal/cluster/clustertest"
	"umbra/internal/cluster/engine"
)

// BenchmarkAppend compares an append of 3 KB with the same row inserted by a bare
// client, in turns, with a synchronous standby. Figures are p50 and p99 in µs of
// each, over all turns.
func BenchmarkAppend(b *testing.B) {
	p := clustertest.Start(b, clustertest.Options{Standby: true})
	n := open(b, p.A.Database(b), "n1", func(o *Options) { o.Log = nil })
	data := make([]byte, 3<<10)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	ctx := context.Background()
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			var sinks []*Sink
			var next []uint64
			var conns []*engine.Conn
			for i := range writers {
				ws := fmt.Sprintf("w%d-%d-%d", writers, i, time.Now().UnixNano())
				if _, err := n.Create(ctx, Workspace{ID: ws, Kind: "virtual"}); err != nil {
					b.Fatal(err)
				}
				c, err := n.Claim(ctx, ws)
				if err != nil {
					b.Fatal(err)
				}
				k := n.Sink(c, blob.NewMemory(), time.Hour)
				tail, err := k.Tail(ctx)
				if err != nil {
					b.Fatal(err)
				}
				bare, err := n.e.Dial(ctx)
				if err != nil {
					b.Fatal(err)
				}
				defer n.e.Drop(bare)
				sinks, next, conns = append(sinks, k), append(next, tail.Next()), append(conns, bare)
			}
			var at atomic.Int64
			at.Store(time.Now().UnixNano())
			own := func(i int) error {
				g := &sink.Group{Pos: next[i], Seq: next[i], Data: data}
				next[i]++
				return sinks[i].Append(g)
			}
			bare := func(i int) error {
				_, err := conns[i].Exec(ctx, `INSERT INTO journal (ws, pos, epoch, nonce, data) VALUES ($1, $2, 1, 1, $3)`, fmt.Sprintf("bare%d", i), at.Add(1), data)
				return err
			}
			took := [2][]time.Duration{}
			for b.Loop() {
				for turn, do := range []func(int) error{own, bare} {
					var all sync.WaitGroup
					var mu sync.Mutex
					for i := range writers {
						all.Go(func() {
							mine := make([]time.Duration, 0, 20)
							for range 20 {
								begun := time.Now()
								if err := do(i); err != nil {
									b.Error(err)
									return
								}
								mine = append(mine, time.Since(begun))
							}
							mu.Lock()
							defer mu.Unlock()
							took[turn] = append(took[turn], mine...)
						})
					}
					all.Wait()
				}
			}
			for turn, name := range []string{"own", "bare"} {
				slices.Sort(took[turn])
				b.ReportMetric(float64(took[turn][len(took[turn])/2].Microseconds()), name+"-p50-µs")
				b.ReportMetric(float64(took[turn][len(took[turn])*99/100].Microseconds()), name+"-p99-µs")
			}
		})
	}
}
