package workspace

import (
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/rootfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/wspath"
)

// smallBody is the size in bytes up to which a body is read whole before anything
// is made on disk.
const smallBody = 128 << 10

// packLater is the size in bytes above which a lone file is compressed only once it
// is known to differ from what stands there. Of several each is at once: they are
// prepared beside each other, and committed by one.
const packLater = 32 << 10

// content is new bytes for one file: on the workspace's disk, without a name,
// and as a blob. Or the target of a link.
type content struct {
	blob   gitstore.Blob
	staged *rootfs.Staged // nil for a link
	target string
}

// contents owns what one request prepared, and drops in the end what was not
// used.
type contents struct {
	w   *Workspace
	all []*content
	ops []*content // by operation, of those whose bytes do not depend on the disk

	rewrites uint64 // of the history, when they were prepared

	// open counts the prepared files that are open, of all parts of a request.
	open *atomic.Int64
}

// maxOpen is how many prepared files a request holds open; the rest are parked.
const maxOpen = 256

func newContents(w *Workspace) *contents { return &contents{w: w, open: new(atomic.Int64)} }

// finished stamps a file that is written whole, and parks it if too many are open.
func (c *contents) finished(x *content) {
	x.staged.Stamp(x.blob.ID())
	if n := c.open.Add(1); x.staged.Park(int(n), maxOpen) {
		c.open.Add(-1)
	}
}

// release closes what was placed, and drops what was not. Blobs that were
// committed are not hurt.
func (c *contents) release() {
	for _, x := range c.all {
		if left := x.staged.Discard(); left != nil {
			c.w.lingerOn(lingering{out: left, done: true})
		}
		c.w.store.Discard(x.blob)
	}
}

// prepare takes in the bytes that come with the request. It holds no lock: a
// client may be slow.
func (c *contents) prepare(ctx context.Context, ops []Op) error {
	c.ops, c.rewrites = make([]*content, len(ops)), c.w.store.Rewrites()
	// Bodies come from the client one after the other.
	workers := min(runtime.GOMAXPROCS(0), len(ops)/opsAWorker)
	if workers < 2 || slices.ContainsFunc(ops, func(o Op) bool { return o.Body != nil }) {
		return c.prepareRange(ctx, ops, 0, len(ops))
	}
	parts := make([]contents, workers)
	group, gctx := errgroup.WithContext(ctx)
	for k := range parts {
		p := &parts[k]
		p.w, p.ops, p.rewrites, p.open = c.w, c.ops, c.rewrites, c.open
		group.Go(func() error { return p.prepareRange(gctx, ops, len(ops)*k/workers, len(ops)*(k+1)/workers) })
	}
	err := group.Wait()
	for k := range parts {
		c.all = append(c.all, parts[k].all...)
	}
	return err
}

// opsAWorker is from how many operations on it is worth a goroutine.
const opsAWorker = 8

// prepareRange prepares the operations [from,to).
func (c *contents) prepareRange(ctx context.Context, ops []Op, from, to int) error {
	for i := from; i < to; i++ {
		op := &ops[i]
		if op.Kind != OpWrite {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errs.Wrap(context.Cause(ctx), "")
		}
		x, err := c.fromOp(ctx, op)
		if err != nil {
			return err
		}
		c.ops[i] = x
	}
	return nil
}

// current fails where bytes of history were prepared that a purge may have taken
// out of it meanwhile.
func (c *contents) current(ops []Op) error {
	if c.rewrites == c.w.store.Rewrites() || !slices.ContainsFunc(ops, func(o Op) bool { return o.Blob != nil }) {
		return nil
	}
	return errs.New(errs.Unavailable, "history_rewritten", "A purge rewrote the history meanwhile; try again.")
}

func (c *contents) fromOp(ctx context.Context, op *Op) (*content, error) {
	switch {
	case op.Body != nil:
		return c.fromReader(ctx, op.Path, op.Body, op.Size, op.MaxSize)
	case op.Blob != nil:
		data, err := c.w.store.ReadBlob(ctx, *op.Blob, smallBody)
		if err == nil {
			return c.fromHeld(op.Path, *op.Blob, data)
		}
		if !errs.Is(err, errs.TooLarge) {
			return nil, err
		}
		r, size, err := c.w.store.OpenBlob(ctx, *op.Blob)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if c.w.store.Room(size) != nil {
			return c.fromHistory(ctx, op.Path, *op.Blob, r, size)
		}
		return c.fromReader(ctx, op.Path, r, size, 0)
	}
	return c.fromBytes(op.Path, op.Data)
}

// fromBytes prepares small content.
func (c *contents) fromBytes(p wspath.Path, data []byte) (*content, error) {
	x, err := c.stage(p, data)
	switch {
	case err != nil:
	case len(c.ops) == 1 && len(data) > packLater:
		x.blob = c.w.store.LaterBlob(data)
	default:
		x.blob = c.w.store.NewBlob(data)
	}
	if err == nil {
		err = errs.Wrap(x.blob.Err(), string(p))
	}
	if err == nil {
		c.finished(x)
	}
	return x, err
}

// fromHeld prepares small content that history has.
func (c *contents) fromHeld(p wspath.Path, id object.ID, data []byte) (*content, error) {
	x, err := c.stage(p, data)
	if err == nil {
		x.blob, err = c.w.store.HeldBlob(id, data)
	}
	if err == nil {
		c.finished(x)
	}
	return x, err
}

