package remote

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sync"
	"time"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/sink"
	"umbra/internal/vfs"
)

// A large or old pack is opened once its index is here, or the index of its end: what is read
// of it is fetched in ranges, and the rest behind that. When all of it is here and has its
// checksum, the files get their names, and git sees the pack.

const (
	// lazyDir holds packs that are partly fetched, below the workspace's directory.
	lazyDir = "remote"
	// Near ends the name of an index of what a pack's last LastBytes have.
	Near = ".near"
	// SmallPack is the size up to which a pack may be fetched whole at once, in bytes.
	SmallPack = 1 << 20
	// blockSize is what is fetched at least, restSize what is fetched of the rest at
	// once, in bytes.
	blockSize = 256 << 10
	restSize  = 4 << 20
	// LastBytes is how much of a pack's end is fetched with its index, in bytes: what an
	// open reads is to be there.
	LastBytes = 1 << 20
	// fetchWait bounds how long a read waits for a range.
	fetchWait = 8 * time.Second
)

// lazyPack is a pack of which parts are here. It is the file of a pack.Pack.
type lazyPack struct {
	vfs.File // as long as the pack; what was not fetched is a hole
	k        Fetcher
	p        sink.Pack
	to       *Place

	reading, finishing sync.Mutex // one range at a time for readers, and one for the rest

	idx      vfs.File      // as long as the index; empty until indexed is closed
	indexing chan struct{} // one place: who fetches the index
	indexed  chan struct{}

	mu   sync.Mutex
	have []bool // by block
	gone bool   // not in use any more
	done bool   // has its name in the repository
}

func (to *Place) part(p *sink.Pack) string { return path.Join(lazyDir, Base(p)) }

// openLazy makes a lazy pack, of which so many bytes at the end are fetched. The index is
// fetched with them, unless there is one of the end.
func (to *Place) openLazy(ctx context.Context, k Fetcher, p *sink.Pack, before int64, near bool) (_ *lazyPack, err error) {
	f := &lazyPack{k: k, p: *p, to: to, have: make([]bool, (p.Size+blockSize-1)/blockSize),
		indexing: make(chan struct{}, 1), indexed: make(chan struct{})}
	defer func() {
		if err != nil {
			f.closeFiles()
		}
	}()
	if f.File, err = to.hole(p, ".pack", p.Size); err != nil {
		return nil, err
	}
	if f.idx, err = to.hole(p, ".idx", p.Idx); err != nil {
		return nil, err
	}
	first := (max(0, p.Size-before) + blockSize - 1) / blockSize
	from, end := min(first*blockSize, p.Size), p.Size
	if !near {
		end += p.Idx
	}
	if from == end {
		return f, nil
	}
	r, err := k.Fetch(ctx, p.Name, from, end-from)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := f.fill(r, from, p.Size); err != nil {
		return nil, err
	}
	if near {
		return f, nil
	}
	return f, f.putIdx(r)
}

// hole makes a file of a lazy pack that has nothing yet.
func (to *Place) hole(p *sink.Pack, suffix string, size int64) (vfs.File, error) {
	f, err := to.FS.OpenFile(to.part(p)+suffix, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return nil, err
	}
	return f, f.Truncate(size)
}

// index fetches the index, if it is not here.
func (f *lazyPack) index(ctx context.Context) error {
	select {
	case <-f.indexed:
		return nil
	case f.indexing <- struct{}{}:
	case <-ctx.Done():
		return sink.BlobsUnavailable(ctx.Err())
	}
	defer func() { <-f.indexing }()
	select {
	case <-f.indexed:
		return nil
	default:
	}
	r, err := f.k.Fetch(ctx, f.p.Name, f.p.Size, f.p.Idx)
	if err == nil {
		err = errors.Join(f.putIdx(r), r.Close())
	}
	if err != nil {
		if ctx.Err() != nil {
			return sink.BlobsUnavailable(err)
		}
		return err
	}
	return nil
}

