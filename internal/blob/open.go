package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// rangeInMemory is up to which size a range is read as a whole.
const rangeInMemory = 8 << 20

// Open reads n bytes of an object from off; n < 0: to its end. The reader returns
// io.ErrUnexpectedEOF where the object has fewer. The caller closes it.
func Open(ctx context.Context, s Store, key string, off, n int64) (io.ReadCloser, error) {
	if n > 0 && n <= rangeInMemory {
		b, err := s.GetRange(ctx, key, off, n)
		return io.NopCloser(bytes.NewReader(b)), err
	}
	r, size, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if off > 0 {
		if _, err := io.CopyN(io.Discard, r, off); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if n < 0 {
		n = max(0, size-off)
	}
	return &exactReader{r: r, left: n}, nil
}

// exactReader returns io.ErrUnexpectedEOF where fewer bytes came than were asked
// for.
type exactReader struct {
	r    io.ReadCloser
	left int64
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == io.EOF && e.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (e *exactReader) Close() error { return e.r.Close() }
