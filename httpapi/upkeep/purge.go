package upkeep

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/gitstore"
	gitobject "umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

//go:embed purge.yaml
var purgeDocument []byte

// Purge is the dialect of umbra purge: contents are taken out of a workspace's
// whole history.
type Purge struct {
	Workspaces *workspaces.Manager
	// Forget drops the kept answers for which named holds: their commits have
	// other ids now.
	Forget func(named func(*state.Answer) bool) (int, error)
	// Erase waits until what a purge of a workspace has dropped is nowhere in a cluster,
	// and returns what says where it still is; nil: nowhere. It is nil without a cluster.
	Erase func(ctx context.Context, w *workspace.Workspace, purged workspaces.Purged) any
	Log   *slog.Logger
}

// OpenAPI gives the dialect's part of the document.
func (d *Purge) OpenAPI() []byte { return purgeDocument }

// Register adds the dialect's route. It takes no Idempotency-Key: purging what is
// purged already says so.
func (d *Purge) Register(r *httpapi.Router) {
	r.Handle(httpapi.Route{Method: http.MethodPost, Pattern: "/upkeep/purge", Handler: d.purge, Access: httpapi.AccessOwner, About: d.aboutPurge, Body: httpapi.BodyJSON, Stream: true})
}

// aboutPurge is the workspace that is purged; if that is no directory, and a related one is,
// that: what is purged comes to its node.
func (d *Purge) aboutPurge(c *gin.Context) (httpapi.Place, error) {
	var body struct {
		Workspace string `json:"workspace"`
	}
	httpapi.PeekJSON(c, &body) // of what it cannot decode the handler says what is wrong
	if body.Workspace != "" {
		for _, id := range append([]string{body.Workspace}, d.Workspaces.Related(body.Workspace)...) {
			if r, ok := d.Workspaces.Record(id); ok && r.Kind != workspaces.VirtualKind {
				return httpapi.Place{Workspace: id}, nil
			}
		}
	}
	return httpapi.Place{Workspace: body.Workspace}, nil
}

type purgeBody struct {
	Workspace    string  `json:"workspace"`
	Path         *string `json:"path"`
	PathEncoding string  `json:"path_encoding"`
	Blob         *string `json:"blob"`
	Ignore       bool    `json:"ignore"`
	Force        bool    `json:"force"`
	DryRun       bool    `json:"dry_run"`
}

// file is a path as JSON has it.
type purgeFile struct {
	Path         string `json:"path"`
	PathEncoding string `json:"path_encoding,omitempty"`
}

func purgeFiles(paths []wspath.Path) []purgeFile {
	out := make([]purgeFile, len(paths))
	for i, p := range paths {
		out[i].Path, out[i].PathEncoding = p.JSON()
	}
	return out
}

type purgeClone struct {
	Who   *string `json:"who"`
	From  string  `json:"from"`
	What  string  `json:"what"`
	Last  string  `json:"last"`
	Count uint64  `json:"count"`
}

type purgeResult struct {
	Workspace string            `json:"workspace"`
	DryRun    bool              `json:"dry_run"`
	Refused   bool              `json:"refused"` // of a dry run: without it, it would be
	Blobs     []string          `json:"blobs"`
	Names     []purgeFile       `json:"names"`
	Kept      []purgeFile       `json:"kept"` // whose content on disk stays in history
	Commits   uint64            `json:"commits"`
	Touched   uint64            `json:"touched"`
	First     uint64            `json:"first"`
	Bytes     int64             `json:"bytes"`
	Files     []purgeFile       `json:"files"`
	Held      []gitstore.Holder `json:"held"`
	Dropped   []gitstore.Holder `json:"dropped"`
	Foreign   []string          `json:"foreign"`
	Head      *string           `json:"head"`
	Clones    []purgeClone      `json:"clones"`
	// NotReached says where such bytes may still be.
	NotReached []string `json:"not_reached"`
	// Remaining says what of a cluster still has such bytes; null: nothing.
	Remaining any `json:"remaining"`
}

