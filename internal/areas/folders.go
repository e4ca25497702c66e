package areas

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Area is one of a task's folders outside of the project.
type Area string

// The areas (contracts/tasks.md, Scratch and artifacts).
const (
	Scratch   Area = "scratch"
	Artifacts Area = "artifacts"
)

// All returns both, in the order of their names.
func All() []Area { return []Area{Artifacts, Scratch} }

// Names returns what the areas' directories are called.
func Names() []string { return []string{string(Artifacts), string(Scratch)} }

// SplitURI reports whether a path of a request names a file of an area
// ("scratch://x", "artifacts://x"), which one, and the path there, unparsed.
func SplitURI(p string) (a Area, rest string, ok bool) {
	for _, a := range All() {
		if rest, ok := strings.CutPrefix(p, string(a)+"://"); ok {
			return a, rest, true
		}
	}
	return "", "", false
}

// Path is a path in an area.
type Path struct {
	Area Area
	Path wspath.Path
}

// URI returns the form that a request has, with its path_encoding.
func (p Path) URI() (uri, encoding string) {
	s, enc := p.Path.JSON()
	return string(p.Area) + "://" + s, enc
}

// name is the path below the task's folder in the data directory.
func (p Path) name() string {
	if p.Path.IsRoot() {
		return string(p.Area)
	}
	return string(p.Area) + "/" + string(p.Path)
}

// File is a file in a listing.
type File struct {
	Path  wspath.Path
	Size  int64 // bytes
	Blob  object.ID
	Mode  object.Mode
	Mtime time.Time // UTC
}

// FolderOptions says how a task's folders are used.
type FolderOptions struct {
	MaxFile int64 // bytes
	Now     func() time.Time
	// Room is asked before bytes are taken in; nil: there is always some.
	Room func(bytes int64) error
	// Shared is where other servers have them too; nil: no other does.
	Shared *Copy
}

// Folders is the pair of folders of one task. Its methods may be called
// concurrently: writers take turns, readers see a file before or after a
// write and never between.
type Folders struct {
	fs vfs.FS // rooted at <data-dir>/tasks/<id>
	o  FolderOptions

	write sync.Mutex
}

// OpenFolders opens or makes the folders of a task below root (the data
// directory's tasks folder). What a stopped server left half-done is removed.
func OpenFolders(root vfs.FS, id string, o FolderOptions) (*Folders, error) {
	made, err := Make(root, id, Names())
	if err == nil && made {
		err = Sync(root, id)
	}
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	sub, err := root.Sub(id)
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	f := &Folders{fs: sub, o: o}
	if err := f.sweep(); err != nil {
		_ = sub.Close()
		return nil, err
	}
	return f, nil
}

// Refresh takes over what other servers have made of the folders.
func (f *Folders) Refresh(ctx context.Context) error {
	if f.o.Shared == nil {
		return nil
	}
	f.write.Lock()
	defer f.write.Unlock()
	return f.o.Shared.Refresh(ctx, f.fs)
}

// Hold lets no writer begin until release is called, once all that had begun are done.
func (f *Folders) Hold() (release func()) {
	f.write.Lock()
	return f.write.Unlock
}

// Close frees what the folders hold; they must not be used after it.
func (f *Folders) Close() error { return f.fs.Close() }

// sweep removes temporary files; all of them are at the top.
func (f *Folders) sweep() error {
	entries, err := f.fs.ReadDir(".")
	if err != nil {
		return errs.Wrap(err, "")
	}
	for _, e := range entries {
		if wspath.IsTemp(e.Name) {
			if err := vfs.RemoveAll(f.fs, e.Name); err != nil {
				return errs.Wrap(err, "")
			}
		}
	}
	return nil
}

// List gives an area's files, recursively, sorted by path. Links are listed as
// what they lead to, if that is a file inside the task's folders; anything that
// is no file is left out.
func (f *Folders) List(ctx context.Context, a Area) ([]File, error) {
	files := []File{}
	var walk func(dir Path) error
	walk = func(dir Path) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := f.fs.ReadDir(dir.name())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			p := Path{a, dir.Path.Join(e.Name)}
			if e.Type.IsDir() {
				if err := walk(p); err != nil {
					return err
				}
				continue
			}
			file, err := f.file(ctx, p)
			if errs.Is(err, errs.NotFound) || errs.Is(err, errs.Conflict) || errs.Is(err, errs.BadPath) || errs.Is(err, errs.Forbidden) {
				continue
			}
			if err != nil {
				return err
			}
			files = append(files, file)
		}
		return nil
	}
	if err := walk(Path{Area: a, Path: wspath.Root}); err != nil {
		return nil, errs.Wrap(err, "")
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(string(a.Path), string(b.Path)) })
	return files, nil
}

// Open opens a file for reading; the File describes exactly the bytes that the
// handle returns. The caller closes it. NotFound "file_not_found", Conflict
// "is_a_directory" or "not_a_file".
func (f *Folders) Open(ctx context.Context, p Path) (vfs.File, File, error) {
	if p.Path.IsRoot() {
		return nil, File{}, isDirectory(p)
	}
	name, err := f.resolve(p)
	if err != nil {
		return nil, File{}, err
	}
	h, err := f.fs.Open(name)
	if err != nil {
		return nil, File{}, areaError(err, p)
	}
	file, err := describe(ctx, h, p)
	if err != nil {
		_ = h.Close()
		return nil, File{}, err
	}
	return h, file, nil
}

