package areas

import (
	"context"
	"io/fs"
	"path"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// AreaEntry is one name in a folder of an area.
type AreaEntry struct {
	Name string
	Info vfs.Info // links are not followed
}

// Stat checks a path of an area, following a link in it inside the task's
// folders. NotFound "file_not_found".
func (f *Folders) Stat(p AreaPath) (vfs.Info, error) {
	name, err := f.resolve(p)
	if err != nil {
		return vfs.Info{}, err
	}
	info, err := f.fs.Lstat(name)
	if err != nil {
		return info, areaError(err, p)
	}
	return info, nil
}

// Entries lists what is directly in a folder of an area, in no order: files,
// folders and links. NotFound "file_not_found", Conflict "not_a_directory".
func (f *Folders) Entries(ctx context.Context, p AreaPath) ([]AreaEntry, error) {
	name, err := f.resolve(p)
	if err != nil {
		return nil, err
	}
	var out []AreaEntry
	err = vfs.ListDir(f.fs, name, func(entries []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !e.Type.IsDir() && !e.Type.IsRegular() && e.Type != fs.ModeSymlink || wspath.IsGitName(e.Name) || wspath.IsTemp(e.Name) {
				continue
			}
			if info, err := lstat(e.Name); err == nil {
				out = append(out, AreaEntry{Name: e.Name, Info: info})
			}
		}
		return nil
	})
	if err != nil {
		return nil, areaError(err, p)
	}
	return out, nil
}

// Mkdir makes a folder in an area, with those above it if recursive, and reports
// whether it made one. allow, if not nil, is called first. NotFound
// "parent_not_found", Conflict "target_exists", "not_a_directory".
func (f *Folders) Mkdir(p AreaPath, recursive bool, allow func() error) (created bool, err error) {
	f.write.Lock()
	defer f.write.Unlock()
	if allow != nil {
		if err := allow(); err != nil {
			return false, err
		}
	}
	name := p.name()
	if info, err := f.fs.Stat(name); err == nil {
		if !info.IsDir() || !recursive {
			return false, areaError(fs.ErrExist, p)
		}
		return false, nil
	}
	if err := f.checkShape(name); err != nil {
		return false, withPath(err, p)
	}
	if !recursive {
		info, err := f.fs.Stat(path.Dir(name))
		if err != nil {
			return false, withPath(errs.New(errs.NotFound, "parent_not_found", "The folder above does not exist."), p)
		}
		if !info.IsDir() {
			return false, areaError(syscall.ENOTDIR, p)
		}
	}
	if _, err := f.mkdirs(name); err != nil {
		return false, areaError(err, p)
	}
	if err := f.fs.Mkdir(name, 0o777); err != nil {
		return false, areaError(err, p)
	}
	if err := f.fs.SyncDir(path.Dir(name)); err != nil {
		return true, areaError(err, p)
	}
	return true, f.save(context.Background())
}
