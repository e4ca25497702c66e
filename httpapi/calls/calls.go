// Package calls is the HTTP surface of calls: the times in which tools of agents
// work, so that what they change on disk is theirs (contracts/calls.md).
package calls

import (
	"context"
	_ "embed"
	"encoding/json"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/calls"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/revert"
	"umbra/internal/strictjson"
	"umbra/internal/task"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the routes of calls.
type Dialect struct {
	calls      *calls.Service
	tasks      *task.Service
	workspaces *workspaces.Manager
	history    *history.Cache

	// NoContext has hooks give no context to the model.
	NoContext bool
}

// New makes the dialect.
func New(s *calls.Service, tasks *task.Service, m *workspaces.Manager, cache *history.Cache) *Dialect {
	return &Dialect{calls: s, tasks: tasks, workspaces: m, history: cache}
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
	one := httpapi.AboutWhere("call", d.calls.Where)
	change := httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: httpapi.BodyOptionalJSON, Changes: true}
	begin := change
	begin.Body, begin.About = httpapi.BodyJSON, d.aboutBegin
	add("POST", "/calls", d.begin, begin)
	add("GET", "/calls?workspace_id&task_id&subtask_id&open&within_s&after&limit", d.list, httpapi.Route{About: d.aboutList})
	add("GET", "/calls/{call}", d.get, httpapi.Route{About: one})
	add("POST", "/calls/{call}/end", d.end, change)
	add("POST", "/calls/{call}/touch", d.touch, change)
	// A dry run is reading; the handler asks for more.
	add("POST", "/calls/{call}/revert", d.revert, httpapi.Route{About: one, Body: httpapi.BodyOptionalJSON, Changes: true})
}

type declaredPath struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
}

// pathsOf reads paths, each a text or an object.
func pathsOf(raw []json.RawMessage) ([]calls.Path, error) {
	out := make([]calls.Path, len(raw))
	for i, m := range raw {
		var name string
		if json.Unmarshal(m, &name) == nil {
			out[i].Path = name
			continue
		}
		var p declaredPath
		if err := strictjson.Strict(m, &p); err != nil {
			return nil, errs.New(errs.Invalid, "invalid_field", "paths must be a list of paths, or of objects with path and sha256.").With("field", "paths")
		}
		out[i] = calls.Path{Path: p.Path, Sum: p.SHA256}
	}
	return out, nil
}

type beginBody struct {
	Agent        *string           `json:"agent"`
	AgentSession *string           `json:"agent_session"`
	Cwd          *string           `json:"cwd"`
	WorkspaceID  *string           `json:"workspace_id"`
	Open         *bool             `json:"open"`
	TaskID       *string           `json:"task_id"`
	SubtaskID    *string           `json:"subtask_id"`
	Actor        *string           `json:"actor"`
	CallID       *string           `json:"call_id"`
	Tool         *string           `json:"tool"`
	Model        *string           `json:"model"`
	PromptID     *string           `json:"prompt_id"`
	Goal         *string           `json:"goal"`
	Command      *string           `json:"command_sha256"`
	Paths        []json.RawMessage `json:"paths"`
	OnlyPaths    bool              `json:"only_paths"`
	TTL          *int64            `json:"ttl_s"`
}

