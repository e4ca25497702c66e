package areas

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/workspace/op"
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

// do does one operation; s is the content of a write.
func (t *areaTx) do(ctx context.Context, o *Op, s *staged) (Result, error) {
	if o.Kind != op.OpMkdir && (o.Path.IsRoot() || o.Kind == op.OpRename && o.To.IsRoot()) {
		return Result{}, withPath(errs.New(errs.BadPath, "bad_path", "That is the directory itself."), o.at())
	}
	r := Result{Area: o.Area}
	var err error
	switch o.Kind {
	case op.OpWrite:
		r.OpResult, err = t.put(ctx, o, s)
	case op.OpEdit:
		for range tries {
			if r.OpResult, err = t.edit(ctx, o); errs.CodeOf(err) != "file_changing" {
				break
			}
		}
	case op.OpDelete:
		r.OpResult, err = t.remove(ctx, o)
	case op.OpRename:
		r.ToArea = cmp.Or(o.ToArea, o.Area)
		r.OpResult, err = t.move(ctx, o)
	case op.OpChmod:
		r.OpResult, err = t.chmod(ctx, o)
	case op.OpMkdir:
		r.OpResult, err = t.mkdir(o)
	default:
		err = errs.New(errs.Internal, "internal_error", "An area has no such operation.")
	}
	if err = areaError(err, o.at()); errs.CodeOf(err) == "file_not_found" {
		uri, _ := o.at().URI()
		err = cmp.Or(o.If.Check(uri, false, object.Zero), err)
	}
	if err != nil {
		return Result{}, err
	}
	r.Path, r.To, r.When = o.Path, o.To, t.f.o.Now().UTC()
	if o.Kind == op.OpWrite || o.Kind == op.OpEdit {
		if info, err := t.f.Stat(o.at()); err == nil {
			r.When = time.Unix(0, info.MtimeNs).UTC()
		}
	}
	return r, nil
}

// check judges an operation's condition.
func check(o *Op, have object.ID) error {
	uri, _ := o.at().URI()
	return o.If.Check(uri, true, have)
}

