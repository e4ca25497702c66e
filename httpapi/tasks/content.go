package tasks

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/gitstore"
	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/taskfiles"
	"umbra/internal/textlines"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

func (d *Dialect) readContent(c *gin.Context) error {
	return using(d.open, func(c *gin.Context, r *task.Ref) error {
		t, err := wire.QueryTarget(c)
		if err != nil {
			return err
		}
		at, given, err := httpapi.Query(c, "at")
		switch {
		case err != nil:
			return err
		case t.InArea() && given:
			return errs.New(errs.Invalid, "invalid_parameter", "Scratch and artifacts have no history.").With("field", "at")
		case t.InArea():
			return d.serveArea(c, r.Task.ID, t.AreaPath())
		case given:
			return d.serveHistory(c, r, t.Path, at)
		}
		return serveDisk(c, r.Workspace, t.Path)
	})(c)
}

// serve answers with a file's content: whole, the asked range, or, where
// offset or limit is given, its lines.
func serve(c *gin.Context, content httpapi.Content) error {
	_, offset, err := httpapi.Query(c, "offset")
	if err != nil {
		return err
	}
	_, limit, err := httpapi.Query(c, "limit")
	if err != nil {
		return err
	}
	if !offset && !limit {
		return httpapi.ServeContent(c, content)
	}
	return serveLines(c, content)
}

// serveLines answers with some lines of a text. The ETag is that of the whole
// file, so a Range does not apply.
func serveLines(c *gin.Context, content httpapi.Content) error {
	offset, err := httpapi.QueryInt(c, "offset", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(c, "limit", math.MaxInt64, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	lines, err := textlines.Find(content.Body, offset, limit)
	if err != nil {
		return err
	}
	h := c.Writer.Header()
	h.Set("Umbra-Total-Lines", strconv.FormatInt(lines.Total, 10))
	if next := offset + lines.Count; offset <= lines.Total && next < lines.Total {
		h.Set("Umbra-Next-Offset", strconv.FormatInt(next, 10))
	}
	content.Size = lines.To - lines.From
	content.Body = io.NewSectionReader(readerAt{content.Body}, lines.From, content.Size)
	content.Type = "text/plain; charset=utf-8"
	c.Request.Header.Del("Range")
	return httpapi.ServeContent(c, content)
}

// readerAt reads a file that one request has open at a position.
type readerAt struct{ io.ReadSeeker }

func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if _, err := r.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// inMemory is up to what size a file is read whole before it is served, in
// bytes: then its tag is of the very bytes that go out, also where a program
// writes into the file meanwhile.
const inMemory = 4 << 20

func serveDisk(c *gin.Context, w *workspace.Workspace, p wspath.Path) error {
	f, err := w.OpenFile(c.Request.Context(), p)
	if err != nil {
		return err
	}
	defer f.Close()
	content := httpapi.Content{ETag: httpapi.ETag(f.Blob.String()), ModTime: time.Unix(0, f.Info.MtimeNs), Size: f.Info.Size, Body: f}
	if f.Info.Size <= inMemory {
		data, err := io.ReadAll(io.LimitReader(io.NewSectionReader(f, 0, inMemory+1), inMemory+1))
		if err != nil {
			return errs.Wrap(err, "")
		}
		if len(data) <= inMemory {
			content.ETag = httpapi.ETag(object.Hash(object.Blob, data).String())
			content.Size, content.Body = int64(len(data)), bytes.NewReader(data)
		}
	}
	return serve(c, content)
}

func (d *Dialect) serveHistory(c *gin.Context, r *task.Ref, p wspath.Path, at string) error {
	commit, err := d.tasks.At(c.Request.Context(), r, at)
	if err != nil {
		return err
	}
	e, err := fileAt(c.Request.Context(), r.Store(), commit, p)
	if err != nil {
		return err
	}
	return serveBlob(c, r.Workspace, e.ID)
}

func serveBlob(c *gin.Context, w *workspace.Workspace, id object.ID) error {
	b, err := openBlob(c.Request.Context(), w.Store(), id)
	if err != nil {
		return err
	}
	defer b.Close()
	return serve(c, httpapi.Content{ETag: httpapi.ETag(id.String()), Size: b.Size, Body: b})
}

func (d *Dialect) writeContent(c *gin.Context) error {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		t, err := wire.QueryTarget(c)
		if err != nil {
			return err
		}
		return d.write(c, r, t)
	})(c)
}

