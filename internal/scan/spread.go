package scan

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"umbra/internal/errs"
)

// Spread calls fn with each index below n, on several goroutines, until one
// fails.
func Spread(ctx context.Context, n, workers int, fn func(ctx context.Context, i int) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := fn(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return errs.Wrap(context.Cause(ctx), "")
}
