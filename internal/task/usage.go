package task

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/vfs"
)

// AreaBytes gives how many bytes the files of a task's areas have; none where
// the task has no folders.
func (s *Service) AreaBytes(ctx context.Context, id string) (map[areas.Area]int64, error) {
	out := make(map[areas.Area]int64)
	for _, a := range areas.All() {
		n, err := treeBytes(ctx, s.o.FS, path.Join(id, string(a)))
		if err != nil {
			return nil, errs.Wrap(err, "")
		}
		out[a] = n
	}
	return out, nil
}

func treeBytes(ctx context.Context, f vfs.FS, dir string) (sum int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	list, err := f.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	for _, e := range list {
		name := path.Join(dir, e.Name)
		if e.Type.IsDir() {
			n, err := treeBytes(ctx, f, name)
			if err != nil {
				return 0, err
			}
			sum += n
			continue
		}
		info, err := f.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			return 0, err
		}
		sum += info.Size
	}
	return sum, nil
}

// On returns the ids of a workspace's tasks, deleted ones left out, in no order.
func (s *Service) On(workspaceID string) ([]string, error) {
	recs, err := s.index.on(workspaceID)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	var out []string
	for _, r := range recs {
		if !r.Deleted {
			out = append(out, r.ID)
		}
	}
	return out, nil
}
