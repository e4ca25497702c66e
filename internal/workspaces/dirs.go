package workspaces

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"umbra/internal/errs"
	"umbra/internal/workspace/host"
)

// Elsewhere reports whether a workspace's directory is another server's: it cannot be
// opened here.
func (m *Manager) Elsewhere(r Record) bool { return m.elsewhere(r) }

// Here reports whether a workspace is this server's at this moment, so that opening it
// takes it from no other.
func (m *Manager) Here(r Record) bool {
	return !m.elsewhere(r) && (!m.shares(r) || m.Epoch(r.ID) > 0)
}

// DirectoryAt returns the workspace of a directory that another server has, or of one
// inside of it or around it, and that server; "" where this server is to open it: it
// has the workspace, or no server does. A workspace that is being made has no ID yet.
// A directory of the same path on another machine is another one, unless this machine
// has none there. On this machine it is the workspace's, also where it was replaced.
func (m *Manager) DirectoryAt(path string) (id, server string, err error) {
	if m.opt.Shared == nil || !filepath.IsAbs(path) {
		return "", "", nil
	}
	root, err := m.opt.Host.Canonical(path)
	missing := errors.Is(err, fs.ErrNotExist)
	if err != nil {
		root = filepath.Clean(path)
	}
	for _, r := range m.Physical() {
		if r.Root == root {
			return "", "", nil
		}
	}
	r, known, err := m.others(root, missing || !m.opt.Physical, func(Record) bool { return true })
	if !known || err != nil {
		return "", "", err
	}
	if r.Unfinished {
		return "", r.Server, nil
	}
	return r.ID, r.Server, nil
}

// others returns the first workspace of another server whose directory is the one at
// root, lies inside of it or around it, and which is wanted. Where this machine has no
// directory there, the path alone says so.
func (m *Manager) others(root string, missing bool, want func(Record) bool) (Record, bool, error) {
	if m.opt.Shared == nil {
		return Record{}, false, nil
	}
	all, _, err := m.opt.Records.List(Resident, "", 0)
	if err != nil {
		return Record{}, false, errs.Wrap(err, "")
	}
	for _, r := range all {
		if m.elsewhere(r) && (m.meets(root, r) || r.Root == root && (missing || m.seesSame(r.Server))) && want(r) {
			return r, true, nil
		}
	}
	return Record{}, false, nil
}

func (m *Manager) seesSame(server string) bool {
	return m.opt.SeesSame != nil && m.opt.SeesSame(server)
}

// meets reports whether a directory of this machine is another server's workspace, or
// lies inside of one, or around it.
func (m *Manager) meets(root string, r Record) bool {
	if !host.Within(root, r.Root) && !host.Within(r.Root, root) || r.Root != root && m.places.IsOwn(r.Root) {
		return false
	}
	info, err := m.opt.Host.Stat(r.Root)
	if err != nil || info.Dev != r.Dev || info.Ino != r.Ino {
		return false
	}
	born := m.places.Born(r.Root)
	return r.Born == 0 || born == 0 || born == r.Born
}

// young is how old a workspace is at most that a request may not have seen when it was
// decided which server gets it. Both servers have the machine's clock.
const young = 10 * time.Second

// putFirst writes the record of a directory that becomes a workspace, if no other
// server has it. Where another has just made it, a repeated request is sent there.
func (m *Manager) putFirst(r Record) error {
	if m.opt.Shared == nil {
		return m.putRecord(r)
	}
	all := func(Record) bool { return true }
	switch other, known, err := m.others(r.Root, false, all); {
	case err != nil:
		return err
	case known && r.Created.Sub(other.Created) > young:
		return m.opt.Shared.Elsewhere(other.Server)
	case known:
		return errMoving()
	}
	defer m.putting.Lock(r.ID)()
	err := m.opt.Records.PutUnless(r, func(other Record) bool { return m.elsewhere(other) && m.meets(r.Root, other) })
	if errors.Is(err, ErrExists) {
		return errMoving()
	}
	return err
}
