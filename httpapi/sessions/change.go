package sessions

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/session"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

type mkdirBody struct {
	Path         *string `json:"path"`
	PathEncoding string  `json:"path_encoding"`
	Recursive    bool    `json:"recursive"`
}

type made struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Created      bool    `json:"created"`
	Commit       *string `json:"commit"`
}

func (d *Dialect) mkdir(c *gin.Context, ses session.Session) error {
	var body mkdirBody
	if err := httpapi.DecodeLenient(c, &body); err != nil {
		return err
	}
	t, err := bodyTarget("path", body.Path, body.PathEncoding, wspath.AllowRoot, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	if cond, err := condition(c, nil); err != nil {
		return err
	} else if len(cond.Match) > 0 {
		return wrong("If-Match", "A directory has no tag to match.")
	}
	if t.Path.IsRoot() && !t.InArea() {
		// It is there.
		ref, err := d.taskOf(c, ses)
		if err != nil {
			return err
		}
		defer ref.Release()
		if err := d.tasks.MayWrite(ref); err != nil {
			return err
		}
		if !body.Recursive {
			return exists()
		}
		respondMade(c, t, false, nil)
		return nil
	}
	op := workspace.Op{Kind: workspace.OpMkdir, Path: t.Path, Recursive: body.Recursive}
	return d.change(c, ses, t, op, func(ref *task.Ref, res *workspace.Result, err error) error {
		if body.Recursive && errs.CodeOf(err) == "target_exists" && !t.InArea() {
			// A link to a folder is one.
			if l, serr := ref.Stat(c.Request.Context(), t.Path); serr == nil && l.Info.IsDir() {
				respondMade(c, t, false, nil)
				return nil
			}
		}
		if err != nil {
			return err
		}
		respondMade(c, t, res.Ops[0].Created, res)
		return nil
	})
}

func exists() error {
	return errs.New(errs.Conflict, "target_exists", "The target already exists.")
}

func respondMade(c *gin.Context, t target, created bool, res *workspace.Result) {
	body := made{Created: created, Commit: commitOf(res)}
	body.Path, body.PathEncoding = t.JSON()
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	httpapi.JSON(c, status, body)
}

type moveBody struct {
	From         *string `json:"from"`
	To           *string `json:"to"`
	PathEncoding string  `json:"path_encoding"`
	Overwrite    bool    `json:"overwrite"`
	IfMatchEtag  *string `json:"ifMatchEtag"`
}

type moved struct {
	From         string  `json:"from"`
	FromEncoding string  `json:"from_encoding,omitempty"`
	To           string  `json:"to"`
	ToEncoding   string  `json:"to_encoding,omitempty"`
	ETag         *string `json:"etag,omitempty"`
	Commit       *string `json:"commit"`
}

func (d *Dialect) move(c *gin.Context, ses session.Session) error {
	return d.relocate(c, ses, workspace.OpRename)
}

func (d *Dialect) copy(c *gin.Context, ses session.Session) error {
	return d.relocate(c, ses, workspace.OpCopy)
}

// relocate is a move or a copy.
func (d *Dialect) relocate(c *gin.Context, ses session.Session, kind workspace.OpKind) error {
	var body moveBody
	if err := httpapi.DecodeLenient(c, &body); err != nil {
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
	cond, err := condition(c, body.IfMatchEtag)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: kind, Path: from.Path, To: to.Path, Overwrite: body.Overwrite, MustBe: from.Kind(), If: workspace.Condition{Match: cond.Match}}
	if from.InArea() || to.InArea() {
		return d.relocateArea(c, ses, from, to, op)
	}
	return d.change(c, ses, from, op, func(ref *task.Ref, res *workspace.Result, err error) error {
		if err != nil {
			return refusedMove(c, ref, to, err)
		}
		respondMoved(c, from, to, moved{ETag: wire.ETag(res.Ops[0].Blob), Commit: commitOf(res)})
		return nil
	})
}

// refusedMove distinguishes a path that leads through a file, a fault of the
// request, from a file or directory that exists at the target, a conflict.
func refusedMove(c *gin.Context, ref *task.Ref, to target, err error) error {
	if errs.CodeOf(err) == "not_a_directory" {
		if _, serr := ref.Stat(c.Request.Context(), to.Path); serr == nil {
			return err
		}
	}
	return asInvalid(err, "not_a_directory", "special_file")
}

func respondMoved(c *gin.Context, from, to target, body moved) {
	body.From, body.FromEncoding = from.JSON()
	body.To, body.ToEncoding = to.JSON()
	httpapi.JSON(c, http.StatusOK, body)
}

type linkBody struct {
	Path         *string `json:"path"`
	Target       *string `json:"target"`
	PathEncoding string  `json:"path_encoding"`
}

type linked struct {
	Path           string  `json:"path"`
	PathEncoding   string  `json:"path_encoding,omitempty"`
	Target         string  `json:"target"`
	TargetEncoding string  `json:"target_encoding,omitempty"`
	Commit         *string `json:"commit"`
}

func (d *Dialect) symlink(c *gin.Context, ses session.Session) error {
	var body linkBody
	if err := httpapi.DecodeLenient(c, &body); err != nil {
		return err
	}
	t, err := bodyTarget("path", body.Path, body.PathEncoding)
	if err != nil {
		return err
	}
	if body.Target == nil {
		return required("target")
	}
	leads := *body.Target
	if body.PathEncoding == wspath.EncodingPercent {
		if leads, err = wspath.DecodePercent(leads); err != nil {
			return err
		}
	}
	if t.InArea() {
		return wrong("path", "Links are made in the workspace only.")
	}
	cond, err := condition(c, nil)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: workspace.OpSymlink, Path: t.Path, Target: leads, If: workspace.Condition{Match: cond.Match}}
	return d.change(c, ses, t, op, func(_ *task.Ref, res *workspace.Result, err error) error {
		if err != nil {
			// A FIFO is something at the path.
			if errs.CodeOf(err) == "special_file" {
				return exists()
			}
			return asInvalid(err, "not_a_directory")
		}
		out := linked{Commit: commitOf(res)}
		out.Path, out.PathEncoding = t.JSON()
		out.Target, out.TargetEncoding = wspath.EncodeJSON(leads)
		httpapi.JSON(c, http.StatusCreated, out)
		return nil
	})
}

