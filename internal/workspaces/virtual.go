package workspaces

import (
	"context"
	"errors"
	"slices"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// The kinds of workspaces (Record.Kind).
const (
	PhysicalKind = "physical"
	VirtualKind  = "virtual"
)

// OpenVirtual finds the virtual workspace of a namespace, or makes it. A nil
// namespace makes a new one that no namespace leads to. The caller calls
// Release. Two namespaces are the same store only if they are equal, segment by
// segment.
//
// errs.Invalid "invalid_namespace".
func (m *Manager) OpenVirtual(ctx context.Context, namespace []string) (*workspace.Workspace, error) {
	if err := CheckNamespace(namespace); err != nil {
		return nil, err
	}
	if m.opt.Shared != nil {
		return m.openShared(ctx, namespace)
	}
	m.making.Lock()
	defer m.making.Unlock()
	if namespace != nil {
		r, known, err := m.FindVirtual(namespace)
		if err != nil {
			return nil, err
		}
		if known {
			return m.Get(ctx, r.ID)
		}
	}
	return witnessed(ctx)(m.makeVirtual(ctx, namespace))
}

// FindVirtual returns the virtual workspace of a namespace, if it exists.
func (m *Manager) FindVirtual(namespace []string) (r Record, known bool, err error) {
	list, _, err := m.opt.Records.List(named(namespace), "", 1)
	if err != nil || len(list) == 0 {
		return Record{}, false, errs.Wrap(err, "")
	}
	return list[0], true, nil
}

// Bounds of a namespace.
const (
	maxSegments  = 64
	maxNamespace = 4096 // bytes in all
)

// CheckNamespace judges a namespace: a list of segments that are not empty. nil
// is none.
func CheckNamespace(namespace []string) error {
	if namespace == nil {
		return nil
	}
	fail := func(why string) error { return errs.New(errs.Invalid, "invalid_namespace", why) }
	size := 0
	for _, s := range namespace {
		if s == "" {
			return fail("A segment of the namespace is empty.")
		}
		size += len(s)
	}
	switch {
	case len(namespace) == 0:
		return fail("The namespace is empty.")
	case len(namespace) > maxSegments || size > maxNamespace:
		return fail("The namespace is too long.")
	}
	return nil
}

// newVirtual returns the record of a new virtual workspace.
func (m *Manager) newVirtual(namespace []string) Record {
	now := m.opt.Now().UTC()
	name := "virtual"
	if len(namespace) > 0 {
		name = strings.Join(namespace, "-")
	}
	return Record{ID: m.NewID(strings.ReplaceAll(name, "/", "-")), Kind: VirtualKind, Namespace: slices.Clone(namespace), Created: now, LastUsed: now}
}

func (m *Manager) makeVirtual(ctx context.Context, namespace []string) (*workspace.Workspace, error) {
	r := m.newVirtual(namespace)
	defer m.comes(r.ID)()
	whole := r
	r.Unfinished = true
	err := m.putRecord(r) // first: what a crash leaves is found by it
	if err == nil {
		err = errs.Wrap(m.opt.Host.MkdirAll(m.dirOf(r.ID)), "")
	}
	var w *workspace.Workspace
	if err == nil {
		w, err = m.load(ctx, whole)
	}
	if err == nil {
		if err = w.Baseline(ctx, nil); err == nil {
			err = m.putRecord(whole)
		}
		if err != nil {
			err = errors.Join(err, w.Close(ctx, nil))
		}
	}
	if err != nil {
		return nil, errors.Join(err, m.dropUnfinished(r))
	}
	return m.adoptNew(ctx, w, whole, 0)
}

// adoptNew makes a workspace that was just made one of the open ones. seq is that of
// startBackground.
func (m *Manager) adoptNew(ctx context.Context, w *workspace.Workspace, r Record, seq uint64) (*workspace.Workspace, error) {
	h := newHandle()
	h.refs = 1
	m.mu.Lock()
	stopped := m.stopped
	if !stopped {
		m.records[r.ID], m.open[r.ID] = r, h
	}
	m.mu.Unlock()
	if stopped {
		// The record is there: the next start has the workspace.
		return nil, errors.Join(errs.New(errs.Unavailable, "stopping", "The server is stopping."), w.Close(ctx, nil))
	}
	m.startBackground(w, r, seq)
	m.opened(r.ID, h, w, nil)
	return w, nil
}
