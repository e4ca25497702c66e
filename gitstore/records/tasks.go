package records

import (
	"context"
	"slices"
)

// OfTask gives a task's sequence numbers, ascending.
func (r *Index) OfTask(ctx context.Context, task string) ([]uint32, error) {
	if err := r.Filled(ctx); err != nil {
		return nil, err
	}
	r.mu.RLock()
	seqs, loaded := r.byTask[task], r.byTask != nil
	seqs = seqs[:len(seqs):len(seqs)]
	r.mu.RUnlock()
	if !loaded {
		var err error
		if seqs, err = r.loadTasks(task); err != nil {
			return nil, err
		}
	}
	if r.opt.Base != nil {
		return r.before(ctx, task, seqs)
	}
	return seqs, nil
}

// loadTasks fills byTask, and gives a task's own numbers.
func (r *Index) loadTasks(task string) ([]uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byTask == nil {
		all := make(map[string][]uint32)
		// What the boundary's own commit changed is not known any more: it is
		// where the history begins, as a baseline is.
		begin := r.first
		if begin > 1 && r.opt.Base == nil {
			begin++
		}
		buf := make([]byte, 256*recordSize)
		for last := r.n + uint64(len(r.tail)); begin <= last; {
			recs, err := r.chunkLocked(begin, last, buf)
			if err != nil {
				return nil, err
			}
			for _, rec := range recs {
				all[rec.Task] = append(all[rec.Task], uint32(rec.Seq))
				for _, key := range rec.undoKeys() {
					all[key] = append(all[key], uint32(rec.Seq))
				}
			}
			begin += uint64(len(recs))
		}
		r.byTask = all
	}
	seqs := r.byTask[task]
	return seqs[:len(seqs):len(seqs)], nil
}

// before puts a task's numbers up to where the fork begins before its own.
func (r *Index) before(ctx context.Context, task string, own []uint32) ([]uint32, error) {
	theirs, err := r.opt.Base.OfTask(ctx, task)
	if err != nil {
		return nil, err
	}
	n, _ := slices.BinarySearch(theirs, uint32(r.opt.First))
	if n == 0 {
		return own, nil
	}
	return append(slices.Clone(theirs[:n]), own...), nil
}
