package workspaces

import (
	"errors"
	"path/filepath"
	"sync"

	"umbra/internal/rootfs"
	"umbra/internal/vfs"
)

// stagingDir is the folder of the data directory in which new content is
// prepared. Its files have no names.
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
			m.opt.Log.Warn("no directory to prepare files in; they are prepared next to their targets", "error", err)
		}
	})
	return m.staging.dir
}

// closeStaging gives the folder free once no workspace is open.
func (m *Manager) closeStaging() error {
	m.staging.once.Do(func() {})
	if m.staging.dir == nil {
		return nil
	}
	return m.staging.dir.Close()
}