// request makes the begin of a body. A field that is given must say something.
func (b *beginBody) request(c *gin.Context) (calls.Begin, error) {
	caller, tags := httpapi.CallerOf(c), httpapi.TagsOf(c)
	req := calls.Begin{OnlyPaths: b.OnlyPaths, NoOpen: b.Open != nil && !*b.Open, RequestID: httpapi.RequestID(c), Allow: caller.MayOpen, Sees: caller.Sees}
	for _, x := range []struct {
		name string
		from *string
		to   *string
	}{{"agent", b.Agent, &req.Agent}, {"agent_session", b.AgentSession, &req.Session}, {"cwd", b.Cwd, &req.Cwd}, {"workspace_id", b.WorkspaceID, &req.Workspace},
		{"task_id", b.TaskID, &req.Task}, {"subtask_id", b.SubtaskID, &req.Subtask}, {"actor", b.Actor, &req.Actor}, {"call_id", b.CallID, &req.ID},
		{"tool", b.Tool, &req.Tool}, {"model", b.Model, &req.Model}, {"prompt_id", b.PromptID, &req.Prompt}, {"goal", b.Goal, &req.Goal}, {"command_sha256", b.Command, &req.Command}} {
		if x.from == nil {
			continue
		}
		if *x.from == "" && x.name != "goal" {
			return req, errs.New(errs.Invalid, "invalid_field", "%s must not be empty.", x.name).With("field", x.name)
		}
		*x.to = *x.from
	}
	if req.Actor != "" && !httpapi.ValidActor(req.Actor) {
		return req, errs.New(errs.Invalid, "invalid_field", "actor must be 1 to 128 printable characters without < and >.").With("field", "actor")
	}
	if req.Actor == "" || caller.Token != "" {
		req.Actor = tags.Actor
	}
	if req.Subtask == "" {
		req.Subtask = tags.SubtaskID
	}
	switch {
	case req.Task == "":
		req.Task = tags.TaskID
	case tags.TaskID != "" && tags.TaskID != req.Task:
		return req, errs.New(errs.Invalid, "task_id_mismatch", "X-Task-Id names another task than task_id.").With("field", "task_id")
	}
	if b.TTL != nil {
		if *b.TTL < 60 || *b.TTL > 86_400 {
			return req, errs.New(errs.Invalid, "invalid_field", "ttl_s must be between 60 and 86400.").With("field", "ttl_s")
		}
		req.TTL = time.Duration(*b.TTL) * time.Second
	}
	var err error
	req.Paths, err = pathsOf(b.Paths)
	return req, err
}

type begunBody struct {
	CallID      string      `json:"call_id"`
	TaskID      string      `json:"task_id"`
	SubtaskID   *string     `json:"subtask_id"`
	WorkspaceID string      `json:"workspace_id"`
	Workspace   *string     `json:"workspace"`
	At          *string     `json:"at"`
	Others      []otherBody `json:"others"`
	OthersMore  int         `json:"others_more"`
}

type otherBody struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Operation    string  `json:"operation"`
	TaskID       *string `json:"task_id"`
	SubtaskID    *string `json:"subtask_id"`
	Actor        *string `json:"actor"`
	Source       *string `json:"source"`
	At           string  `json:"at"`
	Lines        *string `json:"lines"`
	Message      *string `json:"message,omitempty"`
}

// aboutBegin returns the workspace that a begin names by its id, its task or its
// directory.
func (d *Dialect) aboutBegin(c *gin.Context) (place httpapi.Place, err error) {
	var body struct {
		Workspace string `json:"workspace_id"`
		Task      string `json:"task_id"`
		Cwd       string `json:"cwd"`
	}
	if !httpapi.PeekJSON(c, &body) {
		return place, nil // the handler says what is wrong with it
	}
	if _, known := d.workspaces.Record(body.Workspace); known {
		return httpapi.Place{Workspace: body.Workspace}, nil
	}
	if body.Task != "" {
		if place.Workspace, err = d.tasks.Where(body.Task); place.Workspace != "" || err != nil {
			return place, err
		}
	}
	if body.Cwd == "" || body.Workspace != "" {
		return place, nil
	}
	return httpapi.AtDirectory(c, d.calls.DirectoryAt, body.Cwd)
}

func (d *Dialect) begin(c *gin.Context) error {
	var body beginBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	req, err := body.request(c)
	if err != nil {
		return err
	}
	keyed, err := d.idByKey(c, &req)
	if err != nil {
		return err
	}
	res, err := d.calls.Begin(c.Request.Context(), req)
	if err != nil {
		return wire.CallsOr(err)
	}
	out := begunBody{CallID: res.ID, TaskID: res.Task, SubtaskID: wire.Text(res.Subtask), WorkspaceID: res.Workspace, Workspace: wire.Text(res.Root),
		Others: make([]otherBody, len(res.Others)), OthersMore: res.More}
	if !res.At.IsZero() {
		out.At = wire.Text(res.At.String())
	}
	for i, o := range res.Others {
		x := otherBody{Operation: o.Operation, TaskID: wire.Text(o.Task), SubtaskID: wire.Text(o.Subtask), Actor: wire.Text(o.Actor), Source: wire.Text(o.Source),
			At: wire.Stamp(o.At), Lines: wire.Text(o.Lines), Message: wire.Text(o.Message)}
		x.Path, x.PathEncoding = wspath.EncodeJSON(o.Path)
		out.Others[i] = x
	}
	status := http.StatusCreated
	switch {
	case res.Again && keyed: // the first answer was never sent
		wire.SettleKey(c, true, false)
	case res.Again:
		status = http.StatusOK
	}
	httpapi.JSON(c, status, out)
	return nil
}

