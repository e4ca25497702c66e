package tasks

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

type batchBody struct {
	SubtaskID  *string  `json:"subtask_id"`
	Message    string   `json:"message"`
	Operations batchOps `json:"operations"`
}

// batchOps are a batch's operations. No more are decoded than show that there are
// too many.
type batchOps []batchOp

// MaxItems implements strictjson.Bounded.
func (batchOps) MaxItems() int { return maxOperations }

type batchOp struct {
	Op           string  `json:"op"`
	Path         *string `json:"path"`
	PathEncoding string  `json:"path_encoding"`
	NewPath      *string `json:"new_path"`
	From         *string `json:"from"` // of a rename: another name of path
	To           *string `json:"to"`   // of a rename: another name of new_path
	Content      *string `json:"content"`
	Encoding     string  `json:"encoding"`
	Mode         *string `json:"mode"`
	IfMatch      *string `json:"if_match"`
	Recursive    bool    `json:"recursive"`
	Force        bool    `json:"force"`
	Overwrite    bool    `json:"overwrite"`
}

// maxOperations bounds a batch.
const maxOperations = 10_000

// opFault is what is wrong with one operation's form: 422, with its field.
func opFault(i int, field, detail string) error {
	e := errs.New(errs.Unprocessable, "validation_failed", "")
	e.Detail = detail
	return e.With("field", fmt.Sprintf("operations[%d].%s", i, field))
}

// planned is a batch as it is to be done: the workspace's part and the part in
// the task's own folders, each in order. They do not meet.
type planned struct {
	ops   []workspace.Op
	areas []areas.Op
}

func (d *Dialect) batch(c *gin.Context) error {
	return using(d.openForChange, func(c *gin.Context, r *task.Ref) error {
		var body batchBody
		if err := httpapi.DecodeJSON(c, &body); err != nil {
			return err
		}
		key, err := wire.KeyHash(c)
		if err != nil {
			return err
		}
		req := workspace.Request{By: wire.By(c, key), Message: body.Message}
		if body.SubtaskID != nil {
			if !task.ValidID(*body.SubtaskID) {
				return invalidID("subtask_id")
			}
			req.By.SubtaskID = *body.SubtaskID
		}
		switch n := len(body.Operations); {
		case n == 0:
			return errs.New(errs.Unprocessable, "validation_failed", "operations must not be empty.").With("field", "operations")
		case n > maxOperations:
			return errs.New(errs.Unprocessable, "validation_failed", "operations has more than %d members.", maxOperations).With("field", "operations")
		}
		plan := &planned{}
		for i := range body.Operations {
			if err := plan.add(i, &body.Operations[i]); err != nil {
				return err
			}
		}
		req.Ops = plan.ops
		return d.runBatch(c, r, plan, req)
	})(c)
}

// add adds the operation with the index i.
func (p *planned) add(i int, o *batchOp) error {
	if o.Op == "rename" {
		var fault string
		if o.Path, fault = either(o.Path, o.From, "path", "from"); fault == "" {
			o.NewPath, fault = either(o.NewPath, o.To, "new_path", "to")
		}
		if fault != "" {
			return opFault(i, "from", fault)
		}
	} else if o.From != nil || o.To != nil {
		return opFault(i, "from", "from and to are for a rename; "+o.Op+" takes path.")
	}
	if o.Path == nil {
		return opFault(i, "path", "path is required; a rename takes path and new_path, or from and to.")
	}
	var opts []wspath.Option
	if o.Op == "delete" || o.Op == "rename" {
		opts = append(opts, wspath.AllowTrailingSlash)
	}
	from, err := wire.ParseTarget(*o.Path, o.PathEncoding, opts...)
	if err != nil {
		return err
	}
	op := workspace.Op{Path: from.Path, Recursive: o.Recursive, Force: o.Force, Overwrite: o.Overwrite, MustBe: from.Kind()}
	toArea := from.Area
	if o.IfMatch != nil {
		match, ok := bodyMatch(*o.IfMatch)
		if !ok {
			return opFault(i, "if_match", "if_match is not an entity tag.")
		}
		op.If.Match = match
	}
	if o.Mode != nil {
		if op.Mode, err = fileMode(*o.Mode, "mode"); err != nil {
			return opFault(i, "mode", "mode must be 100644 or 100755.")
		}
	}
	switch o.Op {
	case "write":
		if op.Data, err = content(i, o); err != nil {
			return err
		}
		op.Kind = workspace.OpWrite
	case "delete":
		op.Kind = workspace.OpDelete
	case "rename":
		if o.NewPath == nil {
			return opFault(i, "new_path", "A rename needs new_path, or to.")
		}
		to, err := wire.ParseTarget(*o.NewPath, o.PathEncoding, opts...)
		if err != nil {
			return err
		}
		if from.InArea() != to.InArea() {
			return crossing(from)
		}
		op.Kind, op.To, toArea = workspace.OpRename, to.Path, to.Area
	case "chmod":
		if op.Mode == nil {
			return opFault(i, "mode", "A chmod needs a mode.")
		}
		op.Kind = workspace.OpChmod
	default:
		return opFault(i, "op", "op must be write, delete, rename or chmod.")
	}
	if !from.InArea() {
		p.ops = append(p.ops, op)
		return nil
	}
	op.Force = false // a missing path stays an error
	area := from.AreaOp(op)
	area.ToArea = toArea
	p.areas = append(p.areas, area)
	return nil
}

