package tasks

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/message"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/areas"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

type areaFile struct {
	Path         string `json:"path"`
	PathEncoding string `json:"path_encoding,omitempty"`
	Size         int64  `json:"size"`
	ETag         string `json:"etag"`
	Mtime        string `json:"mtime"`
}

func (d *Dialect) listArea(a areas.Area) httpapi.Handler {
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
func routePath(c *gin.Context, a areas.Area, opts ...wspath.Option) (wire.Target, error) {
	raw, err := httpapi.Param(c, "path")
	if err != nil {
		return wire.Target{}, err
	}
	return wire.ParseIn(a, raw, "", opts...)
}

func (d *Dialect) readArea(a areas.Area) httpapi.Handler {
	return using(d.open, func(c *gin.Context, r *task.Ref) error {
		p, err := routePath(c, a)
		if err != nil {
			return err
		}
		return d.serveArea(c, r.Task.ID, p.AreaPath())
	})
}

func (d *Dialect) serveArea(c *gin.Context, id string, p areas.Path) error {
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

func (d *Dialect) writeArea(a areas.Area) httpapi.Handler {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		t, err := routePath(c, a)
		if err != nil {
			return err
		}
		return d.write(c, r, t)
	})
}

func (d *Dialect) deleteArea(a areas.Area) httpapi.Handler {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		t, err := routePath(c, a, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		return d.delete(c, r, t)
	})
}

// applyArea does one operation in a task's own folders, and answers.
func (d *Dialect) applyArea(c *gin.Context, r *task.Ref, o areas.Op) error {
	did, err := d.tasks.ApplyInArea(c.Request.Context(), r, o)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if did.Operation == message.Create {
		status = http.StatusCreated
	}
	answer(c, status, written{Written: wire.AreaWritten(did)})
	return nil
}
