package upkeep

import (
	"context"
	_ "embed"
	"log/slog"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/audit"
	"umbra/internal/backup"
)

//go:embed backup.yaml
var backupDocument []byte

// Backup is the dialect of umbra backup: the copy is made by the server, which
// holds the data directory.
type Backup struct{ Service *backup.Service }

// OpenAPI gives the dialect's part of the document.
func (d *Backup) OpenAPI() []byte { return backupDocument }

// Register adds the dialect's route.
func (d *Backup) Register(r *httpapi.Router) {
	r.Handle(httpapi.Route{Method: http.MethodPost, Pattern: "/upkeep/backup", Handler: d.make, Access: httpapi.AccessOwner, About: httpapi.AboutNone,
		Body: httpapi.BodyJSON, Stream: true})
}

func (d *Backup) make(c *gin.Context) error {
	var body struct {
		Dir string `json:"dir"`
	}
	if err := httpapi.DecodeJSON(c, &body); err != nil {
		return err
	}
	return httpapi.ServeWork(c, func(ctx context.Context, progress func(httpapi.Progress)) (any, error) {
		done, err := d.Service.Backup(ctx, body.Dir, func(r backup.Report) {
			progress(httpapi.Progress{Step: r.Step, Done: int64(r.Files)})
		})
		if err == nil {
			audit.Allowed(c.Request.Context(), audit.Backup, "", slog.String("dir", body.Dir))
		}
		return done, err
	})
}
