package fork

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// rebound is a workspace that gets another directory: its forks follow it.
type rebound struct {
	ID   string `json:"id"`
	From string `json:"from"`           // its directory before
	Same bool   `json:"same,omitempty"` // the directory was only renamed
}

// Rebind is Rebind of the manager. The forks of the workspace, and the layers that show its
// directory, come from the new one afterwards.
//
// Conflict "layer_in_use" where a process uses a layer that shows another directory.
func (s *Service) Rebind(ctx context.Context, id, root string, o workspaces.OpenOptions) (*workspace.Workspace, error) {
	rec, ok := s.o.Workspaces.Record(id)
	if !ok || rec.Root == "" {
		return s.o.Workspaces.Rebind(ctx, id, root, o)
	}
	b := rebound{ID: id, From: rec.Root}
	if info, err := os.Stat(root); err == nil {
		st := info.Sys().(*syscall.Stat_t)
		b.Same = uint64(st.Dev) == rec.Dev && st.Ino == rec.Ino
	}
	done, err := s.begun(pending{Rebound: &b})
	if err != nil {
		return nil, err
	}
	w, err := s.rebind(ctx, b, root, o)
	return w, errors.Join(err, done())
}

func (s *Service) rebind(ctx context.Context, b rebound, root string, o workspaces.OpenOptions) (*workspace.Workspace, error) {
	if !b.Same { // else they show the directory under its new name
		for _, x := range s.from(b) {
			if err := s.o.Workspaces.Unmount(ctx, x.ID, false); err != nil {
				return nil, err
			}
		}
	}
	w, err := s.o.Workspaces.Rebind(ctx, b.ID, root, o)
	if err != nil {
		return nil, err
	}
	if err := s.follow(ctx, b); err != nil {
		w.Release()
		return nil, err
	}
	return w, nil
}

// from lists the forks that come from the directory of a workspace. Those of another one,
// which had that directory before and was deleted, stay.
func (s *Service) from(b rebound) (list []workspaces.Record) {
	for _, x := range s.o.Workspaces.List() {
		if x.Fork != nil && x.Fork.Origin == b.From && !x.Fork.Whole && s.descends(x, b.ID) {
			list = append(list, x)
		}
	}
	return list
}

// descends reports whether a workspace was made from another one, through all forks.
func (s *Service) descends(x workspaces.Record, from string) bool {
	for known := true; known && x.Fork != nil; x, known = s.o.Workspaces.Record(x.Fork.Of) {
		if x.Fork.Of == from || slices.Contains(x.Fork.Shares, from) {
			return true
		}
	}
	return false
}

// follow notes the new directory of a workspace in the forks that come from it.
func (s *Service) follow(ctx context.Context, b rebound) error {
	rec, ok := s.o.Workspaces.Record(b.ID)
	if !ok || rec.Root == b.From {
		return nil // it was not done
	}
	for _, x := range s.from(b) {
		if !b.Same { // it may have been used meanwhile
			if err := s.o.Workspaces.Unmount(ctx, x.ID, false); err != nil {
				return err
			}
		}
		if err := s.o.Workspaces.AlterFork(ctx, x, func(f *workspaces.Fork) { f.Origin = rec.Root }); err != nil {
			return err
		}
		if x.Mounted() {
			w, err := s.o.Workspaces.Get(ctx, x.ID) // which mounts it
			if err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
			if err == nil {
				w.Release()
			}
		}
	}
	return nil
}
