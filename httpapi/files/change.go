package files

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/taskfiles"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

type editBody struct {
	Path         *string `json:"path"`
	PathEncoding string  `json:"path_encoding"`
	OldString    *string `json:"old_string"`
	NewString    *string `json:"new_string"`
	ReplaceAll   bool    `json:"replace_all"`
}

func (d *Dialect) edit(c *gin.Context, r *task.Ref) error {
	var body editBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	t, err := bodyTarget("path", body.Path, body.PathEncoding)
	if err != nil {
		return err
	}
	if body.OldString == nil {
		return required("old_string")
	}
	if body.NewString == nil {
		return required("new_string")
	}
	e := &taskfiles.Edit{Old: *body.OldString, New: *body.NewString, All: body.ReplaceAll}
	if err := e.Check(); err != nil {
		return err
	}
	cond, err := wire.Condition(c)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: workspace.OpEdit, Path: t.Path, If: cond, Edit: e.Apply}
	if t.InArea() {
		w, _, err := d.applyAt(c, r, t, op)
		if err != nil {
			return err
		}
		w.Occurrences = &e.Occurrences
		answer(c, http.StatusOK, w)
		return nil
	}
	res, err := d.apply(c, r, op)
	if err != nil {
		return err
	}
	if res.Replayed {
		if err := e.Recount(c.Request.Context(), r.Store(), res); err != nil {
			return err
		}
	}
	w := writtenOf(res)
	w.Occurrences = &e.Occurrences
	answer(c, http.StatusOK, w)
	return nil
}

// append adds the body to the end of a file, which it makes if it does not
// exist. Appending nothing changes nothing.
func (d *Dialect) append(c *gin.Context, r *task.Ref) error {
	t, err := wire.QueryTarget(c)
	if err != nil {
		return err
	}
	cond, err := wire.Condition(c)
	if err != nil {
		return err
	}
	data, err := httpapi.ReadBody(c)
	if err != nil {
		return err
	}
	add := func(old []byte) ([]byte, error) { return append(old[:len(old):len(old)], data...), nil }
	for {
		w, created, err := d.applyAt(c, r, t, workspace.Op{Kind: workspace.OpEdit, Path: t.Path, If: cond, Edit: add})
		if err != nil && errs.CodeOf(err) == "file_not_found" {
			if len(data) == 0 {
				if err := d.tasks.MayWrite(r); err != nil {
					return err
				}
				w.Path, w.PathEncoding = t.JSON()
				answer(c, http.StatusOK, w)
				return nil
			}
			w, created, err = d.applyAt(c, r, t, workspace.Op{Kind: workspace.OpWrite, Path: t.Path, Data: data, If: workspace.Condition{NoneMatchAny: true}})
			if err != nil && errs.Is(err, errs.Precondition) && !cond.NoneMatchAny {
				continue // another request made the file
			}
		}
		if err != nil {
			return err
		}
		answer(c, statusOf(created), w)
		return nil
	}
}

type mkdirBody struct {
	Path         *string `json:"path"`
	PathEncoding string  `json:"path_encoding"`
	Recursive    bool    `json:"recursive"`
}

func (d *Dialect) mkdir(c *gin.Context, r *task.Ref) error {
	var body mkdirBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	t, err := bodyTarget("path", body.Path, body.PathEncoding, wspath.AllowRoot, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: workspace.OpMkdir, Path: t.Path, Recursive: body.Recursive}
	if t.InArea() {
		w, created, err := d.applyAt(c, r, t, op)
		if err != nil {
			return err
		}
		w.Operation, w.Created = nil, &created
		w.Path, w.PathEncoding = t.JSON()
		answer(c, statusOf(created), w)
		return nil
	}
	if err := d.tasks.MayWrite(r); err != nil {
		return err
	}
	exists := func() error {
		if !body.Recursive {
			e := errs.New(errs.Conflict, "target_exists", "The target already exists.")
			e.Path = string(t.Path)
			return e
		}
		no := false
		w := written{Created: &no}
		w.Path, w.PathEncoding = t.JSON()
		answer(c, http.StatusOK, w)
		return nil
	}
	if t.Path.IsRoot() {
		return exists()
	}
	if taskfiles.Virtual(r.Workspace) {
		op, err = taskfiles.KeepOp(c.Request.Context(), r.Workspace, t.Path, body.Recursive)
	}
	var res *workspace.Result
	if err == nil {
		res, err = d.apply(c, r, op)
	}
	if err != nil {
		if code := errs.CodeOf(err); code == "target_exists" || code == "precondition_failed" {
			if l, serr := r.Stat(c.Request.Context(), t.Path); serr == nil && l.Kind == workspace.KindDir {
				return exists()
			}
		}
		return err
	}
	w := writtenOf(res)
	created := res.Ops[0].Created
	w.Created = &created
	if op.Kind != workspace.OpMkdir {
		w.Path, w.PathEncoding = t.JSON()
		w.ETag = nil
	}
	answer(c, statusOf(created), w)
	return nil
}

