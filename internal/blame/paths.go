package blame

import (
	"context"
	"hash/maphash"
	"runtime"
	"slices"
	"strings"
	"sync"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/errs"
)

// paths knows which commits touched which path. A path is known by its hash: a
// commit too many is seen to have changed nothing.
type paths struct {
	seed    maphash.Seed
	through uint64
	byPath  map[uint64][]uint32 // numbers of commits, ascending
	wide    []uint32            // commits that do not list their paths
}

func newPaths() *paths { return &paths{seed: maphash.MakeSeed(), byPath: make(map[uint64][]uint32)} }

func (p *paths) hash(path string) uint64 {
	return maphash.String(p.seed, strings.TrimSuffix(path, "/"))
}

// touched gives the numbers of the commits up to one that may have touched a
// path, the newest first, until fn returns false.
func (p *paths) touched(path string, upTo uint64, fn func(seq uint64) (more bool, err error)) error {
	own, wide := p.byPath[p.hash(path)], p.wide
	i, _ := slices.BinarySearch(own, uint32(upTo)+1)
	j, _ := slices.BinarySearch(wide, uint32(upTo)+1)
	for i > 0 || j > 0 {
		var seq uint32
		switch {
		case j == 0 || i > 0 && own[i-1] >= wide[j-1]:
			if j > 0 && own[i-1] == wide[j-1] {
				j--
			}
			i--
			seq = own[i]
		default:
			j--
			seq = wide[j]
		}
		if more, err := fn(uint64(seq)); err != nil || !more {
			return err
		}
	}
	return nil
}

// read takes in the commits up to the tip.
func (p *paths) read(ctx context.Context, st *gitstore.Store, tip uint64) error {
	const batch = 4096
	for p.through < tip {
		first, last := max(p.through+1, st.Boundary().Seq, 1), min(tip, max(p.through, st.Boundary().Seq)+batch)
		recs := make([]gitstore.Record, 0, last-first+1)
		if err := st.Records(ctx, first, last, func(r gitstore.Record) error {
			recs = append(recs, r)
			return nil
		}); err != nil {
			return err
		}
		named := make([][]uint64, len(recs))
		wide := make([]bool, len(recs))
		if err := each(ctx, len(recs), func(i int) (err error) {
			named[i], wide[i], err = p.names(ctx, st, &recs[i])
			return err
		}); err != nil {
			return err
		}
		for i := range recs {
			seq := uint32(recs[i].Seq)
			if wide[i] {
				p.wide = append(p.wide, seq)
			}
			for _, h := range named[i] {
				if list := p.byPath[h]; len(list) == 0 || list[len(list)-1] != seq {
					p.byPath[h] = append(list, seq)
				}
			}
		}
		p.through = last
	}
	return nil
}

// names gives the hashes of the paths that a commit lists; wide where it does not
// list all.
func (p *paths) names(ctx context.Context, st *gitstore.Store, r *gitstore.Record) (named []uint64, wide bool, err error) {
	if r.Source == message.Baseline || r.Seq == st.Boundary().Seq || int(r.Entries) > message.MaxListed {
		return nil, true, nil
	}
	if r.Entries == 0 {
		return nil, false, nil
	}
	c, err := st.ReadCommit(ctx, r.Commit)
	if err != nil {
		return nil, false, err
	}
	for i := range c.Message.Entries {
		e := &c.Message.Entries[i]
		named = append(named, p.hash(e.Path))
		if e.OldPath != "" {
			named = append(named, p.hash(e.OldPath))
		}
	}
	return named, c.Message.Condensed, nil
}

// each calls fn with every index below n, on all processors.
func each(ctx context.Context, n int, fn func(i int) error) error {
	workers := min(n, runtime.GOMAXPROCS(0))
	failed := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w * n / workers; i < (w+1)*n/workers; i++ {
				if failed[w] = ctx.Err(); failed[w] == nil {
					failed[w] = fn(i)
				}
				if failed[w] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range failed {
		if err != nil {
			return errs.Wrap(err, "")
		}
	}
	return nil
}
