package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/audit"
	"umbra/internal/errs"
)

// Every request passes, in this order:
//
//	observe     request id, log line, recovery from panics, the body's bounds
//	admitHost   Host and Origin, CORS, the other end's user
//	admitCaller requests a minute of an address, token, requests a minute in all
//	checkBody   length and type of the body
//	checkTags   tagging headers
//	place       which node of a cluster answers (cluster.go)
//	authorize   the route's own say on who sees what
//	idempotent  keys
//
// then the route's handler, or the answer to what is no route. Each step
// answers and ends the chain with Fail.
func (s *Server) middleware() []gin.HandlerFunc {
	first := []gin.HandlerFunc{s.observe, s.admitHost, s.admitCaller, s.checkBody, s.checkTags}
	if s.opts.Cluster != nil {
		first = append(first, s.place)
	}
	return append(first, s.authorize, s.idempotent)
}

// observe is around everything else.
func (s *Server) observe(c *gin.Context) {
	start := time.Now()
	s.opts.Requests.Begin()
	defer s.opts.Requests.End()
	f := &facts{server: s, requestID: requestID(c.Request), stopping: s.streams.Done(), fallback: fallbackShape(c.Request.URL.Path)}
	f.route = s.table.find(c, c.Request.Method)
	s.receive(c, f)
	f.log = s.opts.Log.With(slog.String("request_id", f.requestID))
	c.Set(factsKey, f)
	c.Header("X-Request-Id", f.requestID)
	// Whatever bytes an answer holds, a browser takes them for no page and runs
	// nothing of them. The few routes that are pages say so with their own policy.
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Cross-Origin-Resource-Policy", "same-origin")
	c.Header("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")

	within := c.Request.Context()
	if s.opts.Trace != nil {
		method, route := f.where()
		var end func(status int, code string)
		within, end = s.opts.Trace(c.Request, method, route, f.requestID)
		defer func() { end(c.Writer.Status(), f.code()) }()
	}
	ctx, cancel := context.WithCancelCause(within)
	defer f.ending.Wait()
	defer s.bodies.release(&f.held)
	defer cancel(nil)
	f.end = cancel
	c.Request = c.Request.WithContext(ctx)
	real := newPacedWriter(c.Writer)
	c.Writer = real
	if c.Request.Body != nil && c.Request.Body != http.NoBody {
		// Else the server reads on in the body before it sends an answer.
		_ = real.rc.EnableFullDuplex() // a test's recorder has none
		f.body = newBody(s.patience, c.Request, real.rc, s.bodyLimit(f.route))
		c.Request.Body = f.body
		if f.route == nil || f.route.Body == BodyNone {
			c.Header("Connection", "close") // it will not be read
		}
	}

	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			f.log.LogAttrs(ctx, slog.LevelError, "panic", slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
			c.Writer = real
			Fail(c, errs.New(errs.Internal, "", ""))
		}
		c.Writer.WriteHeaderNow()
		real.extend()
		s.count(c, f, start)
		if f.problem == nil && c.Writer.Header().Get("Content-Length") != "" {
			// The whole answer: it need not wait for its own log line. An error
			// does, so that its reader can find it in the log.
			c.Writer.Flush()
		}
		ended := f.body == nil || f.body.finish(c.Writer.Flush, f.stopping)
		s.logRequest(c, f, start)
		if !ended && c.Writer.Header().Get("Connection") != "close" {
			// The next bytes of this connection are not the next request.
			panic(http.ErrAbortHandler)
		}
	}()
	c.Next()
}

func (s *Server) bodyLimit(rt *Route) int64 {
	if rt != nil && rt.MaxBody > 0 {
		return rt.MaxBody
	}
	return s.opts.MaxJSON
}

// fallbackShape is the shape of errors on what is no route.
func fallbackShape(path string) Shape {
	if path == "/api" || strings.HasPrefix(path, "/api/") {
		return APIShape()
	}
	return CommonShape()
}

