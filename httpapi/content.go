package httpapi

import (
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// Content is a file's bytes on their way to a client.
type Content struct {
	ETag     string    // as ETag gives it, of just these bytes
	ModTime  time.Time // zero: no Last-Modified
	Type     string    // empty: application/octet-stream
	Filename string    // empty: no Content-Disposition
	Size     int64     // bytes
	Body     io.ReadSeeker
}

// ServeContent answers with the bytes, whole or the asked range, or 304, or 412
// where If-Match says other bytes. What a browser may make of them, the frame
// says for every answer (observe).
func ServeContent(c *gin.Context, content Content) error {
	match, err := IfMatch(c)
	if err != nil {
		return err
	}
	if match.Present && !match.Matches(content.ETag, true) {
		return errs.New(errs.Precondition, "precondition_failed", "The content is another than If-Match names.").With("etag", content.ETag)
	}
	// Seen to, by weak comparison; net/http's is strong and would refuse our tags.
	c.Request.Header.Del("If-Match")

	h := c.Writer.Header()
	if content.Type == "" {
		content.Type = "application/octet-stream"
	}
	h.Set("Content-Type", content.Type)
	h.Set("Cache-Control", "no-cache")
	if content.ETag != "" {
		h.Set("ETag", content.ETag)
	}
	if content.Filename != "" {
		h.Set("Content-Disposition", disposition(content.Filename))
	}
	w := &rangeGuard{ResponseWriter: c.Writer}
	http.ServeContent(w, c.Request, "", content.ModTime, content.Body)
	if w.refused {
		for _, name := range []string{"Content-Type", "Content-Length", "Last-Modified", "ETag", "Content-Disposition"} {
			h.Del(name)
		}
		return &Problem{Status: http.StatusRequestedRangeNotSatisfiable, Kind: errs.Invalid, Code: "range_not_satisfiable",
			Detail: "The asked range lies outside of the content.", Header: http.Header{"Content-Range": {fmt.Sprintf("bytes */%d", content.Size)}}}
	}
	return nil
}

// rangeGuard keeps net/http's plain text back where a range cannot be given:
// that error has a dialect's shape like any other.
type rangeGuard struct {
	gin.ResponseWriter
	refused bool
}

func (w *rangeGuard) WriteHeader(status int) {
	if status == http.StatusRequestedRangeNotSatisfiable {
		w.refused = true
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *rangeGuard) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// disposition is RFC 6266's attachment; a name that is not plain ASCII is in
// filename* (RFC 8187), next to an ASCII approximation.
func disposition(name string) string {
	likeness := strings.Map(func(r rune) rune {
		if r < 0x20 || r > 0x7e || r == '"' || r == '\\' || r == '%' {
			return '_'
		}
		return r
	}, name)
	value := mime.FormatMediaType("attachment", map[string]string{"filename": likeness})
	if likeness != name {
		value += "; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(strings.ToValidUTF8(name, "\ufffd")), "+", "%20")
	}
	return value
}