// write writes the request's body to a path.
func (d *Dialect) write(c *gin.Context, r *task.Ref, t wire.Target) error {
	cond, err := wire.Condition(c)
	if err != nil {
		return err
	}
	mode, err := wire.HeaderMode(c)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: workspace.OpWrite, Path: t.Path, Body: httpapi.BodyReader(c), Size: c.Request.ContentLength, Mode: mode, If: cond}
	if t.InArea() {
		return d.applyArea(c, r, t.AreaOp(op))
	}
	var key string
	if httpapi.IdempotencyOf(c) != nil {
		// The key covers the body: it is taken in before anything is decided.
		body, err := d.tasks.Spool(c.Request.Context(), op.Body)
		if err != nil {
			return err
		}
		defer body.Close()
		op.Body, op.Size = body, body.Size
		if key, err = wire.KeyHash(c); err != nil {
			return err
		}
	}
	res, err := d.apply(c, r, workspace.Request{By: wire.By(c, key), Ops: []workspace.Op{op}})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if res.Ops[0].Created {
		status = http.StatusCreated
	}
	answer(c, status, writtenOf(res))
	return nil
}

// answer reports what a change of one path did.
func answer(c *gin.Context, status int, w written) {
	if w.ETag != nil {
		c.Header("ETag", *w.ETag)
	}
	httpapi.JSON(c, status, w)
}

// apply does a request for a task, and settles its key.
func (d *Dialect) apply(c *gin.Context, r *task.Ref, req workspace.Request) (*workspace.Result, error) {
	res, err := d.tasks.Apply(c.Request.Context(), r, req)
	if err != nil {
		return nil, err
	}
	wire.SettleKey(c, res.Replayed, !res.Commit.IsZero())
	return res, nil
}

func (d *Dialect) deleteContent(c *gin.Context) error {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		t, err := wire.QueryTarget(c, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		return d.delete(c, r, t)
	})(c)
}

func (d *Dialect) delete(c *gin.Context, r *task.Ref, t wire.Target) error {
	recursive, err := httpapi.QueryBool(c, "recursive", false)
	if err != nil {
		return err
	}
	cond, err := wire.Condition(c)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: workspace.OpDelete, Path: t.Path, Recursive: recursive, MustBe: t.Kind(), If: cond}
	if t.InArea() {
		return d.applyArea(c, r, t.AreaOp(op))
	}
	if op.Force, err = httpapi.QueryBool(c, "force", false); err != nil {
		return err
	}
	key, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	res, err := d.apply(c, r, workspace.Request{By: wire.By(c, key), Ops: []workspace.Op{op}})
	if errs.CodeOf(err) == "directory_not_empty" {
		if op, ok, uerr := taskfiles.UnkeepOp(c.Request.Context(), r.Workspace, t.Path); uerr != nil {
			return uerr
		} else if ok {
			res, err = d.apply(c, r, workspace.Request{By: wire.By(c, key), Ops: []workspace.Op{op}})
		}
	}
	if err != nil {
		return err
	}
	if op.Force && !res.Ops[0].Existed && res.Commit.IsZero() {
		// force is for what cannot be recorded; here it does not make a
		// missing file a deleted one.
		return missing(t.Path)
	}
	w := writtenOf(res)
	if res.Ops[0].Path.Base() == taskfiles.KeepName && res.Ops[0].Path.Dir() == t.Path {
		w.Path, w.PathEncoding = t.Path.JSON()
	}
	answer(c, http.StatusOK, w)
	return nil
}

func missing(p wspath.Path) error {
	e := errs.New(errs.NotFound, "file_not_found", "The file does not exist.")
	e.Path = string(p)
	return e
}

type moveBody struct {
	From      *string `json:"from"`
	To        *string `json:"to"`
	Path      *string `json:"path"`     // another name of from
	NewPath   *string `json:"new_path"` // another name of to
	Overwrite bool    `json:"overwrite"`
	Encoding  string  `json:"path_encoding"`
}