// count updates the metrics of a request that was answered.
func (s *Server) count(c *gin.Context, f *facts, start time.Time) {
	if f.route == nil {
		s.opts.Requests.Other().Answered(c.Writer.Status(), start, false)
		return
	}
	f.route.meter.Answered(c.Writer.Status(), start, f.route.Stream)
}

func (s *Server) logRequest(c *gin.Context, f *facts, start time.Time) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		slog.String("method", printable(c.Request.Method, 32)),
		slog.String("path", printable(c.Request.URL.EscapedPath(), 1024)),
		slog.Int("status", c.Writer.Status()),
		slog.Int("bytes", max(0, c.Writer.Size())),
		slog.Duration("took", time.Since(start)),
	}
	if f.caller.Token != "" {
		attrs = append(attrs, slog.String("token", f.caller.Token))
	}
	if f.exchange != nil && f.exchange.To != "" {
		attrs = append(attrs, slog.String("forwarded_to", f.exchange.To))
	}
	if f.received != nil {
		attrs = append(attrs, slog.String("forwarded_by", f.received.Node))
	}
	s.auditRefused(c, f)
	if p := f.problem; p != nil {
		attrs = append(attrs, slog.String("code", p.Code))
		if p.Err != nil && p.Status >= 500 {
			attrs = append(attrs, slog.String("error", p.Err.Error()))
		}
		if p.Status >= 500 && p.Kind != errs.Canceled {
			level = slog.LevelError
		}
	}
	f.log.LogAttrs(context.WithoutCancel(c.Request.Context()), level, "request", attrs...)
}

func (s *Server) admitHost(c *gin.Context) {
	f := factsOf(c)
	if f.received != nil {
		if f.received.Refused != nil {
			Fail(c, f.received.Refused)
		}
		return // the node that it came to has admitted it
	}
	if f.route != nil && f.route.AnyHost {
		return
	}
	if err := s.checkHost(c.Request); err != nil {
		s.denyError(c, f, err)
		return
	}
	preflight, err := s.checkOrigin(c)
	if err != nil {
		s.denyError(c, f, err)
		return
	}
	if err := s.allowPeer(c.Request); err != nil {
		s.denyError(c, f, err)
		return
	}
	if preflight {
		c.Abort()
		c.Status(http.StatusNoContent)
		c.Writer.WriteHeaderNow()
	}
}

func (s *Server) admitCaller(c *gin.Context) {
	f := factsOf(c)
	if f.route != nil && f.route.AnyHost {
		return
	}
	if f.received != nil {
		f.caller = s.callerOf(f)
	} else {
		// Before the token is checked: a client that guesses tokens is slowed down, and
		// its requests do not count against others.
		if err := s.perIP.check(clientIP(c.Request)); err != nil {
			Fail(c, err)
			return
		}
		if !s.authenticate(c, f) {
			return
		}
	}
	c.Request = c.Request.WithContext(audit.Into(c.Request.Context(), f.log, f.caller.Token))
	if f.route != nil && f.route.Stream {
		s.endInTime(c.Request.Context(), f)
	}
	if f.received != nil {
		return
	}
	if err := s.global.check(""); err != nil {
		Fail(c, err)
	}
}

func (s *Server) checkBody(c *gin.Context) {
	f := factsOf(c)
	if f.route == nil {
		return
	}
	if c.Request.ContentLength > s.bodyLimit(f.route) {
		Fail(c, tooLarge(s.bodyLimit(f.route)))
		return
	}
	if f.route.Body != BodyJSON && f.route.Body != BodyOptionalJSON {
		return
	}
	types := c.Request.Header.Values("Content-Type")
	if len(types) == 0 && f.body == nil && f.route.Body == BodyOptionalJSON {
		return
	}
	if len(types) != 1 || !isJSON(types[0]) {
		Fail(c, &Problem{Status: http.StatusUnsupportedMediaType, Kind: errs.Invalid, Code: "unsupported_media_type",
			Detail: "The body must be JSON, with Content-Type: application/json."})
	}
}

