package remote

import (
	"bytes"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/gitstore/sink"
	"umbra/internal/vfs"
)

// Object is what can be put.
type Object interface {
	io.ReaderAt
	Size() int64
}

// Bytes is an object in memory.
func Bytes(data []byte) Object { return bytes.NewReader(data) }

// packFiles is a pack with its index behind it.
type packFiles struct {
	pack, idx vfs.File
	at, size  int64 // where the index begins, and ends
}

// OpenPack opens a pack and its index, to be put as one object.
func OpenPack(fsys vfs.FS, packName, idxName string) (o Object, closeBoth func(), err error) {
	p := &packFiles{}
	if p.pack, p.at, err = vfs.OpenSized(fsys, packName); err != nil {
		return nil, nil, err
	}
	if p.idx, p.size, err = vfs.OpenSized(fsys, idxName); err != nil {
		p.pack.Close()
		return nil, nil, err
	}
	p.size += p.at
	return p, func() { p.pack.Close(); p.idx.Close() }, nil
}

// PutPack puts a pack with its index.
func (l *Log) PutPack(ctx context.Context, fsys vfs.FS, packName, idxName string) (string, error) {
	o, done, err := OpenPack(fsys, packName, idxName)
	if err != nil {
		return "", err
	}
	defer done()
	return l.Put(ctx, o)
}

func (p *packFiles) Size() int64 { return p.size }

func (p *packFiles) ReadAt(b []byte, off int64) (n int, err error) {
	if off < p.at {
		n, err = p.pack.ReadAt(b[:min(int64(len(b)), p.at-off)], off)
		if n == len(b) || int64(n) < p.at-off {
			return n, err
		}
		off += int64(n)
	}
	more, err := p.idx.ReadAt(b[n:], off-p.at)
	return n + more, err
}

// Fetcher is the part of a sink.Sink that reads objects.
type Fetcher interface {
	Fetch(ctx context.Context, name string, off, n int64) (io.ReadCloser, error)
}

// Base returns the name of a pack's files, without suffix.
func Base(p *sink.Pack) string { return "pack-" + p.Sum.String() }

// fetchPack brings a pack and its index to the local disk, under temporary names:
// whole and verified.
func fetchPack(ctx context.Context, k Fetcher, fsys vfs.FS, p *sink.Pack, packTemp, idxTemp string) error {
	r, err := k.Fetch(ctx, p.Name, 0, p.Size+p.Idx)
	if err != nil {
		return err
	}
	defer r.Close()
	sum := sha1.New()
	body := io.LimitReader(r, p.Size-pack.TrailerSize)
	err = write(fsys, packTemp, func(f io.Writer) error {
		if _, err := io.Copy(io.MultiWriter(f, sum), body); err != nil {
			return err
		}
		var trailer [pack.TrailerSize]byte
		if _, err := io.ReadFull(r, trailer[:]); err != nil {
			return err
		}
		if got := object.ID(sum.Sum(nil)); got != p.Sum || got != trailer {
			return fmt.Errorf("%s: %w: other bytes than those that were put", p.Name, pack.ErrCorrupt)
		}
		_, err := f.Write(trailer[:])
		return err
	})
	if err == nil {
		err = write(fsys, idxTemp, func(f io.Writer) error {
			_, err := io.CopyN(f, r, p.Idx)
			return err
		})
	}
	if err != nil {
		return unavailable(err)
	}
	return verifyIdx(fsys, idxTemp, p)
}

// unavailable makes an error of a body blobs_unavailable; others are as they are.
func unavailable(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return sink.BlobsUnavailable(err)
	}
	return err
}

func verifyIdx(fsys vfs.FS, name string, p *sink.Pack) error {
	f, size, err := vfs.OpenSized(fsys, name)
	if err != nil {
		return err
	}
	defer f.Close()
	return isOf(f, size, p, pack.IdxOptions{Verify: true})
}

// isOf returns an error if an index is not the pack's.
func isOf(f io.ReaderAt, size int64, p *sink.Pack, opt pack.IdxOptions) error {
	x, err := pack.OpenIdx(f, size, opt)
	if err != nil {
		return err
	}
	if sum, err := x.PackChecksum(); err != nil || sum != p.Sum || uint32(x.Count()) != p.Count {
		return errors.Join(err, fmt.Errorf("%s: %w: the index is of another pack", p.Name, pack.ErrCorrupt))
	}
	return nil
}

// write makes a file, in place of one that is there.
func write(fsys vfs.FS, name string, fill func(io.Writer) error) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	return errors.Join(fill(f), f.Close())
}

// Sound reports whether the local files of a pack are the ones that were put: it
// reads all of them.
func Sound(fsys vfs.FS, p *sink.Pack, packName, idxName string) bool {
	f, size, err := vfs.OpenSized(fsys, packName)
	if err != nil {
		return false
	}
	defer f.Close()
	if size != p.Size {
		return false
	}
	sum := sha1.New()
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size-pack.TrailerSize)); err != nil || object.ID(sum.Sum(nil)) != p.Sum {
		return false
	}
	return verifyIdx(fsys, idxName, p) == nil
}
