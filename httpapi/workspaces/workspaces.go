// Package workspaces is the HTTP surface of workspaces as such
// (contracts/README.md, Other routes): list, bind, forget, sync, log,
// coverage, events.
package workspaces

import (
	"context"
	_ "embed"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/fork"
	"umbra/internal/history"
	"umbra/internal/task"
	"umbra/internal/textsearch"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

//go:embed openapi.yaml
var document []byte

// Dialect is the workspaces' routes.
type Dialect struct {
	workspaces *workspaces.Manager
	tasks      *task.Service
	forks      *fork.Service
	history    *history.Cache
	searching  textsearch.Slots
}

// New makes the dialect.
func New(m *workspaces.Manager, s *task.Service, f *fork.Service, cache *history.Cache) *Dialect {
	return &Dialect{workspaces: m, tasks: s, forks: f, history: cache, searching: textsearch.NewSlots()}
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes.
func (d *Dialect) Register(r *httpapi.Router) {
	d.registerForks(r.With(wire.WithFields(httpapi.TaskShape())))
	r = r.With(wire.WithFields(httpapi.CommonShape()))
	one := httpapi.AboutWorkspace("ws", "")
	add := func(method, pattern string, h httpapi.Handler, rt httpapi.Route) {
		rt.Method, rt.Pattern, rt.Handler = method, pattern, h
		r.Handle(rt)
	}
	add("GET", "/workspaces", d.list, httpapi.Route{About: httpapi.AboutNone})
	add("GET", "/workspaces/{ws}", d.get, httpapi.Route{About: one})
	add("PATCH", "/workspaces/{ws}", d.rebind, httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: httpapi.BodyJSON})
	add("DELETE", "/workspaces/{ws}?history&force", d.forget, httpapi.Route{About: one, Access: httpapi.AccessWrite})
	// A token that may only read may sync: what is on disk is on disk already.
	add("POST", "/workspaces/{ws}/sync", d.sync, httpapi.Route{About: one, Body: httpapi.BodyOptionalJSON})
	add("GET", "/workspaces/{ws}/log?path&task_id&source&after&limit", d.log, httpapi.Route{About: one, Follow: httpapi.FollowReads})
	add("GET", "/workspaces/{ws}/log/search?pattern&literal&ignore_case&path&after&max", d.searchLog, httpapi.Route{About: one, Follow: httpapi.FollowReads})
	add("GET", "/workspaces/{ws}/search?pattern&literal&ignore_case&path&glob&context&max", d.searchFiles, httpapi.Route{About: one})
	add("GET", "/workspaces/{ws}/commits/{commit}?path&task_id&source&change_id", d.commit, httpapi.Route{About: one, Follow: httpapi.FollowReads})
	add("GET", "/workspaces/{ws}/commits/{commit}/diff?path&task_id&source&change_id&context", d.commitDiff, httpapi.Route{About: one, Follow: httpapi.FollowReads})
	// A dry run is reading; the handlers ask for more.
	undo := httpapi.Route{About: one, Body: httpapi.BodyOptionalJSON, Changes: true}
	add("POST", "/workspaces/{ws}/commits/{commit}/revert", d.revertCommit, undo)
	add("POST", "/workspaces/{ws}/revert", d.revertWhere, undo)
	add("POST", "/workspaces/{ws}/restore", d.restorePaths, httpapi.Route{About: one, Body: httpapi.BodyJSON, Changes: true})
	add("GET", "/workspaces/{ws}/checkpoints", d.listCheckpoints, httpapi.Route{About: one})
	add("POST", "/workspaces/{ws}/checkpoints", d.makeCheckpoint, httpapi.Route{About: one, Access: httpapi.AccessWrite, Body: httpapi.BodyJSON, Changes: true})
	add("DELETE", "/workspaces/{ws}/checkpoints/{name}", d.deleteCheckpoint, httpapi.Route{About: one, Access: httpapi.AccessWrite})
	// It changes nothing, but reads everything: not for who may only look.
	add("POST", "/workspaces/{ws}/verify?record", d.verify, httpapi.Route{About: one, Access: httpapi.AccessWrite})
	add("GET", "/workspaces/{ws}/coverage", d.coverage, httpapi.Route{About: one})
	add("GET", "/workspaces/{ws}/stream?after", d.stream, httpapi.Route{About: one, Stream: true})
}

func notFound() error {
	return errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
}

// id gives the route's workspace, if the caller may know of it. One whose
// baseline is being taken is waited for.
func (d *Dialect) id(c *gin.Context) (workspaces.Record, error) {
	b, begun, err := d.begun(c)
	if begun {
		err = b.Wait(c.Request.Context())
	}
	if err != nil {
		return workspaces.Record{}, err
	}
	id, err := httpapi.Param(c, "ws")
	if err != nil {
		return workspaces.Record{}, err
	}
	rec, ok, err := d.workspaces.Lookup(id)
	if err != nil {
		return workspaces.Record{}, err
	}
	if !ok || !httpapi.CallerOf(c).Sees(rec.Place()) {
		return workspaces.Record{}, notFound()
	}
	return rec, nil
}

// open opens the route's workspace. The caller releases it.
func (d *Dialect) open(c *gin.Context) (*workspace.Workspace, error) {
	rec, err := d.id(c)
	if err != nil {
		return nil, err
	}
	return d.workspaces.Get(c.Request.Context(), rec.ID)
}

func (d *Dialect) using(c *gin.Context, h func(w *workspace.Workspace) error) error {
	w, err := d.open(c)
	if err != nil {
		return err
	}
	defer w.Release()
	return h(w)
}

type object struct {
	ID       string   `json:"id"`
	Root     *string  `json:"root"`
	Kind     string   `json:"kind"`
	Ref      string   `json:"ref"`
	GitDir   string   `json:"git_dir"`
	Head     *string  `json:"head"`
	State    string   `json:"state"`
	Tasks    int      `json:"tasks"`
	Warnings []string `json:"warnings"`
	Created  string   `json:"created"`
	LastUsed string   `json:"last_used"`
	forkObject
	// DiskBytes is what the repository and the journals take.
	DiskBytes int64 `json:"disk_bytes"`
	// Baseline is there while it is being taken.
	Baseline *baselineObject `json:"baseline,omitempty"`
}

func (d *Dialect) describe(w *workspace.Workspace) (object, error) {
	rec, ok := d.workspaces.Record(w.ID())
	if !ok {
		return object{}, notFound()
	}
	all, err := d.tasks.Count(rec.ID)
	if err != nil {
		return object{}, err
	}
	o := object{ID: rec.ID, Root: wire.Text(rec.Root), Kind: rec.ShownKind(), forkObject: forkOf(rec), Ref: wire.ShadowRef, GitDir: w.GitDir(),
		State: string(w.State()), Tasks: all, Warnings: w.Warnings(), Created: wire.Stamp(rec.Created), LastUsed: wire.Stamp(rec.LastUsed),
		DiskBytes: w.Store().DiskBytes()}
	if tip := w.Store().Tip(); !tip.Commit.IsZero() {
		o.Head = wire.Text(tip.Commit.String())
	}
	if o.Warnings == nil {
		o.Warnings = []string{}
	}
	return o, nil
}

func (d *Dialect) respondWorkspace(c *gin.Context, w *workspace.Workspace) error {
	o, err := d.describe(w)
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, o)
	return nil
}

