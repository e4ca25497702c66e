package rawpack

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"io/fs"
	"path"
	"strconv"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

func looseName(dir string, id object.ID) string {
	hex := id.String()
	return path.Join(dir, hex[:2], hex[2:])
}

// LooseMeta reads an object that a user's git wrote by itself
// (gitformat-loose(5)) below a directory of objects, the bytes of a blob excepted.
// One that does not read, or has more than max bytes, is none.
func LooseMeta(fsys vfs.FS, dir string, max int64, id object.ID) (kind object.Kind, data []byte, ok bool, err error) {
	f, err := fsys.Open(looseName(dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, false, nil
	}
	if err != nil {
		return 0, nil, false, err
	}
	defer f.Close()
	kind, size, body, ok := looseHeader(f)
	if !ok || kind == object.Blob {
		return kind, nil, ok, nil
	}
	data, err = io.ReadAll(io.LimitReader(body, min(size, max)+1))
	if err != nil || int64(len(data)) != size || object.Hash(kind, data) != id {
		return 0, nil, false, nil
	}
	return kind, data, true, nil
}

// looseHeader reads "<kind> <size>\0".
func looseHeader(f vfs.File) (kind object.Kind, size int64, body io.Reader, ok bool) {
	z, err := zlib.NewReader(f)
	if err != nil {
		return 0, 0, nil, false
	}
	r := bufio.NewReader(z)
	head, err := r.ReadBytes(0)
	if err != nil || len(head) > 40 {
		return 0, 0, nil, false
	}
	word, number, _ := bytes.Cut(head[:len(head)-1], []byte(" "))
	size, err = strconv.ParseInt(string(number), 10, 64)
	if err != nil || size < 0 {
		return 0, 0, nil, false
	}
	for _, k := range []object.Kind{object.Commit, object.Tree, object.Blob, object.Tag} {
		if k.String() == string(word) {
			return k, size, r, true
		}
	}
	return 0, 0, nil, false
}

// Loose reads an object of at most max bytes that git wrote by itself below a
// directory of objects.
func Loose(fsys vfs.FS, dir string, max int64, id object.ID) (object.Kind, []byte, bool) {
	f, err := fsys.Open(looseName(dir, id))
	if err != nil {
		return 0, nil, false
	}
	defer f.Close()
	kind, size, body, ok := looseHeader(f)
	if !ok || size > max {
		return 0, nil, false
	}
	data, err := io.ReadAll(io.LimitReader(body, size+1))
	if err != nil || object.Hash(kind, data) != id {
		return 0, nil, false
	}
	return kind, data, true
}

// LooseBlob reads a blob that git wrote by itself below a directory of objects. Of one
// over max bytes data is nil. ok is false, without an error, for another object and
// for one that does not read; fs.ErrNotExist: there is no file.
func LooseBlob(fsys vfs.FS, dir string, max int64, id object.ID) (data []byte, ok bool, err error) {
	f, err := fsys.Open(looseName(dir, id))
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	kind, size, body, ok := looseHeader(f)
	if !ok || kind != object.Blob || size > max {
		return nil, ok && kind == object.Blob, nil
	}
	data, err = io.ReadAll(io.LimitReader(body, size))
	return data, err == nil, err
}