// keysLive is how long an idempotency key names a request.
const keysLive = 24 * time.Hour

// idByKey gives a call without an ID one that follows from the request's idempotency
// key: after a kill between the begin and its answer the same request finds the call.
func (d *Dialect) idByKey(c *gin.Context, req *calls.Begin) (keyed bool, err error) {
	if req.ID != "" {
		return false, nil
	}
	hash, err := wire.KeyHash(c)
	if hash == "" || err != nil {
		return false, err
	}
	id := calls.IDOf(hash)
	if old, err := d.calls.Get(id, req.Sees); err == nil && time.Since(old.Begun) >= keysLive {
		return false, nil // another request of that key
	}
	req.ID = id
	return true, nil
}

type callBody struct {
	CallID       string         `json:"call_id"`
	TaskID       string         `json:"task_id"`
	SubtaskID    *string        `json:"subtask_id"`
	WorkspaceID  string         `json:"workspace_id"`
	Agent        *string        `json:"agent"`
	AgentSession *string        `json:"agent_session"`
	Tool         *string        `json:"tool"`
	Model        *string        `json:"model"`
	PromptID     *string        `json:"prompt_id"`
	Paths        []declaredBody `json:"paths"`
	OnlyPaths    bool           `json:"only_paths"`
	Status       calls.Status   `json:"status"`
	ExitCode     *int           `json:"exit_code"`
	Begun        string         `json:"begun"`
	Ended        *string        `json:"ended"`
	Commits      []string       `json:"commits"`
	FromSeq      uint64         `json:"from_seq"`
}

type declaredBody struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	SHA256       *string `json:"sha256"`
}

func (d *Dialect) callOf(ctx context.Context, r *calls.Record) (callBody, error) {
	ids, err := d.calls.CommitsOf(ctx, r)
	if err != nil {
		return callBody{}, err
	}
	out := callBody{CallID: r.ID, TaskID: r.Task, SubtaskID: wire.Text(r.Subtask), WorkspaceID: r.Workspace, Agent: wire.Text(r.Agent),
		AgentSession: wire.Text(r.Session), Tool: wire.Text(r.Tool), Model: wire.Text(r.Model), PromptID: wire.Text(r.Prompt), OnlyPaths: r.OnlyPaths,
		Status: r.Status, ExitCode: r.ExitCode, Begun: wire.Stamp(r.Begun), Paths: []declaredBody{}, Commits: make([]string, len(ids)), FromSeq: r.From}
	if !r.Ended.IsZero() {
		out.Ended = wire.Text(wire.Stamp(r.Ended))
	}
	for i, id := range ids {
		out.Commits[i] = id.String()
	}
	for _, list := range [][]calls.Path{r.Paths, r.EndPaths} {
		for _, p := range list {
			x := declaredBody{}
			x.Path, x.PathEncoding = wspath.EncodeJSON(p.Path)
			if len(p.Sum) > len("sha256:") {
				x.SHA256 = wire.Text(p.Sum[len("sha256:"):])
			}
			out.Paths = append(out.Paths, x)
		}
	}
	return out, nil
}

const (
	listLimit    = 100
	listLimitMax = 1000
	withinMax    = 3600
)

// aboutList: the calls of a workspace, or of a task, are at its owner.
func (d *Dialect) aboutList(c *gin.Context) (httpapi.Place, error) {
	workspace, given, err := httpapi.Query(c, "workspace_id")
	if given || err != nil {
		return httpapi.Place{Workspace: workspace}, err
	}
	id, given, err := httpapi.Query(c, "task_id")
	if !given || err != nil {
		return httpapi.Place{}, err
	}
	workspace, err = d.tasks.Where(id)
	return httpapi.Place{Workspace: workspace}, err
}