// resting describes a workspace that is unloaded, without opening it.
func (d *Dialect) resting(rec workspaces.Record, rest workspaces.Rest, state workspace.State) (object, error) {
	all, err := d.tasks.Count(rec.ID)
	if err != nil {
		return object{}, err
	}
	o := object{ID: rec.ID, Root: wire.Text(rec.Root), Kind: rec.ShownKind(), forkObject: forkOf(rec), Ref: wire.ShadowRef, GitDir: d.workspaces.GitDir(rec.ID),
		State: string(state), Tasks: all, Warnings: rest.Warnings, Created: wire.Stamp(rec.Created), LastUsed: wire.Stamp(rec.LastUsed), DiskBytes: rest.DiskBytes}
	if rest.Head != "" {
		o.Head = wire.Text(rest.Head)
	}
	if o.Warnings == nil {
		o.Warnings = []string{}
	}
	return o, nil
}

func (d *Dialect) list(c *gin.Context) error {
	begun := d.workspaces.Begun()
	ids := httpapi.Part(c)
	if slices.Equal(ids, httpapi.AllOfNode) { // of the others its owners know
		out := map[string]any{}
		for _, b := range begun {
			if httpapi.CallerOf(c).Sees(b.Root) {
				out[b.ID] = d.describeBegun(b)
			}
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"pieces": out})
		return nil
	}
	if ids != nil {
		return httpapi.ServePart(c, ids, func(id string) (string, error) { return id, nil }, d.describer(c))
	}
	others, err := httpapi.Others(c)
	if err != nil {
		return err
	}
	list := d.workspaces.List()
	of := make([]httpapi.Piece, 0, len(list))
	for _, rec := range list {
		if httpapi.CallerOf(c).Sees(rec.Place()) {
			of = append(of, piece(rec))
		}
	}
	out, err := httpapi.Gather(c, of, d.describer(c))
	if err != nil {
		return err
	}
	done := func(id string) bool {
		return slices.ContainsFunc(list, func(rec workspaces.Record) bool { return rec.ID == id })
	}
	for _, b := range begun {
		if !done(b.ID) && httpapi.CallerOf(c).Sees(b.Root) {
			out = append(out, d.describeBegun(b))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(others)) {
		if !done(id) {
			out = append(out, others[id])
		}
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"workspaces": out})
	return nil
}

// piece is a workspace in a list: of one at rest the record has all.
func piece(rec workspaces.Record) httpapi.Piece {
	p := httpapi.Piece{ID: rec.ID}
	if rec.Rest == nil {
		p.Workspace = rec.ID
	}
	return p
}

