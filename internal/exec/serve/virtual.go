package serve

import (
	"context"
	"crypto/sha1"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/exec"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// virtual gives the workspace as a directory, runs the command there, and brings
// what it changed back as one change set.
func (c *command) virtual(ctx context.Context) error {
	if c.r.Require {
		return errs.New(errs.Unavailable, "no_layer", "A virtual workspace has no layer; its command has a directory of its own anyway.")
	}
	top, err := os.MkdirTemp("", "umbra-exec-")
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer os.RemoveAll(top)
	root := filepath.Join(top, "workspace")
	if err := os.Mkdir(root, 0o755); err != nil {
		return errs.Wrap(err, "")
	}
	base := c.ref.Store().Snapshot()
	if err := lay(ctx, c.ref.Store(), base, root); err != nil {
		return err
	}
	dir, err := directory(root, c.r.Cwd)
	if err != nil {
		return err
	}
	if _, err := c.run(ctx, nil, spec{Dir: dir, Args: c.r.Args, Env: c.env("")}); err != nil {
		return err
	}
	found, err := read(ctx, root, &c.a)
	if err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	for range 8 {
		ops, err := c.changes(base, found, root)
		if err != nil {
			return err
		}
		if len(ops) == 0 {
			return nil
		}
		res, err := c.ref.Apply(ctx, workspace.Request{By: workspace.By{TaskID: c.ref.Task.ID, SubtaskID: c.r.Subtask, Actor: c.r.Actor, Source: message.Call, RequestID: c.r.RequestID},
			Ops: ops, Extra: []message.Trailer{{Key: message.KeyTool, Value: "exec"}}, DryRun: c.r.DryRun, Check: func() error { return c.s.o.Tasks.MayWrite(c.ref) }})
		if errs.Is(err, errs.Precondition) || errs.CodeOf(err) == "file_not_found" {
			continue // somebody was faster
		}
		if err != nil {
			return err
		}
		c.a.Commit, c.a.Entries = res.Commit, res.Entries
		return nil
	}
	return errs.New(errs.Conflict, "file_changing", "The files keep being changed by others.")
}

// lay writes the files of a tree into an empty directory.
func lay(ctx context.Context, st *gitstore.Store, snap gitstore.Snapshot, root string) error {
	return snap.Walk(wspath.Root, func(e gitstore.Entry) error {
		name := filepath.Join(root, filepath.FromSlash(string(e.Path)))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return errs.Wrap(err, "")
		}
		r, _, err := st.OpenBlob(ctx, e.ID)
		if err != nil {
			return err
		}
		defer r.Close()
		if e.Mode == object.Symlink {
			target, err := io.ReadAll(io.LimitReader(r, wspath.MaxTarget))
			if err != nil {
				return err
			}
			return errs.Wrap(os.Symlink(string(target), name), "")
		}
		perm := fs.FileMode(0o644)
		if e.Mode == object.Executable {
			perm = 0o755
		}
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
		if err != nil {
			return errs.Wrap(err, "")
		}
		_, err = io.Copy(f, r)
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		return errs.Wrap(err, "")
	})
}

// version is a file or link of the directory.
type version struct {
	Mode object.Mode
	ID   object.ID
	size int64
}

// read lists what a directory holds. What no history can have is left out and told.
func read(ctx context.Context, root string, a *Answer) (map[string]version, error) {
	out := map[string]version{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil || rel == "." {
			return err
		}
		p := filepath.ToSlash(rel)
		if wspath.CheckName(d.Name()) != nil {
			a.Skipped = append(a.Skipped, exec.Skip{Path: p, Reason: "name"})
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		switch {
		case d.IsDir():
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			out[p] = version{Mode: object.Symlink, ID: object.Hash(object.Blob, []byte(target))}
		case d.Type().IsRegular():
			v, err := hash(name)
			if err != nil {
				return err
			}
			out[p] = v
		default:
			a.Skipped = append(a.Skipped, exec.Skip{Path: p, Reason: "special"})
		}
		return nil
	})
	return out, errs.Wrap(err, "")
}

