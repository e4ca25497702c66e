// Package areas keeps the two folders of a task outside of the project, scratch and
// artifacts: Folders lists, reads and changes them in the data directory, a request's
// operations all or none.
//
// Where several servers share the folders they are in records and objects (Keeper), and
// the owner of a task's workspace has a copy of those that it was asked for.
//
// # Invariants
//
//   - The folders are contained by the kernel (os.Root behind vfs): one task never
//     reaches another's.
//   - A change is in the records before Save returns, in one transaction that finds no
//     later owner. After an error the copy is made again: the records count.
//   - An owner makes its copy equal to the records before it first uses it.
//   - A file's content is there once for each task and content: up to 256 KiB as a
//     record, else as an object that a record names. An object is put before it is
//     named, and dropped after its name is gone.
package areas

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"umbra/gitstore/sink"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/vfs"
)

// The buckets.
const (
	bucketFiles   = "area_files"   // task, NUL, path below the task's folder: entry
	bucketData    = "area_data"    // task, NUL, blob: content
	bucketObjects = "area_objects" // key of an object: the task. A key that is in it is not swept
	bucketOwners  = "area_owners"  // workspace: the epoch of the last owner that used its tasks' folders
)

// maxRecord is the largest content that is a record, in bytes.
const maxRecord = 256 << 10

// Objects are what several servers share and is too large for a record.
// A key is used once, and begins with a workspace and a slash. Errors are
// errs.Unavailable "blobs_unavailable".
type Objects interface {
	Put(ctx context.Context, key string, body io.ReaderAt, size int64) error
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// Drop lets objects be removed that no record names any more, after a time for
	// those who read them.
	Drop(ctx context.Context, keys []string) error
}

// Options of a Keeper. All are needed.
type Options struct {
	State   *state.DB // shared
	Objects Objects
	Log     *slog.Logger
	// Epoch returns the epoch under which this server owns a workspace, 0 if it does
	// not.
	Epoch func(workspaceID string) int64
	// Names are the folders of a task.
	Names []string
}

// Keeper has the copies of one server. It is safe for concurrent use.
type Keeper struct {
	o Options

	mu     sync.Mutex
	copies map[string]*Copy // by task
}

// New makes one.
func New(o Options) *Keeper { return &Keeper{o: o, copies: map[string]*Copy{}} }

// Copy is this server's copy of a task's folders. Its user serializes the calls of its
// methods with each other and with changes of the folders.
type Copy struct {
	k               *Keeper
	task, workspace string

	epoch int64 // under which it was made; 0: it has to be made again
	has   map[string]entry
	seen  map[string]vfs.Info // what a file was when it was last compared
}

// entry is a file, folder or link.
type entry struct {
	Mode   fs.FileMode `json:"mode"`
	Blob   string      `json:"blob,omitempty"` // of a file
	Size   int64       `json:"size,omitempty"`
	Mtime  int64       `json:"mtime,omitempty"`  // of a file, in nanoseconds since 1970
	Target []byte      `json:"target,omitempty"` // of a link
}

// content is a file's bytes, or the key of the object that has them.
type content struct {
	Data   []byte `json:"data,omitempty"`
	Object string `json:"object,omitempty"`
}

// Of returns the copy of a task's folders.
func (k *Keeper) Of(task, workspaceID string) *Copy {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.copies[task]
	if c == nil || c.workspace != workspaceID {
		c = &Copy{k: k, task: task, workspace: workspaceID}
		k.copies[task] = c
	}
	return c
}

// Forget forgets the copies of a workspace's tasks.
func (k *Keeper) Forget(workspaceID string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.copies, func(_ string, c *Copy) bool { return c.workspace == workspaceID })
}

func (c *Copy) key(of string) string { return c.task + "\x00" + of }

// cutKey splits a key.
func cutKey(key string) (task, of string, ok bool) { return strings.Cut(key, "\x00") }

