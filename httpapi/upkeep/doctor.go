package upkeep

import (
	_ "embed"
	"net/http"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/doctor"
	"umbra/internal/workspaces"
)

//go:embed doctor.yaml
var doctorDocument []byte

// Doctor is the dialect of umbra doctor: the server checks its own machine, with
// its own rights.
type Doctor struct {
	Workspaces *workspaces.Manager
	// Options are all but the workspaces.
	Options doctor.Options
	// Ready returns why the server cannot do its work now.
	Ready func() error
}

// OpenAPI gives the dialect's part of the document.
func (d *Doctor) OpenAPI() []byte { return doctorDocument }

// Register adds the dialect's route.
func (d *Doctor) Register(r *httpapi.Router) {
	r.Handle(httpapi.Route{Method: http.MethodPost, Pattern: "/upkeep/doctor", Handler: d.look, Access: httpapi.AccessOwner, About: httpapi.AboutNone})
}

func (d *Doctor) look(c *gin.Context) error {
	o := d.Options
	for _, rec := range d.Workspaces.Physical() {
		o.Workspaces = append(o.Workspaces, rec.Root)
	}
	found := doctor.Run(c.Request.Context(), o)
	ready := doctor.Finding{Check: "server", Level: doctor.OK, Detail: "it runs, and can do its work"}
	if err := d.Ready(); err != nil {
		ready = doctor.Finding{Check: "server", Level: doctor.Hurts, Detail: "it runs, and cannot do all of its work: /readyz is 503", Do: "see what else hurts, and the server's log"}
	}
	httpapi.JSON(c, http.StatusOK, map[string]any{"hurts": doctor.Hurt(append(found, ready)), "findings": append(found, ready)})
	return nil
}
