package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
)

// progressEvery is the least time between two lines of progress: a terminal shows no
// more, and the work does not wait for who reads them.
const progressEvery = 100 * time.Millisecond

// Progress is how far a long work is. All is 0 where that is not known (yet).
type Progress struct {
	Step string `json:"step"` // what it does now, for people
	Done int64  `json:"done"`
	All  int64  `json:"all"`
}

// ServeWork answers with what a long work reports, as application/x-ndjson: lines
// {"progress":{…}} while it runs, then {"done":…} with its result, or the
// common error shape with its "status". The head is sent with the first line, so
// an error that comes before any progress has its own status. The work's context
// ends when the client disconnects, and where the route is a Stream when the server
// stops. Any goroutine may report progress; what comes too fast is dropped.
func ServeWork(c *gin.Context, work func(ctx context.Context, progress func(Progress)) (any, error)) error {
	var (
		mu    sync.Mutex
		last  time.Time
		begun bool
	)
	line := func(v any) {
		if !begun {
			begun = true
			h := c.Writer.Header()
			h.Set("Content-Type", "application/x-ndjson")
			h.Set("Cache-Control", "no-store")
			h.Set("X-Accel-Buffering", "no")
			c.Status(http.StatusOK)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			raw = []byte(`{"error":"internal_error","status":500}`)
		}
		// A client that is gone ends the request's context, and so the work.
		_, _ = c.Writer.Write(append(raw, '\n'))
		c.Writer.Flush()
	}
	result, err := work(c.Request.Context(), func(p Progress) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) >= progressEvery {
			last = now
			line(map[string]any{"progress": p})
		}
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil && !begun {
		return err
	}
	if err != nil {
		p := problemOf(err, CommonShape())
		factsOf(c).failed(p)
		body := commonBody(c, p)
		body["status"] = p.Status
		line(body)
		return nil
	}
	line(map[string]any{"done": result})
	return nil
}
