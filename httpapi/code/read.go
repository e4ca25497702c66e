package code

import (
	"strconv"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/code"
)

type listed struct {
	CodeID   string `json:"codeId"`
	Size     int64  `json:"size"`
	Modified string `json:"modified"`
}

// list is GET /workspace.
func (d *Dialect) list(c *gin.Context) error {
	if !theirs(c) {
		ok(c, map[string]any{"files": []listed{}})
		return nil
	}
	all, err := d.o.Programs.List(c.Request.Context())
	if err != nil {
		return err
	}
	files := make([]listed, len(all))
	for i, f := range all {
		files[i] = listed{CodeID: f.ID, Size: f.Size, Modified: wire.Stamp(f.Modified)}
	}
	ok(c, map[string]any{"files": files})
	return nil
}

type content struct {
	CodeID  string  `json:"codeId"`
	Code    string  `json:"code"`
	Size    int     `json:"size"`
	Version int     `json:"version"`
	Commit  *string `json:"commit"`
}

// read is GET /workspace/{codeId}.
func (d *Dialect) read(c *gin.Context) error {
	id, err := pathID(c)
	if err != nil {
		return err
	}
	version, err := queryVersion(c)
	if err != nil {
		return err
	}
	if !theirs(c) {
		return hidden(id)
	}
	got, err := d.o.Programs.Read(c.Request.Context(), id, version)
	if err != nil {
		return notFound(err, id)
	}
	ok(c, content{CodeID: id, Code: string(got.Code), Size: len(got.Code), Version: got.Version, Commit: commitText(got.Commit)})
	return nil
}

// queryVersion reads ?version=, 0 where it is not given.
func queryVersion(c *gin.Context) (int, error) {
	text, present, err := httpapi.Query(c, "version")
	if err != nil || !present {
		return 0, err
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		const message = "version must be a positive integer"
		return 0, code.Fault("version", []byte(strconv.Quote(text)), message, message)
	}
	return n, nil
}

type version struct {
	Version     int     `json:"version"`
	Commit      string  `json:"commit"`
	Size        int64   `json:"size"`
	Timestamp   string  `json:"timestamp"`
	Author      *string `json:"author"`
	Description *string `json:"description"`
}

// versions is GET /workspace/{codeId}/versions.
func (d *Dialect) versions(c *gin.Context) error {
	id, err := pathID(c)
	if err != nil {
		return err
	}
	if !theirs(c) {
		return hidden(id)
	}
	all, err := d.o.Programs.Versions(c.Request.Context(), id)
	if err != nil {
		return notFound(err, id)
	}
	list := make([]version, len(all))
	for i, v := range all {
		list[i] = version{Version: v.Version, Commit: v.Commit.String(), Size: v.Size, Timestamp: wire.Stamp(v.When),
			Author: wire.Text(v.Author), Description: wire.Text(v.Description)}
	}
	ok(c, map[string]any{"codeId": id, "versions": list})
	return nil
}

// remove is DELETE /workspace/{codeId}.
func (d *Dialect) remove(c *gin.Context) error {
	id, err := pathID(c)
	if err != nil {
		return err
	}
	if !theirs(c) {
		return hidden(id)
	}
	key, err := wire.KeyHash(c)
	if err != nil {
		return err
	}
	out, err := d.o.Programs.Remove(c.Request.Context(), id, wire.By(c, key), httpapi.TagsOf(c).TaskID, sees(c))
	if err != nil {
		return notFound(d.saveFailed(c, err, id), id)
	}
	wire.SettleKey(c, out.Replayed, !out.Commit.IsZero())
	ok(c, map[string]any{"codeId": id, "commit": commitText(out.Commit), "task_id": wire.Text(out.Task)})
	return nil
}
