package gitstore

import "context"

// ofTask gives a task's sequence numbers, ascending.
func (r *recordIndex) ofTask(ctx context.Context, task string) ([]uint32, error) {
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
	if r.base != nil {
		return r.base.before(ctx, task, seqs)
	}
	return seqs, nil
}

// loadTasks fills byTask, and gives a task's own numbers.
func (r *recordIndex) loadTasks(task string) ([]uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byTask == nil {
		all := make(map[string][]uint32)
		// What the boundary's own commit changed is not known any more: it is
		// where the history begins, as a baseline is.
		begin := r.first
		if begin > 1 && r.base == nil {
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
