package upkeep

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/gitstore"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/retention"
)

//go:embed gc.yaml
var gcDocument []byte

// GC is the dialect of umbra gc and umbra du.
type GC struct{ Service *retention.Service }

// OpenAPI gives the dialect's part of the document.
func (d *GC) OpenAPI() []byte { return gcDocument }

// Register adds the dialect's routes.
func (d *GC) Register(r *httpapi.Router) {
	r.Handle(httpapi.Route{Method: http.MethodPost, Pattern: "/upkeep/gc", Handler: d.collect, Access: httpapi.AccessOwner, About: aboutCollect,
		Body: httpapi.BodyOptionalJSON, Stream: true})
	r.Handle(httpapi.Route{Method: http.MethodGet, Pattern: "/upkeep/du?by&workspace", Handler: d.usage, Access: httpapi.AccessOwner, About: aboutUsage})
}

// aboutUsage is the workspace that is asked for.
func aboutUsage(c *gin.Context) (httpapi.Place, error) {
	id, _, err := httpapi.Query(c, "workspace")
	return httpapi.Place{Workspace: id}, err
}

// aboutCollect is the one workspace that is asked for. Of several, or all, the node does
// those that no other node has.
func aboutCollect(c *gin.Context) (httpapi.Place, error) {
	var body struct {
		Workspaces []string `json:"workspaces"`
	}
	if httpapi.PeekJSON(c, &body) && len(body.Workspaces) == 1 {
		return httpapi.Place{Workspace: body.Workspaces[0]}, nil
	}
	return httpapi.Place{}, nil
}

type boundary struct {
	Commit string `json:"commit"`
	Seq    uint64 `json:"seq"`
}

func boundaryOf(b gitstore.Boundary) *boundary {
	if b.Whole() {
		return nil
	}
	return &boundary{Commit: b.Commit.String(), Seq: b.Seq}
}

type collected struct {
	Workspace    string    `json:"workspace"`
	Root         *string   `json:"root"`
	Commits      uint64    `json:"commits_dropped"`
	TasksDropped int       `json:"tasks_dropped"`
	TasksCut     int       `json:"tasks_cut"`
	Boundary     *boundary `json:"boundary"`
	Freed        int64     `json:"freed_bytes"`
	Waiting      int64     `json:"waiting_bytes"`
	DiskBytes    int64     `json:"disk_bytes"`
	Error        *string   `json:"error"`
}

type collectedAll struct {
	Workspaces []collected `json:"workspaces"`
	Freed      int64       `json:"freed_bytes"`
	Waiting    int64       `json:"waiting_bytes"`
	DryRun     bool        `json:"dry_run"`
	// Elsewhere are those that other nodes of a cluster have: each is asked for alone.
	Elsewhere []string `json:"elsewhere,omitempty"`
}

func (d *GC) collect(c *gin.Context) error {
	var body struct {
		Workspaces []string `json:"workspaces"`
		Now        bool     `json:"now"`
		DryRun     bool     `json:"dry_run"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	return httpapi.ServeWork(c, func(ctx context.Context, progress func(httpapi.Progress)) (any, error) {
		list, err := d.Service.Collect(ctx, retention.Request{Workspaces: body.Workspaces, Now: body.Now, DryRun: body.DryRun},
			func(step string, done, all int64) { progress(httpapi.Progress{Step: step, Done: done, All: all}) })
		if err != nil {
			return nil, err
		}
		out := collectedAll{Workspaces: []collected{}, DryRun: body.DryRun}
		for i := range list {
			r := &list[i]
			if !body.DryRun && (r.Commits > 0 || r.Failed == nil && !r.Elsewhere) {
				audit.Allowed(c.Request.Context(), audit.Retention, r.Workspace, slog.Uint64("commits", r.Commits), slog.Int("tasks", r.TasksDropped))
			}
			if r.Elsewhere {
				out.Elsewhere = append(out.Elsewhere, r.Workspace)
				continue
			}
			one := collected{Workspace: r.Workspace, Root: wire.Text(r.Root), Commits: r.Commits, TasksDropped: r.TasksDropped, TasksCut: r.TasksCut,
				Boundary: boundaryOf(r.Begin), Freed: r.Freed, Waiting: r.Waiting, DiskBytes: r.DiskBytes}
			if r.Failed != nil {
				code := errs.CodeOf(r.Failed)
				one.Error = &code
			}
			out.Workspaces = append(out.Workspaces, one)
			out.Freed += r.Freed
			out.Waiting += r.Waiting
		}
		return out, nil
	})
}

type usage struct {
	Workspace string      `json:"workspace"`
	Root      *string     `json:"root"`
	DiskBytes int64       `json:"disk_bytes"`
	TaskBytes int64       `json:"task_files_bytes"`
	Boundary  *boundary   `json:"boundary"`
	Other     *int64      `json:"other_bytes,omitempty"`
	Tasks     []taskUsage `json:"tasks,omitempty"`
}

type taskUsage struct {
	TaskID    string `json:"task_id"`
	Bytes     int64  `json:"bytes"`
	Scratch   int64  `json:"scratch_bytes"`
	Artifacts int64  `json:"artifacts_bytes"`
}

func (d *GC) usage(c *gin.Context) error {
	by, _, err := httpapi.Query(c, "by")
	if err != nil {
		return err
	}
	if by != "" && by != "task" {
		return errs.New(errs.Invalid, "invalid_parameter", "by must be task.").With("field", "by")
	}
	only, given, err := httpapi.Query(c, "workspace")
	if err != nil {
		return err
	}
	if given && only == "" {
		return errs.New(errs.NotFound, "workspace_not_found", "The workspace %q does not exist.", only)
	}
	list, elsewhere, err := d.Service.Usage(c.Request.Context(), only, by == "task")
	if err != nil {
		return err
	}
	out := struct {
		Workspaces []usage `json:"workspaces"`
		DiskBytes  int64   `json:"disk_bytes"`
		TaskBytes  int64   `json:"task_files_bytes"`
		// Elsewhere are those that other nodes of a cluster have: each is asked for alone.
		Elsewhere []string `json:"elsewhere,omitempty"`
	}{Workspaces: []usage{}, Elsewhere: elsewhere}
	for i := range list {
		u := &list[i]
		one := usage{Workspace: u.Workspace, Root: wire.Text(u.Root), DiskBytes: u.DiskBytes, TaskBytes: u.TaskBytes, Boundary: boundaryOf(u.Begin)}
		if by != "" {
			one.Other = &u.Other
			one.Tasks = make([]taskUsage, len(u.Tasks))
			for i, t := range u.Tasks {
				one.Tasks[i] = taskUsage{TaskID: t.Task, Bytes: t.Bytes, Scratch: t.Scratch, Artifacts: t.Artifacts}
			}
		}
		out.Workspaces = append(out.Workspaces, one)
		out.DiskBytes += u.DiskBytes
		out.TaskBytes += u.TaskBytes
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}
