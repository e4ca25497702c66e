package gitstore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"umbra/gitstore/journal"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// Take makes an empty directory a store of its own, without a sink, of what the sink
// in the options has, and returns the moment that it holds. The sink is not changed.
// The directory is durable when Take returns, but for its own name, and stays open;
// after an error it is of no use. Of the options FS, Sink, Base and Log count.
func Take(ctx context.Context, o Options) (*Frozen, error) {
	own, err := o.FS.Sub(".")
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, Options{FS: own, Sink: o.Sink, Base: o.Base, Log: o.Log, Foreground: true})
	if err != nil {
		return nil, err
	}
	s.r.Held.KeepTail() // the sink only reads, perhaps
	f, err := s.Freeze(ctx)
	if err = errors.Join(err, s.Close(ctx)); err != nil {
		return nil, err
	}
	if err := f.settle(o.FS); err != nil {
		return nil, err
	}
	return f, vfs.SyncTree(o.FS, ".")
}

// settle makes the directory of a store with a sink what a store without one would have
// at that moment.
func (f *Frozen) settle(dir vfs.FS) error {
	keep := []string{storedir.Repo, storedir.Exclude, storedir.Moved}
	err := removeBut(dir, ".", func(name string) bool { return slices.Contains(keep, name) })
	for _, name := range []string{"refs", "logs", "packed-refs", "shallow"} {
		err = errors.Join(err, vfs.RemoveAll(dir, path.Join(storedir.Repo, name)))
	}
	err = errors.Join(err, removeBut(dir, storedir.Packs, func(name string) bool {
		stem, _, _ := strings.Cut(name, ".")
		return slices.Contains(f.Packs, path.Join(storedir.Packs, stem+".pack"))
	}))
	for _, name := range []string{journal.Dir, storedir.Repo + "/refs"} {
		err = errors.Join(err, dir.Mkdir(name, 0o700))
	}
	if err != nil {
		return err
	}
	for _, file := range f.Files {
		if err := file.write(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeBut removes what is in a directory, but for some names.
func removeBut(fsys vfs.FS, dir string, keep func(name string) bool) error {
	list, err := fsys.ReadDir(dir)
	for _, e := range list {
		if !keep(e.Name) {
			err = errors.Join(err, vfs.RemoveAll(fsys, path.Join(dir, e.Name)))
		}
	}
	return err
}

// write makes the file below the store's folder.
func (f *FrozenFile) write(dir vfs.FS) error {
	at := ""
	for _, part := range strings.Split(path.Dir(f.Name), "/") {
		at = path.Join(at, part)
		if err := dir.Mkdir(at, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	h, err := dir.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = h.Write(f.Data)
	return errors.Join(err, h.Close())
}
