package tasks

import (
	"bytes"
	"context"
	"errors"
	"io"

	"umbra/gitstore"
	"umbra/gitstore/object"
)

// blobContent is a blob to be read in parts, at constant memory. Close it.
type blobContent struct {
	Size int64
	open func() (io.ReadCloser, error)
	cur  io.ReadCloser
	at   int64 // where cur is
	pos  int64 // where the next Read is to be
}

// inlineBlob is up to what a blob is simply held in memory, in bytes.
const inlineBlob = 1 << 20

// openBlob opens a blob of history for a client that may want a range of it.
func openBlob(ctx context.Context, st *gitstore.Store, id object.ID) (*blobContent, error) {
	size, err := st.BlobSize(ctx, id)
	if err != nil {
		return nil, err
	}
	b := &blobContent{Size: size, open: func() (io.ReadCloser, error) {
		r, _, err := st.OpenBlob(ctx, id)
		return r, err
	}}
	if size <= inlineBlob {
		data, err := st.ReadBlob(ctx, id, inlineBlob)
		if err != nil {
			return nil, err
		}
		b.open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	return b, nil
}

// Seek sets where the next Read begins; it costs nothing by itself.
func (b *blobContent) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.pos
	case io.SeekEnd:
		offset += b.Size
	}
	if offset < 0 {
		return 0, errors.New("task: seek before the beginning")
	}
	b.pos = offset
	return offset, nil
}

// Read reads on from where Seek or the last Read left off; going back opens
// the blob again.
func (b *blobContent) Read(p []byte) (int, error) {
	if b.pos >= b.Size {
		return 0, io.EOF
	}
	if b.cur == nil || b.at > b.pos {
		b.Close()
		r, err := b.open()
		if err != nil {
			return 0, err
		}
		b.cur, b.at = r, 0
	}
	if b.at < b.pos {
		n, err := io.CopyN(io.Discard, b.cur, b.pos-b.at)
		b.at += n
		if err != nil {
			return 0, err
		}
	}
	n, err := b.cur.Read(p)
	b.at += int64(n)
	b.pos = b.at
	return n, err
}

// Close frees it.
func (b *blobContent) Close() {
	if b.cur != nil {
		_ = b.cur.Close()
		b.cur = nil
	}
}