func (d *Purge) request(c *gin.Context) (ws string, req workspace.PurgeRequest, err error) {
	var body purgeBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return "", req, err
	}
	if body.Workspace == "" {
		return "", req, wrong("workspace", "workspace is needed.")
	}
	if (body.Path == nil) == (body.Blob == nil) {
		return "", req, wrong("path", "One of path and blob is needed.")
	}
	req = workspace.PurgeRequest{Ignore: body.Ignore, Force: body.Force, DryRun: body.DryRun}
	if body.Path != nil {
		req.Path, err = wspath.FromJSON(*body.Path, body.PathEncoding)
		return body.Workspace, req, err
	}
	if req.Blob, err = gitobject.ParseID(*body.Blob); err != nil || req.Blob.IsZero() {
		return "", req, wrong("blob", "blob must be the full id of a blob, 40 hexadecimal digits.")
	}
	return body.Workspace, req, nil
}

func (d *Purge) purge(c *gin.Context) error {
	id, req, err := d.request(c)
	if err != nil {
		return err
	}
	w, err := d.Workspaces.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	defer w.Release()
	return httpapi.ServeWork(c, func(ctx context.Context, progress func(httpapi.Progress)) (any, error) {
		req.Progress = func(step string, done, all int64) { progress(httpapi.Progress{Step: step, Done: done, All: all}) }
		done, err := w.Purge(ctx, req)
		if done != nil && !req.DryRun && (err == nil || errs.CodeOf(err) == "ref_locked") {
			d.forget(c, w, done)
		}
		if err != nil {
			return nil, err
		}
		out, err := d.answer(w, req, done)
		if err == nil && d.Erase != nil {
			out.NotReached = append(out.NotReached, "wal_archive", "bucket_versions")
			if !req.DryRun {
				req.Progress("deleting what is purged from the object store", 0, 0)
				out.Remaining = d.Erase(ctx, w, workspaces.Purged{Blobs: out.Blobs, Ignored: req.Ignore})
			}
		}
		return out, err
	})
}

// forget drops what is kept of answers, and writes the audit line.
func (d *Purge) forget(c *gin.Context, w *workspace.Workspace, done *workspace.PurgeResult) {
	n, err := d.Forget(func(a *state.Answer) bool {
		if done.Purged.Names(a.Body) {
			return true
		}
		for _, values := range a.Header {
			for _, v := range values {
				if done.Purged.Names([]byte(v)) {
					return true
				}
			}
		}
		return false
	})
	if err != nil {
		d.Log.LogAttrs(c.Request.Context(), slog.LevelError, "kept answers are not looked through after a purge", slog.String("error", err.Error()))
	}
	audit.Allowed(c.Request.Context(), audit.Purge, w.ID(), slog.Uint64("commits", done.Commits), slog.Int("blobs", len(done.Blobs)), slog.Int("answers", n))
}

func (d *Purge) answer(w *workspace.Workspace, req workspace.PurgeRequest, done *workspace.PurgeResult) (*purgeResult, error) {
	out := &purgeResult{Workspace: w.ID(), DryRun: req.DryRun, Refused: done.Refused, Blobs: make([]string, len(done.Blobs)), Names: purgeFiles(done.Names), Kept: purgeFiles(done.Kept),
		Commits: done.Commits, Touched: done.Touched, First: done.First, Bytes: done.Bytes, Files: purgeFiles(done.OnDisk),
		Held: some(done.Holders), Dropped: some(done.Dropped), Foreign: some(done.Foreign), Clones: []purgeClone{},
		NotReached: []string{"scratch", "artifacts", "backups", "clones"}}
	for i, id := range done.Blobs {
		out.Blobs[i] = id.String()
	}
	if tip := w.Store().Tip(); !tip.Commit.IsZero() {
		out.Head = wire.Text(tip.Commit.String())
	}
	clones, err := w.Clones()
	if err != nil {
		return nil, err
	}
	for _, x := range clones {
		out.Clones = append(out.Clones, purgeClone{Who: wire.Text(x.Who), From: x.From, What: x.What, Last: wire.Stamp(x.Last), Count: x.Count})
	}
	return out, nil
}

// some returns a list that JSON does not encode as null.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
