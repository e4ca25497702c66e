package tasks

import (
	"context"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/gitstore"
	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

const (
	// maxDiffed is the size of one version of a file up to which it is diffed;
	// maxDiff bounds a whole answer.
	maxDiffed  = 256 << 20
	maxDiff    = 512 << 20
	maxContext = 100_000
)

// diffBody is the JSON form of a diff.
type diffBody struct {
	Path         *string    `json:"path"`
	PathEncoding string     `json:"path_encoding,omitempty"`
	From         *string    `json:"from,omitempty"`
	FromEncoding string     `json:"from_encoding,omitempty"`
	Diff         string     `json:"diff"`
	DiffEncoding string     `json:"diff_encoding,omitempty"`
	Additions    int        `json:"additions"`
	Deletions    int        `json:"deletions"`
	Binary       bool       `json:"binary"`
	Before       *string    `json:"before"`
	After        *string    `json:"after"`
	Mixed        bool       `json:"mixed"`
	Files        []diffBody `json:"files,omitzero"` // of a whole diff
}

// changed is one file to be diffed, from wherever its versions come.
type changed struct {
	old, now history.State
	mixed    bool
	differs  differs
}

// differs compares two versions of a file.
type differs interface {
	Patch(ctx context.Context, st *gitstore.Store, max int64, opts diff.Options) (diff.Patch, error)
}

// ask is what a diff's request asks for.
type ask struct {
	path     string // empty: all files
	from, to string // empty: the task's own range
	context  int
	json     bool
}

func (d *Dialect) diffAll(c *gin.Context) error {
	value, given, err := httpapi.Query(c, "path")
	if err != nil {
		return err
	}
	var a ask
	if given {
		p, err := wspath.Parse(value)
		if err != nil {
			return err
		}
		a.path = string(p)
	}
	return d.diff(c, a)
}

func (d *Dialect) diffFile(c *gin.Context) error {
	raw, err := httpapi.Param(c, "path")
	if err != nil {
		return err
	}
	p, err := wspath.Parse(raw)
	if err != nil {
		return err
	}
	return d.diff(c, ask{path: string(p)})
}

func (d *Dialect) diff(c *gin.Context, a ask) error {
	var err error
	if a.from, _, err = httpapi.Query(c, "from"); err != nil {
		return err
	}
	if a.to, _, err = httpapi.Query(c, "to"); err != nil {
		return err
	}
	n, err := httpapi.QueryInt(c, "context", diff.DefaultContext, 0, maxContext)
	if err != nil {
		return err
	}
	if a.context = int(n); n == 0 {
		a.context = diff.NoContext
	}
	if _, given, err := httpapi.Query(c, "subtask_id"); err != nil {
		return err
	} else if given && (a.from != "" || a.to != "") {
		return errs.New(errs.Invalid, "invalid_parameter", "A subtask's diff has the subtask's own range.").With("field", "subtask_id")
	}
	a.json = httpapi.WantsJSON(c)
	open := d.open
	if a.from == "" && a.to == "" && a.path == "" { // where nothing but the task's own changes counts
		open = d.openToRead
	}
	return using(open, func(c *gin.Context, r *task.Ref) error {
		list, err := d.changedFiles(c, r, a)
		if err != nil {
			return err
		}
		return serveDiff(c, r.Store(), a, list)
	})(c)
}

// changedFiles gives the files to be diffed.
func (d *Dialect) changedFiles(c *gin.Context, r *task.Ref, a ask) ([]changed, error) {
	var list []changed
	touched := false
	if a.from == "" && a.to == "" {
		if _, part, err := httpapi.Query(c, "subtask_id"); err != nil {
			return nil, err
		} else if a.path == "" && !part && r.Task.BaseDropped() {
			return nil, gitstore.ErrDropped()
		}
		sum, err := d.summary(c, r)
		if err != nil {
			return nil, err
		}
		files := sum.Files
		if a.path != "" {
			files = nil
			if f := sum.Find(a.path); f != nil {
				files = []history.File{*f}
			}
		}
		for i := range files {
			f := &files[i]
			list = append(list, changed{old: f.Before, now: f.After, mixed: f.Mixed, differs: f})
		}
	} else {
		from, to := a.from, a.to
		if from == "" {
			from = "base"
		}
		if to == "" {
			to = "head"
		}
		x, err := d.at(c, r, from, "from")
		if err != nil {
			return nil, err
		}
		y, err := d.at(c, r, to, "to")
		if err != nil {
			return nil, err
		}
		pairs, ok, err := d.history.Between(c.Request.Context(), r.Workspace, r.Task.ID, x, y, a.path)
		if err != nil {
			return nil, err
		}
		touched = ok
		for _, p := range pairs {
			list = append(list, changed{old: p.Old, now: p.New, differs: p})
		}
	}
	if a.path != "" && len(list) == 0 && !touched {
		return nil, d.untouched(c, r, a.path)
	}
	return list, nil
}

// untouched distinguishes a file that the task did not change from one that does
// not exist.
func (d *Dialect) untouched(c *gin.Context, r *task.Ref, path string) error {
	t, err := d.history.Task(c.Request.Context(), r.Workspace, r.Task.ID)
	if err != nil {
		return err
	}
	if t.Touched(path) {
		return nil
	}
	if _, ok, err := r.Store().Snapshot().Lookup(wspath.Path(path)); err != nil || ok {
		return err
	}
	f, err := r.OpenFile(c.Request.Context(), wspath.Path(path))
	if err == nil {
		f.Close() // on disk, but in no history: ignored
		return nil
	}
	return &errs.Error{Kind: errs.NotFound, Code: "file_not_found", Detail: "The file does not exist.", Path: path, Err: err}
}

func serveDiff(c *gin.Context, st *gitstore.Store, a ask, list []changed) error {
	var text diff.Series
	body := diffBody{Files: []diffBody{}}
	for _, f := range list {
		one, p, err := f.diff(c.Request.Context(), st, a)
		if err != nil {
			return err
		}
		if text.Len()+len(p.Text) > maxDiff {
			return errs.New(errs.TooLarge, "diff_too_large", "The diff is larger than %d bytes; ask for one file at a time.", int64(maxDiff))
		}
		text.Add(p)
		body.Additions += one.Additions
		body.Deletions += one.Deletions
		body.Binary = body.Binary || one.Binary
		body.Mixed = body.Mixed || one.Mixed
		body.Files = append(body.Files, one)
	}
	c.Writer.Header().Add("Vary", "Accept")
	if !a.json {
		c.Data(http.StatusOK, "text/x-diff; charset=utf-8", text.Bytes())
		return nil
	}
	if a.path == "" {
		body.Diff, body.DiffEncoding = wspath.EncodeJSON(string(text.Bytes()))
		httpapi.JSON(c, http.StatusOK, body)
		return nil
	}
	one := diffBody{}
	if len(body.Files) > 0 {
		one = body.Files[0]
	} else {
		p, enc := wspath.EncodeJSON(a.path)
		one.Path, one.PathEncoding = &p, enc
	}
	httpapi.JSON(c, http.StatusOK, one)
	return nil
}

func (f *changed) diff(ctx context.Context, st *gitstore.Store, a ask) (diffBody, diff.Patch, error) {
	path := f.now.Path
	if !f.now.Exists() {
		path = f.old.Path
	}
	name, enc := wspath.EncodeJSON(path)
	out := diffBody{Path: &name, PathEncoding: enc, Mixed: f.mixed, Before: wire.Snapshot(f.old.ID), After: wire.Snapshot(f.now.ID)}
	if f.old.Exists() && f.old.Path != path {
		from, enc := wspath.EncodeJSON(f.old.Path)
		out.From, out.FromEncoding = &from, enc
	}
	p, err := f.differs.Patch(ctx, st, maxDiffed, diff.Options{Context: a.context, MaxBinary: 2 * maxDiffed})
	if errs.Is(err, errs.TooLarge) {
		return out, diff.Patch{}, errs.New(errs.TooLarge, "diff_too_large", "A version of the file has more than %d bytes.", int64(maxDiffed))
	}
	if err != nil {
		return out, diff.Patch{}, err
	}
	out.Additions, out.Deletions, out.Binary = p.Additions, p.Deletions, p.Binary
	if a.json {
		out.Diff, out.DiffEncoding = wspath.EncodeJSON(string(p.Text))
	}
	return out, p, nil
}

// at resolves one end of a range; the parameter's own name is in its error.
func (d *Dialect) at(c *gin.Context, r *task.Ref, value, field string) (object.ID, error) {
	id, err := d.tasks.At(c.Request.Context(), r, value)
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Kind == errs.Invalid {
		return id, errs.New(errs.Invalid, "invalid_parameter",
			"%s must be \"base\", \"head\", a change id or a commit's full id.", field).With("field", field)
	}
	return id, err
}
