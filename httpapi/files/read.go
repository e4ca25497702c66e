package files

import (
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/taskfiles"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Bounds of what one request answers.
const (
	pageSize     = 1000
	pageMax      = 10_000
	contextLines = 100
)

// entry is one file, directory or link.
type entry struct {
	Path           string  `json:"path"`
	PathEncoding   string  `json:"path_encoding,omitempty"`
	Name           string  `json:"name"`
	Type           string  `json:"type"`
	Size           int64   `json:"size"`
	Mode           string  `json:"mode"`
	Mtime          string  `json:"mtime"`
	ETag           *string `json:"etag,omitempty"`
	Target         *string `json:"target,omitempty"`
	TargetEncoding string  `json:"target_encoding,omitempty"`
	Created        *string `json:"created,omitempty"`
}

func entryOf(e *taskfiles.Entry) entry {
	out := entry{Size: e.Info.Size, Mode: e.Mode.String(), Mtime: wire.Stamp(time.Unix(0, e.Info.MtimeNs)), ETag: wire.ETag(e.Blob)}
	out.Path, out.PathEncoding = e.Path.JSON()
	out.Name = path.Base(out.Path)
	if e.Path.IsRoot() {
		out.Name = "."
	}
	switch e.Kind {
	case workspace.KindDir:
		out.Type, out.Size = "directory", 0
	case workspace.KindSymlink:
		out.Type = "symlink"
	default:
		out.Type = "file"
	}
	if e.Link {
		text, enc := wspath.EncodeJSON(e.Target)
		out.Target, out.TargetEncoding = &text, enc
	}
	return out
}

func entriesOf(list []taskfiles.Entry) []entry {
	out := make([]entry, len(list))
	for i := range list {
		out[i] = entryOf(&list[i])
	}
	return out
}

// A cursor is the last path of a page. One that is not UTF-8, or begins as a
// coded one, is percent-encoded behind a mark.
const cursorMark = "%!"

func cursorOf(p wspath.Path) string {
	text, enc := p.JSON()
	if enc != "" {
		return cursorMark + text
	}
	if strings.HasPrefix(text, cursorMark) {
		return cursorMark + strings.ReplaceAll(text, "%", "%25")
	}
	return text
}

func parseCursor(s string) (wspath.Path, error) {
	if rest, ok := strings.CutPrefix(s, cursorMark); ok {
		raw, err := wspath.DecodePercent(rest)
		if err != nil {
			return "", errs.BadCursor()
		}
		s = raw
	}
	if s == "" {
		return "", errs.BadCursor()
	}
	return wspath.Path(s), nil
}

type listBody struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Entries      []entry `json:"entries"`
	Next         *string `json:"next"`
}

