package sessions

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/session"
)

type createBody struct {
	WorkspaceRoot string  `json:"workspaceRoot"`
	TaskID        *string `json:"taskId"`
	AuthType      string  `json:"authType"`
	Model         string  `json:"model"`
	Org           string  `json:"org"`
}

// sessionBody is a session in an answer.
type sessionBody struct {
	SessionID     string  `json:"sessionId"`
	WorkspaceRoot string  `json:"workspaceRoot"`
	WorkspaceID   string  `json:"workspaceId"`
	TaskID        string  `json:"taskId"`
	AuthType      *string `json:"authType"`
	Model         *string `json:"model"`
	Org           *string `json:"org"`
	CreatedAt     string  `json:"createdAt"`
	LastUsedAt    string  `json:"lastUsedAt"`
}

func bodyOf(s session.Session) sessionBody {
	return sessionBody{SessionID: s.ID, WorkspaceRoot: s.Root, WorkspaceID: s.Workspace, TaskID: s.Task, AuthType: wire.Text(s.AuthType),
		Model: wire.Text(s.Model), Org: wire.Text(s.Org), CreatedAt: stamp(s.Created), LastUsedAt: stamp(s.LastUsed)}
}

// aboutNew is a new session's place: the node of its directory.
func (d *Dialect) aboutNew(c *gin.Context) (httpapi.Place, error) {
	var body struct {
		WorkspaceRoot string `json:"workspaceRoot"`
	}
	if !httpapi.PeekJSON(c, &body) || body.WorkspaceRoot == "" {
		return httpapi.Place{}, nil // the handler says what is wrong with it
	}
	return httpapi.AtDirectory(c, d.sessions.DirectoryAt, body.WorkspaceRoot)
}

func (d *Dialect) create(c *gin.Context) error {
	var body createBody
	if err := httpapi.DecodeLenient(c, &body); err != nil {
		return err
	}
	id, err := namedTask(c, body.TaskID)
	if err != nil {
		return err
	}
	key, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	ses, replayed, err := d.sessions.Create(c.Request.Context(), session.CreateOptions{
		Root: body.WorkspaceRoot, TaskID: id, AuthType: body.AuthType, Model: body.Model, Org: body.Org,
		Actor: httpapi.TagsOf(c).Actor, RequestID: httpapi.RequestID(c), IdempotencyKey: key, Sees: sees(c),
		Allow: func(root string, known bool) error { return mayUse(c, root, known) },
	})
	if err != nil {
		return err
	}
	wire.SettleKey(c, replayed, true)
	c.Header("Location", "/api/sessions/"+ses.ID)
	httpapi.JSON(c, http.StatusCreated, bodyOf(ses))
	return nil
}

// mayUse reports whether the caller may open a session on a directory.
func mayUse(c *gin.Context, root string, known bool) error {
	caller := httpapi.CallerOf(c)
	if known && caller.Token != "" && caller.Sees(root) {
		return nil
	}
	if err := caller.MayOpen(root); err != nil {
		return err
	}
	if known {
		return nil
	}
	return httpapi.NeedWrite(c)
}

// namedTask gives the task that body or header name, "" for none.
func namedTask(c *gin.Context, inBody *string) (string, error) {
	header := httpapi.TagsOf(c).TaskID
	if inBody == nil {
		return header, nil
	}
	if !httpapi.ValidID(*inBody) {
		return "", errs.New(errs.Invalid, "invalid_field", "taskId is malformed.").With("field", "taskId")
	}
	if header != "" && header != *inBody {
		return "", errs.New(errs.Invalid, "invalid_field", "taskId and X-Task-Id name two tasks.").With("field", "taskId")
	}
	return *inBody, nil
}

func (d *Dialect) list(c *gin.Context) error {
	all, err := d.sessions.List(sees(c))
	if err != nil {
		return err
	}
	out := make([]sessionBody, len(all))
	for i, s := range all {
		out[i] = bodyOf(s)
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"sessions": out})
	return nil
}

func (d *Dialect) get(c *gin.Context, ses session.Session) error {
	httpapi.JSON(c, http.StatusOK, bodyOf(ses))
	return nil
}

func (d *Dialect) remove(c *gin.Context) error {
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return err
	}
	_, done, err := d.sessions.Use(id, sees(c))
	if err != nil {
		return err
	}
	done()
	if err := d.sessions.Delete(c.Request.Context(), id, httpapi.RequestID(c)); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}

// capabilities is what a client may expect (the seed's first answer).
func (d *Dialect) capabilities(c *gin.Context, _ session.Session) error {
	features := map[string]bool{}
	for _, f := range []string{"list", "stat", "tree", "read", "download", "write", "replace", "mkdir", "move", "copy", "delete_file", "delete_dir", "upload", "symlink"} {
		features[f] = true
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{
		"service": "codey-server/fs", "version": "0.1-poc", "features": features,
		"defaults": map[string]any{"respect_git_ignore": true, "respect_codey_ignore": true, "truncate_tool_output_lines": defaultLines},
	})
	return nil
}
