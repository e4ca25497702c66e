package repo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/packset"
	"umbra/internal/errs"
)

// Missing is the error for an object that does not exist.
func Missing(id object.ID) error {
	return &errs.Error{Kind: errs.NotFound, Code: "object_not_found", Detail: "The object does not exist.",
		Err: errors.New(id.String())}
}

// ReadObject returns one of our objects whole: errs.NotFound, errs.TooLarge above
// max bytes.
func (r *Repo) ReadObject(id object.ID, max int64) (object.Kind, []byte, error) {
	return r.readObject(id, max, &Blobs{})
}

// readObject is like ReadObject, and notes what it read of a pack.
func (r *Repo) readObject(id object.ID, max int64, b *Blobs) (object.Kind, []byte, error) {
	if err := r.readable(); err != nil {
		return 0, nil, err
	}
	// Twice: what leaves a journal meanwhile is in a pack.
	for range 2 {
		live := *r.Live.Load()
		for i := len(live) - 1; i >= 0; i-- {
			if l, ok := live[i].Find(id); ok && l.Size > max {
				return 0, nil, tooLarge(l.Size)
			}
			if kind, data, ok, err := live[i].Get(id); ok {
				return kind, data, err
			}
		}
		if f := r.Large.Holding(id); f != nil {
			defer f.Release()
			if _, size, err := f.Pack.Info(id); err != nil || size > max {
				if err == nil {
					err = tooLarge(size)
				}
				return 0, nil, err
			}
			return f.Pack.Get(id)
		}
		if f, off, err := r.Packs.Locate(id); err != nil {
			return 0, nil, err
		} else if f != nil {
			defer f.Release()
			kind, data, size, err := f.Pack.GetAfter(id, off, max, b.after(f))
			if err == nil {
				b.note(off, kind, data)
			}
			if size > max && errors.Is(err, pack.ErrTooLarge) {
				err = tooLarge(size)
			}
			return kind, data, err
		}
	}
	if r.Base != nil {
		return r.Base.ReadObject(id, max)
	}
	return 0, nil, r.absent(id)
}

// Holder gives the pack that holds an object, a large blob's own one included.
func (r *Repo) Holder(id object.ID) (*packset.File, error) {
	if f := r.Large.Holding(id); f != nil {
		return f, nil
	}
	return r.Packs.Holding(id)
}

func tooLarge(size int64) error {
	return errs.New(errs.TooLarge, "too_large", "The object has %d bytes.", size)
}

// Tree gives a tree by id, from the cache if it is there.
func (r *Repo) Tree(id object.ID) (*object.TreeData, error) {
	if err := r.readable(); err != nil {
		return nil, err
	}
	if t, ok := r.Cached.Trees.Get(id); ok {
		return t, nil
	}
	kind, data, err := r.ReadObject(id, object.MaxMeta)
	if err != nil {
		return nil, err
	}
	if kind != object.Tree {
		return nil, errs.New(errs.NotFound, "object_not_found", "The object is not a tree.")
	}
	t, err := object.NewTree(data)
	if err != nil {
		return nil, err
	}
	r.Cached.Trees.Add(id, t)
	return t, nil
}

// Commit is one commit of the workspace's history, read.
type Commit struct {
	ID, Parent, Tree object.ID
	When             time.Time
	AuthorName       string
	AuthorEmail      string
	Message          *message.Message
	Seq              uint64
}

// ReadCommit reads a commit; errs.NotFound if it is not one of the store's, errs.Gone
// for what was dropped. The boundary's has no parent.
func (h History) ReadCommit(ctx context.Context, id object.ID) (*Commit, error) {
	kind, data, err := h.r.ReadObject(id, object.MaxMeta)
	gone := errs.Is(err, errs.Gone)
	if gone && h.r.wasDropped(id) {
		return nil, ErrDropped()
	}
	if gone || errs.Is(err, errs.NotFound) || (err == nil && kind != object.Commit) {
		return nil, h.r.noCommit(id)
	}
	if err != nil {
		return nil, err
	}
	c, err := ParseCommit(id, data)
	if err != nil {
		return nil, err
	}
	if c.Seq < h.r.Boundary().Seq && h.r.wasDropped(id) {
		return nil, ErrDropped() // its objects only wait to be removed
	}
	h.r.Cached.memo.put(c, h.r.Boundary().Seq)
	return h.r.Graft(c), nil
}

// Own is ReadCommit for an id that a caller names. A fork reads the objects of what it is a
// fork of: commits that were made there since are none of its own, and errs.NotFound.
func (h History) Own(ctx context.Context, id object.ID) (*Commit, error) {
	c, err := h.ReadCommit(ctx, id)
	if err != nil || id == h.Boundary().Commit {
		return c, err
	}
	at, err := h.CommitAt(ctx, c.Seq)
	if errs.Is(err, errs.NotFound) || err == nil && at != id {
		return nil, h.r.noCommit(id)
	}
	return c, err
}

