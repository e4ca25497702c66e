package gitstore

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
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// isAbsentObject reports whether an error says that an object is nowhere.
func isAbsentObject(err error) bool { return errs.Is(err, errs.NotFound) || errs.Is(err, errs.Gone) }

// readMeta gives an object of ours, the bytes of a blob excepted.
func (s *Store) readMeta(id ID) (object.Kind, []byte, error) {
	for range 2 {
		for _, j := range *s.logs.live.Load() {
			if l, ok := j.Find(id); ok && l.Kind == object.Blob {
				return object.Blob, nil, nil
			}
		}
		f, err := s.holder(id)
		if err != nil {
			return 0, nil, err
		}
		if f == nil {
			break
		}
		kind, _, err := f.p.Info(id)
		f.release()
		if err == nil && kind == object.Blob {
			return kind, nil, nil
		}
		if err == nil {
			break
		}
	}
	return s.readObject(id, maxMeta)
}

func looseName(id ID) string {
	hex := id.String()
	return path.Join(repoDir, "objects", hex[:2], hex[2:])
}

// looseMeta reads an object that a person's git wrote by itself
// (gitformat-loose(5)), the bytes of a blob excepted. One that does not read is
// none.
func (s *Store) looseMeta(id ID) (kind object.Kind, data []byte, ok bool, err error) {
	f, err := s.fs.Open(looseName(id))
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
	data, err = io.ReadAll(io.LimitReader(body, min(size, maxMeta)+1))
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
