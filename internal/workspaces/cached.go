package workspaces

import (
	"context"
	"errors"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/journal"
	"umbra/gitstore/object"
	"umbra/gitstore/remote"
	"umbra/internal/forklayer"
	"umbra/internal/vfs"
)

// Where several servers share virtual workspaces, a workspace's directory is a copy of
// what its log and the object store have. It is kept when the workspace is closed, so that
// it is opened sooner again.

// trimEvery is how often the copies are counted, and removed where they are too large.
const trimEvery = 10 * time.Minute

// cached is a copy on this server's disk.
type cached struct {
	id    string
	bytes int64
	used  int64 // when it was opened or closed last, nanoseconds since 1970
}

// Cached returns how many bytes the copies of logs had when they were counted last.
func (m *Manager) Cached() int64 { return m.shared.cached.Load() }

// trimCaches keeps the copies within Options.CacheLimit until ctx ends.
func (m *Manager) trimCaches(ctx context.Context) {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		if err := m.TrimCaches(ctx); err != nil && ctx.Err() == nil {
			m.opt.Log.Warn("the copies of workspaces on this disk were not counted", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// TrimCaches counts the copies of logs. Where they have more bytes than
// Options.CacheLimit, those of workspaces that are not open are removed, the ones used
// longest ago first. Nothing is lost by it: what a layer has is kept, and a log has the rest.
func (m *Manager) TrimCaches(ctx context.Context) error {
	list, err := m.cachedCopies(ctx)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, c := range list {
		total += c.bytes
	}
	limit := total
	if m.opt.CacheLimit != nil {
		limit = m.opt.CacheLimit(total)
	}
	slices.SortFunc(list, func(a, b cached) int { return int(max(-1, min(1, a.used-b.used))) })
	for _, c := range list {
		if total <= limit || ctx.Err() != nil {
			break
		}
		gone, failed := m.dropCache(c.id, Purged{})
		if gone {
			total -= c.bytes
		}
		err = errors.Join(err, failed)
	}
	m.shared.cached.Store(total)
	return err
}

// cachedCopies lists the copies.
func (m *Manager) cachedCopies(ctx context.Context) (list []cached, err error) {
	err = m.stubs(func(all vfs.FS) error {
		names, err := all.ReadDir(".")
		if err != nil {
			return err
		}
		for _, e := range names {
			if _, err := all.Lstat(path.Join(e.Name, remote.BootFile)); err != nil {
				continue // a history of its own, or on its way
			}
			c := cached{id: e.Name}
			if info, err := all.Lstat(path.Join(e.Name, journal.Dir)); err == nil {
				c.used = info.MtimeNs
			}
			if c.bytes, err = sizeOf(ctx, all, e.Name); err != nil {
				return err
			}
			list = append(list, c)
		}
		return nil
	})
	if vfs.IsAbsent(err) { // no workspace was ever opened
		return nil, nil
	}
	return list, err
}

// sizeOf adds up the files of a copy, without those that are removed meanwhile, were
// put aside, or are a layer's.
func sizeOf(ctx context.Context, all vfs.FS, dir string) (bytes int64, err error) {
	names, err := all.ReadDir(dir)
	if vfs.IsAbsent(err) {
		return 0, nil
	}
	if err == nil {
		err = ctx.Err()
	}
	for _, e := range names {
		if err != nil {
			break
		}
		name := path.Join(dir, e.Name)
		info, failed := all.Lstat(name)
		switch {
		case failed != nil || keptAside(name) || path.Base(name) == layerDir && path.Dir(path.Dir(name)) == ".":
		case info.IsDir():
			var more int64
			more, err = sizeOf(ctx, all, name)
			bytes += more
		default:
			bytes += info.Size
		}
	}
	return bytes, err
}

// keptAside reports whether a path below the workspaces' directory is of commits that are
// nowhere else.
func keptAside(name string) bool {
	return path.Base(path.Dir(name)) == journal.Dir && strings.HasPrefix(path.Base(name), remote.Orphaned)
}

// dropCache removes the copy of a workspace that is not open, and of what a layer has the
// files with purged contents.
func (m *Manager) dropCache(id string, purged Purged) (gone bool, err error) {
	m.mu.Lock()
	if m.stopped || m.open[id] != nil {
		m.mu.Unlock()
		return false, nil
	}
	h := newHandle()
	h.closing = make(chan struct{}) // others wait
	close(h.ready)
	m.open[id] = h
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		delete(m.open, id)
		m.mu.Unlock()
		close(h.closing)
	}()
	dir, err := m.opt.Host.Open(filepath.Clean(m.dirOf(id)))
	if vfs.IsAbsent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	contents, err := forklayer.ContentsOf(purged.Blobs)
	if r, _ := m.Record(id); err == nil && r.Fork != nil && r.Fork.Kind == LayerKind && len(contents) > 0 {
		err = m.layerOf(r).Forget(contents, purged.Ignored, func(string, object.ID) (bool, error) { return true, nil })
	}
	if err != nil {
		return false, err
	}
	names, err := dir.ReadDir(".")
	if err != nil {
		return false, err
	}
	kept := 0
	for _, e := range names {
		switch {
		case e.Name == layerDir:
			kept++
		case e.Name != remote.BootFile && e.Name != journal.Dir:
			err = errors.Join(err, vfs.RemoveAll(dir, e.Name))
		}
	}
	names, failed := dir.ReadDir(journal.Dir)
	if failed != nil && !vfs.IsAbsent(failed) {
		err = errors.Join(err, failed)
	}
	for _, e := range names {
		if name := path.Join(journal.Dir, e.Name); keptAside(name) {
			kept++
		} else {
			err = errors.Join(err, vfs.RemoveAll(dir, name))
		}
	}
	if err != nil {
		return false, err
	}
	// Last: it says that the directory is a copy.
	if err := vfs.RemoveAll(dir, remote.BootFile); err != nil || kept > 0 {
		return err == nil, err
	}
	return true, m.opt.Host.RemoveAll(m.dirOf(id))
}
