package sessions

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/session"
	"umbra/internal/task"
	"umbra/internal/workspace"
)

// written answers a write or an upload.
type written struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	BytesWritten int64   `json:"bytesWritten"`
	ETag         *string `json:"etag"`
	Mtime        string  `json:"mtime"`
	Created      bool    `json:"created"`
	Commit       *string `json:"commit"`
}

type writeBody struct {
	Path            *string `json:"path"`
	PathEncoding    string  `json:"path_encoding"`
	Content         *string `json:"content"`
	ContentEncoding *string `json:"contentEncoding"`
	IfMatchEtag     *string `json:"ifMatchEtag"`
}

func (b *writeBody) bytes() ([]byte, error) {
	if b.Content == nil {
		return nil, required("content")
	}
	switch {
	case b.ContentEncoding == nil || *b.ContentEncoding == "text":
		return []byte(*b.Content), nil
	case *b.ContentEncoding == "base64":
		data, err := base64.StdEncoding.Strict().DecodeString(*b.Content)
		if err != nil || strings.ContainsAny(*b.Content, "\r\n") {
			return nil, wrong("content", "content is not valid base64.")
		}
		return data, nil
	}
	return nil, wrong("contentEncoding", "contentEncoding must be text or base64.")
}

// write is POST …/write and POST …/upload.
func (d *Dialect) write(c *gin.Context, ses session.Session) error {
	var body writeBody
	if err := httpapi.DecodeLenient(c, &body); err != nil {
		return err
	}
	t, err := bodyTarget("path", body.Path, body.PathEncoding)
	if err != nil {
		return err
	}
	data, err := body.bytes()
	if err != nil {
		return err
	}
	op, err := writeOp(c, t, body.IfMatchEtag)
	if err != nil {
		return err
	}
	if len(data) > inMemory {
		op.Body, op.Size = bytes.NewReader(data), int64(len(data))
	} else {
		op.Data = data
	}
	return d.put(c, ses, t, op)
}

func writeOp(c *gin.Context, t target, ifMatch *string) (workspace.Op, error) {
	op := workspace.Op{Kind: workspace.OpWrite, Path: t.Path}
	var err error
	if op.If, err = condition(c, ifMatch); err != nil {
		return op, err
	}
	op.Mode, err = wire.HeaderMode(c)
	return op, err
}

// upload is PUT …/upload: the raw body, of any size.
func (d *Dialect) upload(c *gin.Context, ses session.Session) error {
	t, err := queryTarget(c)
	if err != nil {
		return err
	}
	op, err := writeOp(c, t, nil)
	if err != nil {
		return err
	}
	op.Body, op.Size = httpapi.BodyReader(c), c.Request.ContentLength
	if httpapi.IdempotencyOf(c) != nil {
		// The key covers the body: it is taken in before anything is decided.
		body, err := d.tasks.Spool(c.Request.Context(), op.Body)
		if err != nil {
			return err
		}
		defer body.Close()
		op.Body, op.Size = body, body.Size
	}
	return d.put(c, ses, t, op)
}

// put does a write and answers.
func (d *Dialect) put(c *gin.Context, ses session.Session, t target, op workspace.Op) error {
	return d.change(c, ses, t, op, func(ref *task.Ref, res *workspace.Result, err error) error {
		if err != nil {
			return noFile(err)
		}
		did := res.Ops[0]
		body := written{BytesWritten: did.Size, ETag: wire.ETag(did.Blob), Mtime: mtimeAfter(c.Request.Context(), ref, t, res), Created: did.Created, Commit: commitOf(res)}
		body.Path, body.PathEncoding = t.JSON()
		respondWritten(c, body)
		return nil
	})
}

func respondWritten(c *gin.Context, body written) {
	if body.ETag != nil {
		c.Header("ETag", *body.ETag)
	}
	status := http.StatusOK
	if body.Created {
		status = http.StatusCreated
	}
	httpapi.JSON(c, status, body)
}

// mtimeAfter is the time that the written file has on disk, or that of the
// change, should it be gone again.
func mtimeAfter(ctx context.Context, ref *task.Ref, t target, res *workspace.Result) string {
	if !t.InArea() {
		if at, err := ref.Mtime(ctx, res.Ops[0].Path); err == nil {
			return stamp(at)
		}
	}
	return stamp(res.When)
}

