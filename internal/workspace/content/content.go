package content

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
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// smallBody is the size in bytes up to which a body is read whole before anything
// is made on disk.
const smallBody = 128 << 10

// packLater is the size in bytes above which a lone file is compressed only once it
// is known to differ from the file on disk. Of several files each is compressed at once: they are
// prepared concurrently, and committed by one goroutine.
const packLater = 32 << 10

// Content is new bytes for one file: on the workspace's disk, without a name,
// and as a blob. Or the target of a link.
type Content struct {
	Blob   gitstore.Blob
	Staged *rootfs.Staged // nil for a link
	Target string
}

// Prepared owns what one request prepared, and drops in the end what was not
// used.
type Prepared struct {
	disk *disk.Disk
	left func(*rootfs.Displaced) // takes what discard could not remove
	All  []*Content
	Ops  []*Content // by operation, of those whose bytes do not depend on the disk

	rewrites uint64 // of the history, when they were prepared

	// open counts the prepared files that are open, of all parts of a request.
	open *atomic.Int64
}

// MaxOpen is how many prepared files a request holds open; the rest are parked.
const MaxOpen = 256

// New makes an empty one. left takes files that Release could not remove.
func New(d *disk.Disk, left func(*rootfs.Displaced)) *Prepared {
	return &Prepared{disk: d, left: left, open: new(atomic.Int64)}
}

// finished stamps a file that is written whole, and parks it if too many are open.
func (c *Prepared) finished(x *Content) {
	x.Staged.Stamp(x.Blob.ID())
	if n := c.open.Add(1); x.Staged.Park(int(n), MaxOpen) {
		c.open.Add(-1)
	}
}

// Release closes what was placed, and drops what was not. Blobs that were
// committed are not hurt.
func (c *Prepared) Release() {
	for _, x := range c.All {
		if left := x.Staged.Discard(); left != nil {
			c.left(left)
		}
		c.disk.Store.Discard(x.Blob)
	}
}

// Prepare takes in the bytes that come with the request. It holds no lock: a
// client may be slow.
func (c *Prepared) Prepare(ctx context.Context, ops []op.Op) error {
	c.Ops, c.rewrites = make([]*Content, len(ops)), c.disk.Store.Rewrites()
	// Bodies come from the client one after the other.
	workers := min(runtime.GOMAXPROCS(0), len(ops)/opsAWorker)
	if workers < 2 || slices.ContainsFunc(ops, func(o op.Op) bool { return o.Body != nil }) {
		return c.prepareRange(ctx, ops, 0, len(ops))
	}
	parts := make([]Prepared, workers)
	group, gctx := errgroup.WithContext(ctx)
	for k := range parts {
		p := &parts[k]
		p.disk, p.left, p.Ops, p.rewrites, p.open = c.disk, c.left, c.Ops, c.rewrites, c.open
		group.Go(func() error { return p.prepareRange(gctx, ops, len(ops)*k/workers, len(ops)*(k+1)/workers) })
	}
	err := group.Wait()
	for k := range parts {
		c.All = append(c.All, parts[k].All...)
	}
	return err
}

// opsAWorker is from how many operations on it is worth a goroutine.
const opsAWorker = 8

// prepareRange prepares the operations [from,to).
func (c *Prepared) prepareRange(ctx context.Context, ops []op.Op, from, to int) error {
	for i := from; i < to; i++ {
		o := &ops[i]
		if o.Kind != op.OpWrite {
			continue
		}
		if err := ctx.Err(); err != nil {
			return errs.Wrap(context.Cause(ctx), "")
		}
		x, err := c.fromOp(ctx, o)
		if err != nil {
			return err
		}
		c.Ops[i] = x
	}
	return nil
}

// Current fails where bytes of history were prepared that a purge may have taken
// out of it meanwhile.
func (c *Prepared) Current(ops []op.Op) error {
	if c.rewrites == c.disk.Store.Rewrites() || !slices.ContainsFunc(ops, func(o op.Op) bool { return o.Blob != nil }) {
		return nil
	}
	return errs.New(errs.Unavailable, "history_rewritten", "A purge rewrote the history meanwhile; try again.")
}

func (c *Prepared) fromOp(ctx context.Context, o *op.Op) (*Content, error) {
	switch {
	case o.Body != nil:
		return c.fromReader(ctx, o.Path, o.Body, o.Size, o.MaxSize)
	case o.Blob != nil:
		data, err := c.disk.Store.ReadBlob(ctx, *o.Blob, smallBody)
		if err == nil {
			return c.fromHeld(o.Path, *o.Blob, data)
		}
		if !errs.Is(err, errs.TooLarge) {
			return nil, err
		}
		r, size, err := c.disk.Store.OpenBlob(ctx, *o.Blob)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if c.disk.Store.Room(size) != nil {
			return c.fromHistory(ctx, o.Path, *o.Blob, r, size)
		}
		return c.fromReader(ctx, o.Path, r, size, 0)
	}
	return c.FromBytes(o.Path, o.Data)
}

