package workspace

import (
	"context"
	"io/fs"

	"umbra/gitstore/object"
	"umbra/internal/wspath"
)

// treeRecorded reports whether every file in a folder that was renamed away has
// its bytes in history. skipped are those that a forced delete takes along.
func (w *Workspace) treeRecorded(ctx context.Context, temp string, was wspath.Path, skipped []Skip) (bool, error) {
	forced := make(map[string]bool, len(skipped))
	for _, s := range skipped {
		forced[s.Path] = true
	}
	return w.dirRecorded(ctx, temp, was, forced)
}

func (w *Workspace) dirRecorded(ctx context.Context, temp string, was wspath.Path, forced map[string]bool) (bool, error) {
	entries, err := w.disk.FS.ReadDir(temp)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		at, was := temp+"/"+e.Name, was.Join(e.Name)
		if forced[string(was)] || w.prepared(at, e.Name) {
			continue
		}
		ok := true
		switch {
		case e.Type.IsDir():
			ok, err = w.dirRecorded(ctx, at, was, forced)
		case e.Type&fs.ModeSymlink != 0:
			var target string
			if target, err = w.disk.FS.Readlink(at); err == nil {
				ok = w.store.HasBlob(object.Hash(object.Blob, []byte(target)))
			}
		case e.Type.IsRegular():
			ok, err = w.fileRecorded(ctx, at, was)
		default:
			ok = false
		}
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// fileRecorded reports whether a file's bytes are in history. was is its name
// for the index.
func (w *Workspace) fileRecorded(ctx context.Context, at string, was wspath.Path) (bool, error) {
	info, err := w.disk.FS.Lstat(at)
	if err != nil {
		return false, err
	}
	if id, known := w.disk.Index.Lookup(was, info); known && w.store.HasBlob(id) {
		return true, nil
	}
	id, _, err := w.disk.HashFile(ctx, wspath.Path(at))
	if err != nil {
		return false, err
	}
	return w.store.HasBlob(id), nil
}
