package task

import (
	"context"
	"path"
	"path/filepath"
	"sync"
	"time"

	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// Folders opens a task's scratch and artifacts, for use until release is
// called. All who use them at one time share the lock that orders writes.
func (s *Service) Folders(id string) (f *areas.Folders, release func(), err error) {
	shared, err := s.copyOf(id)
	if err != nil {
		return nil, nil, err
	}
	f, release, err = s.openFolders(id, shared)
	if err != nil || shared == nil {
		return f, release, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), areaPatience)
	defer cancel()
	if err := f.Refresh(ctx); err != nil {
		release()
		return nil, nil, err
	}
	return f, release, nil
}

// ApplyInArea is like Apply for one operation in the task's scratch or artifacts,
// which have no history and no external changes.
func (s *Service) ApplyInArea(ctx context.Context, r *Ref, o areas.Op) (areas.Result, error) {
	check := func() error { return s.MayWrite(r) }
	if err := check(); err != nil {
		return areas.Result{}, err
	}
	f, release, err := s.Folders(r.Task.ID)
	if err != nil {
		return areas.Result{}, err
	}
	defer release()
	done, err := f.Apply(ctx, []areas.Op{o}, check)
	if err != nil {
		return areas.Result{}, err
	}
	return done[0], nil
}

// areaPatience bounds the making of a copy of a task's folders.
const areaPatience = time.Minute

// copyOf returns the copy of a task's folders, nil where they are this server's alone.
func (s *Service) copyOf(id string) (*areas.Copy, error) {
	if s.shared == nil {
		return nil, nil
	}
	rec, ok, err := s.index.get(id)
	if err != nil || !ok {
		return nil, errs.Wrap(err, "")
	}
	ws, ok, err := s.o.Workspaces.Lookup(rec.Workspace)
	if err != nil || !ok {
		return nil, err
	}
	if ws.Kind != workspaces.VirtualKind { // those that an import brought are in the records
		if has, err := areas.Has(s.o.State, id); err != nil || !has {
			return nil, errs.Wrap(err, "")
		}
	}
	return s.shared.Of(id, ws.ID), nil
}

// dropShared removes a task's folders for all servers.
func (s *Service) dropShared(id string) error {
	if s.shared == nil {
		return nil
	}
	return s.shared.Drop(id)
}

// openFolders is a task's pair while it is used.
type openFolders struct {
	*areas.Folders
	users int // guarded by Service.mu
}

func (s *Service) openFolders(id string, shared *areas.Copy) (f *areas.Folders, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	open := s.folders[id]
	if open == nil {
		f, err := areas.OpenFolders(s.o.FS, id, areas.FolderOptions{MaxFile: s.o.MaxFile, Now: s.o.Now, Room: s.o.Room, Shared: shared})
		if err != nil {
			return nil, nil, err
		}
		open = &openFolders{Folders: f}
		s.folders[id] = open
	}
	open.users++
	return open.Folders, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if open.users--; open.users > 0 {
			return
		}
		if s.folders[id] == open {
			delete(s.folders, id)
		}
		_ = open.Close()
	}, nil
}

// madeFolders are the folders of a task that is being made.
type madeFolders struct {
	made   chan error // gives once whether they are there
	making sync.WaitGroup
}

// wait waits until they are durable too.
func (n *madeFolders) wait() { n.making.Wait() }

// beginFolders begins to create the directories of a task that is not known yet,
// concurrently with what else its creation waits for. wait must be called.
func (s *Service) beginFolders(id string) *madeFolders {
	n := &madeFolders{made: make(chan error, 1)}
	n.making.Go(func() {
		_, err := areas.Make(s.o.FS, id, areas.Names())
		n.made <- errs.Wrap(err, "")
		if err != nil {
			return
		}
		// The task may be there by now. It needs no empty folders: they are made
		// again when they are asked for.
		if err := areas.Sync(s.o.FS, id); err != nil {
			s.o.Log.Warn("a task's directories may not be there after a power cut", "task", id, "error", err)
		}
	})
	return n
}

// AreaDir gives the host path of one of a task's folders.
func (s *Service) AreaDir(id string, a areas.Area) string {
	return filepath.Join(s.o.Dir, id, string(a))
}

// dropFolders removes a task's folders. Who still has them open finds nothing
// there any more.
func (s *Service) dropFolders(id string) error {
	s.mu.Lock()
	f := s.folders[id]
	delete(s.folders, id)
	s.mu.Unlock()
	if f != nil {
		defer f.Hold()()
	}
	if err := vfs.RemoveAll(s.o.FS, id); err != nil {
		return errs.Wrap(err, "")
	}
	return errs.Wrap(s.o.FS.SyncDir("."), "")
}

// dropEmptyFolders removes those of a task's folders that are empty and not
// open; they are created again when needed.
func (s *Service) dropEmptyFolders(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folders[id] != nil {
		return
	}
	for _, a := range areas.All() {
		_ = s.o.FS.Remove(path.Join(id, string(a))) // one that is not empty stays
	}
	_ = s.o.FS.Remove(id)
}

// sweep removes what a stopped server left in the tasks folder: spooled
// bodies, and the folders of tasks that are deleted.
func (s *Service) sweep() error {
	entries, err := s.o.FS.ReadDir(".")
	if err != nil {
		return errs.Wrap(err, "")
	}
	for _, e := range entries {
		if !wspath.IsTemp(e.Name) {
			rec, ok, err := s.index.get(e.Name)
			if err != nil {
				return err
			}
			if !ok || !rec.Deleted {
				continue
			}
			if err := s.dropShared(e.Name); err != nil {
				return err
			}
		}
		if err := vfs.RemoveAll(s.o.FS, e.Name); err != nil {
			return errs.Wrap(err, "")
		}
	}
	return nil
}
