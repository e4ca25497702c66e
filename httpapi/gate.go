package httpapi

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
)

// gatedWriter asks a Gate before the answer of this node's handler is sent.
type gatedWriter struct {
	gin.ResponseWriter
	x       *Exchange
	gate    Gate
	header  http.Header
	status  int
	headed  bool // the gate was asked
	dropped bool
	fixed   bool // what follows the head was settled with it
}

// errDropped is for what follows a head that the gate has dropped.
var errDropped = errors.New("httpapi: the answer was dropped")

func (w *gatedWriter) Header() http.Header { return w.header }

func (w *gatedWriter) Status() int {
	if w.headed && !w.dropped {
		return w.ResponseWriter.Status()
	}
	return w.status
}

func (w *gatedWriter) Written() bool { return w.headed }

func (w *gatedWriter) WriteHeader(code int) {
	if code > 0 && !w.headed {
		w.status = code
	}
}

func (w *gatedWriter) WriteHeaderNow() {
	if w.headed {
		return
	}
	w.headed = true
	w.x.stampOnce(w.header)
	if !w.gate.Head(w.status, w.x.f.code(), w.header) {
		w.dropped = true
		return
	}
	// A body of known length, a stream of events and a pack are of one state.
	kind := w.header.Get("Content-Type")
	w.fixed = w.header.Get("Content-Length") != "" || strings.HasPrefix(kind, "text/event-stream") || strings.HasPrefix(kind, "application/x-git-")
	copyHeader(w.ResponseWriter.Header(), w.header)
	w.ResponseWriter.WriteHeader(w.status)
	w.ResponseWriter.WriteHeaderNow()
}

func (w *gatedWriter) Write(p []byte) (int, error) {
	first := !w.headed
	w.WriteHeaderNow()
	if w.dropped {
		return len(p), nil
	}
	if !first && !w.fixed && !w.gate.More() {
		panic(http.ErrAbortHandler) // half an answer must not look whole
	}
	return w.ResponseWriter.Write(p)
}

func (w *gatedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *gatedWriter) Flush() { _ = w.FlushError() }

func (w *gatedWriter) FlushError() error {
	w.WriteHeaderNow()
	if w.dropped {
		return errDropped // which ends a stream
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap lets http.ResponseController through.
func (w *gatedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// copyHeader sets what is in from. What the answer depends on (Vary) is added to what is
// there.
func copyHeader(to, from http.Header) {
	vary := slices.Clone(to["Vary"])
	maps.Copy(to, from)
	for _, name := range from["Vary"] {
		if !slices.Contains(vary, name) {
			vary = append(vary, name)
		}
	}
	if len(vary) > 0 {
		to["Vary"] = vary
	}
}
