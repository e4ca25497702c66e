package workspaces

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path"
	"path/filepath"

	"umbra/internal/errs"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Own is one of the server's own directories. Where several servers share virtual
// workspaces it is one of these, and each server's directory has copies of what that
// server wrote, which are never read.
type Own struct {
	Dir  string // host path; it need not exist
	Name string // of the virtual workspace
}

func (o Own) namespace() []string { return []string{"umbra", o.Name} }

// OpenOwn opens the workspace of one of the server's own directories; nil where it
// does not exist and is not to be made. The caller calls Release, and lets one make
// it at a time.
func (m *Manager) OpenOwn(ctx context.Context, own Own, create bool) (*workspace.Workspace, error) {
	if m.opt.Shared != nil {
		if create {
			return m.OpenVirtual(ctx, own.namespace())
		}
		r, known, err := m.FindOwn(own)
		if err != nil || !known {
			return nil, err
		}
		return m.Get(ctx, r.ID)
	}
	if rec, known := m.Find(ctx, own.Dir); known {
		return m.Get(ctx, rec.ID)
	}
	if !create {
		return nil, nil
	}
	if err := os.MkdirAll(own.Dir, 0o777); err != nil {
		return nil, errs.Wrap(err, "")
	}
	w, _, err := m.Open(ctx, own.Dir, OpenOptions{Force: true, Own: true})
	return w, err
}

// FindOwn returns the workspace of one of the servers' own directories that they share.
func (m *Manager) FindOwn(own Own) (r Record, known bool, err error) {
	return m.FindVirtual(own.namespace())
}

// CopyOwn returns the host path of a file that was written to the workspace of one of
// the server's own directories. Where that is virtual it first makes this server's copy
// of the file, or removes it if data is nil.
func (m *Manager) CopyOwn(own Own, w *workspace.Workspace, p wspath.Path, data []byte) string {
	name := filepath.FromSlash(string(p))
	if !w.Virtual() {
		return filepath.Join(w.Root(), name)
	}
	if err := copyOwn(own.Dir, name, data); err != nil {
		m.opt.Log.Warn("this server has no copy of a file", "directory", own.Dir, "path", name, "error", err)
	}
	return filepath.Join(own.Dir, name)
}

func copyOwn(dir, name string, data []byte) (err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if data == nil {
		if err := root.Remove(name); !os.IsNotExist(err) {
			return err
		}
		return nil
	}
	if up := path.Dir(filepath.ToSlash(name)); up != "." {
		if err := root.MkdirAll(filepath.FromSlash(up), 0o777); err != nil {
			return err
		}
	}
	temp := filepath.Join(filepath.Dir(name), ".umbra-"+rand.Text())
	if err := root.WriteFile(temp, data, 0o666); err != nil {
		return err
	}
	if err := root.Rename(temp, name); err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return nil
}

// Shares reports whether several servers share virtual workspaces.
func (m *Manager) Shares() bool { return m.opt.Shared != nil }
