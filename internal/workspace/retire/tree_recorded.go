package retire

import (
	"context"
	"io/fs"

	"umbra/gitstore/object"
	"umbra/internal/workspace/op"
	"umbra/internal/wspath"
)

// TreeRecorded reports whether every file in a folder that was renamed away has
// its bytes in history. skipped are those that a forced delete takes along.
func (k *Keeper) TreeRecorded(ctx context.Context, temp string, was wspath.Path, skipped []op.Skip) (bool, error) {
	forced := make(map[string]bool, len(skipped))
	for _, s := range skipped {
		forced[s.Path] = true
	}
	return k.dirRecorded(ctx, temp, was, forced)
}

func (k *Keeper) dirRecorded(ctx context.Context, temp string, was wspath.Path, forced map[string]bool) (bool, error) {
	entries, err := k.Disk.FS.ReadDir(temp)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		at, was := temp+"/"+e.Name, was.Join(e.Name)
		if forced[string(was)] || k.Prepared(at, e.Name) {
			continue
		}
		ok := true
		switch {
		case e.Type.IsDir():
			ok, err = k.dirRecorded(ctx, at, was, forced)
		case e.Type&fs.ModeSymlink != 0:
			var target string
			if target, err = k.Disk.FS.Readlink(at); err == nil {
				ok = k.Disk.Store.HasBlob(object.Hash(object.Blob, []byte(target)))
			}
		case e.Type.IsRegular():
			ok, err = k.fileRecorded(ctx, at, was)
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
func (k *Keeper) fileRecorded(ctx context.Context, at string, was wspath.Path) (bool, error) {
	info, err := k.Disk.FS.Lstat(at)
	if err != nil {
		return false, err
	}
	if id, known := k.Disk.Index.Lookup(was, info); known && k.Disk.Store.HasBlob(id) {
		return true, nil
	}
	id, _, err := k.Disk.HashFile(ctx, wspath.Path(at))
	if err != nil {
		return false, err
	}
	return k.Disk.Store.HasBlob(id), nil
}
