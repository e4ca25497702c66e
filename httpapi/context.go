package httpapi

import (
	"context"
	"log/slog"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"
)

// factsKey is the key of a request's facts in gin's context.
const factsKey = "umbra.facts"

// facts is what the middleware learns about one request.
type facts struct {
	route     *Route // nil: no route takes it
	fallback  Shape  // for requests without a route
	requestID string
	server    *Server
	caller    Caller
	denied    denied
	token     *Token                  // the caller's, nil: it has none
	end       context.CancelCauseFunc // ends the request's context
	ending    sync.WaitGroup          // what waits for a reason to do so
	tags      Tags
	idem      *Idempotency
	query     url.Values  // parsed at the first use
	body      *bodyReader // nil: no body
	held      int64       // of the server's budget for bodies, in bytes
	problem   *Problem    // what Fail was called with
	log       *slog.Logger
	stopping  <-chan struct{}
	received  *Received // of a request that another node forwarded
	exchange  *Exchange // nil: the server is no node of a cluster
}

func factsOf(c *gin.Context) *facts {
	if v, ok := c.Get(factsKey); ok {
		return v.(*facts)
	}
	// Only a context that did not come through the server has none.
	f := &facts{fallback: CommonShape(), log: slog.Default()}
	c.Set(factsKey, f)
	return f
}

func (f *facts) shape() Shape {
	if f.route != nil {
		return f.route.shape
	}
	return f.fallback
}

// where names the request's route, in words of which there are only so many.
func (f *facts) where() (method, route string) {
	if f.route == nil {
		return "other", "other"
	}
	return f.route.Method, f.route.Pattern
}

// code is the error that was answered, empty for none.
func (f *facts) code() string {
	if f.problem == nil {
		return ""
	}
	return f.problem.Code
}

func (f *facts) failed(p *Problem) {
	if f.problem == nil {
		f.problem = p
	}
}

// RequestID is the request's id: the client's own if it was fit, else ours.
func RequestID(c *gin.Context) string { return factsOf(c).requestID }

// CallerOf says who calls.
func CallerOf(c *gin.Context) Caller { return factsOf(c).caller }

// TagsOf gives what the request's tagging headers say, on routes that change
// something.
func TagsOf(c *gin.Context) Tags { return factsOf(c).tags }

// IdempotencyOf gives the request's idempotency key, nil where it has none.
func IdempotencyOf(c *gin.Context) *Idempotency { return factsOf(c).idem }

// Stopping is closed when the server begins to stop.
func Stopping(c *gin.Context) <-chan struct{} { return factsOf(c).stopping }

// Tags say for whom a change is made. All are checked; empty means not given.
type Tags struct {
	TaskID, SubtaskID string
	// Actor is the token's name where tokens are on: a caller cannot sign as another.
	Actor string
	// Message says why; empty if none is given.
	Message string
}

// maxMessage is how long an X-Message may be, in characters.
const maxMessage = 1000

// messageText says what ValidMessage takes.
const messageText = "one line of 1 to 1000 printable characters"

// ValidMessage reports whether s may be an X-Message: one line of text.
func ValidMessage(s string) bool {
	if s == "" || !utf8.ValidString(s) || utf8.RuneCountInString(s) > maxMessage {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

var idForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// idText says what ValidID takes.
const idText = `1 to 128 letters, digits, dots, underscores or hyphens, begin with a letter or digit, be without ".." and not end in ".lock"`

// ValidID reports whether s may be the id of a task or subtask. It is part of a
// ref's name, so it keeps git-check-ref-format(1) too.
func ValidID(s string) bool {
	return idForm.MatchString(s) && !strings.Contains(s, "..") && !strings.HasSuffix(s, ".lock")
}

// ValidActor reports whether s may be an actor: 1 to 128 printable characters
// without < and >, which would end a commit's identity.
func ValidActor(s string) bool {
	if !utf8.ValidString(s) || strings.TrimSpace(s) == "" || utf8.RuneCountInString(s) > 128 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r == '<' || r == '>' || !unicode.IsPrint(r) })
}
