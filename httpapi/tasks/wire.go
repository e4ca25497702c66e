package tasks

import (
	"umbra/httpapi/wire"
	"umbra/internal/workspace"
)

// written answers a change of one path.
type written struct {
	wire.Written
	Unrecorded []wire.Skip `json:"unrecorded,omitempty"`
}

func writtenOf(res *workspace.Result) written {
	w := written{Written: wire.WrittenOf(res)}
	if len(res.Unrecorded) > 0 {
		w.Unrecorded = wire.SkipsOf(res.Unrecorded)
	}
	return w
}
