package tasks

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

type areaFile struct {
	Path         string `json:"path"`
	PathEncoding string `json:"path_encoding,omitempty"`
	Size         int64  `json:"size"`
	ETag         string `json:"etag"`
	Mtime        string `json:"mtime"`
}

func (d *Dialect) listArea(a task.Area) httpapi.Handler {
	return using(d.open, func(c *gin.Context, r *task.Ref) error {
		folders, release, err := d.tasks.Folders(r.Task.ID)
		if err != nil {
			return err
		}
		defer release()
		files, err := folders.List(c.Request.Context(), a)
		if err != nil {
			return err
		}
		out := make([]areaFile, len(files))
		for i, f := range files {
			out[i] = areaFile{Size: f.Size, ETag: httpapi.ETag(f.Blob.String()), Mtime: wire.Stamp(f.Mtime)}
			out[i].Path, out[i].PathEncoding = f.Path.JSON()
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"files": out})
		return nil
	})
}

// routePath reads {path...} of an area's route.
func routePath(c *gin.Context, a task.Area, opts ...wspath.Option) (wire.Target, error) {
	raw, err := httpapi.Param(c, "path")
	if err != nil {
		return wire.Target{}, err
	}
	return wire.ParseIn(a, raw, "", opts...)
}

func (d *Dialect) readArea(a task.Area) httpapi.Handler {
	return using(d.open, func(c *gin.Context, r *task.Ref) error {
		p, err := routePath(c, a)
		if err != nil {
			return err
		}
		return d.serveArea(c, r.Task.ID, p.AreaPath())
	})
}

func (d *Dialect) serveArea(c *gin.Context, id string, p task.AreaPath) error {
	folders, release, err := d.tasks.Folders(id)
	if err != nil {
		return err
	}
	defer release()
	h, f, err := folders.Open(c.Request.Context(), p)
	if err != nil {
		return err
	}
	defer h.Close()
	return serve(c, httpapi.Content{ETag: httpapi.ETag(f.Blob.String()), ModTime: f.Mtime, Size: f.Size, Body: h})
}

func (d *Dialect) writeArea(a task.Area) httpapi.Handler {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		p, err := routePath(c, a)
		if err != nil {
			return err
		}
		return d.putArea(c, r, p.AreaPath())
	})
}

func (d *Dialect) putArea(c *gin.Context, r *task.Ref, p task.AreaPath) error {
	cond, err := wire.Condition(c)
	if err != nil {
		return err
	}
	mode, err := wire.HeaderMode(c)
	if err != nil {
		return err
	}
	if err := d.tasks.MayWrite(r); err != nil {
		return err
	}
	folders, release, err := d.tasks.Folders(r.Task.ID)
	if err != nil {
		return err
	}
	defer release()
	staged, err := folders.Stage(c.Request.Context(), httpapi.BodyReader(c))
	if err != nil {
		return err
	}
	defer staged.Discard()
	op := task.AreaOp{Kind: task.AreaWrite, Path: p, Content: staged}
	if mode != nil {
		op.Mode = *mode
	}
	return d.applyArea(c, r, folders, op, cond)
}

// applyArea does one operation in a task's own folders, and answers.
func (d *Dialect) applyArea(c *gin.Context, r *task.Ref, folders *task.Folders, op task.AreaOp, cond workspace.Condition) error {
	op.Match, op.NewOnly = cond.Match, cond.NoneMatchAny
	results, err := folders.Apply(c.Request.Context(), []task.AreaOp{op}, func() error { return d.tasks.MayWrite(r) })
	if err != nil {
		return err
	}
	status := http.StatusOK
	if results[0].Operation == "create" {
		status = http.StatusCreated
	}
	answer(c, status, areaWritten(results[0]))
	return nil
}

func (d *Dialect) deleteArea(a task.Area) httpapi.Handler {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		p, err := routePath(c, a, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		recursive, err := httpapi.QueryBool(c, "recursive", false)
		if err != nil {
			return err
		}
		cond, err := wire.Condition(c)
		if err != nil {
			return err
		}
		return d.removeArea(c, r, p, recursive, cond)
	})
}

func (d *Dialect) removeArea(c *gin.Context, r *task.Ref, t wire.Target, recursive bool, cond workspace.Condition) error {
	folders, release, err := d.tasks.Folders(r.Task.ID)
	if err != nil {
		return err
	}
	defer release()
	return d.applyArea(c, r, folders, task.AreaOp{Kind: task.AreaDelete, Path: t.AreaPath(), Folder: t.Folder, Recursive: recursive}, cond)
}

func (d *Dialect) moveArea(c *gin.Context, r *task.Ref, from, to wire.Target, overwrite bool, cond workspace.Condition) error {
	folders, release, err := d.tasks.Folders(r.Task.ID)
	if err != nil {
		return err
	}
	defer release()
	return d.applyArea(c, r, folders, task.AreaOp{Kind: task.AreaRename, Path: from.AreaPath(), To: to.AreaPath(), Folder: from.Folder, Overwrite: overwrite}, cond)
}
