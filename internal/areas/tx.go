package areas

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// areaTx remembers how to take back what was done.
type areaTx struct {
	f     *Folders
	undo  []func() error
	trash []string        // what is no longer needed once all is done
	dirs  map[string]bool // folders to sync
}

func (t *areaTx) rollback() {
	for _, u := range slices.Backward(t.undo) {
		// Nothing better is to be had than to go on: what cannot be put back
		// stays under its temporary name, and the error is answered.
		_ = u()
	}
}

func (t *areaTx) finish() {
	for _, name := range t.trash {
		// What stays is swept when the folders are opened next.
		_ = vfs.RemoveAll(t.f.fs, name)
	}
}

func (t *areaTx) sync() error {
	for dir := range t.dirs {
		if err := t.f.fs.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errs.Wrap(err, "")
		}
	}
	return nil
}

func (t *areaTx) do(op *AreaOp) (AreaResult, error) {
	if op.Path.Path.IsRoot() || op.Kind == AreaRename && op.To.Path.IsRoot() {
		return AreaResult{}, withPath(errs.New(errs.BadPath, "bad_path", "That is the folder itself."), op.Path)
	}
	var r AreaResult
	var err error
	switch op.Kind {
	case AreaWrite:
		r, err = t.put(op)
	case AreaDelete:
		r, err = t.remove(op)
	case AreaRename:
		r, err = t.move(op)
	case AreaChmod:
		r, err = t.chmod(op)
	default:
		err = errs.New(errs.Internal, "internal_error", "Unknown operation.")
	}
	if err != nil {
		return AreaResult{}, areaError(err, op.Path)
	}
	r.Path, r.To, r.When = op.Path, op.To, t.f.o.Now().UTC()
	return r, nil
}

func (t *areaTx) put(op *AreaOp) (AreaResult, error) {
	f, s := t.f, op.Content
	r := AreaResult{Operation: "modify", Blob: s.ID, Size: s.Size}
	name, err := f.resolve(op.Path)
	mode := object.Regular
	var old object.ID
	switch {
	case errs.Is(err, errs.NotFound):
		name, r.Operation = op.Path.name(), "create"
		if err := f.checkShape(name); err != nil {
			return r, withPath(err, op.Path)
		}
	case err != nil:
		return r, err
	default:
		h, file, err := f.Open(context.Background(), op.Path)
		if err != nil {
			return r, err
		}
		_ = h.Close()
		old, mode = file.Blob, file.Mode
	}
	if err := checkMatch(op, r.Operation == "modify", old); err != nil {
		return r, err
	}
	if op.Mode != 0 {
		mode = op.Mode
	}
	if err := t.mkdirs(name); err != nil {
		return r, err
	}
	if r.Operation == "modify" {
		kept := TempName()
		if err := f.fs.Link(name, kept); err != nil {
			return r, err
		}
		t.trash = append(t.trash, kept)
		t.undo = append(t.undo, func() error {
			// Where the new file did not come to be there, both names are one
			// file, and rename(2) leaves them both.
			return errors.Join(f.fs.Rename(kept, name), ignoreMissing(f.fs.Remove(kept)))
		})
	} else {
		t.undo = append(t.undo, func() error { return ignoreMissing(f.fs.Remove(name)) })
	}
	// Prepared files have the bits of a regular one.
	if mode == object.Executable {
		if err := f.setMode(s.temp, mode); err != nil {
			return r, err
		}
	}
	if err := f.fs.Rename(s.temp, name); err != nil {
		return r, err
	}
	s.temp = ""
	t.touch(name)
	return r, nil
}

// setMode gives a file its bits, durably. The folders are the server's own, so
// the owner's bits are all there are.
func (f *Folders) setMode(name string, m object.Mode) error {
	perm := fs.FileMode(0o600)
	if m == object.Executable {
		perm = 0o700
	}
	h, err := f.fs.Open(name)
	if err != nil {
		return err
	}
	err = h.Chmod(perm)
	if err == nil {
		err = h.Sync()
	}
	return errors.Join(err, h.Close())
}

func (t *areaTx) remove(op *AreaOp) (AreaResult, error) {
	f, name := t.f, op.Path.name()
	info, err := f.fs.Lstat(name)
	if err != nil {
		return AreaResult{}, err
	}
	if err := t.match(op, info); err != nil {
		return AreaResult{}, err
	}
	if info.IsDir() && !op.Recursive {
		entries, err := f.fs.ReadDir(name)
		if err != nil {
			return AreaResult{}, err
		}
		if len(entries) > 0 {
			return AreaResult{}, syscall.ENOTEMPTY
		}
	}
	if err := t.setAside(name); err != nil {
		return AreaResult{}, err
	}
	return AreaResult{Operation: "delete"}, nil
}

