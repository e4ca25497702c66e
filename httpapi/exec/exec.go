// Package exec is the HTTP surface of layers: what umbra exec begins, applies and
// drops (contracts/calls.md).
package exec

import (
	"context"
	_ "embed"
	"encoding/gob"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/audit"
	"umbra/internal/calls"
	"umbra/internal/errs"
	"umbra/internal/exec"
	"umbra/internal/exec/serve"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the routes of layers, and of a task's commands.
type Dialect struct {
	layers   *exec.Service
	commands *serve.Service
	tasks    *task.Service
}

// New makes the dialect.
func New(s *exec.Service, commands *serve.Service, tasks *task.Service) *Dialect {
	return &Dialect{s, commands, tasks}
}

// OpenAPI returns the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	r = r.With(wire.WithFields(httpapi.TaskShape()))
	add := func(method, pattern string, h httpapi.Handler, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Handler = method, pattern, h
		r.Handle(rt)
	}
	one := httpapi.AboutWhere("layer", d.layers.Where)
	add("POST", "/layers", d.begin, httpapi.Route{About: d.aboutBegin, Access: httpapi.AccessWrite, Body: httpapi.BodyJSON, Changes: true})
	add("GET", "/layers", d.list, httpapi.Route{About: httpapi.AboutNone})
	add("POST", "/layers/{layer}/apply", d.apply, httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: httpapi.BodyOptionalJSON, Changes: true})
	add("DELETE", "/layers/{layer}", d.drop, httpapi.Route{About: one, Access: httpapi.AccessWrite})
	add("POST", "/tasks/{id}/exec", d.command, httpapi.Route{About: wire.AboutTask(d.tasks), Access: httpapi.AccessWrite, Body: httpapi.BodyJSON, Changes: true, Authorize: wire.TaskVisible(d.tasks)})
}

type beginBody struct {
	Agent        string `json:"agent"`
	AgentSession string `json:"agent_session"`
	Cwd          string `json:"cwd"`
	Workspace    string `json:"workspace_id"`
	Open         *bool  `json:"open"`
	TaskID       string `json:"task_id"`
	SubtaskID    string `json:"subtask_id"`
	Actor        string `json:"actor"`
	CallID       string `json:"call_id"`
	Tool         string `json:"tool"`
	Model        string `json:"model"`
	PromptID     string `json:"prompt_id"`
	Goal         string `json:"goal"`
	Command      string `json:"command_sha256"`
	Begun        bool   `json:"begun"`
}

// aboutBegin: a layer is made by the node that has the workspace's directory.
func (d *Dialect) aboutBegin(c *gin.Context) (place httpapi.Place, err error) {
	var body struct {
		Workspace string `json:"workspace_id"`
		Task      string `json:"task_id"`
		Call      string `json:"call_id"`
		Cwd       string `json:"cwd"`
		Begun     bool   `json:"begun"`
	}
	if !httpapi.PeekJSON(c, &body) {
		return place, nil // the handler says what is wrong with it
	}
	if body.Begun {
		place.Workspace, err = d.layers.Where(body.Call)
		return place, err
	}
	if place.Workspace, err = d.tasks.WhereNew(body.Workspace, nil); place.Workspace != "" || err != nil {
		return place, err
	}
	if body.Task != "" {
		if place.Workspace, err = d.tasks.Where(body.Task); place.Workspace != "" || err != nil {
			return place, err
		}
	}
	if body.Cwd == "" || body.Workspace != "" {
		return place, nil
	}
	return httpapi.AtDirectory(c, d.tasks.DirectoryAt, body.Cwd)
}