func (d *Dialect) list(c *gin.Context, r *task.Ref) error {
	t, _, err := wire.QueryTargetOrRoot(c, wspath.AllowRoot, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	var o taskfiles.ListOptions
	if o.Recursive, err = httpapi.QueryBool(c, "recursive", false); err != nil {
		return err
	}
	if o.Limit, err = limit(c, "limit", pageSize, pageMax); err != nil {
		return err
	}
	if after, given, err := httpapi.Query(c, "after"); err != nil {
		return err
	} else if given {
		if o.After, err = parseCursor(after); err != nil {
			return err
		}
	}
	if t.InArea() {
		return d.listArea(c, r, t, o)
	}
	if o.After != "" && !o.After.IsUnder(t.Path) {
		return errs.BadCursor()
	}
	page, more, err := taskfiles.List(c.Request.Context(), r.Workspace, t.Path, o)
	if err != nil {
		return err
	}
	body := listBody{Entries: entriesOf(page)}
	body.Path, body.PathEncoding = t.JSON()
	if more && len(page) > 0 {
		next := cursorOf(page[len(page)-1].Path)
		body.Next = &next
	}
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

// listArea lists one of the task's own directories.
func (d *Dialect) listArea(c *gin.Context, r *task.Ref, t target, o taskfiles.ListOptions) error {
	folders, release, err := d.tasks.Folders(r.Task.ID)
	if err != nil {
		return err
	}
	defer release()
	if info, err := folders.Stat(t.AreaPath()); err != nil {
		return err
	} else if !info.IsDir() {
		e := errs.New(errs.Invalid, "not_directory", "The path is not a directory.")
		e.Path, _ = t.JSON()
		return e
	}
	var all []entry
	var walk func(p wspath.Path) error
	walk = func(p wspath.Path) error {
		names, err := folders.Entries(c.Request.Context(), areas.Path{Area: t.Area, Path: p})
		if err != nil {
			return err
		}
		for _, n := range names {
			at := target{Path: p.Join(n.Name), Area: t.Area}
			e, err := d.areaEntry(c, folders, at)
			if errs.Is(err, errs.NotFound) {
				continue
			}
			if err != nil {
				return err
			}
			all = append(all, e)
			if o.Recursive && e.Type == "directory" {
				if err := walk(at.Path); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err := walk(t.Path); err != nil {
		return err
	}
	top, _ := t.JSON()
	if o.After != "" && !strings.HasPrefix(string(o.After), top) {
		return errs.BadCursor()
	}
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Path, b.Path) })
	from := slices.IndexFunc(all, func(e entry) bool { return o.After == "" || e.Path > string(o.After) })
	if from < 0 {
		from = len(all)
	}
	body := listBody{Entries: all[from:min(len(all), from+o.Limit)]}
	if len(body.Entries) == 0 {
		body.Entries = []entry{}
	}
	body.Path, body.PathEncoding = t.JSON()
	if from+o.Limit < len(all) {
		next := body.Entries[len(body.Entries)-1].Path
		body.Next = &next
	}
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

// areaEntry describes one path of the task's own directories.
func (d *Dialect) areaEntry(c *gin.Context, folders *areas.Folders, t target) (entry, error) {
	info, err := folders.Stat(t.AreaPath())
	if err != nil {
		return entry{}, err
	}
	e := entry{Type: "directory", Mode: "040000", Mtime: wire.Stamp(time.Unix(0, info.MtimeNs))}
	e.Path, e.PathEncoding = t.JSON()
	e.Name = path.Base(e.Path)
	if info.IsDir() {
		return e, nil
	}
	h, f, err := folders.Open(c.Request.Context(), t.AreaPath())
	if err != nil {
		return entry{}, err
	}
	h.Close()
	e.Type, e.Size, e.Mode, e.ETag, e.Mtime = "file", f.Size, f.Mode.String(), wire.ETag(f.Blob), wire.Stamp(f.Mtime)
	return e, nil
}

func (d *Dialect) stat(c *gin.Context, r *task.Ref) error {
	t, err := wire.QueryTarget(c, wspath.AllowRoot, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	follow, err := httpapi.QueryBool(c, "follow", true)
	if err != nil {
		return err
	}
	var out entry
	if t.InArea() {
		folders, release, err := d.tasks.Folders(r.Task.ID)
		if err != nil {
			return err
		}
		defer release()
		if out, err = d.areaEntry(c, folders, t); err != nil {
			return err
		}
	} else {
		e, err := taskfiles.Stat(c.Request.Context(), r.Workspace, t.Path, follow)
		if err != nil {
			return err
		}
		out = entryOf(&e)
		made, err := taskfiles.Created(c.Request.Context(), r.Workspace, d.history, r.Task.ID, t.Path)
		if err != nil {
			return err
		}
		if made != nil {
			when := wire.Stamp(made.When)
			out.Created = &when
		}
	}
	if t.Folder && out.Type != "directory" {
		e := errs.New(errs.Invalid, "not_directory", "The path is not a directory.")
		e.Path = string(t.Path)
		return e
	}
	if out.ETag != nil {
		c.Header("ETag", *out.ETag)
	}
	httpapi.JSON(c, http.StatusOK, out)
	return nil
}

type match struct {
	Path         string   `json:"path"`
	PathEncoding string   `json:"path_encoding,omitempty"`
	Line         int      `json:"line"`
	Column       int      `json:"column"`
	Text         string   `json:"text"`
	Before       []string `json:"before"`
	After        []string `json:"after"`
}

func (d *Dialect) search(c *gin.Context, r *task.Ref) error {
	t, given, err := wire.QueryTargetOrRoot(c, wspath.AllowRoot, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	if err := workspaceOnly(t); err != nil {
		return err
	}
	o := taskfiles.SearchOptions{Path: t.Path, Given: given}
	var has bool
	if o.Pattern, has, err = httpapi.Query(c, "pattern"); err != nil {
		return err
	} else if !has {
		return errs.New(errs.Invalid, "invalid_parameter", "The pattern parameter is required.").With("field", "pattern")
	}
	if o.Literal, err = httpapi.QueryBool(c, "literal", false); err != nil {
		return err
	}
	if o.IgnoreCase, err = httpapi.QueryBool(c, "ignore_case", false); err != nil {
		return err
	}
	if o.Glob, _, err = httpapi.Query(c, "glob"); err != nil {
		return err
	}
	lines, err := httpapi.QueryInt(c, "context", 0, 0, 1<<53)
	if err != nil {
		return err
	}
	o.Context = int(min(lines, contextLines))
	if o.Max, err = limit(c, "max", pageSize, pageMax); err != nil {
		return err
	}
	if _, has, _ := httpapi.Query(c, "max_per_file"); has {
		if o.MaxPerFile, err = limit(c, "max_per_file", pageMax, pageMax); err != nil {
			return err
		}
	}
	release, err := d.searching.Take(c.Request.Context())
	if err != nil {
		return errs.Wrap(err, "")
	}
	defer release()
	found, truncated, err := taskfiles.Search(c.Request.Context(), r.Workspace, o)
	if err != nil {
		return err
	}
	out := make([]match, len(found))
	for i, m := range found {
		out[i] = match{Line: m.Line, Column: m.Column, Text: m.Text, Before: m.Before, After: m.After}
		out[i].Path, out[i].PathEncoding = m.Path.JSON()
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"matches": out, "truncated": truncated})
	return nil
}

func (d *Dialect) glob(c *gin.Context, r *task.Ref) error {
	t, _, err := wire.QueryTargetOrRoot(c, wspath.AllowRoot, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	if err := workspaceOnly(t); err != nil {
		return err
	}
	pattern, given, err := httpapi.Query(c, "pattern")
	if err != nil {
		return err
	}
	if !given {
		return errs.New(errs.Invalid, "invalid_parameter", "The pattern parameter is required.").With("field", "pattern")
	}
	most, err := limit(c, "max", pageSize, pageMax)
	if err != nil {
		return err
	}
	found, truncated, err := taskfiles.Glob(c.Request.Context(), r.Workspace, t.Path, pattern, most)
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"entries": entriesOf(found), "truncated": truncated})
	return nil
}