func hash(name string) (v version, err error) {
	f, err := os.Open(name)
	if err != nil {
		return v, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return v, err
	}
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", info.Size())
	if v.size, err = io.Copy(h, f); err != nil {
		return v, err
	}
	v.Mode = object.Regular
	if info.Mode().Perm()&0o100 != 0 {
		v.Mode = object.Executable
	}
	copy(v.ID[:], h.Sum(nil))
	return v, nil
}

// changes makes the operations for what differs from the tree that the command
// began with. A path that somebody else changed meanwhile is a conflict, unless to
// the same.
func (c *command) changes(base gitstore.Snapshot, found map[string]version, root string) ([]workspace.Op, error) {
	tip := c.ref.Store().Snapshot()
	c.a.Conflicts = nil
	var ops []workspace.Op
	stands := func(p string) (version, error) {
		e, ok, err := tip.Lookup(wspath.Path(p))
		if err != nil || !ok {
			return version{}, err
		}
		return version{Mode: e.Mode, ID: e.ID}, nil
	}
	clash := func(p, reason string, theirs version) {
		x := exec.Conflict{Path: p, Reason: reason}
		x.Theirs.Mode, x.Theirs.ID = theirs.Mode, theirs.ID
		c.a.Conflicts = append(c.a.Conflicts, x)
	}
	was := map[string]version{}
	err := base.Walk(wspath.Root, func(e gitstore.Entry) error {
		p := string(e.Path)
		was[p] = version{Mode: e.Mode, ID: e.ID}
		if _, there := found[p]; there {
			return nil
		}
		now, err := stands(p)
		switch {
		case err != nil:
			return err
		case now.Mode == 0:
		case now != was[p]:
			clash(p, "changed_here", version{})
		default:
			ops = append(ops, workspace.Op{Kind: workspace.OpDelete, Path: e.Path, If: workspace.Condition{Match: []string{now.ID.String()}}})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	paths := make([]string, 0, len(found))
	for p := range found {
		paths = append(paths, p)
	}
	slices.SortFunc(paths, strings.Compare)
	for _, p := range paths {
		v := found[p]
		before := was[p]
		if v.Mode == before.Mode && v.ID == before.ID {
			continue
		}
		now, err := stands(p)
		if err != nil {
			return nil, err
		}
		if now.Mode == v.Mode && now.ID == v.ID {
			continue
		}
		if now.Mode != before.Mode || now.ID != before.ID {
			clash(p, "content", v)
			continue
		}
		cond := workspace.Condition{NoneMatchAny: true}
		if now.Mode != 0 {
			cond = workspace.Condition{Match: []string{now.ID.String()}}
		}
		name := filepath.Join(root, filepath.FromSlash(p))
		if v.Mode == object.Symlink {
			target, err := os.Readlink(name)
			if err != nil {
				return nil, errs.Wrap(err, "")
			}
			ops = append(ops, workspace.Op{Kind: workspace.OpSymlink, Path: wspath.Path(p), Target: target, Overwrite: true, If: cond})
			continue
		}
		mode := v.Mode
		ops = append(ops, workspace.Op{Kind: workspace.OpWrite, Path: wspath.Path(p), Body: &lazy{name: name}, Size: v.size, Mode: &mode, NoFollow: true, If: cond})
	}
	return ops, nil
}

// lazy opens a file at its first read and closes it at its end.
type lazy struct {
	name string
	f    *os.File
}

func (l *lazy) Read(b []byte) (int, error) {
	if l.f == nil {
		var err error
		if l.f, err = os.Open(l.name); err != nil {
			return 0, err
		}
	}
	n, err := l.f.Read(b)
	if err != nil {
		l.f.Close()
	}
	return n, err
}
