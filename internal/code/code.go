// Package code is the code workspace: one directory of the server's own where
// clients keep programs, a file each, whose versions are the commits through the
// server that changed it. How a program runs is internal/sandbox/js's.
//
// Invariants: the directory is made and becomes a workspace with the first save,
// never by reading. Once it is a workspace, another directory in its place is
// neither read nor written.
package code

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// Options of a Service. Dir, Workspaces and Tasks are needed.
type Options struct {
	// Dir is the host path of the code workspace; it need not be there.
	Dir        string
	Workspaces *workspaces.Manager
	Tasks      *task.Service
	Log        *slog.Logger
}

// Service is the code workspace. Its methods may be called concurrently.
type Service struct {
	o        Options
	making   sync.Mutex // the folder becomes a workspace once
	versions versions
}

// New makes the service; it touches no file.
func New(o Options) (*Service, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir = dir
	return &Service{o: o}, nil
}

// extension of the files that programs are kept in.
const extension = ".ts"

// Path is the path of a codeId's program, from the workspace's root.
func Path(id string) wspath.Path { return wspath.Path(id + extension) }

// Dir is the host path of the folder.
func (s *Service) Dir() string { return s.o.Dir }

// File is a program to be saved.
type File struct{ ID, Code string }

// Save is one request to save.
type Save struct {
	Files []File
	Meta  Meta
	By    workspace.By // without the task
	Task  string       // the tag's task, "" for none
	Sees  task.Sees
}

// Saved describes one file that was saved.
type Saved struct {
	ID      string
	Path    string // absolute, on the host
	Size    int64
	Commit  object.ID // zero: the bytes were there
	Version int
	Created bool
}

// Outcome is the result of a save.
type Outcome struct {
	Files    []Saved
	Commit   object.ID
	Task     string // that the change belongs to
	Replayed bool   // an earlier answer of the same request is repeated
}

// Save writes programs: all of them in one commit, or none. Errors are those of
// Workspace.Apply and of the task.
func (s *Service) Save(ctx context.Context, req Save) (*Outcome, error) {
	ops := make([]workspace.Op, len(req.Files))
	for i, f := range req.Files {
		ops[i] = workspace.Op{Kind: workspace.OpWrite, Path: Path(f.ID), Data: []byte(f.Code)}
	}
	w, err := s.open(ctx, true)
	if err != nil {
		return nil, err
	}
	defer w.Release()
	res, owner, err := s.apply(ctx, w, req.Task, req.Sees, workspace.Request{By: req.By, Ops: ops,
		Author: req.Meta.Author, Description: req.Meta.Description})
	if err != nil {
		return nil, err
	}
	history, err := s.versions.of(ctx, w)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Commit: res.Commit, Task: owner, Replayed: res.Replayed}
	for i, f := range req.Files {
		did := res.Ops[i]
		saved := Saved{ID: f.ID, Path: s.o.Workspaces.CopyOwn(s.own(), w, Path(f.ID), []byte(f.Code)), Size: did.Size, Created: did.Created}
		saved.Version, saved.Commit = history.at(f.ID, res)
		out.Files = append(out.Files, saved)
		s.log(ctx, w, req.By.RequestID, saved, res)
	}
	return out, nil
}

// log writes the line that the API promises for a save.
func (s *Service) log(ctx context.Context, w *workspace.Workspace, requestID string, f Saved, res *workspace.Result) {
	log := s.o.Log.With("request_id", requestID)
	if f.Created {
		log.Info("Workspace save", "codeId", f.ID, "size", f.Size, "path", f.Path)
		return
	}
	old := f.Size
	for _, e := range res.Entries {
		if e.Path == string(Path(f.ID)) && !e.Before.IsZero() {
			if n, err := w.Store().BlobSize(ctx, e.Before); err == nil {
				old = n
			}
		}
	}
	log.Warn("Workspace overwrite", "codeId", f.ID, "oldSize", old, "newSize", f.Size)
}

// Remove deletes a program. errs.NotFound file_not_found if there is none.
func (s *Service) Remove(ctx context.Context, id string, by workspace.By, taskID string, sees task.Sees) (*Outcome, error) {
	w, err := s.open(ctx, false)
	if err != nil {
		return nil, err
	}
	if w == nil {
		if err := s.exists(ctx, id); err != nil {
			return nil, err
		}
		// An external change is recorded before it is replaced.
		if w, err = s.open(ctx, true); err != nil {
			return nil, err
		}
	}
	defer w.Release()
	op := workspace.Op{Kind: workspace.OpDelete, Path: Path(id), MustBe: workspace.KindFile}
	if s.isLink(w, id) {
		op.MustBe = 0
	}
	res, owner, err := s.apply(ctx, w, taskID, sees, workspace.Request{By: by, Ops: []workspace.Op{op}})
	if err != nil {
		return nil, err
	}
	s.o.Workspaces.CopyOwn(s.own(), w, Path(id), nil)
	return &Outcome{Commit: res.Commit, Task: owner, Replayed: res.Replayed}, nil
}

