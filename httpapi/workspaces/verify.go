package workspaces

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

type verified struct {
	Workspace string      `json:"workspace"`
	Root      *string     `json:"root"`
	Head      *string     `json:"head"`
	Objects   int         `json:"objects"`
	Commits   int         `json:"commits"`
	Hashes    int         `json:"hashes"`
	Problems  []string    `json:"problems"`
	Disk      string      `json:"disk"`
	Differs   []wire.Skip `json:"differs"`
}

func (d *Dialect) verify(c *gin.Context) error {
	open := d.workspaces.Inspect
	switch record, given, err := httpapi.Query(c, "record"); {
	case err != nil:
		return err
	case record == "false":
		open = d.workspaces.Examine
	case given && record != "true":
		return errs.New(errs.Invalid, "invalid_parameter", "record must be true or false.").With("field", "record")
	}
	return d.with(c, open, func(w *workspace.Workspace) error {
		v := verified{Workspace: w.ID(), Root: wire.Text(w.Root()), Problems: []string{}, Differs: []wire.Skip{}, Disk: "none"}
		if tip := w.Store().Tip(); !tip.Commit.IsZero() {
			v.Head = wire.Text(tip.Commit.String())
		}
		report, err := w.Store().Verify(c.Request.Context(), nil)
		if err != nil {
			return err
		}
		v.Objects, v.Commits, v.Hashes = report.Objects, report.Commits, report.Hashes
		v.Problems = append(v.Problems, report.Problems...)
		if v.Root != nil {
			if err := v.compare(c, w); err != nil {
				return err
			}
		}
		httpapi.JSON(c, http.StatusOK, v)
		return nil
	})
}

// with is using, for who has another way to open the workspace.
func (d *Dialect) with(c *gin.Context, open func(context.Context, string) (*workspace.Workspace, error), h func(w *workspace.Workspace) error) error {
	rec, err := d.id(c)
	if err != nil {
		return err
	}
	w, err := open(c.Request.Context(), rec.ID)
	if err != nil {
		return err
	}
	defer w.Release()
	return h(w)
}

// compare compares the disk. Where history is broken there may be nothing to
// compare with, and the problem is reported already.
func (v *verified) compare(c *gin.Context, w *workspace.Workspace) error {
	differs, err := w.Compare(c.Request.Context())
	switch {
	case errs.CodeOf(err) == "workspace_missing" && err != nil:
		v.Disk = "missing"
	case err != nil && len(v.Problems) > 0 && c.Request.Context().Err() == nil:
		v.Problems = append(v.Problems, "the disk could not be compared with head")
	case err != nil:
		return err
	case len(differs) == 0:
		v.Disk = "same"
	default:
		v.Disk = "differs"
		skips := make([]workspace.Skip, len(differs))
		for i, x := range differs {
			skips[i] = workspace.Skip(x)
		}
		v.Differs = wire.SkipsOf(skips)
	}
	return nil
}
