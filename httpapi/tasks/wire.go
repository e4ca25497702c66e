package tasks

import (
	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/task"
	"umbra/internal/workspace"
)

// written answers a change of one path.
type written struct {
	Path            string      `json:"path"`
	PathEncoding    string      `json:"path_encoding,omitempty"`
	NewPath         *string     `json:"new_path,omitempty"`
	NewPathEncoding string      `json:"new_path_encoding,omitempty"`
	Operation       *string     `json:"operation"`
	ChangeID        *uint64     `json:"change_id"`
	Commit          *string     `json:"commit"`
	ETag            *string     `json:"etag"`
	Bytes           int64       `json:"bytes"`
	Unrecorded      []wire.Skip `json:"unrecorded,omitempty"`
}

func etag(id object.ID) *string {
	if id.IsZero() {
		return nil
	}
	tag := httpapi.ETag(id.String())
	return &tag
}

// writtenOf answers a request of one operation.
func writtenOf(res *workspace.Result) written {
	op := res.Ops[0]
	w := written{Operation: wire.Text(string(op.Operation)), ETag: etag(op.Blob), Bytes: op.Size}
	w.Path, w.PathEncoding = op.Path.JSON()
	if op.To != "" {
		to, enc := op.To.JSON()
		w.NewPath, w.NewPathEncoding = &to, enc
	}
	if !res.Commit.IsZero() {
		id := res.Commit.String()
		w.Commit = &id
	}
	if len(res.Entries) > 0 && res.Entries[0].ID != 0 {
		w.ChangeID = &res.Entries[0].ID
	}
	if len(res.Unrecorded) > 0 {
		w.Unrecorded = wire.SkipsOf(res.Unrecorded)
	}
	return w
}

func areaWritten(r task.AreaResult) written {
	w := written{Operation: wire.Text(r.Operation), ETag: etag(r.Blob), Bytes: r.Size}
	w.Path, w.PathEncoding = r.Path.URI()
	if r.To.Area != "" {
		to, enc := r.To.URI()
		w.NewPath, w.NewPathEncoding = &to, enc
	}
	return w
}