// stage puts small content onto the disk.
func (c *contents) stage(p wspath.Path, data []byte) (*content, error) {
	x := &content{}
	c.all = append(c.all, x)
	staged, err := c.w.disk.Root.Stage(p)
	if err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	x.staged = staged
	if _, err := staged.Write(data); err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	if err := staged.Finish(); err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	return x, nil
}

// fromReader prepares content of any size in constant memory. size may be -1;
// max 0 means no limit.
func (c *contents) fromReader(ctx context.Context, p wspath.Path, body io.Reader, size, max int64) (*content, error) {
	tooLarge := func() error {
		return &errs.Error{Kind: errs.TooLarge, Code: "file_too_large", Detail: "The content is over the limit.", Path: string(p)}
	}
	if max > 0 && size > max {
		return nil, tooLarge()
	}
	src := &bodyReader{ctx: ctx, r: body}
	if size >= 0 && size <= smallBody {
		data, err := src.whole(p, size)
		if err != nil {
			return nil, err
		}
		return c.fromBytes(p, data)
	}
	x := &content{}
	c.all = append(c.all, x)
	staged, err := c.w.disk.Root.Stage(p)
	if err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	x.staged = staged
	if size > 0 {
		if err := staged.Reserve(size); err != nil {
			return nil, errs.Wrap(err, string(p))
		}
	}
	if max > 0 {
		src.r = io.LimitReader(body, max+1)
	}
	if _, err := io.CopyBuffer(onlyWriter{staged}, src, make([]byte, 128<<10)); err != nil {
		if src.failed != nil {
			return nil, src.failed // the client's side, answered as it is
		}
		return nil, errs.Wrap(err, string(p))
	}
	if max > 0 && staged.Size() > max {
		return nil, tooLarge()
	}
	if size >= 0 && staged.Size() != size {
		return nil, incomplete(p)
	}
	if err := staged.Finish(); err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	if x.blob, err = c.w.store.StreamBlob(ctx, staged, staged.Size()); err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	c.finished(x)
	return x, nil
}

func incomplete(p wspath.Path) error {
	return &errs.Error{Kind: errs.Invalid, Code: "body_incomplete", Detail: "The content is not as long as announced.", Path: string(p)}
}

// fromStore prepares a blob of history, without hashing it once more: the reader
// checks it.
func (c *contents) fromStore(ctx context.Context, p wspath.Path, id object.ID, r io.Reader, size int64) (*content, error) {
	x := &content{blob: gitstore.KnownBlob(id)}
	c.all = append(c.all, x)
	staged, err := c.w.disk.Root.Stage(p)
	if err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	x.staged = staged
	n, err := io.CopyBuffer(onlyWriter{staged}, &bodyReader{ctx: ctx, r: r}, make([]byte, 128<<10))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = staged.Finish()
	}
	if err == nil {
		c.finished(x)
	}
	return x, errs.Wrap(err, string(p))
}

// bodyReader tells a failure of the source from one of the disk.
type bodyReader struct {
	ctx    context.Context
	r      io.Reader
	failed error
}

func (b *bodyReader) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		b.failed = errs.Wrap(context.Cause(b.ctx), "")
		return 0, b.failed
	}
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

// whole reads a body of a known, small size.
func (b *bodyReader) whole(p wspath.Path, size int64) ([]byte, error) {
	data := make([]byte, size+1) // one more shows a body that is longer
	n, err := io.ReadFull(b, data)
	if b.failed != nil {
		return nil, b.failed
	}
	if err == nil || int64(n) != size {
		return nil, incomplete(p)
	}
	return data[:size:size], nil
}

// onlyWriter hides ReadFrom and the like from io.Copy.
type onlyWriter struct{ io.Writer }

// fromLink prepares a link's target.
func (c *contents) fromLink(target string) *content {
	x := &content{target: target, blob: c.w.store.NewBlob([]byte(target))}
	c.all = append(c.all, x)
	return x
}

// fromDisk prepares a copy of what a file on disk holds.
func (c *contents) fromDisk(ctx context.Context, from, to wspath.Path) (*content, object.Mode, error) {
	for range disk.Tries {
		f, before, err := c.w.disk.OpenRegular(from)
		if err != nil {
			return nil, 0, err
		}
		x, err := c.fromReader(ctx, to, io.NewSectionReader(f, 0, before.Size), -1, 0)
		after, serr := f.Stat()
		f.Close()
		if err := errors.Join(err, serr); err != nil {
			return nil, 0, errs.Wrap(err, string(from))
		}
		if disk.SameContent(before, after) && x.staged.Size() == before.Size {
			return x, disk.GitMode(after), nil
		}
	}
	return nil, 0, disk.ErrChanging(from)
}

// fromContent prepares the same bytes once more.
func (c *contents) fromContent(x *content, to wspath.Path) (*content, error) {
	if x.staged == nil {
		return c.fromLink(x.target), nil
	}
	staged, err := x.staged.Copy(to)
	if err != nil {
		return nil, errs.Wrap(err, string(to))
	}
	y := &content{blob: x.blob, staged: staged}
	c.all = append(c.all, y)
	c.finished(y)
	return y, nil
}
