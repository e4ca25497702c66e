package records

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// past is a history whose commits are a minute apart, each with a key of its own.
type past struct {
	reads  atomic.Int64
	onRead func()
}

var began = time.Unix(1_700_000_000, 0)

func idOf(seq uint64) (id object.ID) {
	binary.BigEndian.PutUint64(id[:], seq)
	return id
}

func keyOf(seq uint64) string { return fmt.Sprintf("%016x", seq) }

func (p *past) record(seq uint64) Record {
	return Record{Seq: seq, Commit: idOf(seq), WhenUnix: began.Add(time.Duration(seq) * time.Minute).Unix(), Key: keyOf(seq)}
}

func (p *past) read(_ context.Context, id object.ID) (Record, object.ID, error) {
	p.reads.Add(1)
	if p.onRead != nil {
		p.onRead()
	}
	seq := binary.BigEndian.Uint64(id[:])
	return p.record(seq), idOf(seq - 1), nil
}

func (p *past) open(t *testing.T, first uint64, base *Index) *Index {
	t.Helper()
	r, err := Open(Options{FS: vfs.NewMem(vfs.MemOptions{}), Log: slog.New(slog.DiscardHandler), First: first, Base: base, Read: p.read})
	need.NoError(t, err)
	return r
}

func seqs(t *testing.T, r *Index, seq uint64, since time.Time) (out []uint64) {
	t.Helper()
	recs, err := r.WithKey(t.Context(), keyOf(seq), since)
	need.NoError(t, err)
	for _, rec := range recs {
		out = append(out, rec.Seq)
	}
	return out
}

// TestKeysBeforeFilled: a key is looked for no further back than is asked for while the index
// is to be filled, and found in what was appended meanwhile and in the file.
func TestKeysBeforeFilled(t *testing.T) {
	const n = 100_000
	p := &past{}
	r := p.open(t, 1, nil)
	need.NoError(t, r.FillLater(t.Context(), n, idOf(n)))
	now := began.Add(n * time.Minute)
	day := now.Add(-24 * time.Hour)
	if got := seqs(t, r, n-1000, day); !slices.Equal(got, []uint64{n - 1000}) {
		t.Errorf("a key of a commit of this day: %v", got)
	}
	most := int64(24*60 + keySlack/60 + lookBack + 2)
	if got := p.reads.Load(); got > most {
		t.Errorf("%d commits were read, %d is what a day needs", got, most)
	}
	r.Append([]Record{{Seq: n + 1, Commit: idOf(n + 1), WhenUnix: now.Unix(), Key: keyOf(n - 5)}})
	before := p.reads.Load()
	if got := seqs(t, r, n-5, day); !slices.Equal(got, []uint64{n - 5, n + 1}) {
		t.Errorf("a key of two commits: %v", got)
	}
	if got := p.reads.Load(); got != before {
		t.Errorf("%d commits were read for the second key", got-before)
	}
	if got := seqs(t, r, n-50_000, now.Add(-40*24*time.Hour)); len(got) != 1 {
		t.Errorf("a key of a commit before that day: %v", got)
	}
	need.NoError(t, r.Filled(t.Context()))
	if got := seqs(t, r, n-5, day); !slices.Equal(got, []uint64{n - 5, n + 1}) {
		t.Errorf("a key of two commits, filled: %v", got)
	}
	// A call for a longer time finds it after one for a shorter time.
	if got := seqs(t, r, n-50_000, now.Add(-40*24*time.Hour)); len(got) != 1 {
		t.Errorf("a key of a commit before that day, filled: %v", got)
	}
	// The file has all but the newest.
	r.unfilled.Store(&newest{n + 1, idOf(n + 1)})
	r.Truncate(n - 100)
	before = p.reads.Load()
	if got := seqs(t, r, n-1000, day); len(got) != 1 || p.reads.Load()-before != 101 {
		t.Errorf("%v after %d reads", got, p.reads.Load()-before)
	}
}

// TestFillEnds: the background's reading ends with it, that of a request does not.
func TestFillEnds(t *testing.T) {
	p := &past{}
	r := p.open(t, 1, nil)
	need.NoError(t, r.FillLater(t.Context(), 1000, idOf(1000)))
	ctx, cancel := context.WithCancel(t.Context())
	p.onRead = cancel
	if err := r.FillRest(ctx); !errs.Is(err, errs.Canceled) || p.reads.Load() != 1 {
		t.Errorf("%v after %d reads", err, p.reads.Load())
	}
	ctx, p.onRead = context.WithCancel(t.Context())
	if err := r.Filled(ctx); err != nil || ctx.Err() == nil {
		t.Error(err)
	}
	if rec, err := r.At(1000); err != nil || rec.Seq != 1000 {
		t.Errorf("%+v, %v", rec, err)
	}
}

// TestBaseIsFilledApart: a fork takes commits while a reader of it waits for its base's history.
func TestBaseIsFilledApart(t *testing.T) {
	reading, on := make(chan struct{}), make(chan struct{})
	p := &past{}
	p.onRead = func() {
		if p.reads.Load() == 1 {
			close(reading)
		}
		<-on
	}
	base := p.open(t, 1, nil)
	need.NoError(t, base.FillLater(t.Context(), 100, idOf(100)))
	fork := p.open(t, 101, base)
	got := make(chan error, 1)
	go func() {
		rec, err := fork.At(5)
		if err == nil && rec.Seq != 5 {
			err = fmt.Errorf("%+v", rec)
		}
		got <- err
	}()
	<-reading
	done := make(chan struct{})
	go func() {
		fork.Append([]Record{p.record(101)})
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("a commit waits for the base's history")
	}
	close(on)
	need.NoError(t, <-got)
	if rec, err := fork.At(101); err != nil || rec.Seq != 101 {
		t.Errorf("%+v, %v", rec, err)
	}
}
