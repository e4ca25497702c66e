package task

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/wspath"
)

// At gives the commit that a client names: "base", "head", a change id of the
// task (the state right after it), or a commit's full id. Invalid
// "invalid_parameter"; NotFound "commit_not_found", "change_not_found".
func (s *Service) At(ctx context.Context, r *Ref, at string) (object.ID, error) {
	if err := r.InHistory(); err != nil {
		return object.Zero, err
	}
	t, ok := r.Store().Task(r.Task.ID)
	if !ok {
		return object.Zero, notFound(r.Task.ID)
	}
	switch at {
	case "base":
		return t.Base, nil
	case "head":
		return t.Head, nil
	}
	if id, err := object.ParseID(at); err == nil {
		if _, err := r.Store().ReadCommit(ctx, id); errs.Is(err, errs.NotFound) {
			return object.Zero, errs.New(errs.NotFound, "commit_not_found", "The workspace's history has no such commit.")
		} else if err != nil {
			return object.Zero, err
		}
		return id, nil
	}
	n, err := strconv.ParseUint(at, 10, 63)
	if err != nil {
		return object.Zero, errs.New(errs.Invalid, "invalid_parameter",
			"The at parameter must be \"base\", \"head\", a change id or a commit's full id.").With("field", "at")
	}
	rec, ok, err := recordOfChange(ctx, r, n)
	if err != nil {
		return object.Zero, err
	}
	if !ok || n == 0 {
		return object.Zero, errs.New(errs.NotFound, "change_not_found", "The task has no change %d.", n)
	}
	return rec.Commit, nil
}

// FileAt finds a file in a commit's tree, links followed inside it as the
// kernel would on disk. NotFound "file_not_found", Conflict "is_a_directory".
func FileAt(ctx context.Context, st *gitstore.Store, commit object.ID, p wspath.Path) (gitstore.Entry, error) {
	missing := func() error {
		e := errs.New(errs.NotFound, "file_not_found", "There is no such file in that state.")
		e.Path, _ = p.JSON()
		return e
	}
	snap, err := st.SnapshotOf(ctx, commit)
	if err != nil {
		return gitstore.Entry{}, err
	}
	rest := p.Components()
	at := wspath.Root
	for links := 0; len(rest) > 0; {
		next := at.Join(rest[0])
		e, ok, err := snap.Lookup(next)
		if err != nil {
			return gitstore.Entry{}, err
		}
		if !ok {
			return gitstore.Entry{}, missing()
		}
		if e.Mode == object.Symlink {
			if links++; links > 40 {
				return gitstore.Entry{}, missing()
			}
			target, err := st.ReadBlob(ctx, e.ID, wspath.MaxTarget)
			if err != nil {
				return gitstore.Entry{}, err
			}
			to := path.Join(string(at), string(target))
			if path.IsAbs(string(target)) || to == ".." || strings.HasPrefix(to, "../") {
				return gitstore.Entry{}, missing()
			}
			if to == "." {
				to = ""
			}
			rest = append(wspath.Path(to).Components(), rest[1:]...)
			at = wspath.Root
			continue
		}
		if len(rest) == 1 {
			if e.Mode == object.Dir {
				return gitstore.Entry{}, dirAt(p)
			}
			return e, nil
		}
		if e.Mode != object.Dir {
			return gitstore.Entry{}, missing()
		}
		at, rest = next, rest[1:]
	}
	return gitstore.Entry{}, dirAt(p)
}

func dirAt(p wspath.Path) error {
	e := errs.New(errs.Conflict, "is_a_directory", "The path is a directory.")
	e.Path, _ = p.JSON()
	return e
}

// BlobContent is a blob to be read in parts, at constant memory. Close it.
type BlobContent struct {
	Size int64
	open func() (io.ReadCloser, error)
	cur  io.ReadCloser
	at   int64 // where cur is
	pos  int64 // where the next Read is to be
}

// inlineBlob is up to what a blob is simply held in memory, in bytes.
const inlineBlob = 1 << 20

// OpenBlob opens a blob of history for a client that may want a range of it.
func OpenBlob(ctx context.Context, st *gitstore.Store, id object.ID) (*BlobContent, error) {
	size, err := st.BlobSize(ctx, id)
	if err != nil {
		return nil, err
	}
	b := &BlobContent{Size: size, open: func() (io.ReadCloser, error) {
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
func (b *BlobContent) Seek(offset int64, whence int) (int64, error) {
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
func (b *BlobContent) Read(p []byte) (int, error) {
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
func (b *BlobContent) Close() {
	if b.cur != nil {
		_ = b.cur.Close()
		b.cur = nil
	}
}
