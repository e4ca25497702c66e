package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"umbra/internal/client"
	"umbra/internal/term"
)

// place is the workspace that a verb is about.
type place struct {
	id   string
	root string // empty: virtual
}

func placeOf(w client.Workspace) place {
	p := place{id: w.ID}
	if w.Root != nil {
		p.root = *w.Root
	}
	return p
}

// pickWorkspace finds it: that of --task, else --workspace, else the one that
// the working directory lies in, else the only one.
func (v *verb) pickWorkspace(ctx context.Context) (place, error) {
	if v.task != "" {
		t, err := v.client.Task(ctx, v.task)
		if err != nil {
			return place{}, err
		}
		p := place{id: t.WorkspaceID}
		if t.Workspace != nil {
			p.root = *t.Workspace
		}
		if v.workspace != "" {
			named, err := v.findWorkspace(ctx, v.workspace)
			if err != nil {
				return place{}, err
			}
			if named.ID != p.id {
				return place{}, usageError{fmt.Errorf("task %s is on workspace %s, not on %s", v.task, p.id, named.ID)}
			}
		}
		return p, nil
	}
	if v.workspace != "" {
		w, err := v.findWorkspace(ctx, v.workspace)
		return placeOf(w), err
	}
	list, _, err := v.client.Workspaces(ctx)
	if err != nil {
		return place{}, err
	}
	if here, err := workingDir(); err == nil {
		if w, ok := around(list, here); ok {
			return placeOf(w), nil
		}
	}
	switch len(list) {
	case 0:
		return place{}, errors.New("no workspace exists yet")
	case 1:
		return placeOf(list[0]), nil
	}
	return place{}, usageError{fmt.Errorf("which of %d workspaces? Say --workspace:\n%s", len(list), names(list))}
}

const maxNamed = 20

func names(list []client.Workspace) string {
	var b strings.Builder
	for i, w := range list {
		if i == maxNamed {
			fmt.Fprintf(&b, "  … (umbra workspaces lists them)\n")
			break
		}
		fmt.Fprintf(&b, "  %s  %s\n", w.ID, term.Name(placeOf(w).root))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// findWorkspace finds one by its id, else by a folder that is its root or lies
// in it.
func (v *verb) findWorkspace(ctx context.Context, name string) (client.Workspace, error) {
	if !strings.ContainsRune(name, '/') && name != "." && name != ".." {
		var w client.Workspace
		_, err := v.client.JSON(ctx, client.Request{Path: client.Path("workspaces", name)}, &w)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Status != http.StatusNotFound {
			return w, err
		}
	}
	folder, err := filepath.Abs(name)
	if err != nil {
		return client.Workspace{}, err
	}
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		folder = real
	}
	list, _, err := v.client.Workspaces(ctx)
	if err != nil {
		return client.Workspace{}, err
	}
	// What is not there lies in none: a mistyped id is no folder of the one here.
	// A root that is gone is one all the same.
	_, gone := os.Lstat(folder)
	if w, ok := around(list, folder); ok && (gone == nil || *w.Root == folder) {
		return w, nil
	}
	return client.Workspace{}, fmt.Errorf("workspace %s not found", term.Name(name))
}

// around gives the workspace that a folder lies in.
func around(list []client.Workspace, folder string) (client.Workspace, bool) {
	for _, w := range list {
		if w.Root == nil {
			continue
		}
		if rel, err := filepath.Rel(*w.Root, folder); err == nil && filepath.IsLocal(rel) {
			return w, true
		}
	}
	return client.Workspace{}, false
}

func workingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// pickTask gives --task, else the workspace's only one.
func (v *verb) pickTask(ctx context.Context, w place) (string, error) {
	if v.task != "" {
		return v.task, nil
	}
	var found []client.Task
	for item, err := range client.Pages[client.Task](ctx, v.client, "/tasks", "tasks", url.Values{"workspace": {w.id}}, maxNamed) {
		if err != nil {
			return "", err
		}
		if found = append(found, item.Value); len(found) == maxNamed {
			break
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("workspace %s has no task yet", w.id)
	case 1:
		return found[0].ID, nil
	}
	var b strings.Builder
	for _, t := range found {
		fmt.Fprintf(&b, "\n  %s  %s", t.ID, term.Cut(term.Line(t.Goal), 60))
	}
	return "", usageError{fmt.Errorf("which task of workspace %s? Say --task; the newest:%s", w.id, b.String())}
}

// pathIn gives the path that an argument names, relative to the workspace's
// root: as git does, from the working directory where that lies in the
// workspace, else from the root. The root itself is empty.
func pathIn(w place, arg string) (string, error) {
	p := arg
	if here, err := workingDir(); err == nil && w.root != "" {
		switch rel, err := filepath.Rel(w.root, here); {
		case filepath.IsAbs(arg):
			if p, err = filepath.Rel(w.root, resolved(arg)); err != nil {
				p = arg
			}
		case err == nil && filepath.IsLocal(rel):
			p = path.Join(rel, arg)
		}
	}
	p = path.Clean(p)
	if !filepath.IsLocal(p) {
		return "", usageError{fmt.Errorf("%s lies outside of the workspace", term.Name(arg))}
	}
	if p == "." {
		return "", nil
	}
	return p, nil
}

// resolved gives an absolute path whose folder has no links in it; what is not
// there any more stays as it is written.
func resolved(p string) string {
	if dir, err := filepath.EvalSymlinks(filepath.Dir(p)); err == nil {
		return filepath.Join(dir, filepath.Base(p))
	}
	return filepath.Clean(p)
}

// onePath reads the optional argument PATH.
func onePath(w place, args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	return pathIn(w, args[0])
}

// within reports whether a path is a folder or lies in it; the root holds all.
func within(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir+"/")
}