func (t *areaTx) move(op *AreaOp) (AreaResult, error) {
	f, from, to := t.f, op.Path.name(), op.To.name()
	info, err := f.fs.Lstat(from)
	if err != nil {
		return AreaResult{}, err
	}
	if err := t.match(op, info); err != nil {
		return AreaResult{}, err
	}
	if from == to {
		return AreaResult{}, nil
	}
	if strings.HasPrefix(to, from+"/") {
		return AreaResult{}, withPath(errs.New(errs.Invalid, "move_into_itself", "A directory cannot be moved into itself."), op.Path)
	}
	switch there, err := f.fs.Lstat(to); {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.checkShape(to); err != nil {
			return AreaResult{}, withPath(err, op.To)
		}
	case err != nil:
		return AreaResult{}, areaError(err, op.To)
	case !op.Overwrite:
		return AreaResult{}, areaError(fs.ErrExist, op.To)
	case there.IsDir() != info.IsDir():
		return AreaResult{}, withPath(errs.New(errs.Conflict, "target_exists", "A folder and a file do not replace each other."), op.To)
	case strings.HasPrefix(from, to+"/"):
		return AreaResult{}, withPath(errs.New(errs.Invalid, "move_into_itself", "A folder cannot replace one that it is in."), op.To)
	default:
		if err := t.setAside(to); err != nil {
			return AreaResult{}, err
		}
	}
	if err := t.mkdirs(to); err != nil {
		return AreaResult{}, areaError(err, op.To)
	}
	if err := f.fs.Rename(from, to); err != nil {
		return AreaResult{}, err
	}
	t.undo = append(t.undo, func() error { return f.fs.Rename(to, from) })
	t.touch(from)
	t.touch(to)
	return AreaResult{Operation: "rename"}, nil
}

func (t *areaTx) chmod(op *AreaOp) (AreaResult, error) {
	h, file, err := t.f.Open(context.Background(), op.Path)
	if err != nil {
		return AreaResult{}, err
	}
	_ = h.Close()
	if err := checkMatch(op, true, file.Blob); err != nil {
		return AreaResult{}, err
	}
	if file.Mode == op.Mode {
		return AreaResult{Blob: file.Blob, Size: file.Size}, nil
	}
	name, err := t.f.resolve(op.Path)
	if err != nil {
		return AreaResult{}, err
	}
	t.undo = append(t.undo, func() error { return t.f.setMode(name, file.Mode) })
	if err := t.f.setMode(name, op.Mode); err != nil {
		return AreaResult{}, err
	}
	return AreaResult{Operation: "chmod", Blob: file.Blob, Size: file.Size}, nil
}

// setAside takes a file or folder away, to be put back or removed later.
func (t *areaTx) setAside(name string) error {
	aside := TempName()
	if err := t.f.fs.Rename(name, aside); err != nil {
		return err
	}
	t.trash = append(t.trash, aside)
	t.undo = append(t.undo, func() error { return t.f.fs.Rename(aside, name) })
	t.touch(name)
	return nil
}

// match judges what an operation asks of what is there, which may be a
// folder or a link, without a blob of its own.
func (t *areaTx) match(op *AreaOp, info vfs.Info) error {
	if op.Folder && !info.IsDir() {
		return syscall.ENOTDIR
	}
	if len(op.Match) == 0 {
		return nil
	}
	var id object.ID
	if info.IsRegular() {
		h, file, err := t.f.Open(context.Background(), op.Path)
		if err != nil {
			return err
		}
		_ = h.Close()
		id = file.Blob
	}
	return checkMatch(op, true, id)
}

func checkMatch(op *AreaOp, exists bool, have object.ID) error {
	failed := func(detail string) error {
		e := withPath(errs.New(errs.Precondition, "precondition_failed", "%s", detail), op.Path)
		if exists && !have.IsZero() {
			return e.With("etag", have.String())
		}
		return e
	}
	if op.NewOnly && exists {
		return failed("The file exists.")
	}
	if len(op.Match) == 0 {
		return nil
	}
	if !exists {
		return failed("The file does not exist.")
	}
	if slices.Contains(op.Match, "*") || !have.IsZero() && slices.Contains(op.Match, have.String()) {
		return nil
	}
	return failed("The file is not what If-Match asks for.")
}

func (t *areaTx) mkdirs(name string) error {
	made, err := t.f.mkdirs(name)
	if made != "" {
		t.undo = append(t.undo, func() error { return vfs.RemoveAll(t.f.fs, made) })
	}
	return err
}

func (t *areaTx) touch(name string) { t.dirs[path.Dir(name)] = true }

// checkShape refuses a new name that would make a folder a repository in
// git's eyes: a user's git would run what its config names.
func (f *Folders) checkShape(name string) *errs.Error {
	for {
		dir := path.Dir(name)
		if wspath.CompletesRepo(func(n string) bool { return f.hasName(dir, n) }, path.Base(name)) {
			return errs.New(errs.BadPath, "bad_path", "The folder would become a git repository.")
		}
		// Only names that are not there yet are added: the folders above that
		// exist gain nothing.
		if dir == "." || f.hasName(path.Dir(dir), path.Base(dir)) {
			return nil
		}
		name = dir
	}
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
