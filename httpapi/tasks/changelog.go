package tasks

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

const (
	changesLimit    = 1000
	changesLimitMax = 10_000
)

func (d *Dialect) changes(c *gin.Context) error {
	return using(d.openToRead, func(c *gin.Context, r *task.Ref) error {
		var f task.Filter
		sub, given, err := httpapi.Query(c, "subtask_id")
		if err != nil {
			return err
		}
		if given {
			if !task.ValidID(sub) {
				return invalidID("subtask_id")
			}
			f.Subtask = sub
		}
		path, given, err := httpapi.Query(c, "path")
		if err != nil {
			return err
		}
		if given {
			if f.Path, err = wspath.Parse(path, wspath.AllowRoot, wspath.AllowTrailingSlash); err != nil {
				return err
			}
		}
		after, err := httpapi.QueryInt(c, "after", 0, 0, math.MaxInt64)
		if err != nil {
			return err
		}
		limit, err := httpapi.QueryInt(c, "limit", changesLimit, 1, changesLimitMax)
		if err != nil {
			return err
		}
		entries, next, err := d.tasks.Changes(c.Request.Context(), r, f, uint64(after), int(limit))
		if err != nil {
			return err
		}
		if entries, err = d.withShared(c.Request.Context(), r, f, uint64(after), entries, next == 0); err != nil {
			return err
		}
		body := map[string]any{"task_id": r.Task.ID, "workspace": wire.Text(r.Root()), "entries": wire.EntriesOf(entries), "next": nil}
		if next != 0 {
			body["next"] = next
		}
		httpapi.JSON(c, http.StatusOK, body)
		return nil
	})(c)
}

// withShared puts the changes that the task and others may have made among a
// page of its own. They have no number: they are after the one before them,
// beyond limit.
func (d *Dialect) withShared(ctx context.Context, r *task.Ref, f task.Filter, after uint64, page []workspace.ChangeEntry, last bool) ([]workspace.ChangeEntry, error) {
	list, err := d.history.SharedEntries(ctx, r.Workspace, r.Task.ID, f.Subtask)
	if err != nil || len(list) == 0 {
		return page, err
	}
	from, to := uint64(0), uint64(math.MaxUint64)
	if after > 0 {
		switch e, err := d.tasks.Change(ctx, r, after); {
		case err == nil:
			from = e.Seq
		case !errs.Is(err, errs.NotFound) && !errs.Is(err, errs.Gone):
			return nil, err
		}
	}
	if !last && len(page) > 0 {
		to = page[len(page)-1].Seq
	}
	f.Subtask = ""
	for _, e := range list {
		if e.Seq > from && e.Seq <= to && f.Wants(&e) {
			page = append(page, e)
		}
	}
	slices.SortStableFunc(page, func(a, b workspace.ChangeEntry) int { return cmp.Compare(a.Seq, b.Seq) })
	return page, nil
}

func (d *Dialect) before(c *gin.Context) error {
	return using(d.open, func(c *gin.Context, r *task.Ref) error {
		raw, err := httpapi.Param(c, "n")
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(raw, 10, 63)
		if err != nil {
			return errs.New(errs.NotFound, "change_not_found", "The task has no such change.")
		}
		e, err := d.tasks.Change(c.Request.Context(), r, n)
		if err != nil {
			return err
		}
		if e.Before.IsZero() {
			return errs.New(errs.NotFound, "no_snapshot", "The change found nothing there.")
		}
		return serveBlob(c, r.Workspace, e.Before)
	})(c)
}

func (d *Dialect) stream(c *gin.Context) error {
	after, err := wire.StreamStart(c)
	if err != nil {
		return err
	}
	r, err := d.open(c)
	if err != nil {
		return err
	}
	if err := reaches(r, after); err != nil {
		r.Release()
		return err
	}
	st := d.tasks.TaskStream(r, after)
	defer st.Close()
	return httpapi.ServeEvents(c, func(ctx context.Context) (httpapi.Event, error) { return wire.Next(ctx, st) })
}

// reaches refuses a stream from a place that was dropped; of a task whose record
// alone is left, from any.
func reaches(r *task.Ref, after int64) error {
	if after >= 0 && r.Dropped {
		return r.InHistory()
	}
	return task.Reaches(r.Workspace, after)
}
