package workspaces

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/checkpoint"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

type checkpointBody struct {
	Name    string  `json:"name"`
	Message string  `json:"message"`
	Actor   *string `json:"actor"`
	Commit  string  `json:"commit"`
	Seq     *uint64 `json:"seq"`
	At      string  `json:"at"`
}

func checkpointOf(ctx context.Context, w *workspace.Workspace, c *checkpoint.Checkpoint) checkpointBody {
	var seq *uint64
	if found, err := w.Store().ReadCommit(ctx, c.Commit); err == nil { // a user's own tag may name anything
		seq = &found.Seq
	}
	return checkpointBody{Seq: seq, Name: c.Name, Message: c.Message, Actor: wire.Text(c.Actor), Commit: c.Commit.String(), At: wire.Stamp(c.At)}
}

// makeCheckpoint names the newest commit.
func (d *Dialect) makeCheckpoint(c *gin.Context) error {
	var body struct {
		Name    *string `json:"name"`
		Message string  `json:"message"`
	}
	if _, err := d.id(c); err != nil {
		return err
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if body.Name == nil {
		return errs.New(errs.Invalid, "invalid_name", "name is required.").With("field", "name")
	}
	return d.using(c, func(w *workspace.Workspace) error {
		made, err := checkpoint.Make(c.Request.Context(), w, *body.Name, body.Message, httpapi.TagsOf(c).Actor)
		if err != nil {
			return err
		}
		httpapi.JSON(c, http.StatusCreated, checkpointOf(c.Request.Context(), w, made))
		return nil
	})
}

func (d *Dialect) listCheckpoints(c *gin.Context) error {
	return d.using(c, func(w *workspace.Workspace) error {
		list, err := checkpoint.List(c.Request.Context(), w)
		if err != nil {
			return err
		}
		out := make([]checkpointBody, len(list))
		for i := range list {
			out[i] = checkpointOf(c.Request.Context(), w, &list[i])
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"checkpoints": out})
		return nil
	})
}

func (d *Dialect) deleteCheckpoint(c *gin.Context) error {
	return d.using(c, func(w *workspace.Workspace) error {
		name, err := httpapi.Param(c, "name")
		if err != nil {
			return err
		}
		if err := checkpoint.Delete(c.Request.Context(), w, name); err != nil {
			return err
		}
		c.Status(http.StatusNoContent)
		return nil
	})
}
