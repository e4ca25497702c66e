package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// errStalled is the cause where a body made no progress.
var errStalled = errors.New("the body stopped arriving")

// errLied is the cause where a store sent another range than was requested.
var errLied = errors.New("the store sent another range than was requested")

// Get implements Store. Where a body is cut off, the rest is requested, so often
// as a request is tried; an object that was replaced meanwhile is an error.
func (s *S3) Get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	if err := checkKey(key); err != nil {
		return nil, 0, fail(ctx, opGet, key, Refused, err)
	}
	r := &reader{store: s, ctx: ctx, op: opGet, key: key, size: -1}
	if err := r.request(); err != nil {
		return nil, 0, err
	}
	return r, r.size, nil
}

// GetRange implements Store. A body that is cut off is gone on with, as Get does.
func (s *S3) GetRange(ctx context.Context, key string, offset, n int64) (io.ReadCloser, error) {
	if err := checkRange(key, offset, n); err != nil {
		return nil, fail(ctx, opRange, key, Refused, err)
	}
	r := &reader{store: s, ctx: ctx, op: opRange, key: key, size: offset + n, at: offset}
	if err := r.request(); err != nil {
		return nil, err
	}
	return r, nil
}

// errNoLength is the cause where an answer does not say how long its body is.
var errNoLength = errors.New("the store does not say how large the object is")

// reader reads an object, or the part of it that ends at size.
type reader struct {
	store *S3
	ctx   context.Context
	op    string
	key   string
	at    int64
	size  int64   // -1: not known yet
	etag  *string // of the object that the first answer was from
	cuts  int     // bodies that were cut off

	body   io.ReadCloser
	sent   context.Context         // of the body's request
	cancel context.CancelCauseFunc // ends it
	idle   *time.Timer             // calls cancel; runs while a Read does
}

// request requests what is missing, and sets body.
func (r *reader) request() error {
	in := &s3.GetObjectInput{Bucket: &r.store.bucket, Key: aws.String(r.store.prefix + r.key), IfMatch: r.etag}
	if r.size >= 0 {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", r.at, r.size-1))
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	out, err := r.store.client.GetObject(ctx, in)
	if err != nil {
		cancel(nil)
		return r.store.fail(r.ctx, r.op, r.key, err)
	}
	r.body, r.sent, r.cancel, r.etag = out.Body, ctx, cancel, out.ETag
	r.idle = time.AfterFunc(r.store.tune.Answer, func() { cancel(errStalled) })
	r.idle.Stop()
	length := aws.ToInt64(out.ContentLength)
	switch {
	case out.ContentLength == nil: // an object's end could not be distinguished from a cut
		return errors.Join(fail(r.ctx, r.op, r.key, Refused, errNoLength), r.Close())
	case r.size < 0:
		r.size = length
	case in.Range != nil && out.ContentRange == nil, length > r.size-r.at:
		return errors.Join(fail(r.ctx, r.op, r.key, Refused, errLied), r.Close())
	case length < r.size-r.at:
		return errors.Join(fail(r.ctx, r.op, r.key, TooShort, errEnds), r.Close())
	}
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.at == r.size {
			return 0, io.EOF
		}
		if r.body == nil {
			return 0, fail(r.ctx, r.op, r.key, Unreachable, io.ErrClosedPipe)
		}
		r.idle.Reset(r.store.tune.Answer)
		n, err := r.body.Read(p[:min(int64(len(p)), r.size-r.at)])
		r.idle.Stop()
		r.at += int64(n)
		if n > 0 || err == nil {
			return n, nil
		}
		// Cut off, also if the end is a proper one: the size says otherwise.
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		} else if cause := context.Cause(r.sent); cause != nil {
			err = cause
		}
		_ = r.Close()
		if r.cuts++; r.cuts >= r.store.tune.Attempts || r.ctx.Err() != nil {
			return 0, fail(r.ctx, r.op, r.key, Unreachable, err)
		}
		if err := r.request(); err != nil {
			return 0, err
		}
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	r.idle.Stop()
	r.cancel(nil)
	err := r.body.Close()
	r.body = nil
	return err
}
