package workspace

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sync"

	"umbra/internal/rootfs"
	"umbra/internal/vfs"
)

// stagingDir is the folder of the data directory in which new content is
// prepared. What is in it has no name.
const stagingDir = "staging"

// staging is the folder for new content, opened with the first workspace.
type staging struct {
	once sync.Once
	dir  *rootfs.Staging
}

// stagingFolder gives it, or nil where there can be none: content is prepared
// in its target's folder then.
func (m *Manager) stagingFolder() *rootfs.Staging {
	m.staging.once.Do(func() {
		dir := filepath.Join(m.opt.DataDir, stagingDir)
		err := m.opt.Host.MkdirAll(dir)
		if err == nil {
			var f vfs.FS
			if f, err = m.opt.Host.Open(dir); err == nil {
				if m.staging.dir, err = rootfs.OpenStaging(f); err != nil {
					err = errors.Join(err, f.Close())
				}
			}
		}
		if err != nil {
			m.opt.Log.Warn("no folder to prepare files in; they are prepared beside their targets", "error", err)
		}
	})
	return m.staging.dir
}

// asideDir is the folder, in a workspace's part of the data directory, to which
// exchanges bring out what stood at their targets.
const asideDir = "aside"

// openAside opens the folder; what is displaced stays beside its target where
// there can be none.
func (w *Workspace) openAside() {
	if !w.root.TakesAside() {
		return
	}
	f, err := w.files.Sub(asideDir)
	if errors.Is(err, fs.ErrNotExist) {
		if err = w.files.Mkdir(asideDir, 0o700); err == nil {
			err = w.files.SyncDir(".")
		}
		if err == nil {
			f, err = w.files.Sub(asideDir)
		}
	}
	if err != nil {
		w.log.Warn("no folder for displaced files; they are kept beside their targets", "error", err)
		return
	}
	w.aside = f
	w.root.SetAside(f)
}

// closeStaging gives the folder free once no workspace is open.
func (m *Manager) closeStaging() error {
	m.staging.once.Do(func() {})
	if m.staging.dir == nil {
		return nil
	}
	return m.staging.dir.Close()
}
