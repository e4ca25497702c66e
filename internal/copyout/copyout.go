// Package copyout makes what is in a cluster readable as the data directory of a single
// server, for a backup: the records as they are at one moment, and the histories after,
// a workspace with its forks at a time. It is the opposite of package intake.
//
// No workspace changes its owner: histories are read from the log and the object store. Of
// a workspace with a directory that is what its node has copied, at most 2 s less than was
// acknowledged.
package copyout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"umbra/gitstore"
	"umbra/gitstore/sink"
	"umbra/internal/areas"
	"umbra/internal/datadir"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/vfs"
	"umbra/internal/workspaces"
)

// Options of a Source. All are needed.
type Options struct {
	// Each calls fn with every record of the cluster as they are at one moment.
	Each func(ctx context.Context, fn func(bucket, key string, value []byte) error) error
	// View returns the history of a workspace as it is now; errs.NotFound.
	View func(ctx context.Context, workspace string) (sink.Sink, error)
	// Object opens an object that a record names.
	Object func(ctx context.Context, key string) (io.ReadCloser, error)
	// Only are the buckets of records that mean nothing to a single server.
	Only []string
	Dir  string // empty; the source fills it
	Log  *slog.Logger
}

// Source is a backup.Source. Its directory is the data directory, of which the histories of
// one root with its forks are there at a time. It is used by one goroutine at a time.
type Source struct {
	o      Options
	all    map[string]workspaces.Record
	order  []string // ids, forks first
	root   string   // whose family is there
	frozen map[string]*gitstore.Frozen
}

// New makes one.
func New(o Options) (*Source, error) {
	err := os.WriteFile(filepath.Join(o.Dir, "format"), []byte(strconv.Itoa(state.Format)+"\n"), 0o600)
	return &Source{o: o}, err
}

