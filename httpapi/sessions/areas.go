package sessions

import (
	"cmp"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/session"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// area is the folders of the session's task, in use.
type area struct {
	ref     *task.Ref
	folders *areas.Folders
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

// changeArea does one operation in the folders of the session's task, as change does
// in the workspace. The task that the header names must be one that could do it.
func (d *Dialect) changeArea(c *gin.Context, ses session.Session, o areas.Op, respond func(*task.Ref, *workspace.Result, error) error) error {
	tagged, err := d.taskOf(c, ses)
	if err != nil {
		return err
	}
	defer tagged.Release()
	if err := d.tasks.MayWrite(tagged); err != nil {
		return err
	}
	ref, err := d.tasks.Get(c.Request.Context(), ses.Task, sees(c))
	if err != nil {
		return err
	}
	defer ref.Release()
	if _, err := wire.KeyHash(c); err != nil {
		return err
	}
	did, err := d.tasks.ApplyInArea(c.Request.Context(), ref, o)
	return respond(ref, &workspace.Result{Ops: []workspace.OpResult{did.OpResult}, When: did.When}, err)
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
func (a *area) sorted(c *gin.Context, t target, dirsFirst bool) ([]areas.Entry, error) {
	entries, err := a.folders.Entries(c.Request.Context(), t.AreaPath())
	if err != nil {
		return nil, noFile(err)
	}
	slices.SortFunc(entries, func(x, y areas.Entry) int {
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
func (a *area) walk(c *gin.Context, t target, deep bool, fn func(target, areas.Entry)) error {
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
	err = a.walk(c, t, o.Recursive, func(at target, e areas.Entry) {
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

// relocateArea moves within an area, and copies files within and across.
func (d *Dialect) relocateArea(c *gin.Context, ses session.Session, from, to target, op workspace.Op) error {
	switch {
	case op.Kind == workspace.OpRename && (!from.InArea() || !to.InArea()):
		return errs.New(errs.Unprocessable, "move_across", "A move does not cross between the workspace and the task's own directories; copy and delete.")
	case op.Kind == workspace.OpCopy:
		return d.copyArea(c, ses, from, to, op)
	case from.AreaPath() == to.AreaPath():
		return wrong("to", "Source and target are the same.")
	}
	o := from.AreaOp(op)
	o.ToArea = to.Area
	return d.changeArea(c, ses, o, func(_ *task.Ref, _ *workspace.Result, err error) error {
		if err != nil {
			return asInvalid(err, "not_a_directory")
		}
		respondMoved(c, from, to, moved{})
		return nil
	})
}

// copyArea copies one file where at least one end is an area.
func (d *Dialect) copyArea(c *gin.Context, ses session.Session, from, to target, op workspace.Op) error {
	if from.Area == to.Area && from.Path == to.Path {
		return wrong("to", "Source and target are the same.")
	}
	s, err := d.source(c, ses, from)
	if errs.CodeOf(err) == "is_a_directory" {
		return errs.New(errs.Unprocessable, "copy_across", "Only files are copied from and to the task's own directories.")
	}
	if errs.Is(err, errs.NotFound) {
		err = cmp.Or(op.If.Check("", false, object.Zero), err)
	}
	if err != nil {
		return err
	}
	defer s.close()
	if err := op.If.Check("", true, s.blob); err != nil {
		return err
	}
	write := workspace.Op{Kind: workspace.OpWrite, Path: to.Path, Body: s.body, Size: s.size, If: workspace.Condition{NoneMatchAny: !op.Overwrite}}
	return d.change(c, ses, to, write, func(_ *task.Ref, res *workspace.Result, err error) error {
		if err != nil {
			return takenOr(err)
		}
		respondMoved(c, from, to, moved{ETag: wire.ETag(res.Ops[0].Blob), Commit: commitOf(res)})
		return nil
	})
}

// takenOr maps an unmet If-None-Match that the request did not send.
func takenOr(err error) error {
	if errs.Is(err, errs.Precondition) {
		return exists()
	}
	return noFile(err)
}