// putIdx reads the index. Its checksum is made on the way, so that a large one is not read
// twice. Its order is what the node has made that put it.
func (f *lazyPack) putIdx(r io.Reader) error {
	sum, last := sha1.New(), make([]byte, sha1.Size)
	at := io.NewOffsetWriter(f.idx, 0)
	if _, err := io.CopyN(io.MultiWriter(at, sum), r, f.p.Idx-sha1.Size); err != nil {
		return unavailable(err)
	}
	if _, err := io.ReadFull(r, last); err != nil {
		return unavailable(err)
	}
	if !bytes.Equal(sum.Sum(nil), last) {
		return sink.BlobsUnavailable(fmt.Errorf("%s: %w: other bytes than those that were put", f.p.Name, pack.ErrCorrupt))
	}
	if _, err := at.Write(last); err != nil {
		return err
	}
	if err := isOf(f.idx, f.p.Idx, &f.p, pack.IdxOptions{}); err != nil {
		return err
	}
	close(f.indexed)
	return nil
}

// lazyIdx is the file of a lazy pack's index.
type lazyIdx struct {
	vfs.File
	f *lazyPack
}

// Close leaves the file open: it is closed with the log.
func (x lazyIdx) Close() error { return nil }

// ReadAt fetches the index if it is not here.
func (x lazyIdx) ReadAt(b []byte, off int64) (int, error) {
	select {
	case <-x.f.indexed:
	default:
		ctx, cancel := context.WithTimeout(context.Background(), fetchWait)
		defer cancel()
		if err := x.f.index(ctx); err != nil {
			return 0, err
		}
	}
	return x.File.ReadAt(b, off)
}

// Close leaves the file open: it is closed with the log.
func (f *lazyPack) Close() error { return nil }

// ReadAt fetches what is not here. The header and the checksum are known.
func (f *lazyPack) ReadAt(b []byte, off int64) (int, error) {
	if head := pack.Header(f.p.Count); off == 0 && len(b) <= len(head) {
		return copy(b, head[:]), nil
	}
	if from := f.p.Size - pack.TrailerSize; off >= from && off+int64(len(b)) <= f.p.Size {
		return copy(b, f.p.Sum[off-from:]), nil
	}
	end := min(off+int64(len(b)), f.p.Size)
	if _, _, ok := f.missing(off, end); off < end && ok {
		ctx, cancel := context.WithTimeout(context.Background(), fetchWait)
		defer cancel()
		if err := f.fetch(ctx, &f.reading, off, end); err != nil {
			return 0, err
		}
	}
	return f.File.ReadAt(b, off)
}

// missing returns the first range in [off,end) that is not here, whole blocks of at
// most restSize; ok is false if all is.
func (f *lazyPack) missing(off, end int64) (from, to int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i, last := off/blockSize, (end-1)/blockSize
	for i <= last && f.have[i] {
		i++
	}
	j := i
	for j <= last && !f.have[j] && (j-i)*blockSize < restSize {
		j++
	}
	return i * blockSize, min(j*blockSize, f.p.Size), i < j
}

// fetch brings a range here; with a lock of its own the rest is fetched while readers
// fetch what they need.
func (f *lazyPack) fetch(ctx context.Context, turn *sync.Mutex, off, end int64) error {
	if _, _, ok := f.missing(off, end); !ok {
		return nil
	}
	turn.Lock()
	defer turn.Unlock()
	for {
		from, to, ok := f.missing(off, end)
		if !ok {
			return nil
		}
		r, err := f.k.Fetch(ctx, f.p.Name, from, to-from)
		if err == nil {
			err = errors.Join(f.fill(r, from, to), r.Close())
		}
		if err != nil {
			if ctx.Err() != nil {
				return sink.BlobsUnavailable(err)
			}
			return err
		}
	}
}

