package blob

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"iter"
	"time"

	"umbra/internal/telemetry"
)

// The operations, as errors and metrics name them.
const (
	opPut    = "put"
	opGet    = "get"
	opRange  = "range"
	opDelete = "delete"
	opList   = "list"

	opVersioning = "versioning"
)

var errMissing = errors.New("the object does not exist")

// random returns a name that was not used before.
func random() string { return rand.Text() }

// NewMeter returns a meter with the operations of a Store.
func NewMeter() *telemetry.Ops {
	return telemetry.NewOps(telemetry.NewTimes(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30),
		opPut, opGet, opRange, opDelete, opList)
}

// Measured returns s with each operation counted. A missing object is no failure.
// A get is timed until its reader is closed, a list until its loop ends, with the
// time that the caller takes in between.
func Measured(s Store, m *telemetry.Ops) Store { return measured{s, m} }

type measured struct {
	Store
	meter *telemetry.Ops
}

// done counts an operation; what the caller canceled is not the store's failure.
func (m measured) done(op string, began time.Time, err error) {
	m.meter.Done(op, time.Since(began), err != nil && !Is(err, NotFound) && !Is(err, Canceled))
}

func (m measured) Put(ctx context.Context, key string, body io.ReaderAt, size int64) (err error) {
	defer func(began time.Time) { m.done(opPut, began, err) }(time.Now())
	return m.Store.Put(ctx, key, body, size)
}

func (m measured) Get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	began := time.Now()
	r, size, err := m.Store.Get(ctx, key)
	if err != nil {
		m.done(opGet, began, err)
		return nil, 0, err
	}
	return &measuredReader{ReadCloser: r, done: func(err error) { m.done(opGet, began, err) }}, size, nil
}

type measuredReader struct {
	io.ReadCloser
	failed error
	done   func(error)
}

func (r *measuredReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		r.failed = err
	}
	return n, err
}

func (r *measuredReader) Close() error {
	if r.done != nil {
		r.done(r.failed)
		r.done = nil
	}
	return r.ReadCloser.Close()
}

func (m measured) GetRange(ctx context.Context, key string, offset, n int64) (io.ReadCloser, error) {
	began := time.Now()
	r, err := m.Store.GetRange(ctx, key, offset, n)
	if err != nil {
		m.done(opRange, began, err)
		return nil, err
	}
	return &measuredReader{ReadCloser: r, done: func(err error) { m.done(opRange, began, err) }}, nil
}

func (m measured) Delete(ctx context.Context, key string) (err error) {
	defer func(began time.Time) { m.done(opDelete, began, err) }(time.Now())
	return m.Store.Delete(ctx, key)
}

func (m measured) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var failed error
		defer func(began time.Time) { m.done(opList, began, failed) }(time.Now())
		for o, err := range m.Store.List(ctx, prefix, after) {
			failed = err
			if !yield(o, err) {
				return
			}
		}
	}
}
