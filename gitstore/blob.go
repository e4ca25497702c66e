package gitstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"umbra/gitstore/large"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/errs"
)

// Blob is content prepared for a commit.
type Blob struct {
	id    ID
	size  int64
	bad   bool // part of a SHA-1 collision; never committed
	sum   [sha256.Size]byte
	entry []byte      // its pack entry; nil where history has it, or large or later does
	later []byte      // the bytes of one that is compressed when it is committed
	large *large.Blob // a pack of its own
}

// ID gives the blob's object id.
func (b Blob) ID() ID { return b.id }

// Size gives its length in bytes.
func (b Blob) Size() int64 { return b.size }

// Err returns an error with the code "sha1_collision" for content that must not
// be committed, nil for any other.
func (b Blob) Err() error {
	if !b.bad {
		return nil
	}
	return collision(object.ErrCollision)
}

// collision gives object.ErrCollision its code. Other errors are returned as
// they are.
func collision(err error) error {
	if !errors.Is(err, object.ErrCollision) {
		return err
	}
	return &errs.Error{Kind: errs.Unprocessable, Code: "sha1_collision",
		Detail: "The content is part of a SHA-1 collision: git could not distinguish it from other content.", Err: err}
}

// Open reads the bytes of a blob that was prepared and is not committed yet.
func (b Blob) Open() (io.ReadCloser, error) {
	if b.large != nil {
		_, _, r, err := b.large.File().Pack.Stream(b.id)
		return r, err
	}
	data, err := b.later, error(nil)
	if b.entry != nil {
		_, data, err = pack.InflateWhole(b.entry)
	}
	return io.NopCloser(bytes.NewReader(data)), err
}

// AfterHash gives the value of an After-Hash trailer.
func (b Blob) AfterHash() string { return "sha256:" + hex.EncodeToString(b.sum[:]) }

// storedMax is the length in bytes up to which a commit's objects are not compressed:
// a code for one takes longer than its place in the journal. A merge of packs makes
// most of them deltas, and compresses the rest.
const storedMax = 16 << 10

// shares reports whether another service gets what is committed.
func (s *Store) shares() bool { return s.r.Held != nil || s.copy != nil }

// level gives the zlib level for bytes that a commit adds. Where another service
// gets them too they are compressed at once, since they cross a network.
func (s *Store) level(size int) int {
	if size <= storedMax && !s.shares() {
		return pack.Stored
	}
	return pack.Fast
}

// NewBlob hashes and packs bytes, without I/O, so that callers can do it
// concurrently. The whole entry is kept in memory until the commit: larger
// content goes through StreamBlob. Callers check Err.
func (s *Store) NewBlob(data []byte) Blob {
	id, err := object.HashChecked(object.Blob, data)
	return Blob{id: id, bad: err != nil, size: int64(len(data)), sum: sha256.Sum256(data),
		entry: pack.AppendEntry(nil, object.Blob, data, s.level(len(data)))}
}

// LaterBlob is NewBlob for content that often proves to be what the file holds
// already: it is hashed now, and packed by the Commit that needs it. The bytes
// must stay as they are until then.
func (s *Store) LaterBlob(data []byte) Blob {
	if len(data) == 0 {
		return s.NewBlob(data)
	}
	id, err := object.HashChecked(object.Blob, data)
	return Blob{id: id, bad: err != nil, size: int64(len(data)), sum: sha256.Sum256(data), later: data}
}

// pack makes the entries that are left to the commit, in the goroutine of who commits.
func (d *Draft) pack(s *Store) {
	for i := range d.Edits {
		if b := &d.Edits[i].Blob; b.later != nil {
			b.entry, b.later = pack.AppendEntry(nil, object.Blob, b.later, s.level(len(b.later))), nil
		}
	}
}

// HeldBlob takes a blob that history has and whose bytes are at hand: it is not
// written once more. ErrCorrupt if they are not its bytes.
func (s *Store) HeldBlob(id ID, data []byte) (Blob, error) {
	if object.Hash(object.Blob, data) != id {
		return Blob{}, errs.Wrap(fmt.Errorf("%w: object %v has other bytes", pack.ErrCorrupt, id), "")
	}
	return Blob{id: id, size: int64(len(data)), sum: sha256.Sum256(data)}, nil
}

// ExistingBlob takes a blob that history has; it is read once for its SHA-256.
func (s *Store) ExistingBlob(ctx context.Context, id ID) (Blob, error) {
	r, size, err := s.OpenBlob(ctx, id)
	if err != nil {
		return Blob{}, err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return Blob{}, errs.Wrap(err, "")
	}
	b := Blob{id: id, size: size}
	h.Sum(b.sum[:0])
	return b, nil
}

// StreamBlob takes content of any size in constant memory. Above
// Options.InlineBlob it is written to a pack of its own, durable when this
// returns; Discard must be called for one that is not committed after all.
func (s *Store) StreamBlob(ctx context.Context, r io.ReaderAt, size int64) (Blob, error) {
	if size <= s.opt.InlineBlob {
		data := make([]byte, size)
		if n, err := r.ReadAt(data, 0); int64(n) < size {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return Blob{}, errs.Wrap(err, "")
		}
		b := s.NewBlob(data)
		return b, b.Err()
	}
	l, id, sum, err := s.r.Large.Write(ctx, r, size)
	if err != nil {
		return Blob{}, errs.Wrap(collision(err), "")
	}
	return Blob{id: id, size: size, sum: sum, large: l}, nil
}

// Discard drops a prepared blob that will not be committed. For others it does
// nothing.
func (s *Store) Discard(b Blob) {
	if b.large != nil {
		b.large.Drop()
	}
}
