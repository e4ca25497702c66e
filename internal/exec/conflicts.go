package exec

import (
	"bytes"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
)

// conflictsPrefix is where the versions are kept that could not be merged, a ref
// for each call.
const conflictsPrefix = "refs/umbra/conflicts/"

// node is a directory of the conflicts' tree.
type node map[string]any // of version or node

// keepConflicts writes the layer's versions of the conflicts as a commit without
// parents, in loose objects, and sets the ref to it (gitformat-loose(5),
// gitrepository-layout(5)).
func keepConflicts(gitDir, ref string, l *Layer, upper string, list []Conflict) error {
	k := looseWriter{gitDir}
	root := node{}
	for _, c := range list {
		if c.Theirs.Mode == 0 {
			continue
		}
		if err := k.blob(filepath.Join(upper, c.Path), c.Theirs); err != nil {
			return errs.Wrap(err, c.Path)
		}
		dir := root
		parts := strings.Split(c.Path, "/")
		for _, name := range parts[:len(parts)-1] {
			next, ok := dir[name].(node)
			if !ok {
				next = node{}
				dir[name] = next
			}
			dir = next
		}
		dir[parts[len(parts)-1]] = c.Theirs
	}
	tree, err := k.tree(root)
	if err != nil {
		return err
	}
	who := fmt.Sprintf("umbra <umbra@localhost> %d +0000", time.Now().Unix())
	text := fmt.Sprintf("tree %s\nauthor %s\ncommitter %s\n\nVersions of a layer that could not be merged\n\nCall-Id: %s\n", tree, who, who, l.ID)
	commit, err := k.object(object.Commit, []byte(text))
	if err != nil {
		return err
	}
	name := filepath.Join(gitDir, filepath.FromSlash(ref))
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return errs.Wrap(err, "")
	}
	return errs.Wrap(writeDurably(filepath.Dir(name), filepath.Base(name), []byte(commit.String()+"\n")), "")
}

type looseWriter struct{ gitDir string }

func (k looseWriter) tree(n node) (object.ID, error) {
	var list []object.Entry
	for name, x := range n {
		e := object.Entry{Name: name}
		switch x := x.(type) {
		case Version:
			e.Mode, e.ID = x.Mode, x.ID
		case node:
			id, err := k.tree(x)
			if err != nil {
				return id, err
			}
			e.Mode, e.ID = object.Dir, id
		}
		list = append(list, e)
	}
	t, err := object.EncodeTree(list)
	if err != nil {
		return object.ID{}, err
	}
	return k.object(object.Tree, t.Bytes())
}

func (k looseWriter) object(kind object.Kind, data []byte) (object.ID, error) {
	id := object.Hash(kind, data)
	return id, k.write(kind, id, int64(len(data)), bytes.NewReader(data))
}

// blob writes a file or link of the layer.
func (k looseWriter) blob(file string, v Version) error {
	if v.Mode == object.Symlink {
		target, err := os.Readlink(file)
		if err != nil {
			return err
		}
		_, err = k.object(object.Blob, []byte(target))
		return err
	}
	f, err := openOwn(file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return k.write(object.Blob, v.ID, info.Size(), f)
}

func (k looseWriter) write(kind object.Kind, id object.ID, size int64, r io.Reader) error {
	hex := id.String()
	dir := filepath.Join(k.gitDir, "objects", hex[:2])
	if _, err := os.Lstat(filepath.Join(dir, hex[2:])); err == nil {
		return nil
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := os.CreateTemp(filepath.Join(k.gitDir, "objects"), "tmp_obj_")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	z := zlib.NewWriter(f)
	_, err = z.Write(object.Header(kind, size))
	if err == nil {
		_, err = io.Copy(z, io.LimitReader(r, size))
	}
	if err = errors.Join(err, z.Close(), f.Chmod(0o444), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(dir, hex[2:])); err != nil {
		return err
	}
	return syncDir(dir)
}
