package httpapi

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

const (
	writeIdle  = 60 * time.Second // for a client to take one piece of an answer
	writePiece = 256 << 10        // bytes of a piece
)

// pacedWriter bounds how long an answer waits for a client that takes none of
// it, whatever the answer's size.
type pacedWriter struct {
	gin.ResponseWriter
	rc *http.ResponseController
}

func newPacedWriter(w gin.ResponseWriter) *pacedWriter {
	p := &pacedWriter{ResponseWriter: w, rc: http.NewResponseController(w)}
	// The last answer's bound is still on the connection.
	_ = p.rc.SetWriteDeadline(time.Time{}) // a test's recorder has none
	return p
}

// extend gives the client another writeIdle. After a handler it is for what the
// server itself has still to send.
func (w *pacedWriter) extend() {
	_ = w.rc.SetWriteDeadline(time.Now().Add(writeIdle)) // a test's recorder has none
}

func (w *pacedWriter) Write(p []byte) (n int, err error) {
	for first := true; first || len(p) > 0; first = false {
		piece := p[:min(len(p), writePiece)]
		w.extend()
		m, err := w.ResponseWriter.Write(piece)
		n += m
		if err != nil {
			return n, err
		}
		p = p[len(piece):]
	}
	return n, nil
}

func (w *pacedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *pacedWriter) Flush() {
	w.extend()
	w.ResponseWriter.Flush()
}

// Unwrap lets http.ResponseController through.
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
