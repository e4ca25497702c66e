package blame

import (
	"context"
	"runtime"
	"sync"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/internal/errs"
)

// script is the difference of a version from the one before it.
type script struct {
	changes []diff.Change
	lines   int // of the version
}

// A goroutine compares between minBlock and maxBlock versions that follow each other:
// each is a small difference from the one before, but the first of a block is read
// from its whole chain of differences.
const minBlock, maxBlock = 24, 256

// maxScriptWorkers bounds the blocks that are compared at once. Each holds two
// versions, and at most as many finished blocks wait. Of a file larger than
// largeFile, in bytes, only one block is compared at a time.
const (
	maxScriptWorkers = 4
	largeFile        = 4 << 20
)

// scripts computes the differences of versions that follow each other, several at
// once and ahead of their use. The next method is not safe for concurrent use.
type scripts struct {
	cancel  context.CancelFunc
	blocks  chan chan block
	list    []script
	running sync.WaitGroup
}

type block struct {
	list []script
	err  error
}

// newScripts begins at a version, which is compared with the one before it; the
// first one, with nothing. Whether the file is large is taken from its newest version.
func newScripts(ctx context.Context, st *gitstore.Store, versions []version, from int, whitespace, large bool) *scripts {
	ctx, cancel := context.WithCancel(ctx)
	workers := min(maxScriptWorkers, runtime.GOMAXPROCS(0)+1)
	if large {
		workers = 1
	}
	free := make(chan struct{}, workers)
	s := &scripts{cancel: cancel, blocks: make(chan chan block, workers)}
	versions = versions[:len(versions):len(versions)]
	size := min(max((len(versions)-from)/(2*workers), minBlock), maxBlock)
	s.running.Go(func() {
		defer close(s.blocks)
		for from < len(versions) {
			one := make(chan block, 1)
			select {
			case free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			select {
			case s.blocks <- one:
			case <-ctx.Done():
				return
			}
			first, end := from, min(len(versions), from+size)
			s.running.Go(func() {
				list, err := compareAll(ctx, st, versions[:end], first, whitespace)
				<-free
				one <- block{list, err}
			})
			from = end
		}
	})
	return s
}

// compareAll compares the versions from one on with those before them.
func compareAll(ctx context.Context, st *gitstore.Store, versions []version, from int, whitespace bool) ([]script, error) {
	var old []byte
	var err error
	blobs := st.Blobs()
	if from > 0 {
		if old, err = content(ctx, blobs, &versions[from-1]); err != nil {
			return nil, err
		}
	}
	out := make([]script, 0, len(versions)-from)
	for i := from; i < len(versions); i++ {
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(err, "")
		}
		now, err := content(ctx, blobs, &versions[i])
		if err != nil {
			return nil, err
		}
		out = append(out, script{compare(old, now, whitespace), count(now)})
		old = now
	}
	return out, nil
}

// next returns the script of the next version.
func (s *scripts) next(ctx context.Context) (out script, err error) {
	if len(s.list) == 0 {
		one, ok := <-s.blocks
		if !ok {
			return out, errs.Wrap(context.Cause(ctx), "")
		}
		b := <-one
		if b.err != nil {
			return out, b.err
		}
		s.list = b.list
	}
	out, s.list = s.list[0], s.list[1:]
	return out, nil
}

// close ends the work that nothing waits for.
func (s *scripts) close() {
	s.cancel()
	s.running.Wait()
}