// ParseCommit reads the bytes of a commit of a workspace.
func ParseCommit(id object.ID, data []byte) (*Commit, error) {
	c, err := object.ParseCommit(data)
	if err != nil {
		return nil, err
	}
	m, err := message.Parse(c.Message)
	if err != nil {
		return nil, err
	}
	out := &Commit{ID: id, Tree: c.Tree, When: c.Committer.When, AuthorName: c.Author.Name, AuthorEmail: c.Author.Email, Message: m, Seq: m.Seq}
	if len(c.Parents) > 0 {
		out.Parent = c.Parents[0]
	}
	return out, nil
}

// HasBlob reports whether a journal or one of our packs holds the blob.
func (h History) HasBlob(id object.ID) bool {
	ok, err := h.r.hasObject(id)
	return ok && err == nil
}

// BlobSize gives a blob's size in bytes.
func (h History) BlobSize(ctx context.Context, id object.ID) (int64, error) {
	if err := h.r.readable(); err != nil {
		return 0, err
	}
	for range 2 {
		for _, j := range *h.r.Live.Load() {
			if l, ok := j.Find(id); ok {
				return l.Size, nil
			}
		}
		if f, err := h.r.Holder(id); err != nil {
			return 0, err
		} else if f != nil {
			defer f.Release()
			_, size, err := f.Pack.Info(id)
			return size, err
		}
	}
	if h.r.Base != nil {
		return h.r.Base.BlobSize(ctx, id)
	}
	return 0, h.r.absent(id)
}

// ReadBlob gives a blob's bytes: errs.TooLarge above max.
func (h History) ReadBlob(ctx context.Context, id object.ID, max int64) ([]byte, error) {
	return h.Blobs().Read(ctx, id, max)
}

// Blobs reads blobs of which most are stored as differences from the one that was read
// before, as the versions of a file are. Not safe for concurrent use.
type Blobs struct {
	h     History
	file  *packset.File // the pack of known
	known pack.Known    // the last object
	bufs  [2][]byte     // what the next object may be made in; where the last one is, if it was
}

// Blobs returns a reader of the history's blobs.
func (h History) Blobs() *Blobs { return &Blobs{h: h} }

// after returns what the next object of a pack may be made from and in.
func (b *Blobs) after(f *packset.File) pack.Known {
	if f != b.file {
		b.file, b.known = f, pack.Known{}
	}
	if n := len(b.known.Data); cap(b.bufs[0]) < n {
		b.bufs[0] = make([]byte, 0, n+n/8)
	}
	b.known.Into = b.bufs[0]
	return b.known
}

// note keeps an object that was read of the pack.
func (b *Blobs) note(off uint64, kind object.Kind, data []byte) {
	if len(data) > 0 && cap(b.bufs[0]) > 0 && &data[0] == &b.bufs[0][:1][0] {
		b.bufs[0], b.bufs[1] = b.bufs[1], b.bufs[0]
	}
	b.known = pack.Known{Offset: off, Kind: kind, Data: data}
}

// Read is like ReadBlob. The bytes are valid until the call after the next.
func (b *Blobs) Read(ctx context.Context, id object.ID, max int64) ([]byte, error) {
	kind, data, err := b.h.r.readObject(id, max, b)
	if err == nil && kind != object.Blob {
		err = Missing(id)
	}
	return data, err
}

// OpenBlob streams a blob of any size, and returns its size. The bytes are
// checked against the id at the end, in place of io.EOF.
func (h History) OpenBlob(ctx context.Context, id object.ID) (io.ReadCloser, int64, error) {
	if err := h.r.readable(); err != nil {
		return nil, 0, err
	}
	for range 2 {
		live := *h.r.Live.Load()
		for i := len(live) - 1; i >= 0; i-- {
			if kind, data, ok, err := live[i].Get(id); ok {
				if err == nil && kind != object.Blob {
					err = Missing(id)
				}
				return io.NopCloser(bytes.NewReader(data)), int64(len(data)), err
			}
		}
		f, err := h.r.Holder(id)
		if err != nil {
			return nil, 0, err
		}
		if f == nil {
			continue
		}
		kind, size, r, err := f.Pack.Stream(id)
		if err == nil && kind != object.Blob {
			r.Close()
			err = Missing(id)
		}
		if err != nil {
			f.Release()
			return nil, 0, err
		}
		return &releasing{r, f}, size, nil
	}
	if h.r.Base != nil {
		return h.r.Base.OpenBlob(ctx, id)
	}
	return nil, 0, h.r.absent(id)
}

// releasing gives a stream that releases its pack when closed.
type releasing struct {
	io.ReadCloser
	f *packset.File
}

func (r *releasing) Close() error {
	err := r.ReadCloser.Close()
	if r.f != nil {
		r.f.Release()
		r.f = nil
	}
	return err
}

// IsSafe reports whether an object is where it stays: in a journal, a
// prepared blob, or a pack that is not superseded.
func (r *Repo) IsSafe(id object.ID) (bool, error) {
	for _, j := range *r.Live.Load() {
		if _, ok := j.Find(id); ok {
			return true, nil
		}
	}
	if f := r.Large.Holding(id); f != nil {
		f.Release()
		return true, nil
	}
	return r.Packs.Keeps(id)
}