type copyBody struct {
	From         *string `json:"from"`
	To           *string `json:"to"`
	Path         *string `json:"path"`     // another name of from
	NewPath      *string `json:"new_path"` // another name of to
	PathEncoding string  `json:"path_encoding"`
	Overwrite    bool    `json:"overwrite"`
	Recursive    bool    `json:"recursive"`
}

// named settles the two names of each end.
func (b *copyBody) named() error {
	for _, x := range []struct {
		value       **string
		other       *string
		name, alias string
	}{{&b.From, b.Path, "from", "path"}, {&b.To, b.NewPath, "to", "new_path"}} {
		switch {
		case *x.value != nil && x.other != nil:
			return errs.New(errs.Unprocessable, "validation_failed", "%s and %s are two names of one field; give one of them.", x.name, x.alias).With("field", x.name)
		case x.other != nil:
			*x.value = x.other
		}
	}
	return nil
}

func (d *Dialect) copy(c *gin.Context, r *task.Ref) error {
	var body copyBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	if err := body.named(); err != nil {
		return err
	}
	from, err := bodyTarget("from", body.From, body.PathEncoding, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	to, err := bodyTarget("to", body.To, body.PathEncoding, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	for _, t := range []target{from, to} {
		if err := workspaceOnly(t); err != nil {
			return err
		}
	}
	cond, err := wire.Condition(c)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: workspace.OpCopy, Path: from.Path, To: to.Path, Overwrite: body.Overwrite, MustBe: from.Kind(), If: workspace.Condition{Match: cond.Match}}
	if !body.Recursive {
		// A link to a directory is copied as a link.
		if e, err := taskfiles.Stat(c.Request.Context(), r.Workspace, from.Path, false); err != nil {
			return err
		} else if e.Kind == workspace.KindDir {
			e := errs.New(errs.Invalid, "is_a_directory", "The path is a directory; copying one needs recursive.")
			e.Path = string(from.Path)
			return e
		}
	}
	res, err := d.apply(c, r, op)
	if err != nil {
		return err
	}
	answer(c, http.StatusOK, writtenOf(res))
	return nil
}

type linkBody struct {
	Path         *string `json:"path"`
	Target       *string `json:"target"`
	PathEncoding string  `json:"path_encoding"`
}

func (d *Dialect) symlink(c *gin.Context, r *task.Ref) error {
	var body linkBody
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	t, err := bodyTarget("path", body.Path, body.PathEncoding)
	if err != nil {
		return err
	}
	if body.Target == nil {
		return required("target")
	}
	if err := workspaceOnly(t); err != nil {
		return err
	}
	leads := *body.Target
	if body.PathEncoding == wspath.EncodingPercent {
		if leads, err = wspath.DecodePercent(leads); err != nil {
			return err
		}
	}
	res, err := d.apply(c, r, workspace.Op{Kind: workspace.OpSymlink, Path: t.Path, Target: leads})
	if err != nil {
		return err
	}
	w := writtenOf(res)
	text, enc := wspath.EncodeJSON(leads)
	w.Target, w.TargetEncoding = &text, enc
	answer(c, http.StatusCreated, w)
	return nil
}
