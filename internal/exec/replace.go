package exec

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"umbra/internal/errs"
)

// directories reports whether nothing but directories and files that the layer deletes
// is at and below a path on disk, where the layer has a file. The directories will be
// removed.
func (n *planner) directories(p string) (free bool, err error) {
	if n.w.Root() == "" {
		return true, nil
	}
	top := filepath.Join(n.w.Root(), p)
	if info, err := os.Lstat(top); err != nil || !info.IsDir() {
		return true, nil // a file of others is recorded, and merged
	}
	var found []string
	free = true
	err = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := p + strings.TrimPrefix(filepath.ToSlash(name), filepath.ToSlash(top))
		if d.IsDir() {
			found = append(found, rel)
			info, err := d.Info()
			if err == nil {
				err = n.openBelow(rel, info)
			}
			return err
		}
		if v, ok := n.touched[rel]; !ok || v.Mode != 0 {
			free = false
			return fs.SkipAll
		}
		return nil
	})
	if free {
		n.empty = append(n.empty, found...)
	}
	return free, errs.Wrap(err, p)
}

// lacks reports whether the workspace will not have a directory, nor what keeps it from
// being made. gone are the files and links that the plan removes.
func (n *planner) lacks(dir string, gone map[string]bool) bool {
	at := ""
	for name := range strings.SplitSeq(dir, "/") {
		at = path.Join(at, name)
		info, err := os.Lstat(filepath.Join(n.w.Root(), at))
		if err != nil {
			return errors.Is(err, fs.ErrNotExist)
		}
		if !info.IsDir() {
			return gone[at]
		}
	}
	return false
}
