package code

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/code"
	"umbra/internal/errs"
	"umbra/internal/sandbox/js"
)

type saveBody struct {
	CodeID   json.RawMessage `json:"codeId"`
	Code     json.RawMessage `json:"code"`
	Validate json.RawMessage `json:"validate"`
	Metadata json.RawMessage `json:"metadata"`
}

type batchBody struct {
	Files    json.RawMessage `json:"files"`
	Validate json.RawMessage `json:"validate"`
	Metadata json.RawMessage `json:"metadata"`
}

// saved answers for one file.
type saved struct {
	CodeID   string  `json:"codeId"`
	FilePath string  `json:"filePath"`
	Size     int64   `json:"size"`
	Commit   *string `json:"commit"`
	Version  int     `json:"version"`
	Created  bool    `json:"created"`
	TaskID   *string `json:"task_id"`
}

type savedBatch struct {
	Files  []saved `json:"files"`
	Commit *string `json:"commit"`
	TaskID *string `json:"task_id"`
}

func commitText(id object.ID) *string {
	if id.IsZero() {
		return nil
	}
	s := id.String()
	return &s
}

// save is PUT /workspace.
func (d *Dialect) save(c *gin.Context) error {
	var body saveBody
	err := decode(c, &body)
	var f code.File
	if err == nil {
		f, err = checkFile("", body.CodeID, body.Code)
	}
	var meta code.Meta
	if err == nil {
		meta, err = d.checkExtras(c, body.Metadata, body.Validate, []code.File{f}, []string{""})
	}
	if err != nil {
		return d.refused(c, err)
	}
	out, err := d.put(c, []code.File{f}, meta)
	if err != nil {
		return err
	}
	ok(c, savedOf(out, 0))
	return nil
}

// saveBatch is POST /workspace/batch.
func (d *Dialect) saveBatch(c *gin.Context) error {
	var body batchBody
	err := decode(c, &body)
	var files []code.File
	var prefixes []string
	if err == nil {
		files, prefixes, err = checkBatch(body.Files)
	}
	var meta code.Meta
	if err == nil {
		meta, err = d.checkExtras(c, body.Metadata, body.Validate, files, prefixes)
	}
	if err != nil {
		return d.refused(c, err)
	}
	out, err := d.put(c, files, meta)
	if err != nil {
		return err
	}
	result := savedBatch{Files: []saved{}, Commit: commitText(out.Commit), TaskID: wire.Text(out.Task)}
	for i := range out.Files {
		result.Files = append(result.Files, savedOf(out, i))
	}
	ok(c, result)
	return nil
}

func savedOf(out *code.Outcome, i int) saved {
	f := out.Files[i]
	return saved{CodeID: f.ID, FilePath: f.Path, Size: f.Size, Commit: commitText(f.Commit), Version: f.Version, Created: f.Created, TaskID: wire.Text(out.Task)}
}

func checkFile(prefix string, id, text json.RawMessage) (f code.File, err error) {
	if f.ID, err = code.CheckID(prefix, id); err != nil {
		return f, err
	}
	f.Code, err = code.CheckCode(prefix, text)
	return f, err
}

func checkBatch(raw json.RawMessage) ([]code.File, []string, error) {
	refuse := func(message string) ([]code.File, []string, error) {
		return nil, nil, code.Fault("files", raw, message, message)
	}
	if len(raw) == 0 || string(bytes.TrimSpace(raw)) == "null" {
		return refuse("files is required")
	}
	var items []json.RawMessage
	switch err := json.Unmarshal(raw, &items); {
	case err != nil:
		return refuse("files must be an array")
	case len(items) == 0:
		return refuse("files must not be empty")
	case len(items) > code.MaxBatch:
		return refuse(fmt.Sprintf("files must not have more than %d entries", code.MaxBatch))
	}
	files := make([]code.File, len(items))
	prefixes := make([]string, len(items))
	seen := map[string]bool{}
	for i, item := range items {
		prefixes[i] = fmt.Sprintf("files[%d].", i)
		// By exact names, as everywhere; encoding/json would fold their case.
		var members map[string]json.RawMessage
		if json.Unmarshal(item, &members) != nil || members == nil {
			at := fmt.Sprintf("files[%d]", i)
			return nil, nil, code.Fault(at, item, at+" must be an object", at+" must be an object")
		}
		var err error
		if files[i], err = checkFile(prefixes[i], members["codeId"], members["code"]); err != nil {
			return nil, nil, err
		}
		if seen[files[i].ID] {
			return nil, nil, code.Fault(prefixes[i]+"codeId", members["codeId"], "codeId must be unique within a batch", "codeId must be unique within a batch")
		}
		seen[files[i].ID] = true
	}
	return files, prefixes, nil
}

