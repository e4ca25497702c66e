package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"umbra/internal/client"
	"umbra/internal/datadir"
	"umbra/internal/exitcode"
	"umbra/internal/term"
	"umbra/internal/wspath"
)

// Place is the workspace that a verb is about.
type Place struct {
	ID   string
	Root string // empty: virtual
}

// PlaceOf returns a workspace as the verbs use it.
func PlaceOf(w client.Workspace) Place {
	p := Place{ID: w.ID}
	if w.Root != nil {
		p.Root = *w.Root
	}
	return p
}

const maxNamed = 20

func names(list []client.Workspace) string {
	var b strings.Builder
	for i, w := range list {
		if i == maxNamed {
			fmt.Fprintf(&b, "  … (umbra workspaces lists them)\n")
			break
		}
		fmt.Fprintf(&b, "  %s  %s\n", w.ID, term.Name(PlaceOf(w).Root))
	}
	return strings.TrimSuffix(b.String(), "\n")
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

// WorkingDir returns the working directory with its symbolic links resolved.
func WorkingDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// PathIn gives the path that an argument names, relative to the workspace's
// root: as git does, from the working directory where that lies in the
// workspace, else from the root. The root itself is empty.
func PathIn(w Place, arg string) (string, error) {
	p := arg
	if here, err := WorkingDir(); err == nil && w.Root != "" {
		switch rel, err := filepath.Rel(w.Root, here); {
		case filepath.IsAbs(arg):
			if p, err = filepath.Rel(w.Root, datadir.Resolved(arg)); err != nil {
				p = arg
			}
		case err == nil && filepath.IsLocal(rel):
			p = path.Join(rel, arg)
		}
	}
	p = path.Clean(p)
	if !filepath.IsLocal(p) {
		return "", exitcode.Usage(fmt.Errorf("%s lies outside of the workspace", term.Name(arg)))
	}
	if p == "." {
		return "", nil
	}
	return p, nil
}

// OnePath reads the optional argument PATH.
func OnePath(w Place, args []string) (string, error) {
	if len(args) == 0 {
		return "", nil
	}
	return PathIn(w, args[0])
}

// EncodePaths gives the paths that arguments name as a JSON body has them, in
// one encoding. The root itself is left out, and represents all.
func EncodePaths(w Place, args []string) (paths []string, encoding string, err error) {
	raw := make([]string, 0, len(args))
	for _, arg := range args {
		p, err := PathIn(w, arg)
		if err != nil {
			return nil, "", err
		}
		if p == "" {
			return nil, "", nil
		}
		raw = append(raw, p)
		if _, enc := wspath.EncodeJSON(p); enc != "" {
			encoding = enc
		}
	}
	for _, p := range raw {
		text, enc := wspath.EncodeJSON(p)
		if enc != encoding {
			text = strings.ReplaceAll(text, "%", "%25")
		}
		paths = append(paths, text)
	}
	return paths, encoding, nil
}

// PickFiles settles the workspace, the task and the path of a verb that takes
// them.
func (v *Verb) PickFiles(ctx context.Context, args []string) (w Place, task, p string, err error) {
	if w, err = v.PickWorkspace(ctx); err != nil {
		return
	}
	if task, err = v.PickTask(ctx, w); err != nil {
		return
	}
	p, err = OnePath(w, args)
	return
}

// ErrNoWorkspace is returned for a directory that no workspace contains.
var ErrNoWorkspace = errors.New("this directory is in no workspace; name one with --workspace")

// HereWorkspace is the workspace of --workspace, else the one around the working
// directory. Unlike pickWorkspace it takes no other one.
func (v *Verb) HereWorkspace(ctx context.Context) (Place, error) {
	if v.Workspace != "" {
		return v.PickWorkspace(ctx)
	}
	list, _, err := v.Client.Workspaces(ctx)
	if err != nil {
		return Place{}, err
	}
	here, err := WorkingDir()
	if err != nil {
		return Place{}, err
	}
	if w, ok := around(list, here); ok {
		return PlaceOf(w), nil
	}
	return Place{}, ErrNoWorkspace
}

// Named gives the workspaces that the arguments name; without any, all.
func (v *Verb) Named(ctx context.Context, args []string) ([]client.Workspace, error) {
	if len(args) == 0 {
		list, _, err := v.Client.Workspaces(ctx)
		return list, err
	}
	var list []client.Workspace
	for _, arg := range args {
		w, err := v.FindWorkspace(ctx, arg)
		if err != nil {
			return nil, err
		}
		list = append(list, w)
	}
	return list, nil
}
