package httpapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// heartbeat is the time between two comment lines of a silent stream.
const heartbeat = 15 * time.Second

// Retry ends a stream that another node of the cluster goes on with: the client
// comes again after a second, with the last event that it has.
var Retry = []byte("retry: 1000\n\n")

// Event is one server-sent event.
type Event struct {
	ID   string // empty: no id line, Last-Event-ID stays as it was
	Name string
	Data []byte
}

// LastEventID gives the position after which a client goes on: its
// Last-Event-ID header, else ?after=. ok is false where it has neither.
func LastEventID(c *gin.Context) (after int64, ok bool, err error) {
	field, s := "Last-Event-ID", c.GetHeader("Last-Event-ID")
	if s == "" {
		field = "after"
		if s, ok, err = Query(c, field); err != nil || !ok {
			return 0, false, err
		}
	}
	after, err = strconv.ParseInt(s, 10, 64)
	if err != nil || after < 0 {
		return 0, false, errs.New(errs.Invalid, "invalid_parameter", "%s must be an event's number.", field).With("field", field)
	}
	return after, true, nil
}

// ServeEvents is StreamEvents for a subscription, which may last as long as the
// server: at most Options.MaxStreams of them are open at once. Beyond that it
// returns 503 too_many_streams and has sent nothing.
func ServeEvents(c *gin.Context, next func(ctx context.Context) (Event, error)) error {
	s := factsOf(c).server
	if s == nil {
		return StreamEvents(c, next)
	}
	open := &s.opts.Requests.Streams
	defer open.Add(-1)
	if n := open.Add(1); s.opts.MaxStreams > 0 && n > int64(s.opts.MaxStreams) {
		return &Problem{Status: http.StatusServiceUnavailable, Kind: errs.Unavailable, Code: "too_many_streams",
			Detail: fmt.Sprintf("%d event streams are open, as many as limits.streams allows; close one or try again.", s.opts.MaxStreams),
			Header: http.Header{"Retry-After": {"5"}}}
	}
	return StreamEvents(c, next)
}

// StreamEvents sends what next gives as text/event-stream until next returns
// io.EOF, the client disconnects or is stuck, or the server stops. next blocks for
// the next event and ends with its context; it is never called twice at a time,
// and has returned when StreamEvents returns. The answer's head is sent at once:
// errors that a client should see as a status come before.
func StreamEvents(c *gin.Context, next func(ctx context.Context) (Event, error)) error {
	h := c.Writer.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	c.Status(http.StatusOK)
	c.Writer.WriteHeaderNow()
	if c.Request.Method == http.MethodHead {
		return nil
	}
	rc := http.NewResponseController(c.Writer)
	if err := rc.Flush(); err != nil {
		return nil // the client is gone
	}

	ctx, cancel := context.WithCancel(c.Request.Context())
	type result struct {
		event Event
		err   error
	}
	results := make(chan result)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := next(ctx)
			select {
			case results <- result{e, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()

	// In a cluster another node goes on where this one ends.
	f := factsOf(c)
	moved := func(err error) bool {
		if f.exchange == nil || err == nil && !isClosed(f.stopping) {
			return false
		}
		_, _ = c.Writer.Write(Retry) // a client that is gone does not need it
		_ = rc.Flush()
		return true
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		var out []byte
		select {
		case <-ctx.Done():
			moved(nil)
			return nil
		case <-beat.C:
			out = []byte(":\n\n")
		case r := <-results:
			if errors.Is(r.err, io.EOF) || ctx.Err() != nil {
				moved(nil)
				return nil
			}
			if r.err != nil {
				if moved(r.err) && errs.CodeOf(r.err) == "owner_moving" {
					return nil
				}
				return r.err
			}
			out = r.event.encode()
			beat.Reset(heartbeat)
		}
		if _, err := c.Writer.Write(out); err != nil {
			return nil
		}
		if err := rc.Flush(); err != nil {
			return nil
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// encode writes the event in the WHATWG's stream format; a newline in
// the data begins another data line, so nothing in it can forge a field.
func (e Event) encode() []byte {
	var b bytes.Buffer
	if e.ID != "" {
		b.WriteString("id: " + e.ID + "\n")
	}
	if e.Name != "" {
		b.WriteString("event: " + e.Name + "\n")
	}
	data := bytes.ReplaceAll(e.Data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
