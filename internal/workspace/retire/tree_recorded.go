package retire

import (
	"context"
	"errors"
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
			ok, err = k.linkRecorded(at)
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

func (k *Keeper) linkRecorded(at string) (bool, error) {
	target, err := k.Disk.FS.Readlink(at)
	return err == nil && k.Disk.Store.HasBlob(object.Hash(object.Blob, []byte(target))), err
}

// fileRecorded reports whether a file's bytes are in history. was is its name
// for the index.
func (k *Keeper) fileRecorded(ctx context.Context, at string, was wspath.Path) (bool, error) {
	info, err := k.Disk.FS.Lstat(at)
	if err != nil {
		return false, err
	}
	id, known := k.Disk.Index.Lookup(was, info)
	if !known || !k.Disk.Store.HasBlob(id) {
		if id, info, err = k.Disk.HashFile(ctx, wspath.Path(at)); err != nil || !k.Disk.Store.HasBlob(id) {
			return false, err
		}
	}
	if !k.Rec.Unsettled(was, info, id) {
		return true, nil
	}
	f, _, err := k.Disk.OpenRegular(wspath.Path(at))
	if err != nil {
		return false, err
	}
	return true, errors.Join(f.Sync(), f.Close())
}
