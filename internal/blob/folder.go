package blob

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
)

// Folder keeps objects as files below a directory: for tests, and for a look at a
// cluster without an object store. One key must not be a directory of another.
type Folder struct{ root *os.Root }

// tempPrefix begins the names of files that are being written. No key has one.
const tempPrefix = "+"

// OpenFolder opens the store below an existing directory.
func OpenFolder(dir string) (*Folder, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &Folder{root}, nil
}

// Close releases the directory.
func (f *Folder) Close() error { return f.root.Close() }

// kindOf classifies an error of the file system.
func kindOf(err error) Kind {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	case errors.Is(err, fs.ErrPermission):
		return Refused
	}
	return Unreachable
}

// Put implements Store. The object is durable when it returns.
func (f *Folder) Put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	if err := checkKey(key); err != nil {
		return fail(ctx, opPut, key, Refused, err)
	}
	err := f.put(ctx, key, body, size)
	return fail(ctx, opPut, key, kindOf(err), err)
}

func (f *Folder) put(ctx context.Context, key string, body io.ReaderAt, size int64) error {
	dir := path.Dir(key)
	if err := f.root.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	temp := path.Join(dir, tempPrefix+random())
	out, err := f.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(out, io.NewSectionReader(body, 0, size))
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err = errors.Join(err, out.Sync(), out.Close(), context.Cause(ctx)); err == nil {
		err = f.root.Rename(temp, key)
	}
	if err != nil {
		return errors.Join(err, f.root.Remove(temp))
	}
	for ; err == nil; dir = path.Dir(dir) {
		if err = f.sync(dir); dir == "." {
			break
		}
	}
	return err
}

func (f *Folder) sync(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *Folder) open(ctx context.Context, op, key string) (*os.File, int64, error) {
	if err := checkKey(key); err != nil {
		return nil, 0, fail(ctx, op, key, Refused, err)
	}
	if err := context.Cause(ctx); err != nil {
		return nil, 0, fail(ctx, op, key, Canceled, err)
	}
	file, err := f.root.Open(key)
	if err != nil {
		return nil, 0, fail(ctx, op, key, kindOf(err), err)
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fs.ErrNotExist
	}
	if err != nil {
		file.Close()
		return nil, 0, fail(ctx, op, key, kindOf(err), err)
	}
	return file, info.Size(), nil
}

// Get implements Store.
func (f *Folder) Get(ctx context.Context, key string) (io.ReadCloser, int64, error) {
	file, size, err := f.open(ctx, opGet, key)
	if err != nil {
		return nil, 0, err
	}
	return file, size, nil
}

// GetRange implements Store.
func (f *Folder) GetRange(ctx context.Context, key string, offset, n int64) ([]byte, error) {
	if err := checkRange(key, offset, n); err != nil {
		return nil, fail(ctx, opRange, key, Refused, err)
	}
	file, size, err := f.open(ctx, opRange, key)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if offset+n > size {
		return nil, fail(ctx, opRange, key, TooShort, errEnds)
	}
	data := make([]byte, n)
	if _, err := file.ReadAt(data, offset); err != nil {
		return nil, fail(ctx, opRange, key, Unreachable, err)
	}
	return data, nil
}

// Delete implements Store.
func (f *Folder) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return fail(ctx, opDelete, key, Refused, err)
	}
	if err := context.Cause(ctx); err != nil {
		return fail(ctx, opDelete, key, Canceled, err)
	}
	err := f.root.Remove(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fail(ctx, opDelete, key, kindOf(err), err)
}

// List implements Store.
func (f *Folder) List(ctx context.Context, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		var list []Object
		err := fs.WalkDir(f.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			if err == nil && d.IsDir() && name != "." && !strings.HasPrefix(prefix, name+"/") && !strings.HasPrefix(name+"/", prefix) {
				return fs.SkipDir
			}
			if err != nil || d.IsDir() || name <= after || !strings.HasPrefix(name, prefix) || strings.HasPrefix(d.Name(), tempPrefix) {
				return ignoreMissing(err)
			}
			info, err := d.Info()
			if err == nil {
				list = append(list, Object{name, info.Size(), info.ModTime()})
			}
			return ignoreMissing(err)
		})
		if err != nil {
			yield(Object{}, fail(ctx, opList, prefix, kindOf(err), err))
			return
		}
		slices.SortFunc(list, func(a, b Object) int { return cmp.Compare(a.Key, b.Key) })
		for _, o := range list {
			if !yield(o, nil) {
				return
			}
		}
	}
}

// ignoreMissing returns nil for what was removed during a walk.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