// fill reads a range of whole blocks, and writes those that are not here.
func (f *lazyPack) fill(r io.Reader, from, to int64) error {
	block := make([]byte, min(blockSize, to-from))
	for at := from; at < to; at += blockSize {
		block = block[:min(blockSize, to-at)]
		if _, err := io.ReadFull(r, block); err != nil {
			return unavailable(err)
		}
		if err := f.put(block, at); err != nil {
			return err
		}
	}
	return nil
}

// put writes a block that is not here. One that is may have been verified, and have its name,
// while this one was on its way.
func (f *lazyPack) put(block []byte, at int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.have[at/blockSize] {
		return nil
	}
	_, err := f.WriteAt(block, at)
	f.have[at/blockSize] = err == nil
	return err
}

// finish fetches what is missing and gives the files their names.
func (f *lazyPack) finish(ctx context.Context) error {
	if err := f.index(ctx); err != nil {
		return err
	}
	for off := int64(0); off < f.p.Size; off += restSize {
		if err := f.fetch(ctx, &f.finishing, off, min(off+restSize, f.p.Size)); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done || f.gone {
		return nil
	}
	sum := sha1.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f.File, 0, f.p.Size-pack.TrailerSize)); err != nil {
		return err
	}
	if object.ID(sum.Sum(nil)) != f.p.Sum {
		clear(f.have)
		return sink.BlobsUnavailable(fmt.Errorf("%s: %w: other bytes than those that were put", f.p.Name, pack.ErrCorrupt))
	}
	name, file := f.to.part(&f.p), f.to.file(&f.p)
	err := errors.Join(f.to.keep(&f.p), f.to.FS.Rename(name+".pack", file+".pack"), f.to.FS.Rename(name+".idx", file+".idx"), vfs.RemoveAll(f.to.FS, name+Near))
	f.done = err == nil
	return err
}

// drop says that the pack is not in use any more.
func (f *lazyPack) drop() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = true
	if f.done {
		return nil
	}
	name := f.to.part(&f.p)
	return errors.Join(vfs.RemoveAll(f.to.FS, name+".pack"), vfs.RemoveAll(f.to.FS, name+".idx"), vfs.RemoveAll(f.to.FS, name+Near))
}

// throughFS opens the files of a lazy pack.
type throughFS struct {
	vfs.FS
	f *lazyPack
}

func (t throughFS) Open(name string) (vfs.File, error) {
	switch path.Ext(name) {
	case ".pack":
		return t.f, nil
	case ".idx":
		return lazyIdx{t.f.idx, t.f}, nil
	}
	return t.FS.Open(t.f.to.part(&t.f.p) + path.Ext(name))
}

// Files returns how the files of a pack are opened, and whether it is on the local
// disk.
func (l *Log) Files(fsys vfs.FS, base string) (_ vfs.FS, here bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.lazy[base]; f != nil {
		return throughFS{fsys, f}, false
	}
	return fsys, true
}

// Lazy returns the bases of the packs that are not whole on the local disk.
func (l *Log) Lazy() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for base, f := range l.lazy {
		f.mu.Lock()
		if !f.done && !f.gone {
			out = append(out, base)
		}
		f.mu.Unlock()
	}
	return out
}

// Drop says that a pack is not in use any more: it is not fetched.
func (l *Log) Drop(base string) error {
	l.mu.Lock()
	f := l.lazy[base]
	l.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.drop()
}

// Whole brings every pack to the local disk.
func (l *Log) Whole(ctx context.Context) error {
	var jobs []func(context.Context) error
	for _, base := range l.Lazy() {
		l.mu.Lock()
		f := l.lazy[base]
		l.mu.Unlock()
		jobs = append(jobs, f.finish)
	}
	return atOnce(ctx, jobs)
}

// Close frees the files of packs that are not whole.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.lazy {
		f.closeFiles()
	}
}

func (f *lazyPack) closeFiles() {
	for _, file := range []vfs.File{f.File, f.idx} {
		if file != nil {
			_ = file.Close() // what it has is fetched again
		}
	}
}
