package serve

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/internal/calls"
	"umbra/internal/errs"
	"umbra/internal/exec"
	"umbra/internal/wspath"
)

// virtual gives the workspace as a directory, runs the command there, and brings
// what it changed back as one change set.
func (c *command) virtual(ctx context.Context) error {
	top, err := os.MkdirTemp("", "umbra-exec-")
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer os.RemoveAll(top)
	root := filepath.Join(top, "workspace")
	if err := os.Mkdir(root, 0o755); err != nil {
		return errs.Wrap(err, "")
	}
	begun, err := c.s.o.Calls.Begin(ctx, c.call(true))
	if err != nil {
		return err
	}
	c.a.CallID, c.a.Isolated = begun.ID, true
	err = c.inDirectory(ctx, &begun.Record, top, root)
	end := calls.End{Status: calls.OK}
	switch {
	case err != nil && ctx.Err() != nil:
		end.Status = calls.Cancelled
	case err != nil || c.a.ExitCode != 0 || c.a.TimedOut:
		end.Status = calls.Failed
	}
	if err == nil && !c.a.TimedOut {
		end.ExitCode = &c.a.ExitCode
	}
	_, ended := c.s.o.Calls.End(context.WithoutCancel(ctx), begun.ID, end)
	return errors.Join(err, ended)
}

// inDirectory runs the command in root, a directory in top, that it fills with the
// workspace's files.
func (c *command) inDirectory(ctx context.Context, rec *calls.Record, top, root string) error {
	base := c.ref.Store().Snapshot()
	if err := lay(ctx, c.ref.Store(), base, root); err != nil {
		return err
	}
	dir, err := directory(root, c.r.Cwd)
	if err != nil {
		return err
	}
	if _, err := c.run(ctx, rec.ID, nil, spec{Dir: dir, Args: c.r.Args, Temp: top}); err != nil {
		return err
	}
	changed, err := read(ctx, root, &c.a)
	if err != nil {
		return err
	}
	err = base.Walk(wspath.Root, func(e gitstore.Entry) error {
		switch now, ok := changed[string(e.Path)]; {
		case !ok:
			changed[string(e.Path)] = exec.Version{}
		case now.Mode == e.Mode && now.ID == e.ID:
			delete(changed, string(e.Path))
		}
		return nil
	})
	if err != nil {
		return err
	}
	res, err := c.s.o.Layers.Bring(context.WithoutCancel(ctx), c.ref.Workspace, exec.Directory{Call: rec, Base: base, Root: root, Changed: changed,
		DryRun: c.r.DryRun, RequestID: c.r.RequestID})
	if err != nil {
		return err
	}
	c.a.Commit, c.a.Entries, c.a.Conflicts, c.a.Patch = res.Commit, res.Entries, res.Conflicts, res.Patch
	return nil
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

// read lists what a directory holds. Files that history cannot hold are left out and
// reported.
func read(ctx context.Context, root string, a *Answer) (map[string]exec.Version, error) {
	out := map[string]exec.Version{}
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
			out[p] = exec.Version{Mode: object.Symlink, ID: object.Hash(object.Blob, []byte(target))}
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

func hash(name string) (v exec.Version, err error) {
	f, err := os.Open(name)
	if err != nil {
		return v, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return v, err
	}
	h := object.NewHash(object.Blob, info.Size())
	if _, err = io.Copy(h, f); err != nil {
		return v, err
	}
	v.Mode = object.Regular
	if info.Mode().Perm()&0o100 != 0 {
		v.Mode = object.Executable
	}
	copy(v.ID[:], h.Sum(nil))
	return v, nil
}