func (t *areaTx) put(ctx context.Context, o *Op, s *staged) (op.OpResult, error) {
	f := t.f
	r := op.OpResult{Operation: message.Modify, Blob: s.id, Mode: object.Regular, Size: s.size}
	name, err := f.resolve(o.at())
	switch {
	case errs.Is(err, errs.NotFound):
		name, r.Operation, r.Created = o.at().name(), message.Create, true
		if len(o.If.Match) > 0 {
			return r, err
		}
		if err := f.checkShape(name); err != nil {
			return r, withPath(err, o.at())
		}
	case err != nil:
		return r, err
	default:
		old, err := f.file(ctx, o.at())
		if err == nil {
			err = check(o, old.Blob)
		}
		if err != nil {
			return r, err
		}
		r.Mode = old.Mode
	}
	if o.Mode != nil {
		r.Mode = *o.Mode
	}
	if err := t.mkdirs(name); err != nil {
		return r, err
	}
	if r.Created {
		t.undo = append(t.undo, func() error { return ignoreMissing(f.fs.Remove(name)) })
	} else {
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
	}
	// Prepared files have the bits of a regular one.
	if r.Mode == object.Executable {
		if err := f.setMode(s.temp, r.Mode); err != nil {
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

// edit writes what the caller makes of a file's bytes. Unavailable "file_changing"
// if a program wrote the file meanwhile.
func (t *areaTx) edit(ctx context.Context, o *Op) (op.OpResult, error) {
	h, file, err := t.f.Open(ctx, o.at())
	if err != nil {
		return op.OpResult{}, err
	}
	defer h.Close()
	if err := check(o, file.Blob); err != nil {
		return op.OpResult{}, err
	}
	if file.Size > cmp.Or(o.MaxEdit, maxEdit) {
		return op.OpResult{}, errs.New(errs.TooLarge, "file_too_large", "The file is too large to be edited.")
	}
	old := make([]byte, file.Size)
	if _, err := io.ReadFull(io.NewSectionReader(h, 0, file.Size), old); err != nil {
		return op.OpResult{}, err
	}
	data, err := o.Edit(old)
	if err != nil {
		return op.OpResult{}, err
	}
	s, err := t.f.stage(ctx, bytes.NewReader(data))
	if err != nil {
		return op.OpResult{}, err
	}
	defer s.discard()
	w := *o
	w.If = op.Condition{Match: []string{file.Blob.String()}}
	r, err := t.put(ctx, &w, s)
	if errs.Is(err, errs.Precondition) {
		err = errs.New(errs.Unavailable, "file_changing", "The file changes while it is edited.")
	}
	return r, err
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

func (t *areaTx) remove(ctx context.Context, o *Op) (op.OpResult, error) {
	f, name := t.f, o.at().name()
	info, err := t.existing(ctx, o)
	if o.Force && len(o.If.Match) == 0 && errors.Is(err, fs.ErrNotExist) {
		return op.OpResult{}, nil
	}
	if err == nil && info.IsDir() && !o.Recursive {
		err = f.empty(name)
	}
	if err == nil {
		err = t.setAside(name)
	}
	return op.OpResult{Operation: message.Delete, Existed: true}, err
}

// empty returns an error if a folder has something in it.
func (f *Folders) empty(name string) error {
	entries, err := f.fs.ReadDir(name)
	if err == nil && len(entries) > 0 {
		return syscall.ENOTEMPTY
	}
	return err
}

func (t *areaTx) move(ctx context.Context, o *Op) (op.OpResult, error) {
	f, from, to := t.f, o.at().name(), o.to().name()
	info, err := t.existing(ctx, o)
	if err != nil {
		return op.OpResult{}, err
	}
	if from == to {
		return op.OpResult{}, nil
	}
	if strings.HasPrefix(to, from+"/") {
		return op.OpResult{}, withPath(errs.New(errs.Invalid, "move_into_itself", "A directory cannot be moved into itself."), o.at())
	}
	switch there, err := f.fs.Lstat(to); {
	case errors.Is(err, fs.ErrNotExist):
		if err := f.checkShape(to); err != nil {
			return op.OpResult{}, withPath(err, o.to())
		}
	case err != nil:
		return op.OpResult{}, areaError(err, o.to())
	case !o.Overwrite:
		return op.OpResult{}, areaError(fs.ErrExist, o.to())
	case there.IsDir() != info.IsDir():
		return op.OpResult{}, withPath(errs.New(errs.Conflict, "target_exists", "A directory and a file do not replace each other."), o.to())
	default:
		if there.IsDir() {
			err = f.empty(to)
		}
		if err == nil {
			err = t.setAside(to)
		}
		if err != nil {
			return op.OpResult{}, areaError(err, o.to())
		}
	}
	if err := t.mkdirs(to); err != nil {
		return op.OpResult{}, areaError(err, o.to())
	}
	if err := f.fs.Rename(from, to); err != nil {
		return op.OpResult{}, err
	}
	t.undo = append(t.undo, func() error { return f.fs.Rename(to, from) })
	t.touch(from)
	t.touch(to)
	return op.OpResult{Operation: message.Rename}, nil
}

func (t *areaTx) chmod(ctx context.Context, o *Op) (op.OpResult, error) {
	file, err := t.f.file(ctx, o.at())
	if err == nil {
		err = check(o, file.Blob)
	}
	if err != nil {
		return op.OpResult{}, err
	}
	r := op.OpResult{Blob: file.Blob, Mode: *o.Mode, Size: file.Size}
	if file.Mode == *o.Mode {
		return r, nil
	}
	name, err := t.f.resolve(o.at())
	if err != nil {
		return r, err
	}
	r.Operation = message.Chmod
	t.undo = append(t.undo, func() error { return t.f.setMode(name, file.Mode) })
	return r, t.f.setMode(name, *o.Mode)
}

func (t *areaTx) mkdir(o *Op) (op.OpResult, error) {
	f, name := t.f, o.at().name()
	if _, err := f.fs.Lstat(name); err == nil {
		if info, err := f.fs.Stat(name); err != nil || !info.IsDir() || !o.Recursive {
			return op.OpResult{}, fs.ErrExist
		}
		return op.OpResult{}, nil
	}
	if err := f.checkShape(name); err != nil {
		return op.OpResult{}, withPath(err, o.at())
	}
	if !o.Recursive {
		info, err := f.fs.Stat(path.Dir(name))
		if err != nil {
			return op.OpResult{}, withPath(errs.New(errs.NotFound, "parent_not_found", "The directory above does not exist."), o.at())
		}
		if !info.IsDir() {
			return op.OpResult{}, syscall.ENOTDIR
		}
	}
	return op.OpResult{Operation: message.Mkdir, Created: true}, t.mkdirs(name + "/")
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

// existing stats what an operation acts on, which may be a folder or a link, and
// judges what the operation requires of it.
func (t *areaTx) existing(ctx context.Context, o *Op) (vfs.Info, error) {
	info, err := t.f.fs.Lstat(o.at().name())
	switch {
	case err != nil:
		return info, err
	case o.MustBe == op.KindDir && !info.IsDir():
		return info, syscall.ENOTDIR
	case o.MustBe == op.KindFile && info.IsDir():
		return info, syscall.EISDIR
	}
	var file File
	if len(o.If.Match) > 0 && info.IsRegular() {
		if file, err = t.f.file(ctx, o.at()); err != nil {
			return info, err
		}
	}
	return info, check(o, file.Blob)
}

// mkdirs makes the missing folders above name.
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
			return errs.New(errs.BadPath, "bad_path", "The directory would become a git repository.")
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