// fence fails where a later owner has used the folders, and keeps former ones from
// changing them.
func (c *Copy) fence(tx *state.Tx, epoch int64) error {
	var has int64
	if _, err := tx.Get(bucketOwners, c.workspace, &has); err != nil {
		return err
	}
	switch {
	case has > epoch:
		return sink.Fenced(true, nil)
	case has == epoch:
		return nil
	}
	return tx.Put(bucketOwners, c.workspace, epoch)
}

// Refresh makes the copy equal to the records, if it is not known to be. on is the
// task's folder, with those of Options.Names in it.
func (c *Copy) Refresh(ctx context.Context, on vfs.FS) error {
	epoch := c.k.o.Epoch(c.workspace)
	if epoch == 0 {
		return sink.Fenced(true, nil)
	}
	if c.epoch == epoch {
		return nil
	}
	var has map[string]entry
	err := c.k.o.State.Update(func(tx *state.Tx) error {
		if err := c.fence(tx, epoch); err != nil {
			return err
		}
		has = map[string]entry{}
		return within(tx, bucketFiles, c.key(""), func(name string, raw []byte) error {
			var e entry
			err := json.Unmarshal(raw, &e)
			has[name] = e
			return err
		})
	})
	if err != nil {
		return errs.Wrap(err, "")
	}
	c.has, c.seen = has, map[string]vfs.Info{}
	for _, dir := range c.k.o.Names {
		if err := c.prune(on, dir); err != nil {
			return errs.Wrap(err, "")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(has)) { // a folder comes before what is in it
		if err := c.fetch(ctx, on, name, has[name]); err != nil {
			return errs.Wrap(err, "")
		}
	}
	c.epoch = epoch
	return nil
}

// prune removes what the records do not have, or have as something else.
func (c *Copy) prune(on vfs.FS, dir string) error {
	list, err := on.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, x := range list {
		name := path.Join(dir, x.Name)
		e, ok := c.has[name]
		switch {
		case !ok || e.Mode.Type() != x.Type:
			err = vfs.RemoveAll(on, name)
		case x.Type.IsDir():
			err = c.prune(on, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fetch makes one file, folder or link of the copy.
func (c *Copy) fetch(ctx context.Context, on vfs.FS, name string, e entry) error {
	info, err := on.Lstat(name)
	there := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch e.Mode.Type() {
	case fs.ModeDir:
		if there {
			return nil
		}
		return on.Mkdir(name, 0o777)
	case fs.ModeSymlink:
		if there {
			if err := on.Remove(name); err != nil {
				return err
			}
		}
		return on.Symlink(string(e.Target), name)
	}
	if there && info.Size == e.Size && info.Mode.Perm() == e.Mode.Perm() && info.MtimeNs == e.Mtime {
		blob, err := blobOf(ctx, on, name, info.Size)
		if err == nil && blob == e.Blob {
			c.seen[name] = info
			return nil
		}
	}
	var stored content
	err = c.k.o.State.View(func(tx *state.Tx) error {
		stored = content{}
		ok, err := tx.Get(bucketData, c.key(e.Blob), &stored)
		if err == nil && !ok {
			err = errs.New(errs.Internal, "internal_error", "The content %s of the task's file %s is missing.", e.Blob, name)
		}
		return err
	})
	if err != nil {
		return err
	}
	body := io.NopCloser(bytes.NewReader(stored.Data))
	if stored.Object != "" {
		if body, err = c.k.o.Objects.Get(ctx, stored.Object); err != nil {
			return err
		}
	}
	defer body.Close()
	temp := TempName()
	h, err := on.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(h, Reader{ctx, body})
	if err == nil {
		err = h.Chmod(e.Mode.Perm())
	}
	if err == nil {
		err = h.SetMtime(e.Mtime)
	}
	if err = errors.Join(err, h.Close()); err == nil {
		err = on.Rename(temp, name)
	}
	if err != nil {
		_ = on.Remove(temp) // else it is removed when the folders are opened next
		return err
	}
	if info, err = on.Lstat(name); err != nil {
		return err
	}
	blob, err := blobOf(ctx, on, name, info.Size)
	if err == nil && blob != e.Blob {
		err = errs.New(errs.Internal, "internal_error", "The content of the task's file %s is not %s.", name, e.Blob)
	}
	c.seen[name] = info
	return err
}

// blobOf hashes the first size bytes of a file.
func blobOf(ctx context.Context, on vfs.FS, name string, size int64) (string, error) {
	f, err := on.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	id, n, err := Hash(ctx, f, size)
	if err == nil && n != size {
		err = errs.New(errs.Unavailable, "file_changing", "The file %s changes while it is read.", name)
	}
	return id.String(), err
}

// within calls fn for the records of a prefix.
func within(tx *state.Tx, in, prefix string, fn func(rest string, raw []byte) error) error {
	return tx.ForEach(in, prefix, func(key string, raw []byte) (bool, error) {
		rest, ok := strings.CutPrefix(key, prefix)
		if !ok {
			return false, nil
		}
		return true, fn(rest, raw)
	})
}

// Save puts what the folders have now into the records.
func (c *Copy) Save(ctx context.Context, on vfs.FS) error {
	epoch := c.epoch
	c.epoch = 0
	if epoch == 0 || epoch != c.k.o.Epoch(c.workspace) {
		return sink.Fenced(true, nil)
	}
	now, seen := map[string]entry{}, map[string]vfs.Info{}
	for _, dir := range c.k.o.Names {
		if err := c.look(ctx, on, dir, now, seen); err != nil {
			return errs.Wrap(err, "")
		}
	}
	had, has := blobsOf(c.has), blobsOf(now)
	contents := map[string]content{}
	for blob, name := range has {
		if _, ok := had[blob]; !ok {
			taken, err := c.take(ctx, on, name, now[name].Size)
			if err == nil {
				// A program may write the file meanwhile.
				if info, serr := on.Lstat(name); serr != nil || !sameFile(info, seen[name]) {
					err = errs.New(errs.Unavailable, "file_changing", "The file %s changes while it is read.", name)
				}
			}
			if err != nil {
				return errs.Wrap(err, "")
			}
			contents[blob] = taken
		}
	}
	var dropped []string
	err := c.k.o.State.Update(func(tx *state.Tx) error {
		dropped = nil
		if err := c.fence(tx, epoch); err != nil {
			return err
		}
		for name, e := range now {
			if was, ok := c.has[name]; ok && was.same(e) {
				continue
			}
			if err := tx.Put(bucketFiles, c.key(name), e); err != nil {
				return err
			}
		}
		for name := range c.has {
			if _, ok := now[name]; ok {
				continue
			}
			if err := tx.Delete(bucketFiles, c.key(name)); err != nil {
				return err
			}
		}
		for blob, stored := range contents {
			if err := tx.Put(bucketData, c.key(blob), stored); err != nil {
				return err
			}
			if stored.Object != "" {
				if err := tx.Put(bucketObjects, stored.Object, c.task); err != nil {
					return err
				}
			}
		}
		for blob := range had {
			if _, ok := has[blob]; ok {
				continue
			}
			var old content
			if _, err := tx.Get(bucketData, c.key(blob), &old); err != nil {
				return err
			}
			if err := forgetContent(tx, c.key(blob), old, &dropped); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return errs.Wrap(err, "")
	}
	c.has, c.seen, c.epoch = now, seen, epoch
	c.k.dropObjects(ctx, dropped)
	return nil
}

// forgetContent removes a content's records.
func forgetContent(tx *state.Tx, key string, c content, dropped *[]string) error {
	if c.Object != "" {
		*dropped = append(*dropped, c.Object)
		if err := tx.Delete(bucketObjects, c.Object); err != nil {
			return err
		}
	}
	return tx.Delete(bucketData, key)
}

// dropObjects lets objects be removed that no record names any more. Where that fails
// a later sweep finds them.
func (k *Keeper) dropObjects(ctx context.Context, keys []string) {
	if len(keys) == 0 {
		return
	}
	if err := k.o.Objects.Drop(context.WithoutCancel(ctx), keys); err != nil {
		k.o.Log.Warn("objects of a task's directories are not marked for removal", "objects", len(keys), "error", err)
	}
}

func (e entry) same(o entry) bool {
	return e.Mode == o.Mode && e.Blob == o.Blob && e.Size == o.Size && e.Mtime == o.Mtime && bytes.Equal(e.Target, o.Target)
}

// blobsOf returns the contents of files, with a name of each.
func blobsOf(of map[string]entry) map[string]string {
	out := map[string]string{}
	for name, e := range of {
		if e.Blob != "" {
			out[e.Blob] = name
		}
	}
	return out
}

// look reads what a folder has. A file that is as it was when it was last compared is
// not read again.
func (c *Copy) look(ctx context.Context, on vfs.FS, dir string, now map[string]entry, seen map[string]vfs.Info) error {
	list, err := on.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, x := range list {
		if err := ctx.Err(); err != nil {
			return err
		}
		name := path.Join(dir, x.Name)
		info, err := on.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		switch {
		case info.IsDir():
			now[name] = entry{Mode: fs.ModeDir}
			err = c.look(ctx, on, name, now, seen)
		case info.IsSymlink():
			target, rerr := on.Readlink(name)
			now[name], err = entry{Mode: fs.ModeSymlink, Target: []byte(target)}, rerr
		case info.IsRegular():
			e := entry{Mode: info.Mode.Perm(), Size: info.Size, Mtime: info.MtimeNs}
			if was, ok := c.seen[name]; ok && sameFile(was, info) {
				e.Blob = c.has[name].Blob
			} else if e.Blob, err = blobOf(ctx, on, name, info.Size); err != nil {
				return err
			}
			now[name], seen[name] = e, info
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sameFile(a, b vfs.Info) bool {
	return a.Ino == b.Ino && a.Dev == b.Dev && a.Size == b.Size && a.MtimeNs == b.MtimeNs && a.CtimeNs == b.CtimeNs
}

// take reads a file's content for a record, or puts it where objects are.
func (c *Copy) take(ctx context.Context, on vfs.FS, name string, size int64) (content, error) {
	h, err := on.Open(name)
	if err != nil {
		return content{}, err
	}
	defer h.Close()
	if size > maxRecord {
		key := c.workspace + "/area-" + strings.ToLower(rand.Text())
		return content{Object: key}, c.k.o.Objects.Put(ctx, key, h, size)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(h, data); err != nil {
		return content{}, err
	}
	return content{Data: data}, nil
}

// Drop removes a task's folders from the records.
func (k *Keeper) Drop(task string) error {
	var dropped []string
	err := k.o.State.Update(func(tx *state.Tx) error {
		dropped = nil
		c := Copy{task: task}
		var names, blobs []string
		var contents []content
		err := within(tx, bucketFiles, c.key(""), func(name string, _ []byte) error {
			names = append(names, name)
			return nil
		})
		if err != nil {
			return err
		}
		err = within(tx, bucketData, c.key(""), func(blob string, raw []byte) error {
			var stored content
			err := json.Unmarshal(raw, &stored)
			blobs, contents = append(blobs, blob), append(contents, stored)
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := tx.Delete(bucketFiles, c.key(name)); err != nil {
				return err
			}
		}
		for i, blob := range blobs {
			if err := forgetContent(tx, c.key(blob), contents[i], &dropped); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return errs.Wrap(err, "")
	}
	k.mu.Lock()
	delete(k.copies, task)
	k.mu.Unlock()
	k.dropObjects(context.Background(), dropped)
	return nil
}
