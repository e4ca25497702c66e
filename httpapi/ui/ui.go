// Package ui is the web UI: one page at /, its scripts and styles under /ui/,
// all embedded in the program. The page talks to the other dialects' routes as
// any client does; nothing here knows a task or a file.
//
// What the page shows was written by agents and may be hostile. It never
// becomes markup: the page's policy lets no script run but the embedded ones,
// and no text become one (Trusted Types).
package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/errs"
)

//go:embed openapi.yaml
var document []byte

// The folder holds a placeholder until make embed puts the built UI there.
//
//go:embed dist
var dist embed.FS

// policy is the page's Content-Security-Policy. The worker's address is the one
// script address that is ever made from a text.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; trusted-types umbra-worker"

// asset is one embedded file. Its bytes stay in the program: each response copies
// them, and nothing is kept in memory between responses.
type asset struct {
	name       string
	packed     bool // there is one that gzip has packed, name + ".gz"
	kind, etag string
}

// Dialect is the UI's routes.
type Dialect struct {
	assets map[string]asset
}

// New reads what is embedded.
func New() (*Dialect, error) {
	d := &Dialect{assets: map[string]asset{}}
	files, err := fs.ReadDir(dist, "dist")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := f.Name()
		if name == "README" || strings.HasSuffix(name, ".gz") {
			continue
		}
		a := asset{name: name, kind: kindOf(name)}
		data, err := dist.ReadFile("dist/" + name)
		if err != nil {
			return nil, err
		}
		_, err = fs.Stat(dist, "dist/"+name+".gz")
		if a.packed = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		sum := sha256.Sum256(data)
		a.etag = `"` + hex.EncodeToString(sum[:16]) + `"`
		d.assets[name] = a
	}
	return d, nil
}

// kindOf does not ask the machine's own table, which may say anything.
func kindOf(name string) string {
	switch path.Ext(name) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// OpenAPI gives the dialect's part of the document.
func (d *Dialect) OpenAPI() []byte { return document }

// Register adds the dialect's routes. They need no token: the page asks for one.
func (d *Dialect) Register(r *httpapi.Router) {
	r.Handle(httpapi.Route{Method: http.MethodGet, Pattern: "/", Handler: d.page, Access: httpapi.AccessPublic, AnyQuery: true, About: httpapi.AboutNone})
	r.Handle(httpapi.Route{Method: http.MethodGet, Pattern: "/ui/{name}", Handler: d.file, Access: httpapi.AccessPublic, AnyQuery: true, About: httpapi.AboutNone})
}

func (d *Dialect) page(c *gin.Context) error {
	a, ok := d.assets["index.html"]
	if !ok {
		return errs.New(errs.NotFound, "ui_not_built", "The web UI is not part of this build: build with make build. The API is at /docs.")
	}
	h := c.Writer.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	return serve(c, a)
}

func (d *Dialect) file(c *gin.Context) error {
	name, err := httpapi.Param(c, "name")
	if err != nil {
		return err
	}
	a, ok := d.assets[name]
	if !ok || name == "index.html" {
		return errs.New(errs.NotFound, "not_found", "The file does not exist.")
	}
	h := c.Writer.Header()
	if strings.HasPrefix(name, "worker-") {
		// A worker has its own policy: it needs nothing from anywhere.
		h.Set("Content-Security-Policy", "default-src 'none'")
	}
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	return serve(c, a)
}

func serve(c *gin.Context, a asset) error {
	h := c.Writer.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Add("Vary", "Accept-Encoding")
	name, etag := a.name, a.etag
	if a.packed && takesGzip(c.Request) {
		name += ".gz"
		etag = strings.TrimSuffix(etag, `"`) + `-gz"`
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", etag)
	match, err := httpapi.IfNoneMatch(c)
	if err != nil {
		return err
	}
	if match.Matches(etag, true) {
		h.Del("Content-Type")
		h.Del("Content-Encoding")
		c.Status(http.StatusNotModified)
		c.Writer.WriteHeaderNow()
		return nil
	}
	data, err := dist.ReadFile("dist/" + name)
	if err != nil {
		return err
	}
	h.Set("Content-Length", strconv.Itoa(len(data)))
	c.Status(http.StatusOK)
	if c.Request.Method == http.MethodHead {
		c.Writer.WriteHeaderNow()
		return nil
	}
	_, err = bytes.NewReader(data).WriteTo(c.Writer)
	return err
}

// takesGzip reads Accept-Encoding (RFC 9110, section 12.5.3); a weight of zero
// is a no.
func takesGzip(r *http.Request) bool {
	for _, value := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(value, ",") {
			name, params, err := mime.ParseMediaType(strings.TrimSpace(part))
			if err != nil || name != "gzip" {
				continue
			}
			if q, ok := params["q"]; ok {
				weight, err := strconv.ParseFloat(q, 64)
				return err == nil && weight > 0
			}
			return true
		}
	}
	return false
}
