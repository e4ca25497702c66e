package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// rangeInMemory is up to which size a range is read as a whole.
const rangeInMemory = 8 << 20

// Open reads n bytes of an object from off; n < 0: to its end. Fewer are an error of the
// store. The caller closes the reader.
func Open(ctx context.Context, s Store, key string, off, n int64) (io.ReadCloser, error) {
	if n > 0 && n <= rangeInMemory {
		b, err := s.GetRange(ctx, key, off, n)
		return io.NopCloser(bytes.NewReader(b)), err
	}
	if n > 0 {
		return s.Stream(ctx, key, off, n)
	}
	r, _, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if _, err := io.CopyN(io.Discard, r, off); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