// describer makes a list's entries. Those of workspaces that are unloaded are made
// without opening them.
func (d *Dialect) describer(c *gin.Context) httpapi.Entry {
	caller := httpapi.CallerOf(c)
	return func(ctx context.Context, id string) (any, error) {
		rec, ok, err := d.workspaces.Lookup(id)
		if err != nil {
			return nil, err
		}
		if !ok || !caller.Sees(rec.Place()) {
			return nil, notFound()
		}
		return d.describeRecord(ctx, rec)
	}
}

func (d *Dialect) get(c *gin.Context) error {
	b, begun, err := d.begun(c)
	if err != nil {
		return err
	}
	if begun {
		httpapi.JSON(c, http.StatusOK, d.describeBegun(b))
		return nil
	}
	return d.using(c, func(w *workspace.Workspace) error { return d.respondWorkspace(c, w) })
}

func (d *Dialect) rebind(c *gin.Context) error {
	rec, err := d.id(c)
	if err != nil {
		return err
	}
	var body struct {
		Root   *string `json:"root"`
		Judged *judged `json:"judged"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if body.Judged != nil && body.Root == nil {
		j, err := body.Judged.judgment()
		if err == nil {
			err = d.workspaces.Judge(rec.ID, j)
		}
		if err != nil {
			return err
		}
		return d.using(c, func(w *workspace.Workspace) error { return d.respondWorkspace(c, w) })
	}
	if body.Judged != nil {
		return errs.New(errs.Unprocessable, "validation_failed", "root and judged are changed one at a time.").With("field", "judged")
	}
	if body.Root == nil || !filepath.IsAbs(*body.Root) || strings.IndexByte(*body.Root, 0) >= 0 {
		return errs.New(errs.Unprocessable, "validation_failed", "root must be the absolute path of a directory.").With("field", "root")
	}
	w, err := d.forks.Rebind(c.Request.Context(), rec.ID, *body.Root, workspaces.OpenOptions{Allow: httpapi.CallerOf(c).MayOpen})
	if err != nil {
		return err
	}
	defer w.Release()
	audit.Allowed(c.Request.Context(), audit.Rebind, rec.ID, slog.String("root", *body.Root))
	return d.respondWorkspace(c, w)
}

func (d *Dialect) forget(c *gin.Context) error {
	rec, err := d.id(c)
	if err != nil {
		return err
	}
	keep, given, err := httpapi.Query(c, "history")
	if err != nil {
		return err
	}
	if given && keep != "delete" && keep != "keep" {
		return errs.New(errs.Invalid, "invalid_parameter", "history must be keep or delete.").With("field", "history")
	}
	force, err := httpapi.QueryBool(c, "force", false)
	if err != nil {
		return err
	}
	if err := d.forks.Delete(c.Request.Context(), rec.ID, force, keep == "delete"); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	c.Writer.WriteHeaderNow()
	return nil
}

func (d *Dialect) sync(c *gin.Context) error {
	return d.using(c, func(w *workspace.Workspace) error {
		var body struct {
			Adopt bool `json:"adopt"`
		}
		if err := httpapi.DecodeJSON(c, &body); err != nil {
			return err
		}
		if body.Adopt && httpapi.CallerOf(c).Scope < httpapi.ScopeWrite {
			httpapi.CallerOf(c).Refused("read_only_token")
			return errs.New(errs.Forbidden, "scope_insufficient", "The token may not bind the workspace to another directory.")
		}
		res, err := w.Sync(c.Request.Context(), workspace.SyncOptions{Adopt: body.Adopt, Allow: httpapi.CallerOf(c).MayOpen, Attribute: true})
		if err != nil {
			return err
		}
		out := map[string]any{"commit": nil, "changed": res.Changed, "skipped": wire.SkipsOf(res.Skipped)}
		if !res.Commit.IsZero() {
			out["commit"] = res.Commit.String()
		}
		httpapi.JSON(c, http.StatusOK, out)
		return nil
	})
}

func (d *Dialect) coverage(c *gin.Context) error {
	return d.using(c, func(w *workspace.Workspace) error {
		cov, err := w.Coverage(c.Request.Context())
		if err != nil {
			return err
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"skipped": wire.SkipsOf(cov.Skipped), "tracked": cov.Tracked, "ignored": cov.Ignored})
		return nil
	})
}

func (d *Dialect) stream(c *gin.Context) error {
	after, err := wire.StreamStart(c)
	if err != nil {
		return err
	}
	b, begun, err := d.begun(c)
	if err != nil {
		return err
	}
	if begun {
		return d.begunStream(c, b, after)
	}
	w, err := d.open(c)
	if err != nil {
		return err
	}
	if err := task.Reaches(w, after); err != nil {
		w.Release()
		return err
	}
	st := d.tasks.WorkspaceStream(w, after)
	defer st.Close()
	expiring := expiries{d: d, of: w.ID(), sees: httpapi.CallerOf(c).Sees, reported: map[string]time.Time{}}
	return httpapi.ServeEvents(c, func(ctx context.Context) (httpapi.Event, error) { return expiring.next(ctx, st) })
}