// ends settles the two paths of a move.
func (b *moveBody) ends() (from, to string, err error) {
	for _, x := range []struct {
		given, other *string
		name, alias  string
		value        *string
	}{{b.From, b.Path, "from", "path", &from}, {b.To, b.NewPath, "to", "new_path", &to}} {
		v, fault := either(x.given, x.other, x.name, x.alias)
		if v == nil {
			fault = x.name + " is required; a move takes from and to, or path and new_path."
		}
		if fault != "" {
			e := errs.New(errs.Unprocessable, "validation_failed", "%s", fault)
			return "", "", e.With("field", x.name)
		}
		*x.value = *v
	}
	return from, to, nil
}

func (d *Dialect) move(c *gin.Context) error {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		var body moveBody
		if err := httpapi.DecodeJSON(c, &body); err != nil {
			return err
		}
		fromPath, toPath, err := body.ends()
		if err != nil {
			return err
		}
		from, err := wire.ParseTarget(fromPath, body.Encoding, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		to, err := wire.ParseTarget(toPath, body.Encoding, wspath.AllowTrailingSlash)
		if err != nil {
			return err
		}
		cond, err := wire.Condition(c)
		if err != nil {
			return err
		}
		key, err := wire.KeyHash(c)
		if err != nil {
			return err
		}
		op := workspace.Op{Kind: workspace.OpRename, Path: from.Path, To: to.Path, Overwrite: body.Overwrite, MustBe: from.Kind(), If: cond}
		switch {
		case from.InArea() && to.InArea():
			area := from.AreaOp(op)
			area.ToArea = to.Area
			return d.applyArea(c, r, area)
		case from.InArea() || to.InArea():
			return crossing(from)
		}
		res, err := d.apply(c, r, workspace.Request{By: wire.By(c, key), Ops: []workspace.Op{op}})
		if err != nil {
			return err
		}
		answer(c, http.StatusOK, writtenOf(res))
		return nil
	})(c)
}

// crossing refuses a move between the project and a folder that has no
// history: it would be a write here and a delete there, which a client can say.
func crossing(from wire.Target) error {
	e := errs.New(errs.Unprocessable, "move_across", "A move does not cross between the workspace and the task's own directories; write there and delete here.")
	e.Path = string(from.Path)
	return e
}

// fileAt finds a file in a commit's tree, links followed inside it as the
// kernel would on disk. NotFound "file_not_found", Conflict "is_a_directory".
func fileAt(ctx context.Context, st *gitstore.Store, commit object.ID, p wspath.Path) (gitstore.Entry, error) {
	missing := func() error {
		e := errs.New(errs.NotFound, "file_not_found", "The file does not exist in that state.")
		e.Path, _ = p.JSON()
		return e
	}
	snap, err := st.SnapshotOf(ctx, commit)
	if err != nil {
		return gitstore.Entry{}, err
	}
	rest := p.Components()
	at := wspath.Root
	for links := 0; len(rest) > 0; {
		next := at.Join(rest[0])
		e, ok, err := snap.Lookup(next)
		if err != nil {
			return gitstore.Entry{}, err
		}
		if !ok {
			return gitstore.Entry{}, missing()
		}
		if e.Mode == object.Symlink {
			if links++; links > 40 {
				return gitstore.Entry{}, missing()
			}
			target, err := st.ReadBlob(ctx, e.ID, wspath.MaxTarget)
			if err != nil {
				return gitstore.Entry{}, err
			}
			to := path.Join(string(at), string(target))
			if path.IsAbs(string(target)) || to == ".." || strings.HasPrefix(to, "../") {
				return gitstore.Entry{}, missing()
			}
			if to == "." {
				to = ""
			}
			rest = append(wspath.Path(to).Components(), rest[1:]...)
			at = wspath.Root
			continue
		}
		if len(rest) == 1 {
			if e.Mode == object.Dir {
				return gitstore.Entry{}, dirAt(p)
			}
			return e, nil
		}
		if e.Mode != object.Dir {
			return gitstore.Entry{}, missing()
		}
		at, rest = next, rest[1:]
	}
	return gitstore.Entry{}, dirAt(p)
}

func dirAt(p wspath.Path) error {
	e := errs.New(errs.Conflict, "is_a_directory", "The path is a directory.")
	e.Path, _ = p.JSON()
	return e
}
