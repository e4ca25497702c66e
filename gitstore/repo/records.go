package repo

import (
	"context"
	"slices"
	"sort"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/records"
)

// Record is what the commit index holds of a commit.
type Record = records.Record

// OpenRecords opens the commit index; fill brings it to the tip.
func (r *Repo) OpenRecords() (*records.Index, error) {
	o := records.Options{FS: r.FS, Log: r.Log, First: max(1, r.Boundary().Seq)}
	if r.Base != nil {
		o.Base, o.First = r.Base.Index, r.Base.Seq+1
	}
	o.Read = func(ctx context.Context, id object.ID) (Record, object.ID, error) {
		c, err := r.ReadCommit(ctx, id)
		if err != nil {
			return Record{}, id, err
		}
		return RecordOf(c), c.Parent, nil
	}
	return records.Open(o)
}

// RecordOf gives a commit's record.
func RecordOf(c *Commit) Record { return records.Of(c.Seq, c.ID, c.When, c.Message) }

// CommitAt gives the commit with a sequence number; errs.NotFound if there is
// none, errs.Gone if it was dropped.
func (h History) CommitAt(ctx context.Context, seq uint64) (object.ID, error) {
	rec, err := h.r.Index.At(seq)
	return rec.Commit, err
}

// Records calls fn with the index records from..to (sequence numbers,
// inclusive; to beyond the tip is the tip), ascending. It begins with the
// boundary's commit where older ones are asked for.
func (h History) Records(ctx context.Context, from, to uint64, fn func(Record) error) error {
	return h.r.Index.Each(ctx, from, to, fn)
}

// Touching returns the newest record of from..to whose commit may have changed one of some
// paths; ok is false where there is none.
func (h History) Touching(ctx context.Context, from, to uint64, paths ...string) (rec Record, ok bool, err error) {
	return h.r.Index.Touching(ctx, from, to, paths...)
}

// IsNear reports whether neither Records nor what they name waits for a sink's store, or for
// history to be read.
func (h History) IsNear() bool {
	return h.IsFilled() && (h.r.Held == nil || len(h.r.Held.Lazy()) == 0)
}

// IsFilled reports whether Records does not wait for history to be read.
func (h History) IsFilled() bool { return h.r.Index.IsFilled() }

// TaskRecords gives the records of a task's commits after the boundary, oldest
// first; of no task for the empty id.
func (h History) TaskRecords(ctx context.Context, task string) ([]Record, error) {
	recs, _, err := h.r.TaskRecordsFrom(ctx, task, 0)
	return recs, err
}

// TaskRecordsFrom gives TaskRecords without the first skip of them, and how many
// there are with those.
func (h History) TaskRecordsFrom(ctx context.Context, task string, skip int) (recs []Record, all int, err error) {
	seqs, err := h.r.Index.OfTask(ctx, task)
	if err != nil {
		return nil, 0, err
	}
	all = len(seqs)
	recs, err = h.numbered(ctx, seqs[min(skip, all):])
	return recs, all, err
}

// TaskRecordsAfter gives TaskRecords of commits after a number. It costs by those, and
// not by how many the task has.
func (h History) TaskRecordsAfter(ctx context.Context, task string, after uint64) ([]Record, error) {
	seqs, err := h.r.Index.OfTask(ctx, task)
	if err != nil {
		return nil, err
	}
	first := sort.Search(len(seqs), func(i int) bool { return uint64(seqs[i]) > after })
	return h.numbered(ctx, seqs[first:])
}

// numbered reads the records with ascending numbers.
func (h History) numbered(ctx context.Context, seqs []uint32) ([]Record, error) {
	recs := make([]Record, 0, len(seqs))
	for i := 0; i < len(seqs); {
		n := 1 // numbers that follow each other are read at once
		for i+n < len(seqs) && seqs[i+n] == seqs[i]+uint32(n) {
			n++
		}
		if n == 1 {
			rec, err := h.r.Index.At(uint64(seqs[i]))
			if err != nil {
				return nil, err
			}
			recs = append(recs, rec)
			i++
			continue
		}
		if err := h.r.Index.Each(ctx, uint64(seqs[i]), uint64(seqs[i+n-1]), func(rec Record) error {
			recs = append(recs, rec)
			return nil
		}); err != nil {
			return nil, err
		}
		i += n
	}
	if len(recs) != len(seqs) { // the boundary moved meanwhile
		return nil, ErrDropped()
	}
	return recs, nil
}

// TakeBacks returns the records of commits that undo entries of another task
// than their own, or that have none, oldest first.
func (h History) TakeBacks(ctx context.Context) ([]Record, error) {
	return h.r.TaskRecords(ctx, records.TakeBacks)
}

// Claimed returns the records of commits that several tasks may have made, and of
// those that settle whose such changes are, oldest first, without the first skip
// of them, and how many there are with those.
func (h History) Claimed(ctx context.Context, skip int) (recs []Record, all int, err error) {
	return h.r.TaskRecordsFrom(ctx, records.Claimed, skip)
}

// Undoes returns the records of all commits that undo entries of the changelog,
// oldest first, without the first skip of them, and how many there are with those.
func (h History) Undoes(ctx context.Context, skip int) (recs []Record, all int, err error) {
	return h.r.TaskRecordsFrom(ctx, records.Undoes, skip)
}

// FindKey gives the newest commit not older than since (at most a day ago)
// that carries this Idempotency-Key trailer value.
func (h History) FindKey(ctx context.Context, key string, since time.Time) (Record, bool, error) {
	prefix := records.KeyPrefix(key)
	if prefix == "" {
		return Record{}, false, nil
	}
	recs, err := h.r.Index.WithKey(ctx, prefix, since)
	if err != nil {
		return Record{}, false, err
	}
	for _, rec := range slices.Backward(recs) {
		if rec.WhenUnix < since.Unix() {
			continue
		}
		c, err := h.r.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return Record{}, false, err
		}
		if c.Message.IdempotencyKey == key {
			return rec, true, nil
		}
	}
	return Record{}, false, nil
}