// FromBytes prepares small content.
func (c *Prepared) FromBytes(p wspath.Path, data []byte) (*Content, error) {
	x, err := c.stage(p, data)
	switch {
	case err != nil:
	case len(c.Ops) == 1 && len(data) > packLater:
		x.Blob = c.disk.Store.LaterBlob(data)
	default:
		x.Blob = c.disk.Store.NewBlob(data)
	}
	if err == nil {
		err = errs.Wrap(x.Blob.Err(), string(p))
	}
	if err == nil {
		c.finished(x)
	}
	return x, err
}

// fromHeld prepares small content that history has.
func (c *Prepared) fromHeld(p wspath.Path, id object.ID, data []byte) (*Content, error) {
	x, err := c.stage(p, data)
	if err == nil {
		x.Blob, err = c.disk.Store.HeldBlob(id, data)
	}
	if err == nil {
		c.finished(x)
	}
	return x, err
}

// stage puts small content onto the disk.
func (c *Prepared) stage(p wspath.Path, data []byte) (*Content, error) {
	x := &Content{}
	c.All = append(c.All, x)
	staged, err := c.disk.Root.Stage(p)
	if err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	x.Staged = staged
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
func (c *Prepared) fromReader(ctx context.Context, p wspath.Path, body io.Reader, size, max int64) (*Content, error) {
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
		return c.FromBytes(p, data)
	}
	x := &Content{}
	c.All = append(c.All, x)
	staged, err := c.disk.Root.Stage(p)
	if err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	x.Staged = staged
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
	if x.Blob, err = c.disk.Store.StreamBlob(ctx, staged, staged.Size()); err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	c.finished(x)
	return x, nil
}

func incomplete(p wspath.Path) error {
	return &errs.Error{Kind: errs.Invalid, Code: "body_incomplete", Detail: "The content is not as long as announced.", Path: string(p)}
}

// FromStore prepares a blob of history, without hashing it once more: the reader
// checks it.
func (c *Prepared) FromStore(ctx context.Context, p wspath.Path, id object.ID, r io.Reader, size int64) (*Content, error) {
	x := &Content{Blob: gitstore.KnownBlob(id)}
	c.All = append(c.All, x)
	staged, err := c.disk.Root.Stage(p)
	if err != nil {
		return nil, errs.Wrap(err, string(p))
	}
	x.Staged = staged
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

// bodyReader distinguishes a failure of the source from one of the disk.
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

// FromLink prepares a link's target.
func (c *Prepared) FromLink(target string) *Content {
	x := &Content{Target: target, Blob: c.disk.Store.NewBlob([]byte(target))}
	c.All = append(c.All, x)
	return x
}

// FromDisk prepares a copy of what a file on disk holds.
func (c *Prepared) FromDisk(ctx context.Context, from, to wspath.Path) (*Content, object.Mode, error) {
	for range disk.Tries {
		f, before, err := c.disk.OpenRegular(from)
		if err != nil {
			return nil, 0, err
		}
		x, err := c.fromReader(ctx, to, io.NewSectionReader(f, 0, before.Size), -1, 0)
		after, serr := f.Stat()
		f.Close()
		if err := errors.Join(err, serr); err != nil {
			return nil, 0, errs.Wrap(err, string(from))
		}
		if disk.SameContent(before, after) && x.Staged.Size() == before.Size {
			return x, disk.GitMode(after), nil
		}
	}
	return nil, 0, disk.ErrChanging(from)
}

// FromContent prepares the same bytes once more.
func (c *Prepared) FromContent(x *Content, to wspath.Path) (*Content, error) {
	if x.Staged == nil {
		return c.FromLink(x.Target), nil
	}
	staged, err := x.Staged.Copy(to)
	if err != nil {
		return nil, errs.Wrap(err, string(to))
	}
	y := &Content{Blob: x.Blob, Staged: staged}
	c.All = append(c.All, y)
	c.finished(y)
	return y, nil
}

// fromHistory prepares a file whose blob is not to be written once more.
func (c *Prepared) fromHistory(ctx context.Context, p wspath.Path, id object.ID, r io.Reader, size int64) (*Content, error) {
	x, err := c.FromStore(ctx, p, id, r, size)
	if err != nil {
		return x, err
	}
	x.Blob, err = c.disk.Store.ExistingBlob(ctx, id)
	return x, err
}

// Close closes what was placed, so that it is not taken for still being
// written; what was not placed stays for the next round.
func (c *Prepared) Close() {
	for _, x := range c.All {
		if x.Staged != nil && x.Staged.Placed() {
			x.Staged.Discard()
			x.Staged = nil
		}
	}
}