func (s *Service) isLink(w *workspace.Workspace, id string) bool {
	kind, err := w.Standing(Path(id))
	return err == nil && kind == workspace.KindSymlink
}

// apply does a request for the task of a tag, or for none.
func (s *Service) apply(ctx context.Context, w *workspace.Workspace, taskID string, sees task.Sees, req workspace.Request) (*workspace.Result, string, error) {
	if taskID == "" {
		res, err := w.Apply(ctx, req)
		return res, "", err
	}
	ref, err := s.o.Tasks.For(ctx, taskID, w, sees, req.By)
	if err != nil {
		return nil, "", err
	}
	defer ref.Release()
	res, err := s.o.Tasks.Apply(ctx, ref, req)
	return res, ref.Task.ID, err
}

// Listed is one program in the folder.
type Listed struct {
	ID       string
	Size     int64
	Modified time.Time
}

// List gives the programs that are there, by name. It reads the folder, and
// makes nothing.
func (s *Service) List(ctx context.Context) ([]Listed, error) {
	if s.o.Workspaces.Shares() {
		return s.listShared(ctx)
	}
	root, err := s.root(ctx)
	if err != nil || root == nil {
		return []Listed{}, err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	out := []Listed{}
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), extension)
		if !ok || !wellFormed(id) {
			continue
		}
		// A link counts as what it leads to, inside the folder.
		if info, err := root.Stat(e.Name()); err == nil && info.Mode().IsRegular() {
			out = append(out, Listed{ID: id, Size: info.Size(), Modified: info.ModTime()})
		}
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// maxListed bounds a list.
const maxListed = 1_000_000

// listShared is List where the workspace is virtual.
func (s *Service) listShared(ctx context.Context) ([]Listed, error) {
	out := []Listed{}
	w, err := s.open(ctx, false)
	if w == nil || err != nil {
		return out, err
	}
	defer w.Release()
	list, _, err := w.List(ctx, wspath.Root, workspace.ListOptions{Count: maxListed})
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		id, ok := strings.CutSuffix(string(e.Path), extension)
		if ok && wellFormed(id) && e.Info.IsRegular() {
			out = append(out, Listed{ID: id, Size: e.Info.Size, Modified: time.Unix(0, e.Info.MtimeNs)})
		}
	}
	slices.SortFunc(out, func(a, b Listed) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

// Content is a program's text as it is, or was at a version.
type Content struct {
	ID      string
	Code    []byte
	Version int       // 0: nothing through us has written it
	Commit  object.ID // of the version
}

// Read gives a program: as it is on disk now, or, with a version, as it was.
// errs.NotFound file_not_found, version_not_found.
func (s *Service) Read(ctx context.Context, id string, version int) (*Content, error) {
	w, err := s.open(ctx, false)
	if err != nil {
		return nil, err
	}
	if w == nil {
		if version > 0 {
			return nil, noVersion(id)
		}
		data, err := s.ReadFile(ctx, string(Path(id)))
		return &Content{ID: id, Code: data}, err
	}
	defer w.Release()
	history, err := s.versions.of(ctx, w)
	if err != nil {
		return nil, err
	}
	list := history.list(id)
	if version > 0 {
		if version > len(list) {
			return nil, noVersion(id)
		}
		v := list[version-1]
		data, err := w.Store().ReadBlob(ctx, v.Blob, maxRead)
		return &Content{ID: id, Code: data, Version: version, Commit: v.Commit}, err
	}
	data, err := s.readIn(ctx, w, Path(id))
	if err != nil {
		return nil, err
	}
	c := &Content{ID: id, Code: data, Version: len(list)}
	if len(list) > 0 {
		c.Commit = list[len(list)-1].Commit
	}
	return c, nil
}

func noVersion(id string) error {
	return errs.New(errs.NotFound, "version_not_found", "There is no such version of %s", id)
}

// Versions gives the versions of a program, oldest first, also of one that was
// deleted. errs.NotFound file_not_found where it never was.
func (s *Service) Versions(ctx context.Context, id string) ([]Version, error) {
	w, err := s.open(ctx, false)
	if err != nil {
		return nil, err
	}
	if w != nil {
		defer w.Release()
		history, err := s.versions.of(ctx, w)
		if err != nil {
			return nil, err
		}
		if list := history.list(id); len(list) > 0 {
			return list, nil
		}
	}
	if err := s.exists(ctx, id); err != nil {
		return nil, err
	}
	return []Version{}, nil
}

// exists returns nil if a program has a file: errs.NotFound file_not_found.
func (s *Service) exists(ctx context.Context, id string) error {
	if s.o.Workspaces.Shares() {
		_, err := s.ReadFile(ctx, string(Path(id)))
		return err
	}
	root, err := os.OpenRoot(s.o.Dir)
	if err != nil {
		return notThere(err, id)
	}
	defer root.Close()
	info, err := root.Stat(string(Path(id)))
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return notThere(err, id)
	}
	return nil
}

