package workspaces

import (
	"math"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/checkpoint"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Bounds of one answer, in bytes: of one version of a file, and of the patch;
// and the lines of context that may be asked for.
const (
	maxDiffed  = 256 << 20
	maxDiff    = 512 << 20
	maxContext = 100_000
)

type commitObject struct {
	Commit    string       `json:"commit"`
	Parent    *string      `json:"parent"`
	Seq       uint64       `json:"seq"`
	Timestamp string       `json:"timestamp"`
	Subject   string       `json:"subject"`
	TaskID    *string      `json:"task_id"`
	SubtaskID *string      `json:"subtask_id"`
	Actor     string       `json:"actor"`
	Source    string       `json:"source"`
	RequestID *string      `json:"request_id"`
	Reverts   []string     `json:"reverts"`
	Entries   []wire.Entry `json:"entries"`
}

func (d *Dialect) commit(c *gin.Context) error {
	return d.using(c, func(w *workspace.Workspace) error {
		found, entries, err := commitOf(c, w)
		if err != nil {
			return err
		}
		m := found.Message
		o := commitObject{Commit: found.ID.String(), Seq: found.Seq, Timestamp: wire.Stamp(found.When), Subject: m.Subject, TaskID: wire.Text(m.TaskID),
			SubtaskID: wire.Text(m.SubtaskID), Actor: m.Actor, Source: string(m.Source), RequestID: wire.Text(m.RequestID),
			Reverts: make([]string, len(m.Reverts)), Entries: wire.EntriesOf(entries)}
		if o.Subject == "" {
			o.Subject = m.Summary
		}
		if !found.Parent.IsZero() {
			o.Parent = wire.Text(found.Parent.String())
		}
		for i, id := range m.Reverts {
			o.Reverts[i] = id.String()
		}
		httpapi.JSON(c, http.StatusOK, o)
		return nil
	})
}

// commitOf gives the route's commit, and those of its entries that the query
// asks for.
func commitOf(c *gin.Context, w *workspace.Workspace) (*gitstore.Commit, []workspace.ChangeEntry, error) {
	name, err := httpapi.Param(c, "commit")
	if err != nil {
		return nil, nil, err
	}
	f, err := logFilter(c)
	if err != nil {
		return nil, nil, err
	}
	change, err := httpapi.QueryInt(c, "change_id", 0, 1, math.MaxInt64)
	if err != nil {
		return nil, nil, err
	}
	found, err := checkpoint.Resolve(c.Request.Context(), w, name)
	if err != nil {
		return nil, nil, err
	}
	all, err := w.EntriesOf(c.Request.Context(), found)
	if err != nil {
		return nil, nil, err
	}
	var wanted []workspace.ChangeEntry
	for i := range all {
		if (change == 0 || all[i].ID == uint64(change)) && f.Wants(&all[i]) {
			wanted = append(wanted, all[i])
		}
	}
	return found, wanted, nil
}

func (d *Dialect) commitDiff(c *gin.Context) error {
	context, err := httpapi.QueryInt(c, "context", diff.DefaultContext, 0, maxContext)
	if err != nil {
		return err
	}
	opts := diff.Options{Context: int(context), MaxBinary: 2 * maxDiffed}
	if context == 0 {
		opts.Context = diff.NoContext
	}
	return d.using(c, func(w *workspace.Workspace) error {
		found, entries, err := commitOf(c, w)
		if err != nil {
			return err
		}
		var text diff.Series
		total := diff.Patch{}
		for _, pair := range history.PairsOf(entries) {
			old, now, err := pair.Sides(c.Request.Context(), w.Store(), maxDiffed)
			if errs.Is(err, errs.TooLarge) {
				return tooLarge()
			}
			if err != nil {
				return err
			}
			p, err := diff.Format(old, now, opts)
			if err != nil {
				return err
			}
			if text.Len()+len(p.Text) > maxDiff {
				return tooLarge()
			}
			text.Add(p)
			total.Additions += p.Additions
			total.Deletions += p.Deletions
			total.Binary = total.Binary || p.Binary
		}
		c.Writer.Header().Add("Vary", "Accept")
		if !httpapi.WantsJSON(c) {
			c.Data(http.StatusOK, "text/x-diff; charset=utf-8", text.Bytes())
			return nil
		}
		body := map[string]any{"commit": found.ID.String(), "additions": total.Additions, "deletions": total.Deletions, "binary": total.Binary}
		patch, encoding := wspath.EncodeJSON(string(text.Bytes()))
		body["diff"] = patch
		if encoding != "" {
			body["diff_encoding"] = encoding
		}
		httpapi.JSON(c, http.StatusOK, body)
		return nil
	})
}

func tooLarge() error {
	return errs.New(errs.TooLarge, "diff_too_large", "The diff is larger than %d bytes, or a version of a file than %d; ask for one path at a time.",
		int64(maxDiff), int64(maxDiffed))
}