func content(i int, o *batchOp) ([]byte, error) {
	if o.Content == nil {
		return nil, opFault(i, "content", "A write needs content.")
	}
	switch o.Encoding {
	case "", "text":
		return []byte(*o.Content), nil
	case "base64":
		data, err := base64.StdEncoding.Strict().DecodeString(*o.Content)
		if err != nil || strings.ContainsAny(*o.Content, "\r\n") {
			return nil, opFault(i, "content", "content is not valid base64.")
		}
		return data, nil
	}
	return nil, opFault(i, "encoding", "encoding must be text or base64.")
}

// bodyMatch reads an if_match: as the header has it, or a bare blob id.
func bodyMatch(s string) ([]string, bool) {
	if id, err := object.ParseID(s); err == nil {
		return []string{id.String()}, true
	}
	m, ok := httpapi.ParseMatch(s)
	if !ok {
		return nil, false
	}
	return wire.Tags(m), true
}

// runBatch does both parts, all or nothing: the task's own folders first,
// which can be put back, and then the commit.
func (d *Dialect) runBatch(c *gin.Context, r *task.Ref, plan *planned, req workspace.Request) error {
	var res *workspace.Result
	commit := func() (err error) {
		if len(plan.ops) > 0 {
			res, err = d.apply(c, r, req)
			return err
		}
		return d.tasks.MayWrite(r)
	}
	if len(plan.areas) == 0 {
		if err := commit(); err != nil {
			return err
		}
		return respondBatch(c, r, plan, req, res, nil)
	}
	folders, release, err := d.tasks.Folders(r.Task.ID)
	if err != nil {
		return err
	}
	defer release()
	inAreas, err := folders.Apply(c.Request.Context(), plan.areas, commit)
	if err != nil {
		return err
	}
	return respondBatch(c, r, plan, req, res, inAreas)
}

func respondBatch(c *gin.Context, r *task.Ref, plan *planned, req workspace.Request, res *workspace.Result, inAreas []areas.Result) error {
	body := map[string]any{"commit": nil}
	var entries []wire.Entry
	if res != nil {
		if !res.Commit.IsZero() {
			body["commit"] = res.Commit.String()
		}
		if len(res.Unrecorded) > 0 {
			body["unrecorded"] = wire.SkipsOf(res.Unrecorded)
		}
		entries = wire.EntriesOf(res.Entries)
	}
	for i, a := range inAreas {
		if a.Operation == "" {
			continue
		}
		entries = append(entries, areaEntry(r, req, plan.areas[i], a))
	}
	if entries == nil {
		entries = []wire.Entry{}
	}
	body["entries"] = entries
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

// areaEntry describes an operation in the task's scratch or artifacts, in the form
// of the commit's entries.
func areaEntry(r *task.Ref, req workspace.Request, op areas.Op, a areas.Result) wire.Entry {
	e := wire.Entry{TaskID: &r.Task.ID, SubtaskID: wire.Text(req.By.SubtaskID), Timestamp: wire.Stamp(a.When), Operation: a.Operation,
		Actor: req.By.Actor, Source: req.By.Source}
	e.Path, e.PathEncoding = areas.Path{Area: a.Area, Path: a.Path}.URI()
	if a.ToArea != "" {
		to, _ := areas.Path{Area: a.ToArea, Path: a.To}.URI()
		e.NewPath = &to
	}
	if op.Mode != nil {
		mode := op.Mode.String()
		e.Mode = &mode
	}
	return e
}

// either returns the one of two fields that is given; fault says that both are,
// and differ.
func either(a, b *string, nameA, nameB string) (value *string, fault string) {
	switch {
	case a == nil:
		return b, ""
	case b != nil && *a != *b:
		return a, nameA + " and " + nameB + " name the same path; give one of them."
	}
	return a, ""
}
