package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/errs"
)

// audit says in the log, for who looks after them, that a caller was refused.
func (s *Server) audit(c *gin.Context, f *facts, reason string, cause error) {
	s.opts.Requests.Refused()
	route := "none"
	if f.route != nil {
		route = f.route.Method + " " + f.route.Pattern
	}
	attrs := []slog.Attr{slog.Bool("audit", true), slog.String("token", f.caller.Token), slog.String("route", route),
		slog.String("reason", reason), slog.String("remote", clientIP(c.Request))}
	if cause != nil {
		attrs = append(attrs, slog.String("error", cause.Error()))
	}
	f.log.LogAttrs(context.WithoutCancel(c.Request.Context()), slog.LevelWarn, "denied", attrs...)
}

// deny refuses a caller at the door.
func (s *Server) deny(c *gin.Context, f *facts, reason string, p *Problem) {
	s.audit(c, f, reason, p.Err)
	Fail(c, p)
}

func (s *Server) denyError(c *gin.Context, f *facts, err error) {
	p := problemOf(err, f.shape())
	s.deny(c, f, p.Code, p)
}

// auditRefused logs what an admitted request was refused by its handler: what it
// may not open or do, and what is hidden from it. A list that leaves something out
// is not a refusal.
func (s *Server) auditRefused(c *gin.Context, f *facts) {
	if reason := f.denied.reason.Load(); reason != nil {
		s.audit(c, f, *reason, nil)
	} else if f.problem != nil && f.problem.Status == http.StatusNotFound && f.denied.hidden.Load() {
		s.audit(c, f, "outside_roots", nil)
	}
}

// endInTime ends a request's context when the server begins to stop, and when
// its caller would be let in no more: its token is gone or has expired, or
// tokens were turned on and it has none.
func (s *Server) endInTime(ctx context.Context, f *facts) {
	f.ending.Go(func() {
		for {
			// Before it is asked: what changes between is seen then.
			changed := s.tokens.Changed()
			if !s.letIn(f) {
				f.end(errs.New(errs.Forbidden, "unauthorized", "The token holds no more."))
				return
			}
			expiry := time.NewTimer(untilExpiry(f.token))
			select {
			case <-ctx.Done():
			case <-s.streams.Done():
				f.end(stoppingProblem())
			case <-changed:
			case <-expiry.C:
			}
			expiry.Stop()
			if ctx.Err() != nil {
				return
			}
		}
	})
}

// untilExpiry is when to check again a token that is not removed.
func untilExpiry(t *Token) time.Duration {
	if t == nil || t.Expires.IsZero() {
		return 24 * time.Hour
	}
	return time.Until(t.Expires)
}

// EndInTime makes a request a stream whose route is not one: it ends when the
// server begins to stop, and when its caller loses access.
func EndInTime(c *gin.Context) {
	if f := factsOf(c); f.server != nil {
		f.server.endInTime(c.Request.Context(), f)
	}
}
