package blob

import (
	"context"
	"errors"
	"io"
)

// Open reads n bytes of an object from off; n < 0: to its end. Fewer are an error of the
// store. The caller closes the reader.
func Open(ctx context.Context, s Store, key string, off, n int64) (io.ReadCloser, error) {
	if n > 0 {
		return s.GetRange(ctx, key, off, n)
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
