package toolset

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/toolset/mount"
	"umbra/internal/workspaces"
)

// Spec is a mount as it is asked for.
type Spec struct {
	Prefix    string
	Scope     string
	Type      string // "physical" or "virtual"
	Root      string // absolute host path, of a physical one
	Namespace []string
}

// Who names who asked for a change of toolsets.
type Who struct {
	Actor, RequestID string
	// Allow judges a folder by its canonical path before it is opened; known
	// says that it is a workspace already.
	Allow func(root string, known bool) error
	Sees  task.Sees
}

// wrong is an errs.Invalid that names the field.
func wrong(field, format string, args ...any) error {
	return errs.New(errs.Invalid, "invalid_field", format, args...).With("field", field)
}

// withField adds the field to an error that has none.
func withField(err error, field string) error {
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Fields["field"] == nil {
		return e.With("field", field)
	}
	return err
}

// check judges mounts by their words.
func (s *Service) check(specs []Spec, _ Who) ([]Mount, error) {
	if len(specs) > mount.MaxMounts {
		return nil, wrong("mounts", "There may be %d mounts at most.", mount.MaxMounts)
	}
	out := make([]Mount, len(specs))
	seen := make(map[string]int, len(specs))
	for i, sp := range specs {
		at := func(name string) string { return fmt.Sprintf("mounts[%d].%s", i, name) }
		prefix, err := mount.ParsePrefix(sp.Prefix)
		if err != nil {
			return nil, wrong(at("prefix"), "%s.", capital(err.Error()))
		}
		if _, twice := seen[prefix]; twice {
			return nil, wrong(at("prefix"), "The prefix %s occurs twice.", prefix)
		}
		seen[prefix] = i
		scope, ok := mount.ParseScope(sp.Scope)
		if !ok {
			return nil, wrong(at("scope"), "The scope must be READ_ONLY, READ_WRITE or WRITE_ONLY.")
		}
		out[i] = Mount{Prefix: prefix, Scope: scope, Kind: mount.Kind(sp.Type)}
		switch out[i].Kind {
		case mount.Physical:
			if sp.Namespace != nil {
				return nil, wrong(at("store.namespace"), "A namespace is for virtual stores.")
			}
			if strings.IndexByte(sp.Root, 0) >= 0 || !filepath.IsAbs(sp.Root) {
				return nil, wrong(at("store.root"), "The root must be the absolute path of a directory.")
			}
			out[i].Root = sp.Root
		case mount.Virtual:
			if sp.Root != "" {
				return nil, wrong(at("store.root"), "A virtual store has no root.")
			}
			if len(sp.Namespace) == 0 || workspaces.CheckNamespace(sp.Namespace) != nil {
				return nil, wrong(at("store.namespace"), "The namespace must be a list of 1 to 64 texts that are not empty, 4096 bytes in all.")
			}
			out[i].Namespace = sp.Namespace
		default:
			return nil, wrong(at("store.type"), "The store's type must be physical or virtual.")
		}
	}
	return out, nil
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// look finds what the mounts lead to, and makes nothing: Root becomes
// canonical, Workspace the id of what is known already.
//
// Invalid for a folder that is none, with the field; Conflict
// "workspace_overlaps" for nested ones; what Allow says.
func (s *Service) look(mounts []Mount, who Who) error {
	for i := range mounts {
		m := &mounts[i]
		if m.Kind == mount.Virtual {
			if who.Sees != nil && !who.Sees("") {
				return errs.New(errs.Forbidden, "workspace_not_allowed", "The caller may not open virtual stores.")
			}
			r, known, err := s.o.Workspaces.FindVirtual(m.Namespace)
			if err != nil {
				return err
			}
			if known {
				m.Workspace = r.ID
			}
			continue
		}
		place, err := s.o.Workspaces.Look(m.Root, workspaces.OpenOptions{}, who.Allow)
		if errs.Is(err, errs.Invalid) {
			return withField(err, fmt.Sprintf("mounts[%d].store.root", i))
		}
		if err != nil {
			return err
		}
		m.Root, m.Workspace = place.Root, place.Workspace
	}
	known := s.o.Workspaces.Physical()
	for i := range mounts {
		m := &mounts[i]
		if m.Kind == mount.Virtual {
			continue
		}
		overlaps := func(root string) bool { return root != "" && root != m.Root && nested(m.Root, root) }
		clash := false
		for j := range mounts {
			clash = clash || mounts[j].Kind == mount.Physical && overlaps(mounts[j].Root)
		}
		for j := range known {
			clash = clash || m.Workspace == "" && overlaps(known[j].Root)
		}
		if clash {
			return errs.New(errs.Conflict, "workspace_overlaps", "The directory is inside another workspace, or another workspace is inside it.").
				With("field", fmt.Sprintf("mounts[%d].store.root", i))
		}
	}
	return nil
}

// nested reports whether one canonical folder lies in the other.
func nested(a, b string) bool {
	in := func(p, dir string) bool {
		rel, err := filepath.Rel(dir, p)
		return err == nil && filepath.IsLocal(rel)
	}
	return in(a, b) || in(b, a)
}

// serve gives every mounted workspace its task: one of before, the given one, or
// a new one with the next of the ids that were planned.
func (s *Service) serve(ctx context.Context, r *Record, ids []string, before Record, who Who) error {
	r.Tasks, r.Own = map[string]string{}, map[string]bool{}
	if r.Lazy {
		return s.openMounts(ctx, r)
	}
	for i := range r.Mounts {
		m := &r.Mounts[i]
		if m.Workspace != "" {
			if r.Tasks[m.Workspace] != "" {
				continue
			}
			if id := before.Tasks[m.Workspace]; id != "" && s.o.Tasks.Writable(id, m.Workspace) == nil {
				r.Tasks[m.Workspace] = id
				if before.Own[id] {
					r.Own[id] = true
				}
				continue
			}
			if r.Task != "" && s.o.Tasks.Writable(r.Task, m.Workspace) == nil {
				r.Tasks[m.Workspace] = r.Task
				continue
			}
		}
		id := ids[i]
		o := task.CreateOptions{ID: id, Goal: "Toolset " + r.ID, MadeBy: "toolset " + r.ID, Metadata: metadata(r.ID), Actor: who.Actor,
			RequestID: who.RequestID, Sees: who.Sees, Root: m.Root, Virtual: m.Kind == mount.Virtual, Namespace: m.Namespace}
		made, err := s.o.Tasks.Create(ctx, o)
		if err != nil {
			return withField(err, fmt.Sprintf("mounts[%d].store", i))
		}
		m.Workspace = made.ID()
		made.Release()
		if r.Tasks[m.Workspace] != "" {
			// Two mounts of one folder that was no workspace yet.
			r.Loose = append(slices.Clip(r.Loose), id)
			continue
		}
		r.Tasks[m.Workspace], r.Own[id] = id, true
	}
	return nil
}

func metadata(id string) []byte { return []byte(`{"toolset_id":"` + id + `"}`) }
