package workspaces

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/message"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

const (
	logLimit    = 1000
	logLimitMax = 10_000
)

func (d *Dialect) log(c *gin.Context) error {
	return d.using(c, func(w *workspace.Workspace) error {
		f, err := logFilter(c)
		if err != nil {
			return err
		}
		after, _, err := httpapi.Query(c, "after")
		if err != nil {
			return err
		}
		place, err := parsePlace(after)
		if err != nil {
			return err
		}
		limit, err := httpapi.QueryInt(c, "limit", logLimit, 1, logLimitMax)
		if err != nil {
			return err
		}
		entries, next, err := d.tasks.Log(c.Request.Context(), w, f, place, int(limit))
		if err != nil {
			return err
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"entries": wire.EntriesOf(entries), "next": wire.Text(formatPlace(next))})
		return nil
	})
}

func logFilter(c *gin.Context) (f task.Filter, err error) {
	id, given, err := httpapi.Query(c, "task_id")
	if err != nil {
		return f, err
	}
	if given && !task.ValidID(id) {
		return f, errs.New(errs.Invalid, "invalid_task_id", "task_id is not a valid task ID.").With("field", "task_id")
	}
	f.Task = id
	source, given, err := httpapi.Query(c, "source")
	if err != nil {
		return f, err
	}
	if f.Source = message.Source(source); given && !f.Source.Valid() {
		return f, errs.New(errs.Invalid, "invalid_parameter", "source must be api, script, external, revert or another source of the changelog.").With("field", "source")
	}
	path, given, err := httpapi.Query(c, "path")
	if err != nil || !given {
		return f, err
	}
	f.Path, err = wspath.Parse(path, wspath.AllowRoot, wspath.AllowTrailingSlash)
	return f, err
}

// A cursor is the place in the log that the next page begins before.
func formatPlace(p task.Place) string {
	if p.Seq == 0 {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatUint(p.Seq, 10) + "." + strconv.Itoa(p.Entry)))
}

func parsePlace(s string) (task.Place, error) {
	if s == "" {
		return task.Place{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return task.Place{}, errs.BadCursor()
	}
	seq, entry, ok := strings.Cut(string(raw), ".")
	n, err := strconv.ParseUint(seq, 10, 63)
	if !ok || err != nil || n == 0 {
		return task.Place{}, errs.BadCursor()
	}
	i, err := strconv.Atoi(entry)
	if err != nil || i < 0 {
		return task.Place{}, errs.BadCursor()
	}
	return task.Place{Seq: n, Entry: i}, nil
}