func (d *Dialect) begin(c *gin.Context) error {
	var b beginBody
	if err := httpapi.DecodeJSON(c, &b); err != nil {
		return err
	}
	if !local(c.Request.RemoteAddr) {
		return errs.New(errs.Forbidden, "local_only", "A layer is for a command on the server's own machine.")
	}
	if b.Begun {
		return d.attach(c, b)
	}
	if b.Cwd == "" && b.Workspace == "" {
		return errs.New(errs.Invalid, "invalid_field", "cwd or workspace_id is required.").With("field", "cwd")
	}
	if b.Actor != "" && !httpapi.ValidActor(b.Actor) {
		return errs.New(errs.Invalid, "invalid_field", "actor must be 1 to 128 printable characters without < and >.").With("field", "actor")
	}
	caller, tags := httpapi.CallerOf(c), httpapi.TagsOf(c)
	if b.Actor == "" || caller.Token != "" {
		b.Actor = tags.Actor
	}
	if b.SubtaskID == "" {
		b.SubtaskID = tags.SubtaskID
	}
	if b.TaskID == "" {
		b.TaskID = tags.TaskID
	}
	hash, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	begin := calls.Begin{Agent: b.Agent, Session: b.AgentSession, Cwd: b.Cwd, Workspace: b.Workspace, Task: b.TaskID, Subtask: b.SubtaskID, Actor: b.Actor, ID: b.CallID,
		Tool: b.Tool, Model: b.Model, Prompt: b.PromptID, Goal: b.Goal, Command: b.Command, NoOpen: b.Open != nil && !*b.Open, RequestID: httpapi.RequestID(c), Allow: caller.MayOpen, Sees: caller.Sees}
	var res *exec.Begun
	if hash == "" {
		res, err = d.layers.Begin(c.Request.Context(), begin)
	} else if res, err = d.layers.BeginOnce(c.Request.Context(), begin, hash); err == nil {
		wire.SettleKey(c, res.Again, false)
	}
	if err != nil {
		return wire.CallsOr(err)
	}
	return made(c, res)
}

// attach makes the layer of a call that is open.
func (d *Dialect) attach(c *gin.Context, b beginBody) error {
	id := b.CallID
	if b.CallID, b.Begun = "", false; b != (beginBody{}) {
		return errs.New(errs.Invalid, "invalid_field", "With begun only call_id is allowed: the call says the rest.").With("field", "begun")
	}
	if !task.ValidID(id) {
		return errs.New(errs.Invalid, "invalid_field", "With begun, call_id must be the id of an open call.").With("field", "call_id")
	}
	res, err := d.layers.Attach(c.Request.Context(), id, httpapi.CallerOf(c).Sees)
	if err != nil {
		return err
	}
	return made(c, res)
}

func made(c *gin.Context, res *exec.Begun) error {
	audit.Allowed(c.Request.Context(), audit.Exec, res.Workspace)
	httpapi.JSON(c, http.StatusCreated, map[string]any{"call_id": res.ID, "task_id": res.Task, "subtask_id": wire.Text(res.Subtask), "workspace_id": res.Workspace,
		"workspace": res.Root, "layer": res.ID, "dir": res.Dir, "over": wire.Text(res.Over), "below": wire.Text(res.Below)})
	return nil
}

// local reports whether an address is this machine's. Anything but an IP address is a
// socket.
func local(remote string) bool {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return true
	}
	ip := net.ParseIP(strings.SplitN(host, "%", 2)[0])
	return ip == nil || ip.IsLoopback()
}

type layerBody struct {
	Layer       string `json:"layer"`
	CallID      string `json:"call_id"`
	TaskID      string `json:"task_id"`
	WorkspaceID string `json:"workspace_id"`
	Workspace   string `json:"workspace"`
	Begun       string `json:"begun"`
	Running     bool   `json:"running"`
}

func (d *Dialect) list(c *gin.Context) error {
	sees := httpapi.CallerOf(c).Sees
	entry := func(_ context.Context, id string) (any, error) {
		l, err := d.layers.Get(id, sees)
		if err != nil {
			return nil, err
		}
		return layerBody{l.ID, l.ID, l.Task, l.Workspace, l.Root, wire.Stamp(l.Begun), l.Running}, nil
	}
	list, err := d.layers.List(sees)
	if err != nil {
		return err
	}
	var of []httpapi.Piece
	var own []string
	workspaces := map[string]string{}
	for _, l := range list {
		of, own = append(of, httpapi.Piece{ID: l.ID, Workspace: l.Workspace}), append(own, l.ID)
		workspaces[l.ID] = l.Workspace
	}
	if ids := httpapi.Part(c); ids != nil {
		where := d.layers.Where
		if slices.Equal(ids, httpapi.AllOfNode) {
			ids, where = own, func(id string) (string, error) { return workspaces[id], nil }
		}
		return httpapi.ServePart(c, ids, where, entry)
	}
	out, err := httpapi.Gather(c, of, entry)
	if err != nil {
		return err
	}
	others, err := httpapi.Others(c)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(others)) {
		if _, here := workspaces[id]; !here {
			out = append(out, others[id])
		}
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"layers": out})
	return nil
}

