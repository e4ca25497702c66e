package areas

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"path"
	"slices"

	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/vfs"
)

// firstEpoch is that of a workspace which no server has owned yet.
const firstEpoch = 1

// Has reports whether the records have folders of a task that are not empty.
func Has(db *state.DB, task string) (found bool, err error) {
	c := Copy{task: task}
	err = db.View(func(tx *state.Tx) error {
		found = false
		return tx.Prefixed(bucketFiles, c.key(""), "", func(string, []byte) (bool, error) {
			found = true
			return false, nil
		})
	})
	return found, err
}

// Put copies a task's folders into the records, and returns how many files and links they
// have; 0 where the records have the folders already. on is only read. No server uses the
// workspace yet.
func Put(ctx context.Context, o Options, task, workspaceID string, on vfs.FS) (files int, err error) {
	if has, err := Has(o.State, task); has || err != nil {
		return 0, err
	}
	o.Epoch = func(string) int64 { return firstEpoch }
	c := New(o).Of(task, workspaceID)
	c.epoch, c.seen = firstEpoch, map[string]vfs.Info{}
	if err := c.Save(ctx, on); err != nil {
		return 0, err
	}
	for _, e := range c.has {
		if !e.Mode.IsDir() {
			files++
		}
	}
	return files, nil
}

// Tasks returns the tasks whose folders the records have, sorted.
func Tasks(db *state.DB) ([]string, error) {
	found := map[string]bool{}
	err := db.View(func(tx *state.Tx) error {
		clear(found)
		return tx.ForEach(bucketFiles, "", func(key string, _ []byte) (bool, error) {
			task, _, _ := cutKey(key)
			found[task] = true
			return true, nil
		})
	})
	return slices.Sorted(maps.Keys(found)), err
}

// Get writes a task's folders, as the records have them, into an empty directory.
func Get(ctx context.Context, db *state.DB, objects Objects, task string, on vfs.FS) error {
	c := &Copy{k: New(Options{State: db, Objects: objects}), task: task, has: map[string]entry{}, seen: map[string]vfs.Info{}}
	err := db.View(func(tx *state.Tx) error {
		return within(tx, bucketFiles, c.key(""), func(name string, raw []byte) error {
			var e entry
			err := json.Unmarshal(raw, &e)
			c.has[name] = e
			return err
		})
	})
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.has)) { // a folder comes before what is in it
		if err := vfs.MkdirAll(on, path.Dir(name), 0o700); err != nil {
			return err
		}
		if err := c.fetch(ctx, on, name, c.has[name]); err != nil {
			return errs.Wrap(err, "")
		}
	}
	return nil
}

// Forget removes the buckets of a database whose folders are elsewhere.
func Forget(tx *state.Tx) error {
	for _, bucket := range []string{bucketFiles, bucketData, bucketObjects, bucketOwners} {
		if err := tx.DeleteBucket(bucket); err != nil {
			return err
		}
	}
	return nil
}

// ReadObjects are objects that are only read.
type ReadObjects func(ctx context.Context, key string) (io.ReadCloser, error)

// Get is Objects'.
func (f ReadObjects) Get(ctx context.Context, key string) (io.ReadCloser, error) { return f(ctx, key) }

// Put is Objects'.
func (ReadObjects) Put(context.Context, string, io.ReaderAt, int64) error { return state.ErrReadOnly }

// Drop is Objects'.
func (ReadObjects) Drop(context.Context, []string) error { return state.ErrReadOnly }