func (d *Dialect) list(c *gin.Context) error {
	if ids := httpapi.Part(c); ids != nil {
		sees := httpapi.CallerOf(c).Sees
		return httpapi.ServePart(c, ids, d.calls.Where, func(ctx context.Context, id string) (any, error) {
			r, err := d.calls.Get(id, sees)
			if err != nil {
				return nil, err
			}
			return d.callOf(ctx, &r)
		})
	}
	f := calls.Filter{Sees: httpapi.CallerOf(c).Sees}
	for _, x := range []struct {
		name string
		to   *string
	}{{"workspace_id", &f.Workspace}, {"task_id", &f.Task}, {"subtask_id", &f.Subtask}} {
		value, _, err := httpapi.Query(c, x.name)
		if err != nil {
			return err
		}
		*x.to = value
	}
	if _, given, err := httpapi.Query(c, "open"); err != nil {
		return err
	} else if given {
		open, err := httpapi.QueryBool(c, "open", false)
		if err != nil {
			return err
		}
		f.Open = &open
	}
	within, err := httpapi.QueryInt(c, "within_s", 0, 1, withinMax)
	if err != nil {
		return err
	}
	f.Within = time.Duration(within) * time.Second
	after, _, err := httpapi.Query(c, "after")
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(c, "limit", listLimit, 1, listLimitMax)
	if err != nil {
		return err
	}
	list, next, err := d.calls.List(f, after, int(limit))
	if err != nil {
		return err
	}
	of := make([]httpapi.Piece, len(list))
	byID := make(map[string]*calls.Record, len(list))
	for i := range list {
		r := &list[i]
		of[i], byID[r.ID] = httpapi.Piece{ID: r.ID, Workspace: r.Workspace}, r
	}
	out, err := httpapi.Gather(c, of, func(ctx context.Context, id string) (any, error) { return d.callOf(ctx, byID[id]) })
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"calls": out, "next": wire.Text(next)})
	return nil
}

// id is the route's call.
func (d *Dialect) id(c *gin.Context) (string, error) {
	id, err := httpapi.Param(c, "call")
	if err == nil && !task.ValidID(id) {
		err = errs.New(errs.NotFound, "call_not_found", "The call does not exist.")
	}
	return id, err
}

func (d *Dialect) get(c *gin.Context) error {
	id, err := d.id(c)
	if err != nil {
		return err
	}
	r, err := d.calls.Get(id, httpapi.CallerOf(c).Sees)
	if err != nil {
		return err
	}
	return d.respondCall(c, &r)
}

func (d *Dialect) respondCall(c *gin.Context, r *calls.Record) error {
	out, err := d.callOf(c.Request.Context(), r)
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}

func (d *Dialect) touch(c *gin.Context) error {
	id, err := d.id(c)
	if err != nil {
		return err
	}
	if err := httpapi.DecodeJSON(c, &struct{}{}); err != nil {
		return err
	}
	r, err := d.calls.Touch(id, httpapi.CallerOf(c).Sees)
	if err != nil {
		return err
	}
	return d.respondCall(c, &r)
}

type endedBody struct {
	CallID    string          `json:"call_id"`
	TaskID    string          `json:"task_id"`
	SubtaskID *string         `json:"subtask_id"`
	Status    calls.Status    `json:"status"`
	Commits   []string        `json:"commits"`
	Entries   []wire.Entry    `json:"entries"`
	Shared    []sharedBody    `json:"shared"`
	Overwrote []overwroteBody `json:"overwrote"`
	Policy    []againstBody   `json:"policy"`
	// TakenBack is the commit that took back what is against the policy, where the
	// settings say so.
	TakenBack *string `json:"taken_back,omitempty"`
	Undo      string  `json:"undo"`
	// HooksContext is false if the model is not to be given the above.
	HooksContext *bool `json:"hooks_context,omitempty"`
}

