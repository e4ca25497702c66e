package workspaces

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/logsearch"
	"umbra/internal/taskfiles"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

const (
	searchMax    = 1000
	searchMaxMax = 10_000
	contextMax   = 100
	hitsMax      = 100
	hitsMaxMax   = 1000
)

// searchFor reads what all searches take.
func searchFor(c *gin.Context) (o logsearch.Options, given bool, err error) {
	var has bool
	if o.Pattern, has, err = httpapi.Query(c, "pattern"); err != nil {
		return o, false, err
	} else if !has {
		return o, false, errs.New(errs.Invalid, "invalid_parameter", "The pattern parameter is required.").With("field", "pattern")
	}
	if o.Literal, err = httpapi.QueryBool(c, "literal", false); err != nil {
		return o, false, err
	}
	if o.IgnoreCase, err = httpapi.QueryBool(c, "ignore_case", false); err != nil {
		return o, false, err
	}
	path, given, err := httpapi.Query(c, "path")
	if err != nil || !given {
		return o, false, err
	}
	o.Path, err = wspath.Parse(path, wspath.AllowRoot, wspath.AllowTrailingSlash)
	return o, true, err
}

// searchFiles is GET /workspaces/{ws}/search, as GET /tasks/{id}/search.
func (d *Dialect) searchFiles(c *gin.Context) error {
	s, given, err := searchFor(c)
	if err != nil {
		return err
	}
	o := taskfiles.SearchOptions{Pattern: s.Pattern, Literal: s.Literal, IgnoreCase: s.IgnoreCase, Path: s.Path, Given: given}
	if o.Glob, _, err = httpapi.Query(c, "glob"); err != nil {
		return err
	}
	lines, err := httpapi.QueryInt(c, "context", 0, 0, contextMax)
	if err != nil {
		return err
	}
	most, err := httpapi.QueryInt(c, "max", searchMax, 1, searchMaxMax)
	if err != nil {
		return err
	}
	o.Context, o.Max = int(lines), int(most)
	return d.using(c, func(w *workspace.Workspace) error {
		release, err := d.searching.Take(c.Request.Context())
		if err != nil {
			return errs.Wrap(err, "")
		}
		defer release()
		found, truncated, err := taskfiles.Search(c.Request.Context(), w, o)
		if err != nil {
			return err
		}
		out := make([]map[string]any, len(found))
		for i, m := range found {
			out[i] = map[string]any{"line": m.Line, "column": m.Column, "text": m.Text, "before": m.Before, "after": m.After}
			path, encoding := m.Path.JSON()
			if out[i]["path"] = path; encoding != "" {
				out[i]["path_encoding"] = encoding
			}
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"matches": out, "truncated": truncated})
		return nil
	})
}

// foundChange is a changelog entry with the lines of it that match.
type foundChange struct {
	wire.Entry
	Lines []foundLine `json:"lines"`
	More  int         `json:"more"`
}

type foundLine struct {
	Added bool   `json:"added"`
	Line  int    `json:"line"`
	Text  string `json:"text"`
}

// searchLog is GET /workspaces/{ws}/log/search.
func (d *Dialect) searchLog(c *gin.Context) error {
	o, _, err := searchFor(c)
	if err != nil {
		return err
	}
	after, _, err := httpapi.Query(c, "after")
	if err != nil {
		return err
	}
	if o.From, err = parsePlace(after); err != nil {
		return err
	}
	most, err := httpapi.QueryInt(c, "max", hitsMax, 1, hitsMaxMax)
	if err != nil {
		return err
	}
	o.Max = int(most)
	return d.using(c, func(w *workspace.Workspace) error {
		release, err := d.searching.Take(c.Request.Context())
		if err != nil {
			return errs.Wrap(err, "")
		}
		defer release()
		res, err := logsearch.Search(c.Request.Context(), d.tasks, w, o)
		if err != nil {
			return err
		}
		hits := make([]foundChange, len(res.Hits))
		for i := range res.Hits {
			hits[i] = foundChange{Entry: wire.EntryOf(&res.Hits[i].Entry), Lines: make([]foundLine, len(res.Hits[i].Lines)), More: res.Hits[i].More}
			for k, l := range res.Hits[i].Lines {
				hits[i].Lines[k] = foundLine{Added: l.Added, Line: l.Number, Text: l.Text}
			}
		}
		httpapi.JSON(c, http.StatusOK, map[string]any{"hits": hits, "next": wire.Text(formatPlace(res.Next)), "searched": res.Searched, "skipped": res.Skipped})
		return nil
	})
}