// file describes a file without keeping it open.
func (f *Folders) file(ctx context.Context, p Path) (File, error) {
	h, file, err := f.Open(ctx, p)
	if err == nil {
		_ = h.Close()
	}
	return file, err
}

// Stat checks a path of an area, following a link in it inside the task's
// folders. NotFound "file_not_found".
func (f *Folders) Stat(p Path) (vfs.Info, error) {
	name, err := f.resolve(p)
	if err != nil {
		return vfs.Info{}, err
	}
	info, err := f.fs.Lstat(name)
	return info, areaError(err, p)
}

// Entry is one name in a folder of an area.
type Entry struct {
	Name string
	Info vfs.Info // links are not followed
}

// Entries lists what is directly in a folder of an area, in no order: files,
// folders and links. NotFound "file_not_found", Conflict "not_a_directory".
func (f *Folders) Entries(ctx context.Context, p Path) ([]Entry, error) {
	name, err := f.resolve(p)
	if err != nil {
		return nil, err
	}
	var out []Entry
	err = vfs.ListDir(f.fs, name, func(entries []vfs.DirEntry, lstat func(string) (vfs.Info, error)) error {
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !e.Type.IsDir() && !e.Type.IsRegular() && e.Type != fs.ModeSymlink || wspath.IsGitName(e.Name) || wspath.IsTemp(e.Name) {
				continue
			}
			if info, err := lstat(e.Name); err == nil {
				out = append(out, Entry{Name: e.Name, Info: info})
			}
		}
		return nil
	})
	return out, areaError(err, p)
}

// describe hashes an open file. Files here are replaced, never written in
// place by the server; if a program of the agent appends to one meanwhile, it is
// described as it was when it was opened.
func describe(ctx context.Context, h vfs.File, p Path) (File, error) {
	info, err := h.Stat()
	if err != nil {
		return File{}, areaError(err, p)
	}
	switch {
	case info.IsDir():
		return File{}, isDirectory(p)
	case !info.IsRegular():
		return File{}, withPath(errs.New(errs.Conflict, "not_a_file", "The path is not a regular file."), p)
	}
	id, n, err := Hash(ctx, h, info.Size)
	if err != nil {
		return File{}, areaError(err, p)
	}
	mode := object.Regular
	if info.Mode&0o100 != 0 {
		mode = object.Executable
	}
	return File{Path: p.Path, Size: n, Blob: id, Mode: mode, Mtime: time.Unix(0, info.MtimeNs).UTC()}, nil
}

// resolve follows a link in the last component to what it leads to, by the
// words and inside the task's folders; links further up are the kernel's.
func (f *Folders) resolve(p Path) (string, error) {
	name := p.name()
	for range 40 {
		info, err := f.fs.Lstat(name)
		if err != nil {
			return "", areaError(err, p)
		}
		if !info.IsSymlink() {
			return name, nil
		}
		target, err := f.fs.Readlink(name)
		if err != nil {
			return "", areaError(err, p)
		}
		name = path.Join(path.Dir(name), target)
		if path.IsAbs(target) || name == ".." || strings.HasPrefix(name, "../") {
			return "", withPath(errs.New(errs.BadPath, "bad_path", "The link leads out of the task's directories."), p)
		}
	}
	return "", areaError(syscall.ELOOP, p)
}

// hasName asks for one name in a folder.
func (f *Folders) hasName(dir, name string) bool {
	_, err := f.fs.Lstat(path.Join(dir, name))
	return err == nil
}

// mkdirs makes the missing folders above name and gives the topmost that it
// made, "" for none.
func (f *Folders) mkdirs(name string) (made string, err error) {
	dir := path.Dir(name)
	var missing []string
	for d := dir; d != "."; d = path.Dir(d) {
		info, err := f.fs.Stat(d)
		if err == nil {
			if !info.IsDir() {
				return "", syscall.ENOTDIR
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		missing = append(missing, d)
	}
	for _, d := range slices.Backward(missing) {
		if err := f.fs.Mkdir(d, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
			return made, err
		}
		if made == "" {
			made = d
		}
	}
	for _, d := range missing {
		if err := f.fs.SyncDir(path.Dir(d)); err != nil {
			return made, err
		}
	}
	return made, nil
}

func withPath(e *errs.Error, p Path) *errs.Error {
	e.Path, _ = p.URI()
	return e
}

func isDirectory(p Path) error { return areaError(syscall.EISDIR, p) }

// areaError says what a system error means for a path in an area.
func areaError(err error, p Path) error {
	if _, ok := errors.AsType[*errs.Error](err); ok {
		return err
	}
	uri, _ := p.URI()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The file does not exist.", Path: uri, Err: err}
	case errors.Is(err, syscall.ELOOP):
		return &errs.Error{Kind: errs.BadPath, Code: "bad_path", Detail: "The path goes in circles through links.", Path: uri, Err: err}
	}
	return errs.Wrap(err, uri)
}
