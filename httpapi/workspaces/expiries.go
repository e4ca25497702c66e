package workspaces

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/task"
)

// warnBefore is how long before it expires a fork is in its parent's events, and
// warnEvery how often a stream looks for such forks.
const (
	warnBefore = 24 * time.Hour
	warnEvery  = 5 * time.Second
)

// expiries puts forks that expire soon into a stream of their parent, each once.
type expiries struct {
	d        *Dialect
	of       string
	sees     func(root string) bool
	reported map[string]time.Time // by fork
	at       time.Time            // of the next look
}

// next gives the stream's next event. It is called by one goroutine at a time.
func (x *expiries) next(ctx context.Context, st *task.Stream) (httpapi.Event, error) {
	for {
		if now := time.Now(); !now.Before(x.at) {
			if e, ok, err := x.due(now); ok || err != nil {
				return e, err
			}
			x.at = now.Add(warnEvery)
		}
		until, cancel := context.WithDeadline(ctx, x.at)
		e, err := wire.Next(until, st)
		over := until.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || errors.Is(err, io.EOF) || !over {
			return e, err
		}
	}
}

func (x *expiries) due(now time.Time) (httpapi.Event, bool, error) {
	for _, r := range x.d.workspaces.Forks(x.of) {
		at := r.Fork.Expires
		if at.IsZero() || at.After(now.Add(warnBefore)) || x.reported[r.ID].Equal(at) || !x.sees(r.Place()) {
			continue
		}
		x.reported[r.ID] = at
		data, err := json.Marshal(map[string]string{"fork": r.ID, "name": r.Fork.Name, "expires_at": wire.Stamp(at)})
		return httpapi.Event{Name: "fork_expires", Data: data}, err == nil, err
	}
	return httpapi.Event{}, false, nil
}