// State is backup.Source's.
func (s *Source) State(ctx context.Context, w io.Writer) (ids []string, err error) {
	s.all, s.order, s.root, s.frozen = map[string]workspaces.Record{}, nil, "", nil
	name := filepath.Join(s.o.Dir, "state.db")
	for _, old := range []string{name, filepath.Join(s.o.Dir, "tasks"), filepath.Join(s.o.Dir, "workspaces")} {
		if err := os.RemoveAll(old); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(filepath.Join(s.o.Dir, "workspaces"), 0o700); err != nil {
		return nil, err
	}
	db, err := state.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := s.read(ctx, db); err != nil {
		return nil, err
	}
	if err := s.tasks(ctx, db); err != nil {
		return nil, err
	}
	if err := s.alone(db); err != nil {
		return nil, err
	}
	return s.order, db.Snapshot(w, func(*state.Tx) error { return nil })
}

// batch is how many records one transaction writes.
const batch = 5000

// read copies the records.
func (s *Source) read(ctx context.Context, db *state.DB) error {
	type record struct {
		bucket, key string
		value       []byte
	}
	var list []record
	put := func() error {
		err := db.Backend().Update(func(tx state.BackendTx) error {
			for _, r := range list {
				if err := tx.Put(r.bucket, r.key, r.value); err != nil {
					return err
				}
			}
			return nil
		})
		list = list[:0]
		return err
	}
	err := s.o.Each(ctx, func(bucket, key string, value []byte) error {
		// A single server's index has other keys: it is made of the records.
		if bucket == datadir.WorkspacesIndexBucket || slices.Contains(s.o.Only, bucket) {
			return nil
		}
		list = append(list, record{bucket, key, bytes.Clone(value)})
		if len(list) < batch {
			return nil
		}
		return put()
	})
	return errors.Join(err, put())
}

// tasks writes the private files of tasks.
func (s *Source) tasks(ctx context.Context, db *state.DB) error {
	list, err := areas.Tasks(db)
	if err != nil {
		return err
	}
	for _, task := range list {
		dir := filepath.Join(s.o.Dir, "tasks", task)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		files, err := vfs.OS(dir)
		if err != nil {
			return err
		}
		err = areas.Get(ctx, db, areas.ReadObjects(s.o.Object), task, files)
		if err = errors.Join(err, files.Close()); err != nil {
			return fmt.Errorf("the files of task %s: %w", task, err)
		}
	}
	return db.Update(areas.Forget)
}

// alone makes the records of workspaces those of a single server.
func (s *Source) alone(db *state.DB) error {
	records, err := datadir.OpenRecords(db)
	if err != nil {
		return err
	}
	all, err := records.All()
	if err != nil {
		return err
	}
	var changed []workspaces.Record
	for _, r := range all {
		if r.Unfinished { // its baseline is its node's
			if err := records.Delete(r.ID); err != nil {
				return err
			}
			continue
		}
		if r.Server != "" {
			r.Server = ""
			changed = append(changed, r)
		}
		s.all[r.ID] = r
		if r.Fork == nil || !r.Fork.Unmade { // which has no history of its own
			s.order = append(s.order, r.ID)
		}
	}
	if len(changed) > 0 {
		if err := records.Put(changed...); err != nil {
			return err
		}
	}
	slices.SortStableFunc(s.order, func(a, b string) int { return s.depth(b) - s.depth(a) })
	// A family is there at a time.
	roots := map[string]int{}
	for _, id := range s.order {
		if _, ok := roots[s.rootOf(id)]; !ok {
			roots[s.rootOf(id)] = len(roots)
		}
	}
	slices.SortStableFunc(s.order, func(a, b string) int { return roots[s.rootOf(a)] - roots[s.rootOf(b)] })
	return nil
}

// parent returns what a fork's history continues.
func (s *Source) parent(id string) (string, bool) {
	r := s.all[id]
	if r.Fork == nil || !r.Fork.Linked {
		return "", false
	}
	_, ok := s.all[r.Fork.Of]
	return r.Fork.Of, ok
}

func (s *Source) depth(id string) (n int) {
	for up, ok := s.parent(id); ok; up, ok = s.parent(up) {
		n++
	}
	return n
}

func (s *Source) rootOf(id string) string {
	for {
		up, ok := s.parent(id)
		if !ok {
			return id
		}
		id = up
	}
}

// Freeze is backup.Source's.
func (s *Source) Freeze(ctx context.Context, id string) (*gitstore.Frozen, error) {
	if !slices.Contains(s.order, id) {
		return nil, errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	}
	if root := s.rootOf(id); s.root != root {
		if err := s.family(ctx, root); err != nil {
			return nil, err
		}
		s.root = root
	}
	return s.frozen[id], nil
}

// family makes the directories of a root and its forks, in place of those before. A
// fork's history is of an earlier moment than its parent's, which has all that it needs.
func (s *Source) family(ctx context.Context, root string) (err error) {
	s.root, s.frozen = "", map[string]*gitstore.Frozen{}
	dir := filepath.Join(s.o.Dir, "workspaces")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	var members []string
	views := map[string]sink.Sink{}
	for _, id := range s.order {
		if s.rootOf(id) != root {
			continue
		}
		members = append(members, id)
		if views[id], err = s.o.View(ctx, id); err != nil {
			return err
		}
	}
	stores := map[string]*gitstore.Store{}
	defer func() {
		for _, id := range members { // forks first
			if store := stores[id]; store != nil {
				err = errors.Join(err, store.Close(context.WithoutCancel(ctx)))
			}
		}
	}()
	for _, id := range slices.Backward(members) {
		if err := s.take(ctx, id, views[id], stores); err != nil {
			return fmt.Errorf("workspace %s: %w", id, err)
		}
		delete(views, id)
	}
	return nil
}

// take makes a workspace's directory, and opens its store where forks continue it.
func (s *Source) take(ctx context.Context, id string, view sink.Sink, stores map[string]*gitstore.Store) (err error) {
	var base *gitstore.Base
	if up, ok := s.parent(id); ok {
		if base, err = datadir.ForkBase(s.all[id].Fork, stores[up]); err != nil {
			return err
		}
	}
	dir := filepath.Join(s.o.Dir, "workspaces", id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	files, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	s.frozen[id], err = gitstore.Take(ctx, gitstore.Options{FS: files, Sink: view, Base: base, Log: s.o.Log})
	if err != nil {
		return errors.Join(err, files.Close())
	}
	forked := slices.ContainsFunc(s.order, func(f string) bool {
		up, ok := s.parent(f)
		return ok && up == id
	})
	if !forked {
		return files.Close()
	}
	stores[id], err = gitstore.Open(ctx, gitstore.Options{FS: files, Base: base, Log: s.o.Log, Foreground: true})
	return err
}
