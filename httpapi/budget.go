package httpapi

import (
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

const (
	// bodyFree is how much of a body is not counted, in bytes, so that ordinary
	// requests are never refused for the sake of large ones.
	bodyFree = 64 << 10
	// bodyFactor is how often a body's bytes are in memory: as they came, and
	// decoded.
	bodyFactor = 2
)

// budget bounds what all requests hold of bodies that are read whole. It is safe
// for concurrent use.
type budget struct {
	max int64 // bytes; 0 or less: no bound

	mu   sync.Mutex
	used int64
}

// take adds n bytes to what one request holds. Beyond the bound only a request
// that holds everything alone gets more: no setting of the limits makes a body
// that a route takes impossible.
func (b *budget) take(held *int64, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.max > 0 && b.used+n > b.max && b.used > *held {
		return false
	}
	b.used += n
	*held += n
	return true
}

// release gives back what a request holds.
func (b *budget) release(held *int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= *held
	*held = 0
}

func busyProblem() *Problem {
	return &Problem{Status: http.StatusServiceUnavailable, Kind: errs.Unavailable, Code: codeBusy,
		Detail: "Too many large requests at once; try again.", Header: http.Header{"Retry-After": {"1"}}}
}

const codeBusy = "busy"

// ReadBody reads the request's body whole. What it holds counts until the request
// ends: with too much of it at once the answer is 503 busy. The body's own limits
// are those of BodyReader.
func ReadBody(c *gin.Context) ([]byte, error) {
	f := factsOf(c)
	grow := func(int64) error { return nil }
	if f.server != nil && f.body != nil {
		grow = func(size int64) error {
			if more := (size-bodyFree)*bodyFactor - f.held; more > 0 && !f.server.bodies.take(&f.held, more) {
				return f.body.refuse(busyProblem())
			}
			return nil
		}
	}
	return readAll(BodyReader(c), c.Request.ContentLength, grow)
}

// refuse ends a body for a reason that is not its own.
func (b *bodyReader) refuse(p *Problem) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail(p)
	return p
}
