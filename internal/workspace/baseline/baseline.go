package baseline

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/scan"
	"umbra/internal/vfs"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// Taken is what a baseline recorded.
type Taken struct {
	Seq     uint64
	Size    int64 // files and directories that the walk met
	Skipped []op.Skip
	// Changed is set where a large file changed while it was read: a scan finds what
	// it has become.
	Changed bool
}

// Run records everything that is in the directory before the first change,
// but for what is ignored. One that was interrupted continues: what the index and
// the store have already is not read again. progress, if not nil, is called with the
// number of files so far.
func Run(ctx context.Context, d *disk.Disk, limits op.Limits, log *slog.Logger, progress func(files int64)) (Taken, error) {
	if err := d.LoadIndex(); err != nil {
		return Taken{}, err
	}
	resumed := !d.Index.Empty()
	rules, index, err := d.Rules()
	if err != nil {
		return Taken{}, err
	}
	var out Taken
	var skipped disk.Skips
	var changed atomic.Bool
	report := reportBaseline(d, log, progress)
	c, err := d.Store.BaselineOf(ctx, message.Message{Source: message.Baseline}, func(fill gitstore.Fill) error {
		fill.OnPart(func() {
			if err := d.SaveIndex(); err != nil {
				log.Warn("what the baseline has read so far would be read again", "error", err)
			}
		})
		b := &baseline{disk: d, largest: limits.CaptureBytes, changed: &changed, fill: fill, skipped: &skipped, git: openCheckout(d, index)}
		if resumed {
			b.known = fill.Known
		}
		opts := scan.Options{Rules: rules, Index: index, Prune: d.IsOwn, Progress: func(s scan.Stats) { report(s.Files+s.Links, false) }}
		err := b.run(ctx, func(visit func(scan.Found) error) error {
			stats, err := scan.Walk(ctx, d.FS, opts, visit)
			report(stats.Files+stats.Links, err == nil)
			out.Size = stats.Files + stats.Links + stats.Dirs
			return err
		})
		if b.git == nil {
			return err
		}
		if err != nil {
			return errors.Join(err, b.git.lender.Close())
		}
		rest, err := b.git.settle(ctx, d, log, fill)
		if err != nil {
			return err
		}
		b.git = nil
		return b.run(ctx, func(visit func(scan.Found) error) error {
			for _, f := range rest {
				if err := visit(f); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return Taken{}, err
	}
	out.Seq, out.Skipped, out.Changed = c.Seq, skipped.List, changed.Load()
	return out, nil
}

// reportAfter is how often the log reports how far a baseline has come.
const reportAfter = 2 * time.Second

// reportBaseline gives what a walk calls with the number of files so far: the log
// reports a long one.
func reportBaseline(d *disk.Disk, log *slog.Logger, progress func(files int64)) func(files int64, done bool) {
	began := d.Now()
	last := began
	return func(files int64, done bool) {
		if progress != nil {
			progress(files)
		}
		if now := d.Now(); now.Sub(last) >= reportAfter || done && last != began {
			last = now
			log.Info("recording the directory as it is", "files", files, "listed", done, "took", now.Sub(began).Round(time.Millisecond))
		}
	}
}

// baseline reads files for the first commit: one goroutine a processor hashes
// what the walk finds.
type baseline struct {
	disk    *disk.Disk
	largest int64 // a larger file is not recorded, in bytes
	changed *atomic.Bool
	fill    gitstore.Fill
	skipped *disk.Skips
	git     *checkout // nil: every file is read
	// known takes a file by what an earlier attempt has read; nil: there was none.
	known func(wspath.Path, object.Mode, object.ID) (bool, error)
}

// run records the files that find passes to its visitor.
func (b *baseline) run(ctx context.Context, find func(visit func(scan.Found) error) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan scan.Found, 64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			r := &fileReader{baseline: b, adder: b.fill.Adder()}
			for f := range work {
				if err := r.file(ctx, f); err != nil {
					cancel(err)
				}
			}
		})
	}
	err := find(func(f scan.Found) error {
		if f.Skip != "" {
			b.skipped.Add(f.Path, string(f.Skip))
			return nil
		}
		if b.git != nil && b.git.takes(f) {
			return nil
		}
		select {
		case work <- f:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	close(work)
	wg.Wait()
	if err == nil {
		err = context.Cause(ctx)
	}
	return errs.Wrap(err, "")
}

// fileReader reads files for a baseline in one goroutine.
type fileReader struct {
	*baseline
	adder *gitstore.Adder
	buf   []byte
}

// keptBuffer is how much memory is kept from one file to the next, in bytes.
const keptBuffer = 1 << 20

func (b *fileReader) file(ctx context.Context, f scan.Found) error {
	if ctx.Err() != nil {
		return nil // only drained
	}
	if f.Info.IsSymlink() {
		target, err := b.disk.FS.Readlink(string(f.Path))
		if err != nil {
			return b.refused(f.Path, err)
		}
		_, err = b.adder.Bytes(f.Path, object.Symlink, []byte(target))
		if errs.CodeOf(err) == "sha1_collision" {
			return b.refused(f.Path, err)
		}
		return err
	}
	if f.Info.Size > b.largest {
		b.skipped.Add(f.Path, "too_large")
		return nil
	}
	if b.known != nil {
		if id, ok := b.disk.Index.Lookup(f.Path, f.Info); ok {
			if taken, err := b.known(f.Path, disk.GitMode(f.Info), id); taken || err != nil {
				return err
			}
		}
	}
	if f.Info.Size > wholeFile {
		return b.large(f.Path)
	}
	at := b.disk.Now()
	data, info := b.unchanged(f)
	if data == nil {
		at = b.disk.Now()
		var err error
		info, err = b.disk.Stable(ctx, f.Path, func(h vfs.File, size int64) (err error) {
			data, err = disk.ReadAll(h, size)
			return err
		})
		if err != nil {
			return b.refused(f.Path, err)
		}
	}
	id, err := b.adder.Bytes(f.Path, disk.GitMode(info), data)
	if errs.CodeOf(err) == "sha1_collision" {
		return b.refused(f.Path, err)
	}
	if err == nil {
		b.disk.Index.Put(f.Path, info, id, disk.GitMode(info), at)
	}
	return err
}

// unchanged reads a file that is still as the walk has met it, which saves to
// look at it before it is read; nil for one that is not, or cannot be read.
func (b *fileReader) unchanged(f scan.Found) ([]byte, vfs.Info) {
	h, err := b.disk.FS.Open(string(f.Path))
	if err != nil {
		return nil, vfs.Info{}
	}
	defer h.Close()
	if int64(cap(b.buf)) < f.Info.Size || cap(b.buf) > keptBuffer || b.buf == nil {
		b.buf = make([]byte, max(f.Info.Size, 16<<10))
	}
	data := b.buf[:f.Info.Size]
	if n, err := h.ReadAt(data, 0); n < len(data) || err != nil && err != io.EOF {
		return nil, vfs.Info{}
	}
	info, err := h.Stat()
	if err != nil || !disk.SameContent(f.Info, info) || f.Info.CtimeNs != info.CtimeNs {
		return nil, vfs.Info{}
	}
	return data, info
}

// wholeFile is the size up to which a file is read before it is recorded, so
// that one that changes meanwhile is read again.
const wholeFile = 4 << 20

// large streams a file. One that changes meanwhile is recorded as it was read;
// the scan that follows finds what it has become.
func (b *baseline) large(p wspath.Path) error {
	at := b.disk.Now()
	h, info, err := b.disk.OpenRegular(p)
	if err != nil {
		return b.refused(p, err)
	}
	defer h.Close()
	src := &exactly{r: io.NewSectionReader(h, 0, info.Size), left: info.Size}
	id, err := b.fill.Add()(p, disk.GitMode(info), src, info.Size)
	if errs.CodeOf(err) == "sha1_collision" {
		return b.refused(p, err)
	}
	if err != nil {
		return err
	}
	after, err := h.Stat()
	if err == nil && !src.failed && disk.SameContent(info, after) && info.CtimeNs == after.CtimeNs {
		b.disk.Index.Put(p, info, id, disk.GitMode(info), at)
	} else {
		b.changed.Store(true)
	}
	return nil
}

// exactly gives as many bytes as were announced, zeros where the file has
// shrunk or cannot be read on: the pack is being written, and must become whole.
type exactly struct {
	r      io.Reader
	left   int64
	failed bool
}

func (e *exactly) Read(p []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), e.left)]
	n := 0
	if !e.failed {
		var err error
		if n, err = e.r.Read(p); err != nil && n == 0 {
			e.failed = true
		}
	}
	if e.failed {
		clear(p)
		n = len(p)
	}
	e.left -= int64(n)
	return n, nil
}

// refused notes a file that cannot be recorded; what is wrong with the process
// rather than the file ends the baseline.
func (b *baseline) refused(p wspath.Path, err error) error {
	reason, fatal := disk.SkipReason(err)
	if fatal {
		return err
	}
	if reason != "" {
		b.skipped.Add(p, reason)
	}
	return nil
}