type deleted struct {
	Path         string      `json:"path"`
	PathEncoding string      `json:"path_encoding,omitempty"`
	Deleted      bool        `json:"deleted"`
	Commit       *string     `json:"commit"`
	Unrecorded   []wire.Skip `json:"unrecorded,omitempty"`
}

func (d *Dialect) deleteFile(c *gin.Context, ses session.Session) error {
	t, err := queryTarget(c)
	if err != nil {
		return err
	}
	return d.delete(c, ses, t, workspace.Op{Kind: workspace.OpDelete, MustBe: workspace.KindFile})
}

func (d *Dialect) deleteDir(c *gin.Context, ses session.Session) error {
	t, err := queryTarget(c, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	recursive, err := httpapi.QueryBool(c, "recursive", false)
	if err != nil {
		return err
	}
	return d.delete(c, ses, t, workspace.Op{Kind: workspace.OpDelete, MustBe: workspace.KindDir, Recursive: recursive})
}

func (d *Dialect) delete(c *gin.Context, ses session.Session, t target, op workspace.Op) error {
	var err error
	if op.Force, err = httpapi.QueryBool(c, "force", false); err != nil {
		return err
	}
	cond, err := condition(c, nil)
	if err != nil {
		return err
	}
	op.Path, op.If.Match = t.Path, cond.Match
	if op.MustBe == workspace.KindDir && len(cond.Match) > 0 {
		return wrong("If-Match", "A directory has no tag to match.")
	}
	return d.change(c, ses, t, op, func(_ *task.Ref, res *workspace.Result, err error) error {
		if err != nil {
			return asInvalid(err, "not_a_directory", "is_a_directory", "directory_not_empty")
		}
		body := deleted{Deleted: res.Ops[0].Existed, Commit: commitOf(res)}
		body.Path, body.PathEncoding = t.JSON()
		if len(res.Unrecorded) > 0 {
			body.Unrecorded = wire.SkipsOf(res.Unrecorded)
		}
		httpapi.JSON(c, http.StatusOK, body)
		return nil
	})
}