func commitOf(res *workspace.Result) *string {
	if res == nil || res.Commit.IsZero() {
		return nil
	}
	id := res.Commit.String()
	return &id
}

// change does one operation on t for the request's task; its last argument writes
// the response.
func (d *Dialect) change(c *gin.Context, ses session.Session, t target, op workspace.Op, respond func(*task.Ref, *workspace.Result, error) error) error {
	if t.InArea() {
		return d.changeArea(c, ses, t.AreaOp(op), respond)
	}
	ref, err := d.taskOf(c, ses)
	if err != nil {
		return err
	}
	defer ref.Release()
	key, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	res, err := d.tasks.Apply(c.Request.Context(), ref, workspace.Request{By: wire.By(c, key), Ops: []workspace.Op{op}})
	if err == nil {
		wire.SettleKey(c, res.Replayed, !res.Commit.IsZero())
	}
	return respond(ref, res, err)
}

type replaceBody struct {
	Path          *string `json:"path"`
	PathEncoding  string  `json:"path_encoding"`
	OldString     *string `json:"old_string"`
	NewString     *string `json:"new_string"`
	IfMatchEtag   *string `json:"ifMatchEtag"`
	AllowMultiple bool    `json:"allowMultiple"`
}

type replaced struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Replacements int     `json:"replacements"`
	ETag         *string `json:"etag"`
	Mtime        string  `json:"mtime"`
	Commit       *string `json:"commit"`
}

// edit is what a replace does to a file's bytes, whatever they are.
type edit struct {
	old, new []byte
	many     bool
	count    int // of the last time that it was done
}

func (e *edit) apply(data []byte) ([]byte, error) {
	e.count = bytes.Count(data, e.old)
	switch {
	case e.count == 0:
		return nil, errs.New(errs.Unprocessable, "no_match", "old_string is not in the file.")
	case e.count > 1 && !e.many:
		return nil, errs.New(errs.Unprocessable, "many_matches", "old_string is in the file %d times; give more of what is around it, or set allowMultiple.", e.count)
	}
	return bytes.ReplaceAll(data, e.old, e.new), nil
}

func (d *Dialect) replace(c *gin.Context, ses session.Session) error {
	var body replaceBody
	if err := httpapi.DecodeLenient(c, &body); err != nil {
		return err
	}
	t, err := bodyTarget("path", body.Path, body.PathEncoding)
	if err != nil {
		return err
	}
	switch {
	case body.OldString == nil:
		return required("old_string")
	case body.NewString == nil:
		return required("new_string")
	case *body.OldString == "":
		return wrong("old_string", "old_string must not be empty.")
	case *body.OldString == *body.NewString:
		return wrong("new_string", "old_string and new_string are the same.")
	}
	e := &edit{old: []byte(*body.OldString), new: []byte(*body.NewString), many: body.AllowMultiple}
	cond, err := condition(c, body.IfMatchEtag)
	if err != nil {
		return err
	}
	op := workspace.Op{Kind: workspace.OpEdit, Path: t.Path, If: cond, Edit: e.apply}
	return d.change(c, ses, t, op, func(ref *task.Ref, res *workspace.Result, err error) error {
		if err != nil {
			return noFile(err)
		}
		if res.Replayed {
			if err := e.recount(c, ref, res); err != nil {
				return err
			}
		}
		respondReplaced(c, t, replaced{Replacements: e.count, ETag: wire.ETag(res.Ops[0].Blob), Mtime: mtimeAfter(c.Request.Context(), ref, t, res), Commit: commitOf(res)})
		return nil
	})
}

func respondReplaced(c *gin.Context, t target, body replaced) {
	body.Path, body.PathEncoding = t.JSON()
	if body.ETag != nil {
		c.Header("ETag", *body.ETag)
	}
	httpapi.JSON(c, http.StatusOK, body)
}

// recount returns, for an answer that is repeated, how often the first one
// replaced: from the bytes that it found.
func (e *edit) recount(c *gin.Context, ref *task.Ref, res *workspace.Result) error {
	before := object.Zero
	for _, entry := range res.Entries {
		before = entry.Before
	}
	if before.IsZero() {
		return nil
	}
	r, size, err := ref.Store().OpenBlob(c.Request.Context(), before)
	if err != nil {
		return err
	}
	defer r.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return errs.Wrap(err, "")
	}
	e.count = bytes.Count(data, e.old)
	return nil
}
