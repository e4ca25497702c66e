package retention

import (
	"cmp"
	"context"
	"slices"

	"umbra/gitstore"
	"umbra/internal/errs"
	"umbra/internal/workspaces"
)

// Usage is what a workspace takes on disk, in bytes.
type Usage struct {
	Workspace string
	Root      string // empty: virtual
	DiskBytes int64  // its repository and journals
	TaskBytes int64  // scratch and artifacts of its tasks
	Tasks     []TaskUsage
	// Other is what commits of no task brought, the baseline among them, or what
	// is in the tree at which the history begins. With Tasks.
	Other int64
	Begin gitstore.Boundary
}

// TaskUsage is what a task takes on disk, in bytes.
type TaskUsage struct {
	Task      string
	Bytes     int64 // of the objects that its commits brought first, compressed
	Scratch   int64
	Artifacts int64
}

// Usage returns the disk usage of a workspace; none named: of all that no other server has,
// and the IDs of the others. By task reads the whole history.
func (s *Service) Usage(ctx context.Context, of string, byTask bool) (out []Usage, elsewhere []string, err error) {
	ids, others := []string{of}, map[string]bool(nil)
	if of == "" {
		ids = nil
		err := s.o.Workspaces.Each(func(rec workspaces.Record) bool {
			ids = append(ids, rec.ID)
			return true
		})
		if err != nil {
			return nil, nil, errs.Wrap(err, "")
		}
		if others, err = s.others(ctx, ids); err != nil {
			return nil, nil, err
		}
	}
	for _, id := range ids {
		if others[id] {
			elsewhere = append(elsewhere, id)
			continue
		}
		u, err := s.usage(ctx, id, byTask)
		switch {
		case of == "" && err != nil && s.forgotten(id):
		case of == "" && errs.CodeOf(err) == "owner_moving":
			elsewhere = append(elsewhere, id) // it was not when others were looked for
		case err != nil:
			return nil, nil, err
		default:
			out = append(out, u)
		}
	}
	return out, elsewhere, nil
}

func (s *Service) usage(ctx context.Context, id string, byTask bool) (Usage, error) {
	rec, ok, err := s.o.Workspaces.Lookup(id)
	if err != nil {
		return Usage{}, err
	}
	if !ok {
		return Usage{}, errs.New(errs.NotFound, "workspace_not_found", "The workspace %q does not exist.", id)
	}
	if rec.Fork != nil && rec.Fork.Unmade {
		return Usage{Workspace: id}, nil
	}
	w, err := s.o.Workspaces.Get(ctx, id)
	if err != nil {
		return Usage{}, err
	}
	defer w.Release()
	u := Usage{Workspace: id, Root: rec.Root, Begin: w.Store().Boundary()}
	tasks := make(map[string]*TaskUsage)
	of := func(task string) *TaskUsage {
		if tasks[task] == nil {
			tasks[task] = &TaskUsage{Task: task}
		}
		return tasks[task]
	}
	known, err := s.o.Tasks.On(id)
	if err != nil {
		return Usage{}, err
	}
	for _, task := range known {
		areas, err := s.o.Tasks.AreaBytes(ctx, task)
		if err != nil {
			return Usage{}, err
		}
		t := of(task)
		t.Scratch, t.Artifacts = areas["scratch"], areas["artifacts"]
		u.TaskBytes += t.Scratch + t.Artifacts
	}
	if byTask {
		err := w.Store().Usage(ctx, func(rec gitstore.Record, bytes int64) {
			if rec.Task == "" || rec.Seq == u.Begin.Seq {
				u.Other += bytes
			} else {
				of(rec.Task).Bytes += bytes
			}
		})
		if err != nil {
			return Usage{}, err
		}
		for _, t := range tasks {
			u.Tasks = append(u.Tasks, *t)
		}
		slices.SortFunc(u.Tasks, func(a, b TaskUsage) int {
			return cmp.Or(cmp.Compare(b.Bytes+b.Scratch+b.Artifacts, a.Bytes+a.Scratch+a.Artifacts), cmp.Compare(a.Task, b.Task))
		})
	}
	u.DiskBytes = w.Store().DiskBytes()
	return u, nil
}