func (s *Server) checkTags(c *gin.Context) {
	f := factsOf(c)
	if f.route == nil || !f.route.Changes {
		return
	}
	for _, h := range []struct {
		name  string
		to    *string
		valid func(string) bool
		want  string
	}{{"X-Task-Id", &f.tags.TaskID, ValidID, idText}, {"X-Subtask-Id", &f.tags.SubtaskID, ValidID, idText},
		{"X-Actor", &f.tags.Actor, ValidActor, "1 to 128 printable characters without < and >"},
		{"X-Message", &f.tags.Message, ValidMessage, messageText}} {
		values := c.Request.Header.Values(h.name)
		if len(values) == 0 {
			continue
		}
		if len(values) > 1 || !h.valid(values[0]) {
			Fail(c, errs.New(errs.Invalid, "bad_tag", "%s must be given once, and be %s.", h.name, h.want).With("field", h.name))
			return
		}
		*h.to = values[0]
	}
	if f.caller.Token != "" {
		f.tags.Actor = f.caller.Token
	}
}

func (s *Server) authorize(c *gin.Context) {
	f := factsOf(c)
	if f.route == nil {
		return
	}
	if f.route.Body != BodyJSON && f.route.Body != BodyOptionalJSON { // else DecodeJSON, which knows the fields
		if err := onlyQuery(c, nil); err != nil {
			Fail(c, err)
			return
		}
	}
	if f.route.Authorize == nil {
		return
	}
	if err := f.route.Authorize(c); err != nil {
		Fail(c, err)
	}
}

// requestID takes the client's id if it is fit, else makes one.
func requestID(r *http.Request) string {
	if ids := r.Header.Values("X-Request-Id"); len(ids) == 1 && printableASCII(ids[0]) {
		return ids[0]
	}
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// printableASCII reports whether s is 1 to 128 printable ASCII characters.
func printableASCII(s string) bool {
	return len(s) >= 1 && len(s) <= 128 && !strings.ContainsFunc(s, func(r rune) bool { return r < 0x20 || r > 0x7e })
}

// corsMethods and corsHeaders are what a page of a listed origin may use.
var (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, If-Match, If-None-Match, Idempotency-Key, Last-Event-ID, Range, X-Request-Id, X-Task-Id, X-Subtask-Id, X-Actor, X-Message, X-File-Mode, Umbra-Min-Seq, Umbra-Direct, Umbra-Redirect, Umbra-Strict, Umbra-Node"
	corsExposed = "ETag, Location, Retry-After, X-Request-Id, Idempotent-Replay, Content-Disposition, Content-Range, Umbra-Total-Lines, Umbra-Next-Offset, Umbra-Seq, Umbra-Owner, Umbra-Stale"
)

// navigation reports whether a browser opens one of our pages, as by a link of
// another site's (Fetch Metadata Request Headers, W3C).
func navigation(r *http.Request) bool {
	if r.Method != http.MethodGet || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
		return false
	}
	p := r.URL.Path
	return p == "/" || p == "/docs" || p == "/ui" || strings.HasPrefix(p, "/ui/")
}

// checkOrigin keeps other sites' pages out, by the origin of a request, else by
// what the browser says of the site that it comes from.
func (s *Server) checkOrigin(c *gin.Context) (preflight bool, err error) {
	r := c.Request
	forbidden := errs.New(errs.Forbidden, "origin_not_allowed", "Pages of this origin may not call the server.")
	c.Writer.Header().Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		if site := r.Header.Get("Sec-Fetch-Site"); (site == "cross-site" || site == "same-site") && !navigation(r) {
			return false, forbidden
		}
		return false, nil
	}
	if len(origins) > 1 {
		return false, forbidden
	}
	if slices.Contains(s.opts.Origins, strings.ToLower(origins[0])) {
		h := c.Writer.Header()
		h.Set("Access-Control-Allow-Origin", origins[0])
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			h.Set("Access-Control-Allow-Methods", corsMethods)
			h.Set("Access-Control-Allow-Headers", corsHeaders)
			h.Set("Access-Control-Max-Age", "600")
			return true, nil
		}
		h.Set("Access-Control-Expose-Headers", corsExposed)
		return false, nil
	}
	if !s.ownOrigin(origins[0], r) {
		return false, forbidden
	}
	return false, nil
}