func notThere(err error, id string) error {
	if errors.Is(err, fs.ErrPermission) {
		return errs.Wrap(err, "")
	}
	return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "Code file not found: " + id, Err: err}
}

// open gives the workspace; nil where there is none yet and it is not to be
// made. The caller calls Release.
func (s *Service) open(ctx context.Context, create bool) (*workspace.Workspace, error) {
	w, err := s.o.Workspaces.OpenOwn(ctx, s.own(), false)
	if w != nil || err != nil || !create {
		return w, err
	}
	s.making.Lock()
	defer s.making.Unlock()
	return s.o.Workspaces.OpenOwn(ctx, s.own(), true)
}

// Where returns the workspace of the programs where several servers share it, "" if
// there is none yet.
func (s *Service) Where() (workspaceID string, err error) {
	if !s.o.Workspaces.Shares() {
		return "", nil
	}
	r, known, err := s.o.Workspaces.FindOwn(s.own())
	if err != nil || !known {
		return "", err
	}
	return r.ID, nil
}

// WhereSaved returns the workspace at whose owner a task, if any, saves programs: its
// own where that is a directory, which does not move; else Where's.
func (s *Service) WhereSaved(task string) (workspaceID string, err error) {
	if task != "" && s.o.Workspaces.Shares() {
		id, err := s.o.Tasks.Where(task)
		if r, known := s.o.Workspaces.Record(id); err != nil || known && r.Kind != workspaces.VirtualKind {
			return id, err
		}
	}
	return s.Where()
}

// WhereTask returns the workspace of a task, "" if there is none.
func (s *Service) WhereTask(task string) (workspaceID string, err error) {
	return s.o.Tasks.Where(task)
}

func (s *Service) own() workspaces.Own { return workspaces.Own{Dir: s.o.Dir, Name: "code"} }

// root opens the directory for reading, nil where it does not exist. Another one
// in the workspace's place is not read.
func (s *Service) root(ctx context.Context) (*os.Root, error) {
	w, err := s.open(ctx, false)
	if err != nil {
		return nil, err
	}
	if w != nil {
		defer w.Release()
		if w.State() == workspace.Missing {
			return nil, errs.New(errs.Conflict, "workspace_missing", "The workspace's directory does not exist.")
		}
	}
	root, err := os.OpenRoot(s.o.Dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return root, errs.Wrap(err, "")
}

// maxRead bounds a file that is read at once; larger ones are no programs.
const maxRead = 64 << 20

func (s *Service) readIn(ctx context.Context, w *workspace.Workspace, p wspath.Path) ([]byte, error) {
	f, err := w.OpenFile(ctx, p)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f.Info, io.NewSectionReader(f, 0, f.Info.Size))
}

func readAll(info vfs.Info, r io.Reader) ([]byte, error) {
	if info.Size > maxRead {
		return nil, errs.New(errs.TooLarge, "file_too_large", "The file is too large to be read.")
	}
	data, err := io.ReadAll(r)
	return data, errs.Wrap(err, "")
}

// ReadFile gives the bytes of a file of the folder as they are now, for
// programs that run and what they import. Links are followed inside the folder
// alone, and what is no regular file is not there. errs.NotFound
// file_not_found; errs.Conflict is_a_directory, workspace_missing.
func (s *Service) ReadFile(ctx context.Context, name string) ([]byte, error) {
	p, err := wspath.Parse(name)
	if err != nil {
		return nil, err
	}
	w, err := s.open(ctx, false)
	if err != nil {
		return nil, err
	}
	if w != nil {
		defer w.Release()
		return s.readIn(ctx, w, p)
	}
	if s.o.Workspaces.Shares() { // the directory has copies alone
		return nil, notThere(fs.ErrNotExist, strings.TrimSuffix(name, extension))
	}
	root, err := os.OpenRoot(s.o.Dir)
	if err != nil {
		return nil, notThere(err, strings.TrimSuffix(name, extension))
	}
	defer root.Close()
	// A FIFO must not hold the reader up.
	f, err := root.OpenFile(string(p), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, notThere(err, strings.TrimSuffix(name, extension))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, errs.Wrap(err, "")
	case info.IsDir():
		return nil, errs.New(errs.Conflict, "is_a_directory", "The path is a directory.")
	case !info.Mode().IsRegular():
		return nil, notThere(fs.ErrNotExist, strings.TrimSuffix(name, extension))
	}
	return readAll(vfs.Info{Size: info.Size()}, f)
}

// HostPath is where a codeId's program is, or would be, on the host.
func (s *Service) HostPath(id string) string { return filepath.Join(s.o.Dir, string(Path(id))) }
