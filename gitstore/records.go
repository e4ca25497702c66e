package gitstore

import (
	"context"
	"time"

	"umbra/gitstore/records"
)

// Record is what the commit index holds of a commit.
type Record = records.Record

// openRecords opens the commit index; fill brings it to the tip.
func (s *Store) openRecords() (*records.Index, error) {
	o := records.Options{FS: s.fs, Log: s.log, First: max(1, s.Boundary().Seq)}
	if s.base != nil {
		o.Base, o.First = s.base.records, s.base.seq+1
	}
	o.Read = func(ctx context.Context, id ID) (Record, ID, error) {
		c, err := s.ReadCommit(ctx, id)
		if err != nil {
			return Record{}, id, err
		}
		return recordOf(c), c.Parent, nil
	}
	return records.Open(o)
}

func recordOf(c *Commit) Record { return records.Of(c.Seq, c.ID, c.When, c.Message) }

// CommitAt gives the commit with a sequence number; errs.NotFound if there is
// none, errs.Gone if it was dropped.
func (s *Store) CommitAt(ctx context.Context, seq uint64) (ID, error) {
	rec, err := s.records.At(seq)
	return rec.Commit, err
}

// Records calls fn with the index records from..to (sequence numbers,
// inclusive; to beyond the tip is the tip), ascending. It begins with the
// boundary's commit where older ones are asked for.
func (s *Store) Records(ctx context.Context, from, to uint64, fn func(Record) error) error {
	return s.records.Each(ctx, from, to, fn)
}

// TaskRecords gives the records of a task's commits after the boundary, oldest
// first; of no task for the empty id.
func (s *Store) TaskRecords(ctx context.Context, task string) ([]Record, error) {
	recs, _, err := s.TaskRecordsFrom(ctx, task, 0)
	return recs, err
}

// TaskRecordsFrom gives TaskRecords without the first skip of them, and how many
// there are with those.
func (s *Store) TaskRecordsFrom(ctx context.Context, task string, skip int) (recs []Record, all int, err error) {
	seqs, err := s.records.OfTask(ctx, task)
	if err != nil {
		return nil, 0, err
	}
	all = len(seqs)
	seqs = seqs[min(skip, all):]
	recs = make([]Record, 0, len(seqs))
	for i := 0; i < len(seqs); {
		n := 1 // numbers that follow each other are read at once
		for i+n < len(seqs) && seqs[i+n] == seqs[i]+uint32(n) {
			n++
		}
		if n == 1 {
			rec, err := s.records.At(uint64(seqs[i]))
			if err != nil {
				return nil, 0, err
			}
			recs = append(recs, rec)
			i++
			continue
		}
		if err := s.records.Each(ctx, uint64(seqs[i]), uint64(seqs[i+n-1]), func(rec Record) error {
			recs = append(recs, rec)
			return nil
		}); err != nil {
			return nil, 0, err
		}
		i += n
	}
	if len(recs) != len(seqs) { // the boundary moved meanwhile
		return nil, 0, ErrDropped()
	}
	return recs, all, nil
}

// TakeBacks returns the records of commits that undo entries of another task
// than their own, or that have none, oldest first.
func (s *Store) TakeBacks(ctx context.Context) ([]Record, error) {
	return s.TaskRecords(ctx, records.TakeBacks)
}

// Claimed returns the records of commits that several tasks may have made, and of
// those that settle whose such changes are, oldest first, without the first skip
// of them, and how many there are with those.
func (s *Store) Claimed(ctx context.Context, skip int) (recs []Record, all int, err error) {
	return s.TaskRecordsFrom(ctx, records.Claimed, skip)
}

// Undoes returns the records of all commits that undo entries of the changelog,
// oldest first, without the first skip of them, and how many there are with those.
func (s *Store) Undoes(ctx context.Context, skip int) (recs []Record, all int, err error) {
	return s.TaskRecordsFrom(ctx, records.Undoes, skip)
}

// FindKey gives the newest commit not older than since (at most a day ago)
// that carries this Idempotency-Key trailer value.
func (s *Store) FindKey(ctx context.Context, key string, since time.Time) (Record, bool, error) {
	prefix := records.KeyPrefix(key)
	if prefix == "" {
		return Record{}, false, nil
	}
	seqs, err := s.records.WithKey(prefix, since)
	if err != nil {
		return Record{}, false, err
	}
	for i := len(seqs) - 1; i >= 0; i-- {
		rec, err := s.records.At(uint64(seqs[i]))
		if err != nil {
			return Record{}, false, err
		}
		if rec.WhenUnix < since.Unix() {
			continue
		}
		c, err := s.ReadCommit(ctx, rec.Commit)
		if err != nil {
			return Record{}, false, err
		}
		if c.Message.IdempotencyKey == key {
			return rec, true, nil
		}
	}
	return Record{}, false, nil
}
