package peers

import (
	"context"

	"umbra/tests/bench/measure"
)

// Params is what a subject is made for.
type Params struct {
	Ctx context.Context // of the run: it ends the subject's processes
	Env *measure.Env
	// Files and History (commits made before) of the project.
	Files, History int
	// Clients is the most that will be at work at once.
	Clients int
	// Templates holds git repositories that several peers start from.
	Templates *Templates
}

// Maker makes a subject, ready for its first change. ErrMissing: not on this
// machine.
type Maker func(Params) (measure.Subject, error)
