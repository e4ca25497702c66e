package sessions

import (
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/session"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// area is the folders of the session's task, in use.
type area struct {
	ref     *task.Ref
	folders *task.Folders
	release func()
}

// area opens them. Theirs is the session's task, whatever the header says.
func (d *Dialect) area(c *gin.Context, ses session.Session) (*area, error) {
	ref, err := d.tasks.Get(c.Request.Context(), ses.Task, sees(c))
	if err != nil {
		return nil, err
	}
	folders, release, err := d.tasks.Folders(ref.Task.ID)
	if err != nil {
		ref.Release()
		return nil, err
	}
	return &area{ref: ref, folders: folders, release: func() {
		release()
		ref.Release()
	}}, nil
}

// areaForChange is area for a request that changes something: the task may
// write, and the one that the header names is one that could.
func (d *Dialect) areaForChange(c *gin.Context, ses session.Session) (*area, error) {
	tagged, err := d.taskOf(c, ses)
	if err != nil {
		return nil, err
	}
	defer tagged.Release()
	if err := d.tasks.MayWrite(tagged); err != nil {
		return nil, err
	}
	a, err := d.area(c, ses)
	if err != nil {
		return nil, err
	}
	if err := d.tasks.MayWrite(a.ref); err != nil {
		a.release()
		return nil, err
	}
	return a, nil
}

// apply does operations in the folders, all or none.
func (d *Dialect) applyArea(c *gin.Context, a *area, ops ...task.AreaOp) ([]task.AreaResult, error) {
	return a.folders.Apply(c.Request.Context(), ops, func() error { return d.tasks.MayWrite(a.ref) })
}

func (d *Dialect) areaSource(c *gin.Context, ses session.Session, t target) (*source, error) {
	a, err := d.area(c, ses)
	if err != nil {
		return nil, err
	}
	h, f, err := a.folders.Open(c.Request.Context(), t.AreaPath())
	if err != nil {
		a.release()
		return nil, noFile(err)
	}
	s := &source{body: h, size: f.Size, blob: f.Blob, mtime: f.Mtime, close: func() {
		h.Close()
		a.release()
	}}
	if err := s.load(h); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (d *Dialect) statArea(c *gin.Context, ses session.Session, t target) error {
	a, err := d.area(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	info, err := a.folders.Stat(t.AreaPath())
	if err != nil {
		return noFile(err)
	}
	if t.Folder && !info.IsDir() && !t.Path.IsRoot() {
		return wrong("path", "The path is not a directory.")
	}
	body := statBody{IsDir: info.IsDir(), Mode: uint32(info.Mode.Perm()), Mtime: stampNs(info.MtimeNs)}
	body.Path, body.PathEncoding = t.JSON()
	if info.IsRegular() {
		h, f, err := a.folders.Open(c.Request.Context(), t.AreaPath())
		if err != nil {
			return noFile(err)
		}
		h.Close()
		body.Size, body.ETag = f.Size, wire.ETag(f.Blob)
	}
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

// sorted lists a folder of an area; dirsFirst as List does, else by name.
func (a *area) sorted(c *gin.Context, t target, dirsFirst bool) ([]task.AreaEntry, error) {
	entries, err := a.folders.Entries(c.Request.Context(), t.AreaPath())
	if err != nil {
		return nil, noFile(err)
	}
	slices.SortFunc(entries, func(x, y task.AreaEntry) int {
		if dirsFirst && x.Info.IsDir() != y.Info.IsDir() {
			if x.Info.IsDir() {
				return -1
			}
			return 1
		}
		return strings.Compare(x.Name, y.Name)
	})
	return entries, nil
}

// walk calls fn with everything in a folder, each folder before what is in it.
func (a *area) walk(c *gin.Context, t target, deep bool, fn func(target, task.AreaEntry)) error {
	entries, err := a.sorted(c, t, true)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fn(child(t, e.Name), e)
		if !deep || !e.Info.IsDir() {
			continue
		}
		if err := a.walk(c, child(t, e.Name), true, fn); err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	return nil
}

func (d *Dialect) listArea(c *gin.Context, ses session.Session, t target, o workspace.ListOptions, page, size int64) error {
	a, err := d.area(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	body := listBody{Entries: []entry{}, Page: page, PageSize: size}
	err = a.walk(c, t, o.Recursive, func(at target, e task.AreaEntry) {
		if n := body.Total; n >= o.From && n < o.From+o.Count {
			body.Entries = append(body.Entries, entryOf(at, workspace.Listed{Info: e.Info}))
		}
		body.Total++
	})
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

func (d *Dialect) treeArea(c *gin.Context, ses session.Session, t target, depth int) error {
	a, err := d.area(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	root := areaNode(t, fs.ModeDir)
	left := maxNodes - 1
	var fill func(n *node, t target, depth int) error
	fill = func(n *node, t target, depth int) error {
		n.Children = &[]*node{}
		entries, err := a.sorted(c, t, false)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if left--; left < 0 {
				root.Truncated = true
				return nil
			}
			k := areaNode(child(t, e.Name), e.Info.Mode.Type())
			*n.Children = append(*n.Children, k)
			if k.IsDir && depth > 1 {
				if err := fill(k, child(t, e.Name), depth-1); err != nil && !errs.Is(err, errs.NotFound) {
					return err
				}
			}
		}
		return nil
	}
	if err := fill(root, t, depth); err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, root)
	return nil
}

func areaNode(t target, mode fs.FileMode) *node {
	n := &node{IsDir: mode.IsDir(), IsSymlink: mode&fs.ModeSymlink != 0}
	n.Path, n.PathEncoding = t.JSON()
	if n.Name = baseOf(n.Path); n.Name == "" {
		n.Name = string(wspath.Root)
	}
	return n
}

// putArea writes a file there. It has no commit.
func (d *Dialect) putArea(c *gin.Context, ses session.Session, t target, op workspace.Op) error {
	a, err := d.areaForChange(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	body := op.Body
	if body == nil {
		body = strings.NewReader(string(op.Data))
	}
	res, err := d.writeArea(c, a, t, body, op)
	if err != nil {
		return noFile(err)
	}
	out := written{BytesWritten: res.Size, ETag: wire.ETag(res.Blob), Mtime: stamp(res.When), Created: res.Operation == "create"}
	if info, err := a.folders.Stat(t.AreaPath()); err == nil {
		out.Mtime = stampNs(info.MtimeNs)
	}
	out.Path, out.PathEncoding = t.JSON()
	tellWritten(c, out)
	return nil
}

func (d *Dialect) writeArea(c *gin.Context, a *area, t target, body io.Reader, op workspace.Op) (task.AreaResult, error) {
	staged, err := a.folders.Stage(c.Request.Context(), body)
	if err != nil {
		return task.AreaResult{}, err
	}
	defer staged.Discard()
	do := task.AreaOp{Kind: task.AreaWrite, Path: t.AreaPath(), Content: staged, Match: op.If.Match, NewOnly: op.If.NoneMatchAny}
	if op.Mode != nil {
		do.Mode = *op.Mode
	}
	res, err := d.applyArea(c, a, do)
	if err != nil {
		return task.AreaResult{}, err
	}
	return res[0], nil
}

// replaceArea reads, changes and writes, until no other write came in between.
func (d *Dialect) replaceArea(c *gin.Context, ses session.Session, t target, e *edit, cond workspace.Condition) error {
	a, err := d.areaForChange(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	for {
		res, err := d.editArea(c, a, t, e, cond)
		if errs.CodeOf(err) == "file_changed" {
			continue
		}
		if err != nil {
			return noFile(err)
		}
		info, err := a.folders.Stat(t.AreaPath())
		if err != nil {
			return err
		}
		tellReplaced(c, t, replaced{Replacements: e.count, ETag: wire.ETag(res.Blob), Mtime: stampNs(info.MtimeNs)})
		return nil
	}
}

func (d *Dialect) editArea(c *gin.Context, a *area, t target, e *edit, cond workspace.Condition) (task.AreaResult, error) {
	h, f, err := a.folders.Open(c.Request.Context(), t.AreaPath())
	if err != nil {
		if errs.Is(err, errs.NotFound) && len(cond.Match) > 0 {
			err = unmet("")
		}
		return task.AreaResult{}, err
	}
	defer h.Close()
	found := f.Blob.String()
	if len(cond.Match) > 0 && !slices.Contains(cond.Match, "*") && !slices.Contains(cond.Match, found) {
		return task.AreaResult{}, unmet(found)
	}
	if f.Size > maxEdit {
		return task.AreaResult{}, errs.New(errs.TooLarge, "file_too_large", "The file is too large to be edited.")
	}
	old, err := io.ReadAll(io.NewSectionReader(h, 0, f.Size))
	if err != nil {
		return task.AreaResult{}, errs.Wrap(err, "")
	}
	data, err := e.apply(old)
	if err != nil {
		return task.AreaResult{}, err
	}
	res, err := d.writeArea(c, a, t, strings.NewReader(string(data)), workspace.Op{If: workspace.Condition{Match: []string{found}}})
	if errs.Is(err, errs.Precondition) {
		return res, errs.New(errs.Conflict, "file_changed", "")
	}
	return res, err
}

// maxEdit bounds what a replace reads, in bytes.
const maxEdit = 64 << 20

func unmet(found string) error {
	e := errs.New(errs.Precondition, "precondition_failed", "The file is not in the state that the condition names.")
	if found != "" {
		return e.With("etag", found)
	}
	return e
}

func (d *Dialect) mkdirArea(c *gin.Context, ses session.Session, t target, recursive bool) error {
	a, err := d.areaForChange(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	created, err := a.folders.Mkdir(t.AreaPath(), recursive, func() error { return d.tasks.MayWrite(a.ref) })
	if err != nil {
		return err
	}
	tellMade(c, t, created, nil)
	return nil
}

func (d *Dialect) deleteArea(c *gin.Context, ses session.Session, t target, op workspace.Op) error {
	a, err := d.areaForChange(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	out := deleted{Deleted: true}
	out.Path, out.PathEncoding = t.JSON()
	do := task.AreaOp{Kind: task.AreaDelete, Path: t.AreaPath(), Recursive: op.Recursive, Match: op.If.Match}
	if info, err := a.folders.Stat(t.AreaPath()); err == nil && info.IsDir() && op.MustBe != workspace.KindDir {
		return wrong("path", "The path is a directory.")
	}
	do.Folder = op.MustBe == workspace.KindDir
	_, err = d.applyArea(c, a, do)
	switch {
	case errs.Is(err, errs.NotFound) && len(op.If.Match) > 0:
		return unmet("")
	case errs.Is(err, errs.NotFound) && op.Force:
		out.Deleted = false
	case err != nil:
		return asInvalid(err, "not_a_directory", "is_a_directory", "directory_not_empty")
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}

// relocateArea moves within an area, and copies files within and across.
func (d *Dialect) relocateArea(c *gin.Context, ses session.Session, from, to target, op workspace.Op) error {
	switch {
	case op.Kind == workspace.OpRename && (!from.InArea() || !to.InArea()):
		return errs.New(errs.Unprocessable, "move_across", "A move does not cross between the workspace and the task's own folders; copy and delete.")
	case op.Kind == workspace.OpCopy:
		return d.copyArea(c, ses, from, to, op)
	case from.AreaPath() == to.AreaPath():
		return wrong("to", "Source and target are the same.")
	}
	a, err := d.areaForChange(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	if info, err := a.folders.Stat(to.AreaPath()); err == nil && info.IsDir() && op.Overwrite {
		entries, err := a.folders.Entries(c.Request.Context(), to.AreaPath())
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return errs.New(errs.Conflict, "directory_not_empty", "The directory at the target is not empty.")
		}
	}
	_, err = d.applyArea(c, a, task.AreaOp{Kind: task.AreaRename, Path: from.AreaPath(), To: to.AreaPath(), Folder: from.Folder, Overwrite: op.Overwrite, Match: op.If.Match})
	if errs.Is(err, errs.NotFound) && len(op.If.Match) > 0 {
		return unmet("")
	}
	if err != nil {
		return asInvalid(err, "not_a_directory")
	}
	tellMoved(c, from, to, moved{})
	return nil
}

// copyArea copies one file where at least one end is an area.
func (d *Dialect) copyArea(c *gin.Context, ses session.Session, from, to target, op workspace.Op) error {
	if from.Area == to.Area && from.Path == to.Path {
		return wrong("to", "Source and target are the same.")
	}
	s, err := d.source(c, ses, from)
	if errs.CodeOf(err) == "is_a_directory" {
		return errs.New(errs.Unprocessable, "copy_across", "Only files are copied from and to the task's own folders.")
	}
	if errs.Is(err, errs.NotFound) && len(op.If.Match) > 0 {
		return unmet("")
	}
	if err != nil {
		return err
	}
	defer s.close()
	if m := op.If.Match; len(m) > 0 && !slices.Contains(m, "*") && !slices.Contains(m, s.blob.String()) {
		return unmet(s.blob.String())
	}
	write := workspace.Op{Kind: workspace.OpWrite, Path: to.Path, Body: s.body, Size: s.size, If: workspace.Condition{NoneMatchAny: !op.Overwrite}}
	if !to.InArea() {
		return d.change(c, ses, write, func(_ *task.Ref, res *workspace.Result, err error) error {
			if err != nil {
				return takenOr(err)
			}
			tellMoved(c, from, to, moved{ETag: wire.ETag(res.Ops[0].Blob), Commit: commitOf(res)})
			return nil
		})
	}
	if _, err := wire.KeyHash(c); err != nil {
		return err
	}
	a, err := d.areaForChange(c, ses)
	if err != nil {
		return err
	}
	defer a.release()
	res, err := d.writeArea(c, a, to, s.body, write)
	if err != nil {
		return takenOr(err)
	}
	tellMoved(c, from, to, moved{ETag: wire.ETag(res.Blob)})
	return nil
}

// takenOr maps an unmet If-None-Match that the request did not send.
func takenOr(err error) error {
	if errs.Is(err, errs.Precondition) {
		return exists()
	}
	return noFile(err)
}