// checkExtras validates the other fields of a save, and, where it is asked for,
// whether the text is a program.
func (d *Dialect) checkExtras(c *gin.Context, metadata, validate json.RawMessage, files []code.File, prefixes []string) (code.Meta, error) {
	meta, err := code.CheckMeta(metadata)
	if err != nil {
		return meta, err
	}
	check, err := code.CheckFlag("validate", validate)
	if err != nil || !check {
		return meta, err
	}
	for i, f := range files {
		found, err := d.o.Engine.Check(c.Request.Context(), js.Job{Name: string(code.Path(f.ID)), Code: f.Code, Timeout: validateTime, NoFiles: !theirs(c)})
		if err != nil {
			return meta, err
		}
		if found = faults(found); len(found) > 0 {
			raw, err := json.Marshal(f.Code)
			if err != nil {
				return meta, err
			}
			e := code.Fault(prefixes[i]+"code", raw, "code is not valid TypeScript", found[0].String())
			return meta, e.With("diagnostics", found)
		}
	}
	return meta, nil
}

// validateTime bounds the check of one text.
const validateTime = 30 * time.Second

// faults leaves out what is no error.
func faults(list []js.Diagnostic) []js.Diagnostic {
	out := []js.Diagnostic{}
	for _, d := range list {
		if d.Severity == js.SeverityError {
			out = append(out, d)
		}
	}
	return out
}

// put saves, and maps failures of the file system to the API's.
func (d *Dialect) put(c *gin.Context, files []code.File, meta code.Meta) (*code.Outcome, error) {
	if !theirs(c) {
		httpapi.CallerOf(c).Refused("outside_roots")
		return nil, errs.New(errs.Forbidden, "workspace_not_allowed", "The token may not use the code workspace")
	}
	for _, f := range files {
		if err := d.rate.Check(f.ID); err != nil {
			return nil, err
		}
	}
	key, err := wire.KeyHash(c)
	if err != nil {
		return nil, err
	}
	out, err := d.o.Programs.Save(c.Request.Context(), code.Save{Files: files, Meta: meta, By: wire.By(c, key), Task: httpapi.TagsOf(c).TaskID, Sees: sees(c)})
	if err != nil {
		return nil, d.saveFailed(c, err, files[0].ID)
	}
	wire.SettleKey(c, out.Replayed, !out.Commit.IsZero())
	return out, nil
}

// saveFailed makes what the disk refused an InternalError; what is the
// request's own fault, or the server's end, stays what it is.
func (d *Dialect) saveFailed(c *gin.Context, err error, id string) error {
	e, isOurs := err.(*errs.Error)
	if !isOurs {
		e = errs.Wrap(err, "").(*errs.Error)
	}
	kind, code := e.Kind, errs.CodeOf(e)
	switch {
	case code == "policy_refused":
		return err
	case kind == errs.NoSpace, kind == errs.Forbidden, kind == errs.Internal, code == "out_of_descriptors", code == "io_error":
	case code == "workspace_not_directory", code == "workspace_not_readable", code == "workspace_not_found", code == "workspace_overlaps":
	default:
		return err
	}
	reason := e.Detail
	if kind == errs.Internal || reason == "" {
		reason = "The file system refused the write."
	}
	d.o.Log.LogAttrs(c.Request.Context(), slog.LevelError, "Workspace save failed", slog.String("reason", e.Error()), slog.String("path", d.o.Programs.HostPath(id)),
		slog.String("request_id", httpapi.RequestID(c)))
	return &httpapi.Problem{Status: http.StatusInternalServerError, Kind: e.Kind, Code: "save_failed", Detail: "Failed to save file",
		Fields: map[string]any{fieldType: typeInternal, "reason": reason}, Err: err}
}

// refused writes the line that the API promises for a refused save.
func (d *Dialect) refused(c *gin.Context, err error) error {
	if e, ok := err.(*errs.Error); ok && (e.Kind == errs.Invalid || e.Kind == errs.TooLarge) {
		reason := any(e.Fields["reason"])
		if reason == nil {
			reason = e.Detail
		}
		value := e.Fields["value"]
		if raw, isRaw := value.(json.RawMessage); isRaw {
			value = string(raw)
		}
		d.o.Log.LogAttrs(context.WithoutCancel(c.Request.Context()), slog.LevelError, "Workspace validation failed", slog.Any("reason", reason), slog.Any("value", value),
			slog.String("request_id", httpapi.RequestID(c)))
	}
	return err
}