type sharedBody struct {
	Path         string   `json:"path"`
	PathEncoding string   `json:"path_encoding,omitempty"`
	Claimants    []string `json:"claimants"`
}

type againstBody struct {
	Path         string   `json:"path"`
	PathEncoding string   `json:"path_encoding,omitempty"`
	Rules        []string `json:"rules"`
}

type overwroteBody struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	TaskID       *string `json:"task_id"`
	Actor        *string `json:"actor"`
	Source       string  `json:"source"`
	At           string  `json:"at"`
}

func (d *Dialect) end(c *gin.Context) error {
	id, err := d.id(c)
	if err != nil {
		return err
	}
	var body struct {
		Status   *string           `json:"status"`
		ExitCode *int              `json:"exit_code"`
		Paths    []json.RawMessage `json:"paths"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	req := calls.End{ExitCode: body.ExitCode, Sees: httpapi.CallerOf(c).Sees}
	if body.Status != nil {
		if req.Status = calls.Status(*body.Status); req.Status == "" {
			req.Status = "-" // given, and none of those that there are
		}
	}
	if req.Paths, err = pathsOf(body.Paths); err != nil {
		return err
	}
	res, err := d.calls.End(c.Request.Context(), id, req)
	if err != nil {
		return err
	}
	out := endedBody{CallID: res.ID, TaskID: res.Task, SubtaskID: wire.Text(res.Subtask), Status: res.Status, Commits: make([]string, len(res.Commits)),
		Entries: wire.EntriesOf(res.Entries), Shared: make([]sharedBody, len(res.Shared)), Overwrote: make([]overwroteBody, len(res.Overwrote)),
		Policy: make([]againstBody, len(res.Policy)), TakenBack: wire.Text(res.TakenBack), Undo: "umbra undo --call " + res.ID}
	for i, x := range res.Policy {
		out.Policy[i].Rules = x.Rules
		out.Policy[i].Path, out.Policy[i].PathEncoding = wspath.EncodeJSON(x.Path)
	}
	if d.NoContext {
		out.HooksContext = new(bool)
	}
	for i, id := range res.Commits {
		out.Commits[i] = id.String()
	}
	for i, s := range res.Shared {
		out.Shared[i].Claimants = s.Claimants
		out.Shared[i].Path, out.Shared[i].PathEncoding = wspath.EncodeJSON(s.Path)
	}
	for i, o := range res.Overwrote {
		out.Overwrote[i] = overwroteBody{TaskID: wire.Text(o.Task), Actor: wire.Text(o.Actor), Source: o.Source, At: wire.Stamp(o.At)}
		out.Overwrote[i].Path, out.Overwrote[i].PathEncoding = wspath.EncodeJSON(o.Path)
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}

// revert undoes what a call did. The revert belongs to the call's task, also once
// that has ended.
func (d *Dialect) revert(c *gin.Context) error {
	id, err := d.id(c)
	if err != nil {
		return err
	}
	rec, err := d.calls.Get(id, httpapi.CallerOf(c).Sees)
	if err != nil { // before what the caller may do
		return err
	}
	var body struct{ wire.Revert }
	if err := wire.DecodeRevert(c, &body, &body.Revert); err != nil {
		return err
	}
	req, err := body.Request(c, revert.Scope{Call: &revert.Call{ID: rec.ID, From: rec.From}})
	if err != nil {
		return err
	}
	w, err := d.workspaces.Get(c.Request.Context(), rec.Workspace)
	if err != nil {
		return err
	}
	defer w.Release()
	if rec.Status == calls.Open { // what it did until now is its
		if err := w.RecordThen(c.Request.Context(), func() {}); err != nil {
			return err
		}
	}
	given := httpapi.TagsOf(c).TaskID
	name := given
	if name == "" {
		name = rec.Task
	}
	switch err := d.tasks.Writable(name, w.ID()); {
	case err == nil, given == "" && errs.CodeOf(err) == "task_ended": // as the revert of a task
		req.By.TaskID = name
	case given != "":
		return err
	}
	res, err := revert.Do(c.Request.Context(), w, d.history, *req)
	return wire.AnswerRevert(c, req, res, err)
}
