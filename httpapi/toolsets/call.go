package toolsets

import (
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/toolset"
)

type callBody struct {
	Name      *string         `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	SubtaskID *string         `json:"subtaskId"`
}

type answer struct {
	Status  string `json:"status"`
	Content string `json:"content"`
}

// aboutCall is the place of a call: that of the workspace that its path is in.
func (d *Dialect) aboutCall(c *gin.Context) (httpapi.Place, error) {
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return httpapi.Place{}, err
	}
	var b struct {
		Name      string
		Arguments json.RawMessage
	}
	httpapi.PeekJSON(c, &b) // of what it cannot decode the handler says what is wrong
	ws, _ := d.toolsets.Place(id, b.Name, b.Arguments)
	return httpapi.Place{Workspace: ws}, nil
}

// call carries a tool's call out. What a model may get wrong is a 200 with the
// status "error"; only the envelope has HTTP errors.
func (d *Dialect) call(c *gin.Context) error {
	var b callBody
	if err := httpapi.DecodeJSON(c, &b); err != nil {
		return err
	}
	if b.Name == nil || *b.Name == "" {
		return required("name")
	}
	tags := httpapi.TagsOf(c)
	if b.SubtaskID != nil {
		if !httpapi.ValidID(*b.SubtaskID) {
			return malformed("subtaskId")
		}
		tags.SubtaskID = *b.SubtaskID
	}
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return err
	}
	key, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	begin, err := httpapi.Once(c, "script")
	if err != nil {
		return err
	}
	caller := httpapi.CallerOf(c)
	a, err := d.toolsets.Call(c.Request.Context(), id, toolset.Call{Name: *b.Name, Args: b.Arguments, TaskID: tags.TaskID, SubtaskID: tags.SubtaskID, Actor: tags.Actor,
		RequestID: httpapi.RequestID(c), Key: key, Begin: begin, ReadOnly: caller.Scope < httpapi.ScopeWrite, Sees: caller.Sees})
	if errs.Is(err, errs.Forbidden) && caller.Scope < httpapi.ScopeWrite {
		caller.Refused("read_only_token")
	}
	if err != nil {
		return err
	}
	wire.SettleKey(c, a.Replayed, !a.Commit.IsZero())
	if i := httpapi.IdempotencyOf(c); i != nil && a.Unsettled {
		i.Unsettled()
	}
	out := answer{Status: "success", Content: a.Text}
	if a.Failed {
		out.Status = "error"
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}
