package httpapi

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

//go:embed openapi.yaml
var frameOpenAPI []byte

//go:embed docs.html
var docsPage []byte

// frame is the server as the dialect of its own few routes.
type frame Server

// OpenAPI is the document that the dialects' fragments are merged into.
func (s *frame) OpenAPI() []byte { return frameOpenAPI }

// Register adds health, probes and the document.
func (s *frame) Register(r *Router) {
	r.Handle(Route{Method: http.MethodGet, Pattern: "/health", Handler: s.health, About: AboutNone, AnyQuery: true})
	r.Handle(Route{Method: http.MethodGet, Pattern: "/healthz", Handler: s.healthz, Access: AccessPublic, AnyHost: true, About: AboutNone, AnyQuery: true})
	r.Handle(Route{Method: http.MethodGet, Pattern: "/readyz", Handler: s.readyz, Access: AccessPublic, AnyHost: true, About: AboutNone, AnyQuery: true})
	r.Handle(Route{Method: http.MethodGet, Pattern: "/openapi.json", Handler: s.document, Access: AccessPublic, About: AboutNone, AnyQuery: true})
	r.Handle(Route{Method: http.MethodGet, Pattern: "/docs", Handler: s.docs, Access: AccessPublic, About: AboutNone, AnyQuery: true})
}

func (s *frame) health(c *gin.Context) error {
	if len(CallerOf(c).Roots) > 0 {
		// The figures are the whole server's.
		JSON(c, http.StatusOK, map[string]any{"status": "ok", "version": s.opts.Version, "uptime": time.Since(s.started).Seconds(),
			"activeProcesses": nil, "memoryUsage": nil})
		return nil
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	processes := 0
	if s.opts.Processes != nil {
		processes = s.opts.Processes()
	}
	JSON(c, http.StatusOK, map[string]any{
		"status": "ok", "version": s.opts.Version, "uptime": time.Since(s.started).Seconds(), "activeProcesses": processes,
		"memoryUsage": map[string]any{"rss": residentBytes(), "heapTotal": m.HeapSys, "heapUsed": m.HeapAlloc, "external": m.Sys - m.HeapSys},
	})
	return nil
}

// residentBytes is the process's resident set (proc_pid_statm(5)); 0 where
// the system does not report it.
func residentBytes() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(data))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// healthz says that the process answers at all.
func (s *frame) healthz(c *gin.Context) error {
	plain(c, http.StatusOK, "ok\n")
	return nil
}

// readyz says whether it is of use to send requests here.
func (s *frame) readyz(c *gin.Context) error {
	var err error
	switch {
	case s.streams.Err() != nil:
		err = errs.New(errs.Unavailable, "stopping", "")
	case s.opts.Ready != nil:
		err = s.opts.Ready()
	}
	var writes error
	if err == nil && s.opts.Cluster != nil {
		err, writes = s.opts.Cluster.Ready()
	}
	if what, _, bad := Query(c, "for"); bad == nil && what == "writes" {
		err = cmp.Or(err, writes)
	}
	if err != nil {
		c.Header("Retry-After", "1")
		plain(c, http.StatusServiceUnavailable, "not ready: "+errs.CodeOf(err)+"\n")
		return nil
	}
	text := "ready\n"
	if writes != nil {
		text = "reads only: " + errs.CodeOf(writes) + "\n"
	}
	if s.opts.RefsBehind != nil {
		if n := s.opts.RefsBehind(); n > 0 { // without their names, which not everybody may see
			text += fmt.Sprintf("warning: refs_behind %d\n", n)
		}
	}
	plain(c, http.StatusOK, text)
	return nil
}

func plain(c *gin.Context, status int, text string) {
	c.Data(status, "text/plain; charset=utf-8", []byte(text))
}

func (s *frame) document(c *gin.Context) error {
	doc, err := s.openapi()
	if err != nil {
		return err
	}
	c.Data(http.StatusOK, "application/json", doc)
	return nil
}

// docsPolicy allows the docs page its own style and script alone, by their hashes
// (Content Security Policy Level 3, W3C).
var docsPolicy = "default-src 'none'; style-src '" + inlineHash(docsPage, "style") + "'; script-src '" + inlineHash(docsPage, "script") +
	"'; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"

// inlineHash gives the hash of the text of a page's one element of a name.
func inlineHash(page []byte, element string) string {
	_, rest, _ := bytes.Cut(page, []byte("<"+element+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(text)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func (s *frame) docs(c *gin.Context) error {
	c.Header("Content-Security-Policy", docsPolicy)
	c.Data(http.StatusOK, "text/html; charset=utf-8", docsPage)
	return nil
}
