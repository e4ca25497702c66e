package toolsets

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/errs"
)

// turn answers with all that one turn of an agent needs: the map for the
// prompt, the tools in a model's format, and the mounts. The ETag covers the
// whole answer, so a client that asks each turn usually gets a 304.
func (d *Dialect) turn(c *gin.Context) error {
	t, list, err := d.findTools(c)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(map[string]any{"map": t.Map, "tools": list, "mounts": bodyOf(&t).Mounts})
	if err != nil {
		return errs.Wrap(err, "")
	}
	sum := sha256.Sum256(raw)
	return httpapi.ServeContent(c, httpapi.Content{ETag: `W/"` + hex.EncodeToString(sum[:16]) + `"`, Type: "application/json; charset=utf-8",
		Size: int64(len(raw)), Body: bytes.NewReader(raw)})
}