type conflictBody struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Reason       string  `json:"reason"`
	Blob         *string `json:"blob"` // the layer's version; null where it has deleted the path
}

type skippedBody struct {
	Path         string `json:"path"`
	PathEncoding string `json:"path_encoding,omitempty"`
	Reason       string `json:"reason"`
}

type appliedBody struct {
	CallID      string         `json:"call_id"`
	TaskID      string         `json:"task_id"`
	Commit      *string        `json:"commit"`
	Entries     []wire.Entry   `json:"entries"`
	Conflicts   []conflictBody `json:"conflicts"`
	ConflictRef *string        `json:"conflicts_ref"`
	NotApplied  []skippedBody  `json:"not_applied"`
	Moved       int            `json:"moved"`
	Patch       *string        `json:"patch,omitempty"`
}

func (d *Dialect) apply(c *gin.Context) error {
	id, err := httpapi.Param(c, "layer")
	if err != nil {
		return err
	}
	var body struct {
		ExitCode *int `json:"exit_code"`
		DryRun   bool `json:"dry_run"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	a := exec.Apply{ExitCode: body.ExitCode, DryRun: body.DryRun, Patch: body.DryRun, RequestID: httpapi.RequestID(c), Sees: httpapi.CallerOf(c).Sees}
	res, err := d.applyOnce(c, id, a)
	if err != nil {
		return err
	}
	out := appliedBody{CallID: res.ID, TaskID: res.Task, Entries: wire.EntriesOf(res.Entries), Conflicts: conflictsOf(res.Conflicts),
		ConflictRef: wire.Text(res.Ref), NotApplied: skippedOf(res.Skipped), Moved: res.Moved}
	if !res.Commit.IsZero() {
		out.Commit = wire.Text(res.Commit.String())
	}
	if body.DryRun {
		text := strings.ToValidUTF8(string(res.Patch), "\uFFFD")
		out.Patch = &text
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}

// applyOnce applies a layer. With an idempotency key it notes what the answer is made of
// before the layer is decided: when the request comes again after the server was killed,
// its layer may be applied and removed.
func (d *Dialect) applyOnce(c *gin.Context, id string, a exec.Apply) (*exec.Applied, error) {
	i := httpapi.IdempotencyOf(c)
	if i == nil {
		return d.layers.Apply(c.Request.Context(), id, a)
	}
	var was exec.Planned
	if i.Begun() != "" {
		if err := gob.NewDecoder(strings.NewReader(i.Begun())).Decode(&was); err != nil {
			return nil, errs.Wrap(err, "")
		}
	}
	a.Note = func(p exec.Planned) error { // by gob: a path may not be UTF-8
		var note strings.Builder
		if err := gob.NewEncoder(&note).Encode(p); err != nil {
			return err
		}
		return i.Begin(note.String())
	}
	res, err := d.layers.Apply(c.Request.Context(), id, a)
	switch {
	case i.Begun() == "":
	case errs.CodeOf(err) == "layer_not_found":
		if res, err = d.layers.Result(c.Request.Context(), id, a.Sees, was); err == nil {
			i.Replayed()
		}
	case err == nil && res.Finished:
		was.Skipped = append(was.Skipped, res.Skipped...)
		res.Planned = was
		i.Replayed()
	}
	return res, err
}

func conflictsOf(list []exec.Conflict) []conflictBody {
	out := make([]conflictBody, len(list))
	for i, x := range list {
		out[i].Reason = x.Reason
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(x.Path)
		if x.Theirs.Mode != 0 {
			out[i].Blob = wire.Text(x.Theirs.ID.String())
		}
	}
	return out
}

func skippedOf(list []exec.Skip) []skippedBody {
	out := make([]skippedBody, len(list))
	for i, x := range list {
		out[i].Reason = x.Reason
		out[i].Path, out[i].PathEncoding = wspath.EncodeJSON(x.Path)
	}
	return out
}

func (d *Dialect) drop(c *gin.Context) error {
	id, err := httpapi.Param(c, "layer")
	if err != nil {
		return err
	}
	if err := d.layers.Drop(c.Request.Context(), id, httpapi.CallerOf(c).Sees); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}
