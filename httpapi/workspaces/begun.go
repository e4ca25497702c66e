package workspaces

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
)

// progressEvery is how often a stream reports the progress of a baseline.
const progressEvery = 250 * time.Millisecond

// baselineObject describes a baseline that is being taken.
type baselineObject struct {
	Files int64 `json:"files"` // found so far; the total is not known yet
}

// begun gives the route's workspace if its baseline is being taken just now and
// the caller may know of it.
func (d *Dialect) begun(c *gin.Context) (workspaces.Begun, bool, error) {
	id, err := httpapi.Param(c, "ws")
	if err != nil {
		return workspaces.Begun{}, false, err
	}
	b, ok := d.workspaces.BegunOf(id)
	return b, ok && httpapi.CallerOf(c).Sees(b.Root), nil
}

// describeBegun describes a workspace that is none yet: no task, no history.
func (d *Dialect) describeBegun(b workspaces.Begun) object {
	return object{ID: b.ID, Root: wire.Text(b.Root), Kind: b.Kind, Ref: wire.ShadowRef, GitDir: d.workspaces.GitDir(b.ID),
		State: string(workspace.Reconciling), Warnings: []string{}, Created: wire.Stamp(b.Created), LastUsed: wire.Stamp(b.LastUsed),
		Baseline: &baselineObject{Files: b.Files()}}
}

// begunStream reports a baseline while it is taken, and goes on as the
// workspace's stream from its beginning, or from where the client asks for. It
// ends where the baseline fails.
func (d *Dialect) begunStream(c *gin.Context, b workspaces.Begun, after int64) error {
	var st *task.Stream
	defer func() {
		if st != nil {
			st.Close()
		}
	}()
	reported := int64(-1)
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	return httpapi.ServeEvents(c, func(ctx context.Context) (httpapi.Event, error) {
		for st == nil {
			done := false
			select {
			case <-b.Done:
				done = true
			default:
			}
			if files := b.Files(); files != reported {
				reported = files
				return progressEvent(b, files)
			}
			if done {
				w, err := d.workspaces.Get(ctx, b.ID)
				if err != nil {
					return httpapi.Event{}, io.EOF
				}
				st = d.tasks.WorkspaceStream(w, max(after, 0))
				break
			}
			select {
			case <-ctx.Done():
				return httpapi.Event{}, io.EOF
			case <-tick.C:
			case <-b.Done:
			}
		}
		return wire.Next(ctx, st)
	})
}

func progressEvent(b workspaces.Begun, files int64) (httpapi.Event, error) {
	data, err := json.Marshal(struct {
		WorkspaceID string         `json:"workspace_id"`
		Baseline    baselineObject `json:"baseline"`
	}{b.ID, baselineObject{Files: files}})
	return httpapi.Event{Name: "progress", Data: data}, err
}
