package history

import (
	"context"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// spread calls fn with each number below n, a run of them on each processor,
// until one fails.
func spread(ctx context.Context, n int, fn func(i int) error) error {
	workers := min(runtime.GOMAXPROCS(0), (n+15)/16)
	group, ctx := errgroup.WithContext(ctx)
	for k := range workers {
		group.Go(func() error {
			for i := n * k / workers; i < n*(k+1)/workers; i++ {
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				if err := fn(i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}
